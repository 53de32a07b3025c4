# SPDX-License-Identifier: Apache-2.0
"""Tables kept from dump to dump are what reading the last one anew gives."""

from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.kept import KeptTables
from ovs_checks.openflow.parse import parse_dump, parse_header
from ovs_checks.switch.snapshot import Bridge
from tests.ovs_checks.pipelines import packets, pipelines

PORTS = {"p1": 1}


COUNTERS = st.integers(0, 1 << 40)


@st.composite
def dumps(draw):
    """Draw dumps in a row, as ovs-ofctl prints them: flows come, go, change places, count on."""
    every = [*draw(pipelines()), *draw(pipelines())]
    found = []
    for _ in range(draw(st.integers(2, 4))):
        left = draw(st.sampled_from([every, every[::2], every[1:], every[::-1]]))
        packets, age = draw(COUNTERS), draw(COUNTERS)
        counted = f" duration={age}.5s, n_packets={packets}, n_bytes=6, idle_age={age}, "
        found.append("\n".join(["NXST_FLOW reply (xid=0x4):", *(counted + one for one in left)]))
    return found


@given(dumps(), st.lists(packets, min_size=3, max_size=3))
def test_what_is_kept_is_what_is_read(found, sent):
    kept = KeptTables(PORTS)
    for text in found:
        dump, anew = kept.take(text), parse_dump(text, PORTS, source="flows")
        assert dump.flows == anew.flows
        assert [str(one) for one in dump.problems] == [str(one) for one in anew.problems]
        told = [[(flow.text, flow.line) for flow in one.flows] for one in (dump, anew)]
        assert told[0] == told[1]
        tables = (kept.tables, Bridge("b", anew.flows).tables)
        assert sorted(tables[0]) == sorted(tables[1])
        for number in tables[0]:
            for packet in sent:
                results = [one[number].look_up(parse_header(packet)) for one in tables]
                assert results[0] == results[1]


FLOW = "duration=%d.1s, table=%d, n_packets=%d, n_bytes=0, idle_age=3, priority=%d actions=%d"


def test_only_what_changed_is_read_and_only_its_table_indexed():
    kept = KeptTables()
    kept.take("\n".join([FLOW % (1, 0, 5, 9, 1), FLOW % (1, 1, 5, 9, 1), FLOW % (1, 1, 5, 8, 1)]))
    before = kept.tables
    assert kept.read_anew == 3
    dump = kept.take("\n".join([FLOW % (2, 0, 6, 9, 1), FLOW % (2, 1, 7, 9, 1)]))
    assert (kept.read_anew, kept.tables[0] is before[0], kept.tables[1] is before[1]) == (
        0,
        True,
        False,
    )
    assert [flow.n_packets for flow in dump.flows] == [6, 7]
    kept.take(FLOW % (3, 0, 6, 9, 2))
    assert (kept.read_anew, list(kept.tables)) == (1, [0])


def test_a_flow_not_understood_is_read_again():
    kept = KeptTables()
    for digits in ("5", "5000"):
        line = f"n_packets={digits}, priority=5,quux=1 actions=drop"
        assert kept.take(line).flows == parse_dump(line).flows
