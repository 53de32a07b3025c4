# SPDX-License-Identifier: Apache-2.0
"""What concerns one pair, on a lab's host and on a dump of a kernel with two tenants."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ovs_checks.lint import packet
from ovs_checks.lint.layers import layers_of
from ovs_checks.lint.packet import (
    Conversation,
    crossed_by,
    judged,
    key_of,
    of_copies,
    of_tables,
    walks_of,
)
from ovs_checks.openflow.addresses import udp_between
from ovs_checks.openflow.notation import ipv4, mac
from ovs_checks.openflow.packet import ETH_IPV4, UDP, Header
from ovs_checks.sources.answers import open_answers
from ovs_checks.switch.assemble import assemble
from tests.lab.shape import vtep
from tests.ovs_checks.hosts import A0, A1, host, host6, probe, probe6, six
from tests.ovs_checks.lint.test_layers import DUMP, in_nic, told, ufid

KEPT = open_answers(Path(__file__).parents[1] / "dumps" / "tc-in-software.tar.gz")
PAIR = Header(
    eth_src=mac("02:00:00:00:00:0a"), eth_dst=mac("02:00:00:00:00:0b"), eth_type=ETH_IPV4,
    nw_src=ipv4("10.0.0.10"), nw_dst=ipv4("10.0.0.11"), nw_proto=UDP, nw_ttl=64,
    tp_src=1, tp_dst=18515,
)  # fmt: skip
TALK = Conversation("a0", PAIR, PAIR, "172.30.0.10", "172.30.0.11")


def silent(_bridge, _packet):
    return ""


def layers(change=lambda text: text):
    """Return the copies of a kernel whose NIC took every flow, its datapath changed."""
    answers = [
        replace(a, text=change(a.text)) if a.command == DUMP else a
        for a in map(in_nic, KEPT.answers)
    ]
    kept = replace(KEPT, answers=tuple(answers))
    snapshot = replace(assemble(kept, kept.host), config={"hw-offload": "true"})
    return layers_of(kept, snapshot)


def concerned(made, trace=silent):
    crossed = crossed_by(made, TALK, 100)
    return of_copies(made, crossed, trace)


# --- the datapath and tc -------------------------------------------------------------------------

STALE = told("a0", actions="set(tunnel(tun_id=0x65,dst=172.30.0.11)),vxlan_sys_4789")
OTHERS = told("b0", actions="set(tunnel(tun_id=0x65,dst=172.30.0.11)),vxlan_sys_4789")


def test_a_pair_crosses_a_flow_each_way_and_both_can_be_judged():
    made = layers()
    crossed = crossed_by(made, TALK, 100)
    assert [one.in_port for one in crossed.flows] == ["a0", "vxlan_sys_4789"]
    assert (judged(made, crossed), crossed.problems) == (2, ())
    assert concerned(made) == []


def test_without_the_key_tenants_with_equal_addresses_are_not_told_apart():
    tunnels = [one.key for one in crossed_by(layers(), TALK).flows if "tunnel(" in one.key]
    assert [("0x64" in key, "0xc8" in key) for key in tunnels] == [(True, False), (False, True)]


def test_of_many_flows_the_busiest_are_judged(monkeypatch):
    monkeypatch.setattr(packet, "MAX_FLOWS", 1)
    busy = told("vxlan_sys_4789", packets="9999")

    def change(text):
        return "\n".join(
            busy(line) if "tun_id=0x64,src" in line else line for line in text.split("\n")
        )

    crossed = crossed_by(layers(change), TALK, 100)
    assert [one.in_port for one in crossed.flows] == ["vxlan_sys_4789"]
    assert crossed.ufids == {one.ufid for one in crossed.flows}
    assert crossed.problems == ("1 more flows of the datapath are left out",)


def test_only_what_the_pair_crosses_is_judged():
    (one,) = concerned(layers(STALE))
    assert (one.check, one.severity) == ("stale-megaflow", "warning")
    assert concerned(layers(OTHERS)) == []


@pytest.mark.parametrize(
    ("said", "stands"),
    [
        ("", True),  # one that does not answer changes nothing
        ("Datapath actions: set(tunnel(tun_id=0x64,dst=172.30.0.11)),3", True),
        ("Datapath actions: set(tunnel(tun_id=0x65,dst=172.30.0.11)),3", False),
        ("Datapath actions: drop", False),
    ],
)
def test_a_live_switch_that_does_not_bear_it_out_takes_it_away(said, stands):
    """It may be newer than the dump, or we may be wrong."""
    made = layers(STALE)
    port = made.names["vxlan_sys_4789"]
    answer = said.replace("),3", f"),{port}")
    assert bool(concerned(made, lambda _bridge, _packet: answer)) == stands


def test_a_forgotten_filter_is_told_of_the_pair_that_it_takes():
    def gone(port):
        return lambda text: "\n".join(
            line for line in text.splitlines() if f"in_port({port})" not in line
        )

    (one,) = concerned(layers(gone("a0")))
    assert (one.check, one.severity) == ("orphan-filter", "warning")
    assert ufid("a0") in dict(one.quotes)["intent"]
    assert concerned(layers(gone("b0"))) == []


TC = "tc -s filter show dev a0 ingress"
SOFTWARE = ("  in_hw in_hw_count 1\n", "  not_in_hw\n")


def filtered(*samples, device="a0"):
    """Return the copies where the NIC has not the device's flow in these samples."""
    told, count = [], 0
    for answer in map(in_nic, KEPT.answers):
        text = answer.text
        if answer.command == TC.replace("a0", device):
            text = text.replace(*SOFTWARE) if count in samples else text
            count += 1
        told.append(replace(answer, text=text))
    assert count == 2
    kept = replace(KEPT, answers=tuple(told))
    return layers_of(kept, replace(assemble(kept, kept.host), config={"hw-offload": "true"}))


@pytest.mark.parametrize(
    ("samples", "severity"), [((0, 1), ["warning"]), ((1,), ["note"]), ((0,), [])]
)
def test_a_flow_in_software_counts_if_every_look_shows_it(samples, severity):
    found = [one for one in concerned(filtered(*samples)) if one.check == "in-software"]
    assert [one.severity for one in found] == severity
    assert concerned(filtered(*samples, device="b0")) == []


def test_where_nothing_is_in_hardware_software_is_how_the_host_is():
    kept = replace(KEPT, answers=tuple(KEPT.answers))
    snapshot = replace(assemble(kept, kept.host), config={"hw-offload": "true"})
    found = concerned(layers_of(kept, snapshot))
    assert {(one.check, one.severity) for one in found} == {("in-software", "note")}


def test_a_flow_that_is_not_understood_is_a_problem_and_no_error():
    def odd(text):
        return text.replace("dst=00:00:00:00:00:00/00:00:00:00:00:00", "dst=x")

    crossed = crossed_by(layers(odd), TALK, 100)
    assert crossed.flows == ()
    assert len(crossed.problems) == 1


# --- the tables ----------------------------------------------------------------------------------

AWAY = Conversation(A0.port, probe(A0, A1), probe(A1, A0), vtep(0, 0), vtep(1, 0))


def test_both_directions_are_walked_with_the_key_that_packets_leave_with():
    walks = walks_of(host(0), AWAY)
    assert [one.end.kind for one in walks] == ["tunnelled", "output"]
    assert walks[1].end.port == A0.port
    assert key_of(walks, AWAY) == walks[0].end.tun_id
    assert of_tables(host(0), walks) == []


def test_where_packets_leave_by_no_tunnel_only_their_own_way_is_known():
    here = replace(AWAY, here="", there="")
    assert len(walks_of(host(0), here)) == 1
    elsewhere = replace(AWAY, there="192.0.2.1")
    walks = walks_of(host(0), elsewhere)
    assert len(walks) == 1
    assert key_of(walks, elsewhere) is None


def changed(more):
    """Return what lint finds that concerns the pair where a host's tables hold `more`."""
    snapshot = host(0, lambda flows: [*flows, *more])
    return [
        (one.check, str(one.component)) for one in of_tables(snapshot, walks_of(snapshot, AWAY))
    ]


def test_what_is_wrong_is_told_only_of_what_the_packets_cross():
    snapshot = host(0)
    first = walks_of(snapshot, AWAY)[0].steps[0]
    table = int(first.where.partition("table=")[2])
    crossed = next(flow for flow in snapshot.bridges[0].flows if flow.text == first.text)
    hidden = f"table={table}, priority={crossed.priority - 1},udp,in_port=99 actions=drop"
    assert changed([hidden]) == []
    same = first.text.replace(f"priority={crossed.priority}", f"priority={crossed.priority - 1}")
    other = same.partition(" actions=")[0] + " actions=drop"
    assert other != same
    assert changed([other]) == [("shadowed-flow", f"flow h0/br-int/table={table}")]
    assert changed(["table=99, priority=1 actions=output:77"]) == []


# --- IPv6 ----------------------------------------------------------------------------------------

AWAY6 = Conversation(A0.port, probe6(A0, A1), probe6(A1, A0), six(vtep(0, 0)), six(vtep(1, 0)))


def test_both_directions_are_walked_by_ipv6():
    walks = walks_of(host6(0), AWAY6)
    assert [one.end.kind for one in walks] == ["tunnelled", "output"]
    assert key_of(walks, AWAY6) == walks[0].end.tun_id
    assert of_tables(host6(0), walks) == []


IPV4 = re.compile(r"eth_type\(0x0800\),ipv4\([^()]*\)")
IPV6 = "eth_type(0x86dd),ipv6(src=fd00::/ffff::,dst={},label=0/0,proto=17/0,hlimit=64/0,frag=no)"


def six_of_kernel(text):
    """Return a dump of the datapath whose first tenant has IPv6 inside its tunnels."""
    found = []
    for line in text.split("\n"):
        is_first = "in_port(a0)" in line or "tun_id=0x64" in line
        target = "fd00::b" if "in_port(a0)" in line else "fd00::a"
        found.append(IPV4.sub(IPV6.format(target), line) if is_first else line)
    return "\n".join(found)


def test_of_a_kernel_s_flows_an_ipv6_pair_crosses_its_own():
    made = layers(six_of_kernel)
    near, far = ("02:00:00:00:00:0a", "fd00::a"), ("02:00:00:00:00:0b", "fd00::b")
    ports = {"source_port": 1, "destination_port": 18515}
    out, back = udp_between(near, far, **ports), udp_between(far, near, **ports)
    talk = replace(TALK, out=out, back=back)
    crossed = crossed_by(made, talk, 100)
    assert (len(crossed.flows), crossed.problems) == (2, ())
    assert all("ipv6(" in one.key for one in crossed.flows)
    assert crossed_by(made, TALK, 100).flows == ()
