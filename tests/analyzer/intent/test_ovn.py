# SPDX-License-Identifier: Apache-2.0
"""OVN's rows, followed one by one: the same as read anew, whatever their order."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.intent.changes import Changes, Known
from analyzer.intent.model import MOVES_NS, Allowed, Encapsulation, Port
from analyzer.intent.ovn import (
    MOST_MOVES,
    NORTHBOUND,
    SOURCE,
    SOUTHBOUND,
    TABLES,
    Change,
    Follower,
    flow_of,
    port_of,
)
from tests.oracles.intent import naive, watched

SECOND = 10**9
BOTH = (NORTHBOUND, SOUTHBOUND)


# --- rows that refer to each other, in any order ------------------------------------------------

NAMES = {
    "Logical_Switch": "sw",
    "Logical_Switch_Port": "lp",
    "Chassis": "ch",
    "Chassis_Private": "cp",
    "Encap": "en",
    "Port_Binding": "pb",
}
NUMBERS = st.integers(0, 2)
"""Few, so that most of what happens concerns what is there."""


def some(table):
    return NUMBERS.map(lambda number: f"{NAMES[table]}{number}")


def many(table):
    return st.frozensets(some(table), max_size=4)


WISHES = st.lists(st.sampled_from(("h0", "h1", "h2", "node0", "node1", "gone")), max_size=2)
ROWS = {
    "Logical_Switch": st.fixed_dictionaries(
        {"name": st.sampled_from("ab"), "ports": many("Logical_Switch_Port")}
    ),
    "Logical_Switch_Port": st.fixed_dictionaries(
        {
            "name": NUMBERS.map("p{}".format),
            "type": st.sampled_from(("", "", "router")),
            "options": WISHES.map(lambda wishes: {"requested-chassis": ",".join(wishes)}),
        }
    ),
    "Chassis": st.fixed_dictionaries(
        {
            "name": st.sampled_from(("h0", "h1", "h2", "node1")),
            "hostname": st.sampled_from(("node0", "node1")),
            "encaps": many("Encap"),
        }
    ),
    "Chassis_Private": st.fixed_dictionaries(
        {
            "name": st.sampled_from(("h0", "h1", "h2", "node1")),
            "nb_cfg": st.integers(1, 3),
            "nb_cfg_timestamp": st.just(7),
        }
    ),
    "Encap": st.fixed_dictionaries(
        {"type": st.just("geneve"), "ip": st.sampled_from(("10.0.0.1", "10.0.0.2"))}
    ),
    "Port_Binding": st.fixed_dictionaries(
        {
            "logical_port": NUMBERS.map("p{}".format),
            "type": st.sampled_from(("", "", "patch")),
            "chassis": st.none() | some("Chassis"),
            "encap": st.none() | some("Encap"),
            "up": st.booleans(),
        }
    ),
}
UNIQUE = {
    "Logical_Switch_Port": "name", "Chassis": "name", "Chassis_Private": "name",
    "Port_Binding": "logical_port",
}  # fmt: skip
"""Columns in which no two rows of a table are alike, as OVN's schemas have it."""

CHANGES = st.sampled_from(sorted(ROWS)).flatmap(
    lambda table: st.builds(
        Change, st.just(table), some(table), st.one_of(ROWS[table], ROWS[table], st.none())
    )
)
BATCHES = st.lists(
    st.tuples(st.integers(0, 40), st.lists(CHANGES, min_size=2, max_size=6)),
    min_size=4, max_size=12,
)  # fmt: skip


def valid(tables, changes):
    """Return what a server would commit of `changes`, once per row, and note it in `tables`."""
    batch = {}
    for change in changes:
        table, row = tables[change.table], change.row
        if row is not None:
            column = UNIQUE.get(change.table)
            others = [each for uuid, each in table.items() if uuid != change.uuid]
            if column and row[column] in {each[column] for each in others}:
                continue
            if change.table == "Logical_Switch":  # a port is of one switch
                taken = frozenset().union(*(each["ports"] for each in others))
                row = {**row, "ports": row["ports"] - taken}
            if change.table == "Chassis":
                taken = frozenset().union(*(each["encaps"] for each in others))
                row = {**row, "encaps": row["encaps"] - taken}
            table[change.uuid] = row
        elif table.pop(change.uuid, None) is None:
            continue
        batch[change.table, change.uuid] = Change(change.table, change.uuid, row)
    return list(batch.values())


def plain(intent):
    """Return of an intent what `naive` says."""
    return {
        "ports": {
            name: {"network": p.network, "hosts": list(p.hosts)} for name, p in intent.ports.items()
        },
        "placements": {
            name: {"chassis": p.chassis, "encapsulation": p.encapsulation, "is_up": p.is_up}
            for name, p in intent.placements.items()
        },
        "chassis": {
            name: {
                "hostname": c.hostname,
                "encapsulations": [(e.kind, e.address) for e in c.encapsulations],
                "installed": c.installed,
            }
            for name, c in intent.chassis.items()
        },
    }  # fmt: skip


@given(BATCHES, st.integers(1, 9), st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_what_is_followed_is_what_reading_all_of_it_anew_gives(batches, most, random):
    """Also put together of changes, a few at a time, however a transaction's rows are ordered.

    Places are watched: since when, and how often they changed.
    """
    tables = {table: {} for table in ROWS}
    follower, known, now_ns = Follower(), Known(SOURCE, {}), 1_000 * SECOND
    unread = list(BOTH)
    seen = {f"p{number}": [(0, None)] for number in range(3)}
    for wait_s, changes in batches:
        now_ns += wait_s * SECOND
        batch = valid(tables, changes)
        random.shuffle(batch)
        follower.take(batch, now_ns)
        told, intent = naive(tables), follower.intent(now_ns)
        assert plain(intent) == told
        for port, places in seen.items():
            places.append((now_ns, told["placements"].get(port, {}).get("chassis")))
        for port, placement in intent.placements.items():
            assert (placement.since_ns, placement.moves) == watched(seen[port], now_ns, MOVES_NS)
        if random.random() < 0.3 and unread:
            follower.here(unread.pop())
            known.take(Changes(SOURCE, 0, {"p9": Port("p9")}))  # of who said it before
        if random.random() < 0.5:
            tell(follower, known, now_ns, most)
    for database in unread:
        follower.here(database)
    tell(follower, known, now_ns, most)
    assert replace(known.intent(), wall_ns=now_ns) == follower.intent(now_ns)
    assert not follower.has_news


def tell(follower, known, now_ns, most):
    whole = not follower.has_news
    while follower.has_news:
        whole = known.take(follower.changes(now_ns, most))
    assert whole


@given(BATCHES)
def test_rows_that_are_known_are_those_that_are_there(batches):
    """By these a reader finds what vanished while it was cut off."""
    tables = {table: {} for table in ROWS}
    follower = Follower()
    for _, changes in batches:
        follower.take(valid(tables, changes), 0)
    for table, rows in tables.items():
        wanted = {uuid for uuid, row in rows.items() if not row.get("type") or table == "Encap"}
        assert set(follower.uuids(table)) == wanted, table


def test_a_change_costs_what_refers_to_it():
    """A row of 10,000 ports makes one of them news, and a chassis those that it is asked for."""
    follower = Follower()
    rows = [
        port(f"p{number}", number, requested="h1" if number == 7 else "")
        for number in range(10_000)
    ]
    uuids = frozenset(each.uuid for each in rows)
    follower.take([*rows, Change("Logical_Switch", "s", {"name": "net", "ports": uuids})], 0)
    follower.here(NORTHBOUND)
    assert len(follower.changes(0, 20_000).ports) == 10_000
    follower.take([port("p5", 5, addresses=("02:00:00:00:00:01 10.0.0.1",))], 1)
    assert set(follower.changes(1, 100).ports) == {"p5"}
    follower.take([port("p5", 5, addresses=("02:00:00:00:00:01 10.0.0.1",))], 2)
    assert not follower.has_news
    follower.take([chassis("c", "system-1", "h1")], 3)
    assert set(follower.changes(3, 100).ports) == {"p7"}
    follower.take([Change("Logical_Switch", "s", {"name": "net", "ports": uuids - {"u9"}})], 4)
    assert follower.changes(4, 100).ports["p9"].network == ""
    follower.take([Change("Logical_Switch", "s", {"name": "other", "ports": uuids - {"u9"}})], 5)
    told = follower.changes(5, 20_000).ports
    assert len(told) == 9_999
    assert {each.network for each in told.values()} == {"other"}


def test_a_name_that_goes_from_one_row_to_another_is_whose_it_is_now():
    """In whichever order the rows of that transaction come: of a chassis its host's name, too."""
    for first in (True, False):
        follower = Follower()
        follower.take([port("p", requested="node"), chassis("c1", "h1", "node")], 0)
        batch = [
            Change("Chassis", "c1", None),
            chassis("c2", "h1", "node"),
            Change("Logical_Switch_Port", "u0", None),
            port("p", 1, requested="node"),
        ]
        follower.take(batch if first else batch[::-1], 1)
        told = follower.intent(1)
        assert told.ports["p"].hosts == ("h1",)
        assert (told.ports["p"].owner, set(told.chassis)) == ("Logical_Switch_Port u1", {"h1"})


def test_two_rows_may_exchange_their_names():
    follower = Follower()
    follower.take([port("a", 0), port("b", 1)], 0)
    follower.take([port("b", 0), port("a", 1)], 1)
    owners = {name: each.owner[-2:] for name, each in follower.intent(1).ports.items()}
    assert owners == {"a": "u1", "b": "u0"}


# --- places over time ---------------------------------------------------------------------------


def port(name, number=0, requested="", **columns):
    row = {"name": name, "type": "", "options": {"requested-chassis": requested}, **columns}
    return Change("Logical_Switch_Port", f"u{number}", row)


def chassis(uuid, name, hostname="", encaps=()):
    return Change(
        "Chassis", uuid, {"name": name, "hostname": hostname, "encaps": frozenset(encaps)}
    )


def bound(uuid, to, *, up=True):
    row = {"logical_port": "p", "type": "", "chassis": to, "encap": None, "up": up}
    return Change("Port_Binding", uuid, row)


def two_chassis():
    follower = Follower()
    follower.take([chassis("c1", "h1"), chassis("c2", "h2"), bound("b", "c1")], SECOND)
    return follower


def place(follower, now_ns):
    return follower.intent(now_ns).placements["p"]


def test_a_fight_over_a_port_is_counted_and_forgotten():
    follower = two_chassis()
    for number in range(10):
        follower.take([bound("b", "c2" if number % 2 == 0 else "c1")], (10 + number) * SECOND)
    assert (place(follower, 0).moves, place(follower, 0).since_ns) == (10, 19 * SECOND)
    drain(follower)
    follower.step(12 * SECOND + MOVES_NS)
    assert follower.changes(0, 9).placements["p"].moves == 7
    follower.step(19 * SECOND + MOVES_NS)
    assert follower.changes(0, 9).placements["p"].moves == 0
    follower.step(99 * SECOND + MOVES_NS)
    assert not follower.has_news
    for number in range(2 * MOST_MOVES):
        follower.take([bound("b", "c2" if number % 2 == 0 else "c1")], 200 * SECOND + number)
    assert place(follower, 0).moves == MOST_MOVES


def test_a_chassis_that_comes_back_is_no_move_and_one_after_a_pause_is():
    follower = two_chassis()
    follower.take([bound("b", None, up=False)], 2 * SECOND)
    assert (place(follower, 0).chassis, place(follower, 0).since_ns) == ("", 2 * SECOND)
    follower.take([bound("b", "c1")], 3 * SECOND)
    assert (place(follower, 0).moves, place(follower, 0).since_ns) == (0, 3 * SECOND)
    follower.take([bound("b", None, up=False)], 4 * SECOND)
    follower.take([bound("b", "c2")], 5 * SECOND)
    assert place(follower, 0).moves == 1


def test_a_clock_that_is_set_back_leaves_no_move_to_come():
    follower = two_chassis()
    follower.take([bound("b", "c2")], 1_000 * SECOND)
    follower.step(500 * SECOND)
    assert place(follower, 0).moves == 0


def test_a_binding_that_another_row_replaces_in_one_transaction_keeps_its_history():
    for batch in ([bound("b", None), bound("new", "c2")], [bound("new", "c2"), bound("b", None)]):
        follower = two_chassis()
        gone = [Change("Port_Binding", "b", None) if each.uuid == "b" else each for each in batch]
        follower.take(gone, 2 * SECOND)
        assert (place(follower, 0).chassis, place(follower, 0).moves) == ("h2", 1)
        follower.take([Change("Port_Binding", "new", None)], 3 * SECOND)
        assert not follower.intent(0).placements
        follower.step(4 * SECOND)


def test_a_chassis_older_than_the_column_up_is_taken_as_northd_takes_it():
    follower = two_chassis()
    follower.take([bound("b", "c1", up=None)], 2)
    assert place(follower, 0).is_up
    follower.take([bound("b", None, up=None)], 3)
    assert not place(follower, 0).is_up


def test_a_chassis_without_a_row_of_its_own_instance_is_not_registered():
    follower = Follower()
    follower.take([chassis("c1", "ghost"), chassis("c2", "h2")], 0)
    private = {"name": "h2", "nb_cfg": 0, "nb_cfg_timestamp": 0}
    follower.take([Change("Chassis_Private", "p2", private)], 0)
    told = follower.intent(0).chassis
    assert (told["ghost"].is_registered, told["ghost"].installed) == (False, None)
    assert (told["h2"].is_registered, told["h2"].installed) == (True, None)
    private = {"name": "h2", "nb_cfg": 3, "nb_cfg_timestamp": 5_000}
    follower.take([Change("Chassis_Private", "p2", private)], 0)
    told = follower.intent(0).chassis["h2"]
    assert (told.installed, told.installed_ns) == (3, 5 * SECOND)


def test_encapsulations_follow_their_rows():
    follower = Follower()
    follower.take([chassis("c1", "h1", encaps=("e",))], 0)
    assert follower.intent(0).chassis["h1"].encapsulations == ()
    drain(follower)
    follower.take([Change("Encap", "e", {"type": "geneve", "ip": "10.0.0.1"})], 0)
    told = follower.changes(0, 9).chassis["h1"]
    assert told.encapsulations == (Encapsulation("geneve", "10.0.0.1"),)


def test_the_ladder_says_since_when_its_generation_is_asked():
    follower = Follower()
    assert follower.intent(0).ladder.asked is None
    follower.take([Change("NB_Global", "n", {"nb_cfg": 4})], 10)
    follower.take([Change("SB_Global", "s", {"nb_cfg": 3})], 20)
    ladder = follower.changes(20, 1).ladder
    assert (ladder.asked, ladder.translated, ladder.asked_ns) == (4, 3, 10)
    follower.take([Change("NB_Global", "n", {"nb_cfg": 5})], 30)
    assert follower.has_news
    assert follower.intent(0).ladder.asked_ns == 30
    follower.take([Change("NB_Global", "n", None)], 40)
    assert follower.intent(0).ladder.asked is None


# --- databases that are away --------------------------------------------------------------------


def drain(follower):
    for database in BOTH:
        follower.here(database)
    while follower.has_news:
        follower.changes(0, 1_000)


def test_what_is_not_read_is_away_and_what_was_read_last_stays():
    follower, known = Follower(), Known(SOURCE, {"northbound": "?"})
    assert set(follower.changes(0, 9).away) == set(BOTH)
    follower.take([port("p")], 1)
    follower.here(NORTHBOUND)
    told = follower.changes(1, 9)
    assert (set(told.away), told.afresh) == ({SOUTHBOUND}, ("ports",))
    assert known.take(told)
    follower.lose(NORTHBOUND, "refused")
    told = follower.changes(2, 9)
    assert told.away[NORTHBOUND] == "refused"
    assert known.take(told)
    assert set(known.intent().ports) == {"p"}
    follower.lose(NORTHBOUND, "refused")
    assert not follower.has_news
    follower.here(NORTHBOUND)
    told = follower.changes(3, 9)
    assert (told.afresh, NORTHBOUND in told.away) == ((), False)


def test_every_table_of_either_database_is_taken():
    follower = Follower()
    for tables in TABLES.values():
        for table in tables:
            follower.take([Change(table, "u", None)], 0)
            assert set(follower.uuids(table)) == set()


# --- what a row says by itself ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "macs", "addresses"),
    [
        ({}, (), ()),
        ({"addresses": ("unknown",)}, (), ()),
        (
            {"addresses": ("02:00:00:00:00:0A 10.0.0.1 fd00::0001",)},
            ("02:00:00:00:00:0a",), ("10.0.0.1", "fd00::1"),
        ),
        ({"addresses": ("02:00:00:00:00:01", "unknown")}, ("02:00:00:00:00:01",), ()),
        (
            {"addresses": ("02:00:00:00:00:02 10.0.0.2", "02:00:00:00:00:01 10.0.0.1")},
            ("02:00:00:00:00:01", "02:00:00:00:00:02"), ("10.0.0.1", "10.0.0.2"),
        ),
        (
            {"addresses": ("dynamic",), "dynamic_addresses": "0a:00:00:00:00:01 10.0.0.9"},
            ("0a:00:00:00:00:01",), ("10.0.0.9",),
        ),
        ({"addresses": ("dynamic",), "dynamic_addresses": None}, (), ()),
        (
            {
                "addresses": ("02:00:00:00:00:01 dynamic",),
                "dynamic_addresses": "02:00:00:00:00:01 10.0.0.9",
            },
            ("02:00:00:00:00:01",), ("10.0.0.9",),
        ),
    ],
)  # fmt: skip
def test_addresses_are_read_as_ovn_writes_them(columns, macs, addresses):
    made = port_of("u", {"name": "p", **columns})
    assert (made.macs, made.addresses) == (macs, addresses)


def test_port_security_is_read_as_ovn_writes_it():
    said = (
        "02:00:00:00:00:02 10.0.0.2 10.0.1.0/24 fe80::1",
        "02:00:00:00:00:01",
        "VRRPv3;00:00:5e:00:01:05",
        "",
    )
    assert port_of("u", {"name": "p", "port_security": said}).allowed == (
        Allowed("02:00:00:00:00:01"),
        Allowed("02:00:00:00:00:02", ("10.0.0.2", "10.0.1.0/24", "fe80::1")),
    )


@pytest.mark.parametrize(
    ("name", "ids", "pod", "container"),
    [
        ("p3-0", {"rail": "0"}, "", "p3-0"),
        ("train_worker-1", {"pod": "true", "namespace": "train"}, "train/worker-1", ""),
        (
            "rdma.rail0_train_worker-1",
            {"pod": "true", "namespace": "train", "k8s.ovn.org/nad": "rdma/rail0"},
            "train/worker-1", "",
        ),
        (
            "worker-1.train.rail0.rdma.ovn",
            {"pod": "train/worker-1", "ls": "rail0", "vendor": "kube-ovn"},
            "train/worker-1", "train.worker-1",
        ),
        (
            "0d6a0a2e-0000-0000-0000-000000000001",
            {"neutron:device_id": "vm-7", "neutron:device_owner": "compute:nova"},
            "", "vm-7",
        ),
    ],
)  # fmt: skip
def test_who_has_a_port_is_read_as_each_controller_writes_it(name, ids, pod, container):
    made = port_of("u", {"name": name, "external_ids": ids})
    assert (made.pod, made.container, made.owner) == (pod, container, "Logical_Switch_Port u")


def test_what_has_no_interface_of_its_own_is_no_port():
    assert port_of("u", {"name": "lr", "type": "router"}) is None
    assert port_of("u", {"name": "sub", "type": "", "parent_name": "trunk"}) is None
    follower = Follower()
    row = {"logical_port": "sub", "type": "", "parent_port": "trunk", "chassis": None}
    follower.take([Change("Port_Binding", "b", row)], 0)
    assert not follower.intent(0).placements


def test_only_a_port_that_is_said_to_be_disabled_is():
    for said, is_enabled in ((None, True), (True, True), (False, False)):
        assert port_of("u", {"name": "p", "enabled": said}).is_enabled is is_enabled


def test_a_logical_flow_says_where_it_comes_from():
    ids = {"stage-name": "ls_in_l2_lkup", "stage-hint": "af7ee434", "source": "northd.c:9122"}
    row = {
        "pipeline": "ingress", "table_id": 25, "priority": 50, "match": "eth.dst == 02:...",
        "actions": "output;", "external_ids": ids,
    }  # fmt: skip
    flow = flow_of("50565e85-0000", row)
    assert (flow.stage, flow.hint, flow.source) == ("ls_in_l2_lkup", "af7ee434", "northd.c:9122")
    assert (flow.table, flow.priority, flow.pipeline) == (25, 50, "ingress")
    assert flow_of("u", {}).stage == ""
