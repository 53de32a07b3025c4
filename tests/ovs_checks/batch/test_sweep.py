# SPDX-License-Identifier: Apache-2.0
"""Packets told apart by how they end, held against `walk`, and the lines they are read from."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import CapabilityMissing, ConfigError
from ovs_checks.batch.sweep import MIN_TOGETHER, Sweep
from ovs_checks.batch.worker import MAX_MALFORMED, answer
from ovs_checks.openflow.parse import parse_dump, parse_header
from ovs_checks.switch.snapshot import Bridge, Snapshot
from ovs_checks.walk.host import walk
from tests.ovs_checks.hosts import A0, CONTAINERS, host, plain_ports, probe
from tests.ovs_checks.pipelines import packets, pipelines

PORTS = plain_ports("br", 1, 2, 3, 4)
FLOWS = """\
cookie=0x5,priority=40000,udp,nw_dst=10.0.0.9 actions=drop
udp actions=output:2
tcp actions=ct(table=1)
ipv6 actions=output:3
table=1,ct_state=+est actions=output:3
"""
LINES = """\
in_port=p1,udp,nw_dst=10.0.0.1  # leaves
in_port=p1,udp,nw_dst=10.0.0.9

in_port=p1,udp,frob=7
in_port=p1,udp,nw_dst=10.0.0.0/8
in_port=1,tcp
in_port=1,arp
# nothing
in_port=1,udp,nw_dst=10.0.0.2
"""


def snapshot_of(flows):
    return Snapshot("h0", (Bridge("br", parse_dump(flows).flows, PORTS),))


def ways(walked):
    """Return what is told of a walk."""
    return {(end.case, end.kind, end.port, end.tun_dst, end.tun_id) for end in walked.ends}


@given(pipelines(), st.lists(packets, min_size=1, max_size=12), st.integers(1, MIN_TOGETHER))
def test_every_packet_ends_as_its_walk_does(flows, drawn, times):
    snapshot = snapshot_of("\n".join(flows))
    headers = [parse_header(packet) for packet in drawn] * times
    sweep = Sweep(snapshot, "br")
    sweep.add(headers[:5])
    sweep.add(headers[5:])
    assert sweep.count == len(headers)
    assert sorted(n for fate in sweep.fates for n in fate.packets) == list(range(len(headers)))
    for fate in sweep.fates:
        for n in fate.packets:
            assert ways(walk(snapshot, "br", headers[n])) == ways(fate.walk)


def test_thousands_of_packets_of_the_lab_are_a_handful_of_ways_to_end():
    """To each endpoint, and the sender is one, by many source ports."""
    snapshot = host(0)
    there = [probe(A0, container.endpoint(0)) for container in CONTAINERS]
    headers = [
        one._replace(in_port=A0.ofport, tp_src=port) for one in there for port in range(1000)
    ]
    sweep = Sweep(snapshot, "br-int")
    sweep.add(headers)
    kinds = sorted((fate.walk.end.kind, len(fate.packets)) for fate in sweep.fates)
    assert kinds == [("dropped", 1000), ("missed", 4000), *[("tunnelled", 1000)] * 3]
    for fate in sweep.fates:
        assert ways(walk(snapshot, "br-int", headers[fate.packets[-1]])) == ways(fate.walk)


def ports(fate):
    return [end["port"] for end in fate["ends"]]


def test_loops_are_told_apart_with_the_flows_that_lead_round():
    flows = "udp actions=resubmit(,1)\ntcp actions=resubmit(,2)\n"
    flows += "table=1 actions=resubmit(,1)\ntable=2,cookie=7 actions=resubmit(,2)"
    told = answer(snapshot_of(flows), "br", io.StringIO("in_port=1,udp\nin_port=1,tcp\n"))
    cycles = [end["cycle"][0]["cookie"] for fate in told["fates"] for end in fate["ends"]]
    assert sorted(cycles) == [0, 7]


def test_copies_and_cases_are_told():
    flows = "udp actions=output:2,output:3\ntcp actions=check_pkt_larger(9)->reg0[0],resubmit(,1)\n"
    flows += "table=1,reg0=1 actions=drop\ntable=1 actions=output:2"
    told = answer(snapshot_of(flows), "br", io.StringIO("in_port=1,udp\nin_port=1,tcp\n"))
    assert [(fate["kind"], ports(fate)) for fate in told["fates"]] == [
        ("output", ["p2", "p3"]),
        ("cannot_tell", ["", "p2"]),
    ]


def test_lines_are_told_by_how_their_packets_end():
    told = answer(snapshot_of(FLOWS), "br", io.StringIO(LINES))
    assert [(fate["kind"], fate["lines"], ports(fate)) for fate in told["fates"]] == [
        ("output", [1, 9], ["p2"]),
        ("dropped", [2], [""]),
        ("cannot_tell", [6], ["", "p3", "p3"]),
        ("missed", [7], [""]),
    ]
    assert told["fates"][1]["ends"][0]["flow"]["cookie"] == 5
    assert (told["packets"], told["refused"]) == (5, 2)
    assert [(line["line"], line["column"]) for line in told["malformed"]] == [(4, 16), (5, 16)]


def test_many_lines_that_are_no_packets_are_counted_and_some_are_told():
    told = answer(snapshot_of(FLOWS), "br", io.StringIO("nonsense\n" * 150))
    assert (told["refused"], len(told["malformed"])) == (150, MAX_MALFORMED)
    assert (told["packets"], told["fates"]) == (0, [])


def test_an_unknown_bridge_and_a_missing_numpy_are_said(monkeypatch):
    with pytest.raises(ConfigError, match=r"no bridge 'nope' .there is: br."):
        answer(snapshot_of(FLOWS), "nope", io.StringIO(LINES))
    monkeypatch.setitem(sys.modules, "ovs_checks.batch.sweep", None)
    with pytest.raises(CapabilityMissing, match="python3-numpy"):
        answer(snapshot_of(FLOWS), "br", io.StringIO(LINES))
