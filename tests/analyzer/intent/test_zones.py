# SPDX-License-Identifier: Apache-2.0
import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.controllers.ovsdb import COLUMNS
from analyzer.intent.model import Chassis, Encapsulation
from analyzer.intent.ovn import TABLES
from analyzer.intent.zones import KINDS, MOST_ROWS, Zone, rows_of
from netagent.model.errors import RemoteProtocolError
from netagent.wire.zone import FOLLOWED, NORTHBOUND, PLUGGED, SOUTHBOUND, ZoneRows
from tests.analyzer.intent.rows import a_map, a_set, both, northbound, ref, sent, southbound

NOW = 10**18
REMOTE = {"c2": "192.0.2.2", "c3": "192.0.2.3"}


def zone(north=None, south=None, **options):
    made = Zone("h1")
    made.take(
        both(north or northbound("a", "b"), south or southbound("c1", "a", remote=REMOTE)), NOW
    )
    return made


def test_what_an_agent_sends_is_what_the_follower_of_a_pair_reads():
    """And no condition but the one that the follower's server has."""
    for database, tables in FOLLOWED.items():
        assert tuple(tables) == TABLES[database]
        for table, columns in tables.items():
            needed, also = KINDS[table]
            assert set(columns) == needed.keys() | also.keys()
            assert set(COLUMNS[table].needed) == needed.keys()
            assert also.keys() - {"other_config"} == set(COLUMNS[table].also)
            where = COLUMNS[table].where
            assert PLUGGED.get(table) == (where and [list(each) for each in where])


def test_a_zone_is_an_intent_of_its_host_alone():
    intent = zone().intent
    assert (intent.zone, intent.source, intent.wall_ns, intent.away) == ("h1", "ovn", NOW, {})
    assert sorted(intent.ports) == ["a", "b"]
    assert intent.ports["b"].addresses == ("10.0.0.2",)
    assert intent.placements["a"].chassis == "c1"
    assert intent.placements["a"].is_up
    assert intent.chassis == {
        "c1": Chassis(
            "c1", "c1.example", (Encapsulation("geneve", "192.0.2.1"),), True, 1, 5 * 10**6
        )
    }  # fmt: skip
    assert intent.believed == {"c2": {"192.0.2.2"}, "c3": {"192.0.2.3"}}
    assert intent.hostnames == {"c2": "c2.example", "c3": "c3.example"}
    assert (intent.ladder.asked, intent.ladder.translated) == (1, 1)


def test_what_comes_anew_takes_the_place_of_what_was():
    made = zone()
    first = made.intent
    made.take(both(northbound("b", asked=2), southbound("c1", "b", remote=REMOTE)), NOW + 1)
    assert sorted(made.intent.ports) == sorted(made.intent.placements) == ["b"]
    assert made.intent.ladder.asked == 2
    assert made.intent.believed is first.believed
    assert made.intent.chassis is first.chassis
    made.take(both(northbound("b", asked=2), southbound("c1", "b", remote={"c2": "::1"})), NOW + 2)
    assert made.intent.believed == {"c2": {"::1"}}


def test_what_did_not_change_is_not_sent_again():
    made = zone()
    before = made.intent
    unchanged = {name: ZoneRows(digest=each) for name, each in made.digests.items()}
    made.take(unchanged, NOW + 5)
    assert made.intent.wall_ns == NOW + 5
    assert made.intent.ports is before.ports
    made.take({**unchanged, SOUTHBOUND: ZoneRows(digest="of something else")}, NOW + 6)
    assert list(made.intent.away) == [SOUTHBOUND]
    assert list(made.digests) == [NORTHBOUND]


def test_one_database_that_is_away_keeps_what_was_read_of_it():
    made = zone()
    said = sent({NORTHBOUND: northbound("a")})
    made.take({**said, SOUTHBOUND: ZoneRows(away="it is\ngone" + "x" * 500)}, NOW + 1)
    assert made.intent.away == {SOUTHBOUND: "it is gone" + "x" * 190}
    assert list(made.intent.ports) == ["a"]
    assert list(made.intent.placements) == ["a"]
    made.take(said, NOW + 2)
    assert "does not speak of it" in made.intent.away[SOUTHBOUND]
    made.take(both(northbound("a"), southbound("c1", "a")), NOW + 3)
    assert made.intent.away == {}


def test_one_whose_agent_does_not_answer_is_away_with_both():
    made = zone()
    made.lose("its agent: refused", NOW + 1)
    assert made.intent.away == {NORTHBOUND: "its agent: refused", SOUTHBOUND: "its agent: refused"}
    assert sorted(made.intent.ports) == ["a", "b"]


def test_a_host_that_was_never_read_is_away():
    assert set(Zone("h1").intent.away) == {NORTHBOUND, SOUTHBOUND}


def test_what_a_server_lacks_is_told():
    made, south = Zone("h1"), southbound("c1", "a")
    for row in south["Chassis"]:
        del row["other_config"]
    said = sent({NORTHBOUND: northbound("a"), SOUTHBOUND: south}, lacks=["Chassis.other_config"])
    made.take(said, NOW)
    assert made.intent.away == {}
    assert made.lacks[SOUTHBOUND] == ("Chassis.other_config",)


# --- what no agent sends --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("Port_Binding", "logical_port", 7),
        ("Port_Binding", "logical_port", "x" * 513),
        ("Port_Binding", "logical_port", "a\x1b[2J"),
        ("Port_Binding", "chassis", a_set(ref("a"), ref("b"))),
        ("Port_Binding", "chassis", "c1"),
        ("Port_Binding", "up", 1),
        ("SB_Global", "nb_cfg", -1),
        ("SB_Global", "nb_cfg", 1 << 64),
        ("SB_Global", "nb_cfg", True),
        ("SB_Global", "nb_cfg", "7"),
        ("Chassis_Private", "nb_cfg_timestamp", 1 << 62),
        ("Chassis", "encaps", ["set", 7]),
        ("Chassis", "other_config", {"is-remote": "true"}),
        ("Chassis", "other_config", ["map", [["is-remote"]]]),
        ("Chassis", "hostname", None),
        ("Encap", "_uuid", ["uuid"]),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_database(table, column, value):
    south = southbound("c1", "a")
    south[table][0][column] = value
    made = zone(south=south)
    assert list(made.intent.away) == [SOUTHBOUND]
    assert "cannot be understood" in made.intent.away[SOUTHBOUND]
    assert sorted(made.intent.ports) == ["a", "b"]
    assert SOUTHBOUND not in made.digests


@pytest.mark.parametrize("column", ["logical_port", "chassis", "_uuid"])
def test_a_row_without_what_is_needed_is_refused(column):
    south = southbound("c1", "a")
    del south["Port_Binding"][0][column]
    assert list(zone(south=south).intent.away) == [SOUTHBOUND]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"7", b"null", b'{"SB_Global": 7}', b"[" * 100_000, b"\x78\x9c\x00"]
)
def test_bytes_that_are_no_rows_are_refused(body):
    made = zone()
    made.take({**both(northbound("a"), {}), SOUTHBOUND: ZoneRows(digest="x", rows=body)}, NOW)
    assert list(made.intent.away) == [SOUTHBOUND]


def test_too_many_rows_are_refused():
    north = northbound("a")
    north["NB_Global"] *= MOST_ROWS + 1
    with pytest.raises(RemoteProtocolError, match="too many"):
        rows_of(NORTHBOUND, json.dumps(north).encode())


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("uuid")
    | st.just("set") | st.just("map"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)  # fmt: skip


@given(st.sampled_from(sorted(TABLES[SOUTHBOUND])), st.data())
def test_whatever_a_host_sends_it_is_taken_or_refused_and_can_be_told(table, data):
    south = deepcopy(southbound("c1", "a", remote=REMOTE))
    row = data.draw(st.sampled_from(south[table]))
    row[data.draw(st.sampled_from(sorted(row)))] = data.draw(PLAIN)
    made = zone(south=south)
    assert set(made.intent.away) <= {SOUTHBOUND}
    json.dumps(made.intent.away)


def test_ports_of_other_zones_and_their_chassis_are_not_of_this_one():
    """Their bindings are left out by the server; one that comes all the same is nowhere here."""
    south = southbound("c1", "a", "b", remote=REMOTE)
    south["Port_Binding"][1]["chassis"] = ref("c-c2")
    south["Chassis_Private"].append({"_uuid": ref("p2"), "name": "c2", "nb_cfg": 9})
    intent = zone(south=south).intent
    assert intent.placements["b"].chassis == ""
    assert list(intent.chassis) == ["c1"]
    assert a_map() == ["map", []]
