# SPDX-License-Identifier: Apache-2.0
"""A database is followed wherever it can be read; real servers, with OVN's schemas."""

import json
import socket
import time

import ovs.poller
import ovs.timeval
import pytest

from analyzer.controllers import ovsdb
from analyzer.controllers.ovsdb import COLUMNS, SCHEMAS, Database, schema_of
from analyzer.intent.ovn import NORTHBOUND, SOUTHBOUND, TABLES, Follower
from tests.analyzer.controllers.central import (
    NB,
    OVSDB,
    SB,
    Central,
    Cluster,
    insert,
    named,
    update,
)
from tests.analyzer.controllers.central import (
    SCHEMAS as FOLDER,
)
from tests.conftest import require
from tests.waiting import WITHIN_S, wait_until

BACK_S = 30.0
"""Seconds within which a server that is back has to be read again."""


class Following:
    """A database that is followed into a `Follower`."""

    def __init__(self, name, *remotes):
        self.follower, self.database = Follower(), Database(name, remotes)

    def turn(self, rest_s=0.01):
        database = self.database
        for batch in database.run(self.follower.uuids):
            self.follower.take(batch, time.time_ns())
        if database.why is None:
            self.follower.here(database.name)
        else:
            self.follower.lose(database.name, database.why)
        poller = ovs.poller.Poller()
        database.wait(poller)
        poller.timer_wait(1000 * rest_s)
        poller.block()

    def until(self, condition, what="it", within_s=WITHIN_S):
        return wait_until(condition, what, within_s, rest=self.turn)

    @property
    def ports(self):
        return self.follower.intent(0).ports

    @property
    def is_read(self):
        return self.database.why is None


@pytest.fixture
def central(tmp_path):
    require(OVSDB)
    made = Central(tmp_path / "one", "ptcp:0:127.0.0.1")
    made.start()
    made.transact(NB, insert("NB_Global", nb_cfg=3))
    yield made
    made.kill()


@pytest.fixture
def follow(central):
    made = []

    def _follow(name=NORTHBOUND, *remotes):
        made.append(Following(name, *(remotes or (central.remote,))))
        return made[-1]

    yield _follow
    for each in made:
        each.database.close()


def network(*names, **port):
    """Return operations that make a network of ports."""
    made = [
        insert("Logical_Switch_Port", f"p{n}", name=name, **port) for n, name in enumerate(names)
    ]
    references = tuple(named(f"p{n}") for n in range(len(names)))
    return [*made, insert("Logical_Switch", name="net", ports=references)]


def test_rows_are_followed_as_they_come_change_and_go(central, follow):
    central.transact(NB, *network("p1", "p2", addresses=("02:00:00:00:00:01 10.0.0.1", "unknown")))
    central.transact(NB, *network("router", type="router"))
    it = follow()
    it.until(lambda: it.is_read)
    assert set(it.ports) == {"p1", "p2"}
    port = it.ports["p1"]
    assert (port.network, port.macs, port.addresses) == (
        "net",
        ("02:00:00:00:00:01",),
        ("10.0.0.1",),
    )
    assert it.follower.intent(0).ladder.asked == 3
    assert it.database.remote == central.remote
    central.transact(NB, update("Logical_Switch_Port", ["name", "==", "p1"], enabled=False))
    it.until(lambda: not it.ports["p1"].is_enabled)
    options = {"requested-chassis": "h1,h2"}
    central.transact(NB, update("Logical_Switch_Port", ["name", "==", "p2"], options=options))
    it.until(lambda: it.ports["p2"].hosts == ("h1", "h2"))
    central.transact(NB, update("Logical_Switch", ["name", "==", "net"], ports=()))
    it.until(lambda: not it.ports)


def test_bindings_refer_to_what_is_read_of_other_tables(central, follow):
    central.transact(
        SB,
        insert("SB_Global", nb_cfg=2),
        insert("Datapath_Binding", "d", tunnel_key=1),
        insert("Encap", "e", type="geneve", ip="10.1.0.1", chassis_name="h1"),
        insert("Chassis", "c", name="h1", hostname="node-1", encaps=named("e")),
        insert("Chassis_Private", name="h1", chassis=named("c"), nb_cfg=2, nb_cfg_timestamp=5),
        insert("Port_Binding", logical_port="p1", datapath=named("d"), tunnel_key=1,
               chassis=named("c"), encap=named("e"), up=True),
        insert("Port_Binding", logical_port="p2", datapath=named("d"), tunnel_key=2),
        insert("Port_Binding", logical_port="lr", datapath=named("d"), tunnel_key=3, type="patch"),
    )  # fmt: skip
    it = follow(SOUTHBOUND)
    it.until(lambda: it.is_read)
    told = it.follower.intent(0)
    assert set(told.placements) == {"p1", "p2"}
    placed = told.placements["p1"]
    assert (placed.chassis, placed.encapsulation, placed.is_up) == ("h1", "10.1.0.1", True)
    assert (told.placements["p2"].chassis, told.placements["p2"].is_up) == ("", False)
    assert (told.chassis["h1"].installed, told.chassis["h1"].installed_ns) == (2, 5_000_000)
    assert told.ladder.translated == 2
    central.transact(SB, {"op": "delete", "table": "Chassis", "where": []})
    it.until(lambda: it.follower.intent(0).placements["p1"].chassis == "")
    assert it.follower.intent(0).placements["p1"].is_up  # as it is written: nobody took it back


def test_what_went_while_a_server_was_away_is_noticed_and_nothing_moved(central, follow):
    central.transact(NB, *network("p1", "p2"))
    it = follow()
    it.until(lambda: it.is_read)
    central.kill()
    it.until(lambda: not it.is_read)
    assert it.follower.intent(0).away[NORTHBOUND].startswith(f"{central.remote}: ")
    assert set(it.ports) == {"p1", "p2"}  # as read last
    offline = Central.transact
    central.start()
    offline(central, NB, update("Logical_Switch", ["name", "==", "net"], ports=()))
    offline(central, NB, *network("p3"))
    took_s = it.until(lambda: it.is_read, "being read again")
    assert took_s < BACK_S
    assert set(it.ports) == {"p3"}
    assert it.follower.intent(0).away == {SOUTHBOUND: "it was not read so far"}


def test_another_member_is_read_where_one_dies(central, follow, tmp_path):
    second = Central(tmp_path / "two")
    second.start()
    try:
        for each in (central, second):
            each.transact(NB, *network("p1"))
        it = follow(NORTHBOUND, central.remote, second.remote)
        it.until(lambda: it.is_read)
        dies, stays = (
            (central, second) if it.database.remote == central.remote else (second, central)
        )
        dies.kill()
        it.until(lambda: not it.is_read)
        took_s = it.until(lambda: it.is_read)
        assert took_s < BACK_S
        assert it.database.remote == stays.remote
    finally:
        second.kill()


@pytest.fixture
def cluster(tmp_path):
    require(OVSDB)
    made = Cluster(tmp_path)
    yield made
    for number in made.members:
        made.kill(number)


def test_whichever_member_of_a_cluster_dies_another_one_goes_on_where_it_was(cluster):
    it = Following(SOUTHBOUND, *cluster.remotes)
    try:
        it.until(lambda: it.is_read, "the cluster")
        replica = it.database._idl
        dies = cluster.remotes.index(it.database.remote)
        cluster.kill(dies)
        it.until(lambda: not it.is_read)
        assert it.until(lambda: it.is_read, "another member", 30.0) < BACK_S
        assert it.database.remote != cluster.remotes[dies]
        assert it.database._idl is replica  # it was told what it missed
        # One of three that is left alone serves nobody.
        cluster.kill(cluster.remotes.index(it.database.remote))
        it.until(lambda: not it.is_read)
        it.until(lambda: "cut off from its cluster" in (it.database.why or ""), within_s=30.0)
    finally:
        it.database.close()


def test_columns_that_a_server_lacks_are_said_and_end_nothing(tmp_path):
    require(OVSDB)
    lacking = {"Logical_Switch_Port": ["enabled", "parent_name"], "Port_Binding": ["up"]}
    older = Central(tmp_path / "older", lacking=lacking)
    older.start()
    it = Following(NORTHBOUND, older.remote)
    try:
        older.transact(NB, *network("p1"))
        it.until(lambda: it.is_read)
        lacks = ("Logical_Switch_Port.enabled", "Logical_Switch_Port.parent_name")
        assert it.database.lacks == lacks
        assert it.ports["p1"].is_enabled
        # A newer server takes its place: its schema is read anew.
        older.kill()
        it.until(lambda: not it.is_read)
        for name in ("nb.db", "nb.db.~lock~"):
            (tmp_path / "older" / name).unlink(missing_ok=True)
        newer = Central(tmp_path / "newer")
        (tmp_path / "newer" / "nb.db").rename(tmp_path / "older" / "nb.db")
        older.start()
        it.until(lambda: it.is_read and not it.database.lacks, within_s=WITHIN_S)
        assert not it.ports
        assert newer.folder.exists()
    finally:
        it.database.close()
        older.kill()


def test_a_server_of_something_else_is_said_to_be_one(tmp_path):
    require(OVSDB)
    other = Central(tmp_path, lacking={"Logical_Switch": ["ports"]})
    other.start()
    it = Following(NORTHBOUND, other.remote)
    try:
        it.until(lambda: "Logical_Switch.ports" in (it.database.why or ""))
    finally:
        it.database.close()
        other.kill()


def test_a_server_without_the_database_says_so(central, follow, monkeypatch):
    monkeypatch.setitem(SCHEMAS, NORTHBOUND, "OVN_Somewhere")
    it = follow()
    it.until(lambda: "no database OVN_Somewhere" in (it.database.why or ""))


def test_nobody_there_says_why(follow, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    it = follow(NORTHBOUND, f"tcp:127.0.0.1:{port}")
    it.until(lambda: "refused" in (it.database.why or ""))
    assert it.database.remote == ""
    it = follow(NORTHBOUND, f"unix:{tmp_path / 'nowhere'}")
    it.until(lambda: "no such file" in (it.database.why or ""))


def test_a_server_that_says_nonsense_is_left_and_tried_again(central, follow, monkeypatch):
    """Here one that says a row's number as a text."""
    it = follow()
    it.until(lambda: it.is_read)
    monkeypatch.setattr(it.database._idl, "run", lambda: int("nonsense"))
    it.until(lambda: "understood" in (it.database.why or ""))
    it.until(lambda: it.is_read)
    assert it.follower.intent(0).ladder.asked == 3


def test_a_server_that_answers_nothing_is_left(central, follow, monkeypatch):
    monkeypatch.setattr(ovsdb, "STUCK_MS", 100)
    it = follow()
    it.until(lambda: it.is_read)
    monkeypatch.setattr(it.database, "_seqno", 0)
    monkeypatch.setattr(it.database._idl, "state", "as if it had not answered")
    it.until(lambda: "does not answer" in (it.database.why or ""))
    it.until(lambda: it.is_read)


def test_what_is_asked_of_a_server_changes_nothing(follow, monkeypatch):
    """Every method that is sent, over a connection that is lost once."""
    sent = set()
    send = ovs.jsonrpc.Connection.send

    def noting(self, message):
        sent.add(message.method)
        return send(self, message)

    monkeypatch.setattr(ovs.jsonrpc.Connection, "send", noting)
    it = follow()
    it.until(lambda: it.is_read)
    it.database._idl.force_reconnect()
    it.turn()
    it.until(lambda: it.is_read)
    assert sent - {None} == {
        "get_schema",
        "monitor_cond",
        "monitor_cond_since",
        "set_db_change_aware",
    }


def test_every_column_is_one_of_ovn(central):
    """By the schemas that are installed, of whichever version: what some lack is not needed."""
    for database, file in ((NORTHBOUND, "nb"), (SOUTHBOUND, "sb")):
        schema, lacks = schema_of(
            database, json.loads((FOLDER / f"ovn-{file}.ovsschema").read_text())
        )
        assert set(schema["tables"]) == set(TABLES[database])
        assert set(lacks) <= {f"{t}.{c}" for t in TABLES[database] for c in COLUMNS[t].also}
