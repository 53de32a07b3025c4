# SPDX-License-Identifier: Apache-2.0
"""Dumps under dumps/ were printed by Open vSwitch 3.1.0."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.actions import Plain, Resubmit, ToPort, Unknown, Write
from ovs_checks.openflow.fields import FIELDS
from ovs_checks.openflow.flow import Term
from ovs_checks.openflow.notation import encode
from ovs_checks.openflow.packet import Header
from ovs_checks.openflow.parse import (
    MalformedLine,
    parse_dump,
    parse_flow,
    parse_header,
    parse_packet,
)
from ovs_checks.switch.shows import parse_fdb
from ovs_checks.switch.snapshot import FdbEntry
from tests.ovs_checks.pipelines import packets

DUMPS = {
    path.stem: path.read_text() for path in (Path(__file__).parents[1] / "dumps").glob("*.txt")
}
PORTS = {"p1": 1, "p-2.x": 2, "pa": 4}


def test_every_form_of_a_dump_says_the_same():
    """Match and actions of the same three flows, as four commands print them."""
    said = {
        name: {
            flow.table: (flow.priority, set(flow.match.terms), flow.actions)
            for flow in parse_dump(text, PORTS).flows
            if flow.priority in {100, 1, 3}
        }
        for name, text in DUMPS.items()
    }
    first = said["ofctl-names-of15"]
    assert first[0][0] == 100
    assert first[0][1] == {
        *(Term("eth_type", 0x800, 0xFFFF), Term("in_port", 1, 0xFFFF)),
        Term("nw_src", 0x0A000000, 0xFFFFFF00),
    }
    assert first[0][2] == (
        Write("reg0", 1001, 0xFFFFFFFF),
        Write("reg1", 0x28, 0x1F8),
        Resubmit(None, 30),
    )
    for name, flows in said.items():
        assert flows[0] == first[0], name
        assert flows[9] == (1, set(), (Plain("drop"),)), name


def test_nothing_of_a_real_dump_is_malformed():
    for name, text in DUMPS.items():
        dump = parse_dump(text, PORTS)
        assert not dump.problems, name
        assert len(dump.flows) == len([ln for ln in text.splitlines() if "reply" not in ln]), name


def test_counters_and_cookie_are_kept():
    flow = parse_dump(DUMPS["ofctl-of10"]).flows[1]
    assert (flow.cookie, flow.n_packets, flow.n_bytes, flow.line) == (0x10, 3, 294, 3)
    assert flow.text.startswith("cookie=0x10, duration=0.191s")
    assert parse_dump(DUMPS["ofctl-no-stats"]).flows[1].n_packets is None


def test_what_is_unknown_is_kept_with_its_column():
    line = "priority=5,tcp,quux=7,frobnicate actions=drop,frob(1,(2)),enlearn(b),output:1"
    flow = parse_flow(line)
    unknown = (Unknown(16, text="quux=7"), Unknown(23, text="frobnicate"))
    assert flow.match.unknown == unknown
    unknown = (Unknown(47, text="frob(1,(2))"), Unknown(59, text="enlearn(b)"))
    assert flow.actions[1:] == (*unknown, ToPort(1))
    assert [line[u.column - 1 :][: len(u.text)] for u in flow.match.unknown] == [
        "quux=7",
        "frobnicate",
    ]


def test_what_the_tools_log_among_the_flows_is_no_flow():
    log = "2026-11-22T16:14:38Z|00001|ofp_actions|INFO|OFPAT_SET_MPLS_TTL is deprecated"
    dump = parse_dump(f"{log}\nOFPST_FLOW reply (OF1.5) (xid=0x2):\n table=1 actions=drop\n")
    assert [flow.table for flow in dump.flows] == [1]
    assert not dump.problems


def test_ports_are_resolved_by_name():
    text = 'in_port="p-2.x" actions=output:p1,pa,output:"p-2.x",resubmit(p1,3),output:gone'
    flow = parse_flow(text, PORTS)
    assert flow.match.terms == (Term("in_port", 2, 0xFFFF),)
    assert flow.actions[:4] == (ToPort(1), ToPort(4), ToPort(2), Resubmit(1, 3))
    assert flow.actions[4] == Unknown(text="output:gone", column=68)
    gone = parse_flow("in_port=gone actions=drop").match.unknown
    assert gone == (Unknown(1, text="in_port=gone"),)


def test_vlans_of_openflow_10_imply_the_tag():
    assert parse_flow("dl_vlan=5 actions=drop").match.terms == (Term("vlan_tci", 0x1005, 0x1FFF),)
    assert parse_flow("dl_vlan=65535 actions=drop").match.terms == (Term("vlan_tci", 0, 0xFFFF),)
    pcp = parse_flow("dl_vlan_pcp=3 actions=drop").match.terms
    assert pcp == (Term("vlan_tci", 0x7000, 0xF000),)


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("cookie=0x0, table=0, priority=5,tcp", 36),
        ("priority=x actions=drop", 1),
        ("table=256 actions=drop", 1),
        ("nw_src=10.0.0 actions=drop", 1),
        ("ip,nw_src=10.0.0.0/99 actions=drop", 4),
        ("in_port=70000 actions=drop", 1),
        ("actions=", 9),
        ("actions=resubmit(,3", 20),
        ("actions=resubmit(,3)),drop", 21),
        ('actions=output:"p1', 16),
    ],
)
def test_malformed_lines_say_where(line, column):
    with pytest.raises(MalformedLine) as caught:
        parse_flow(line, line=7)
    assert (caught.value.line, caught.value.column, caught.value.text) == (7, column, line)
    assert f"line 7, column {column}" in str(caught.value)


def test_a_malformed_line_costs_nothing_but_itself():
    dump = parse_dump("priority=1 actions=drop\n cookie=0x1, tab\npriority=2 actions=drop\n")
    assert [flow.priority for flow in dump.flows] == [1, 2]
    assert [problem.line for problem in dump.problems] == [2]


@given(st.sampled_from(sorted(DUMPS)), st.data())
def test_a_truncated_dump_loses_only_its_last_line(name, data):
    text = DUMPS[name]
    cut = data.draw(st.integers(0, len(text)))
    whole, dump = parse_dump(text, PORTS), parse_dump(text[:cut], PORTS)
    complete = text[:cut].count("\n")
    kept = [flow for flow in dump.flows if flow.line <= complete]
    assert kept == [flow for flow in whole.flows if flow.line <= complete]
    assert all(problem.line == complete + 1 for problem in dump.problems)


@st.composite
def terms(draw):
    """Any condition that a dump may hold."""
    name = draw(st.sampled_from(sorted(name for name in FIELDS if not name.isupper())))
    field = FIELDS[name]
    full = 0xFFFF if field.kind == "port" else (1 << field.width) - 1
    whole = field.kind in {"port", "frag"} or name == "packet_type"
    mask = field.bits if whole else draw(st.integers(1, full))
    mask = mask & field.bits or field.bits
    value = draw(st.sampled_from((0, 1, 3)) if field.kind == "frag" else st.integers(0, full))
    return Term(name, value & mask, mask)


def flow_text(flow_terms, actions):
    fields = [f"{t.field}={encode(FIELDS[t.field], t.value, t.mask)}" for t in flow_terms]
    return (
        f"cookie=0x5, table=3, n_packets=1, {','.join(['priority=7', *fields])} actions={actions}"
    )


@given(st.lists(terms(), max_size=5), st.lists(st.integers(0, 255), min_size=1, max_size=5))
def test_flows_survive_being_written_down(flow_terms, tables):
    text = flow_text(flow_terms, ",".join(f"resubmit(,{n})" for n in tables))
    flow = parse_flow(text)
    assert (flow.table, flow.priority, flow.cookie, flow.n_packets) == (3, 7, 5, 1)
    assert flow.match.terms == tuple(flow_terms)
    assert not flow.match.unknown
    assert flow.actions == tuple(Resubmit(None, n if n != 255 else None) for n in tables)


_PIECES = """actions= priority= ip tcp reg0= nw_src= in_port= / , ( ) [ ] .. -> : " \\ 0x1 10.0.0.1
load: move: set_field: resubmit( output: NXM_NX_REG0[] dl_vlan= ct( learn( é ²"""
pieces = st.sampled_from([*_PIECES.split(), " ", "\n", "\x00"])
fuzz = st.text(max_size=80) | st.lists(pieces, max_size=20).map("".join)


@given(fuzz)
def test_arbitrary_text_never_crashes_the_parser(text):
    """Every line becomes a flow, a problem, or is blank or a heading."""
    dump = parse_dump(text, PORTS)
    assert len(dump.flows) + len(dump.problems) <= len(text.splitlines())
    parse_fdb(text)
    assert all(1 <= problem.column <= len(problem.text) + 1 for problem in dump.problems)


@given(fuzz)
def test_arbitrary_text_is_a_header_or_malformed(text):
    with suppress(MalformedLine):
        assert isinstance(parse_header(text), Header)


def test_headers_are_read_as_ofproto_trace_takes_them():
    header = parse_header("udp,in_port=p1,dl_vlan=5,nw_src=10.0.0.1,udp_dst=4791", PORTS)
    assert header == Header(
        in_port=1,
        eth_type=0x800,
        nw_proto=17,
        vlan_tpid=0x8100,
        vlan_tci=0x1005,
        nw_src=0x0A000001,
        tp_dst=4791,
    )


@pytest.mark.parametrize("text", ["frob=1", "nw_src=10.0.0.0/24", "in_port=gone", "reg0=x"])
def test_a_header_has_one_value_per_field(text):
    with pytest.raises(MalformedLine):
        parse_header(text)


@given(packets)
def test_a_packet_that_somebody_wrote_has_the_fields_it_may_have(packet):
    assert parse_packet(packet) == parse_header(packet)


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("in_port=1,udp_dst=4791", 11, "udp_dst needs udp, which the packet is not"),
        ("nw_src=10.0.0.1", 1, "nw_src needs ip"),
        ("udp,tcp_dst=5", 5, "tcp_dst needs tcp"),
        ("dl_type=0x806,udp_src=1", 15, "udp_src needs udp"),
        ("udp,nw_frag=later,udp_src=1", 19, "udp_src needs udp"),
        ("in_port=1,in_port=2", 1, "in_port=1: said otherwise, too"),
        ("tcp,udp", 1, "tcp: said otherwise, too"),
        ("", 1, "no packet"),
        (" ", 1, "no packet"),
    ],
)
def test_a_packet_cannot_be_two_things_nor_have_what_it_is_not(text, column, reason):
    with pytest.raises(MalformedLine) as raised:
        parse_packet(text)
    assert raised.value.column == column
    assert raised.value.reason.startswith(reason)


@pytest.mark.parametrize(
    "text", ["udp,tp_dst=80", "icmp6,icmp_type=135", "ip,udp", "dl_vlan=5,dl_vlan_pcp=3", "arp"]
)
def test_a_packet_may_be_written_more_loosely_than_open_vswitch_has_it(text):
    assert parse_packet(text) == parse_header(text)


def test_fdb_entries():
    shown = (
        " port  VLAN  MAC                Age\n    1     0  50:54:00:00:00:01   12\n"
        "LOCAL     5  50:54:00:00:00:02  static\n"
    )
    assert parse_fdb(shown) == (
        FdbEntry(1, 0, 0x505400000001, 12),
        FdbEntry(0xFFFE, 5, 0x505400000002, 0),
    )
