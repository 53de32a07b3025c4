# SPDX-License-Identifier: Apache-2.0
"""Checks of the three copies, on a dump of a kernel whose tc held the flows in software.

Hardware is generated from it, in the words that tc and Open vSwitch document: nobody here had any.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from netagent.model.errors import Unreachable
from ovs_checks.datapath.layers import Sample, parse_megaflows
from ovs_checks.lint.layers import Layers, check, essence, layers_of
from ovs_checks.sources.answers import open_answers
from ovs_checks.switch.assemble import assemble
from tests.ovs_checks.hosts import A0 as NEAR
from tests.ovs_checks.hosts import A1 as FAR
from tests.ovs_checks.hosts import host

RECORDED = Path(__file__).parents[1] / "dumps" / "tc-in-software.tar.gz"
KEPT = open_answers(RECORDED)
DUMP = "ovs-appctl dpctl/dump-flows -m system@ovs-system"
A0, B0 = (f"tc -s filter show dev {device} ingress" for device in ("a0", "b0"))


def in_nic(answer):
    """Return a dump as it would be had the NIC taken every flow."""
    text = answer.text.replace("  skip_hw\n  not_in_hw\n", "  in_hw in_hw_count 1\n")
    return replace(answer, text=text.replace(", dp:tc, ", ", offloaded:yes, dp:tc, "))


def found(*changes, only=(), config=None, answers=None):
    """Run checks on the NIC's dumps; `changes` are (command, sample, how its text changes)."""
    told, count = [], {}
    for answer in map(in_nic, answers or KEPT.answers):
        n = count[answer.command] = count.get(answer.command, -1) + 1
        text = answer.text
        for command, sample, change in changes:
            if answer.command == command and sample in {n, None}:
                text = change(text)
        told.append(replace(answer, text=text))
    kept = replace(KEPT, answers=tuple(told))
    snapshot = assemble(kept, kept.host)
    config = {"hw-offload": "true"} if config is None else config
    return check(layers_of(kept, replace(snapshot, config=config)), only)


def ufid(port):
    """Return the ufid of the datapath's flow that takes packets from a port."""
    text = KEPT.told(DUMP)
    return next(line[5:41] for line in text.splitlines() if f"in_port({port})" in line)


def told(port, **values):
    """Return a change of what is told of the flow that takes packets from a port."""

    def change(text):
        return "\n".join(
            one(line) if f"in_port({port})" in line else line for line in text.splitlines()
        )

    def one(line):
        for key, value in values.items():
            end = ".*" if key == "actions" else "[^,]*"
            line, count = re.subn(rf"\b{key}:{end}", f"{key}:{value}", line)
            assert count == 1, key
        return line

    return change


def moved(packets):
    """Return a change of how many packets a device's filters counted."""
    return lambda text: re.sub(r"bytes \d+ pkt", f"bytes {packets} pkt", text)


def test_copies_that_agree_are_no_finding():
    assert found() == []
    assert found(config={}) == []


def test_the_recorded_kernel_held_them_in_software():
    snapshot = assemble(KEPT, KEPT.host)
    (one,) = check(layers_of(KEPT, snapshot))
    assert (one.check, one.severity) == ("in-software", "warning")
    assert "tc-policy=skip_hw" in one.text


def test_a_stale_megaflow_quotes_all_three():
    sends = told("a0", actions="set(tunnel(tun_id=0x65,dst=172.30.0.11)),vxlan_sys_4789")
    (one,) = found((DUMP, None, sends))
    assert (one.check, one.severity, str(one.component)) == (
        "stale-megaflow",
        "warning",
        "flow debian-12/br-int/table=0",
    )
    quotes = dict(one.quotes)
    assert "by br-int/table=0: " in quotes["intent"]
    assert "tun_id=0x64" in quotes["intent"]
    assert quotes["datapath"].startswith(f"ufid:{ufid('a0')}")
    assert quotes["hardware"].startswith("a0: filter protocol ip pref 2")
    once = [answer for answer in KEPT.answers if answer.wall_ns < KEPT.answers[-2].wall_ns]
    assert [f.severity for f in found((DUMP, None, sends), answers=_first(once))] == ["note"]


def _first(answers):
    """Return the first answer to each command."""
    return list({answer.command: answer for answer in reversed(answers)}.values())


def test_what_is_said_otherwise_is_not_stale():
    """Tc has its own order, and its own flags of a tunnel."""
    names = {"vx": 3, "p2": 2}
    ours = (
        "set(tunnel(tun_id=0x64,dst=1.1.1.1,ttl=64,tp_dst=4789,flags(df|key))),set(ipv4(tos=1)),3"
    )
    theirs = "set(ipv4(tos=1)),set(tunnel(tun_id=100,dst=1.1.1.1,flags(key))),vx"
    assert essence(ours, names, exact=False) == essence(theirs, names, exact=False)
    assert essence(ours, names, exact=True) != essence(theirs, names, exact=True)
    assert essence("ct(zone=1),recirc(0x7)", names, exact=True) == essence(
        "ct(zone=1),recirc(0x99)", names, exact=True
    )
    assert essence("p2", names, exact=True) == ("2",)
    for odd in ("x(((", "tunnel(tun_id=?,dst=1.1.1.1)", "tunnel(tun_id=1)b(dst=1.1.1.1)"):
        assert essence(odd if odd[0] == "x" else f"set({odd})", names, exact=True) == (odd,)


# A host of the lab, whose bridge answers ARP itself, and its datapath as Open vSwitch 3.1 dumps it.
WIDE = "ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),recirc_id(0),dp_hash(0/0)"
SHARED = "packet_type(ns=0,id=0),eth(src={},dst={}),eth_type({}),{}, packets:{}, bytes:0, used:0.1s"
FROM_FAR = SHARED.format(
    FAR.mac, NEAR.mac, "0x0800",
    "ipv4(src=10.0.0.11/0.0.0.0,dst=10.0.0.10/0.0.0.0,proto=17/0,tos=0/0,ttl=64/0,frag=no)", 7,
)  # fmt: skip
ASKS_FAR = SHARED.format(
    NEAR.mac, "ff:ff:ff:ff:ff:ff", "0x0806",
    f"arp(sip=10.0.0.10,tip=10.0.0.11,op=1/0xff,sha={NEAR.mac},tha=00:00:00:00:00:00)", 3,
)  # fmt: skip
ARRIVES = (
    f"ufid:00000000-0000-0000-0000-000000000001, skb_priority(0/0),tunnel(tun_id=0x3e9,"
    f"src=172.30.0.11,dst=172.30.0.10,ttl=0/0,tp_src=0/0,tp_dst=0/0,flags(-df-csum+key)),"
    f"skb_mark(0/0),{WIDE},in_port(vxlan0),{FROM_FAR}, dp:ovs, actions:{NEAR.port}"
)
ASKS = (
    f"ufid:00000000-0000-0000-0000-000000000002, skb_priority(0/0),skb_mark(0/0),{WIDE},"
    f"in_port({NEAR.port}),{ASKS_FAR}, dp:ovs, actions:userspace(pid=0,slow_path(action))"
)


def on_lab(*lines):
    """Check a host of the lab that holds these flows of the datapath, seen twice."""
    snapshot = host(0)
    ports = [
        replace(port, datapath=number) for number, port in enumerate(snapshot.bridges[0].ports)
    ]
    snapshot = replace(snapshot, bridges=(replace(snapshot.bridges[0], ports=tuple(ports)),))
    megaflows, problems = parse_megaflows("\n".join(lines))
    assert not problems
    samples = tuple(Sample(wall_ns, megaflows) for wall_ns in (1, 2))
    return check(Layers(snapshot, samples, {port.name: port.datapath for port in ports}))


def test_healthy_flows_of_open_vswitch_3_1_are_no_finding():
    """A tunnel's flags are masked, and a responder's ARP is rewritten by the slow path."""
    assert on_lab(ARRIVES, ASKS) == []
    metered = "sample(sample=100.0%,actions(meter(1),userspace(pid=9,slow_path(action))))"
    assert on_lab(ASKS.replace("userspace(pid=0,slow_path(action))", metered)) == []


def test_what_differs_from_the_slow_path_is_stale():
    gone = ASKS.replace("userspace(pid=0,slow_path(action))", NEAR.port)
    (one,) = on_lab(gone)
    assert (one.check, one.severity) == ("stale-megaflow", "warning")
    said = (
        f"the datapath does {NEAR.port}, the flow tables say userspace(slow_path(action)), where "
    )
    assert one.text.startswith(f"{said}set(eth(src={FAR.mac},dst={NEAR.mac})),set(arp(")
    assert dict(one.quotes)["intent"].startswith("userspace(slow_path(action)), where set(eth(")
    for other in ("userspace(pid=0,slow_path(match))", "userspace(pid=0,controller(reason=1))"):
        (one,) = on_lab(ASKS.replace("userspace(pid=0,slow_path(action))", other))
        assert one.check == "stale-megaflow"
    (one,) = on_lab(
        ARRIVES.replace(f"actions:{NEAR.port}", "actions:userspace(pid=0,slow_path(x))")
    )
    assert one.text.endswith("the flow tables say 0")


def test_a_flow_that_cannot_be_judged_is_said():
    again = (DUMP, None, lambda text: text.replace("recirc_id(0)", "recirc_id(0x7)", 1))
    (one,) = found(again)
    assert (one.severity, one.check) == ("note", "stale-megaflow")
    assert one.text.startswith("cannot tell for 1 of 4 flows, such as: what recirculation 0x7")


def soft(packets, sample=None):
    """Return the change that makes the flow from a0 one of the software datapath."""
    return DUMP, sample, told("a0", packets=packets, offloaded="no", dp="ovs")


def beside(text):
    """Add another flow from a0, in hardware."""
    line = from_a0(text).replace("offloaded:no, dp:ovs", "offloaded:yes, dp:tc")
    return f"{text}\nufid:00000000{line[len('ufid:00000000') :]}"


def from_a0(text):
    return next(line for line in text.splitlines() if "in_port(a0)" in line)


def test_a_busy_flow_of_the_software_datapath_is_named():
    """Other flows of its port are in hardware; a port that has none may not be able to."""
    only = ["not-offloaded"]
    first, second, again = soft(500, 0), soft(900, 1), (DUMP, None, beside)
    assert found(first, second, only=only) == []
    (one,) = found(first, second, again, only=only)
    assert (one.severity, "900 packets, 400 of them between" in one.text) == ("warning", True)
    assert dict(one.quotes)["datapath"].startswith(f"ufid:{ufid('a0')}")
    assert found(soft(99), again, only=only) == []
    assert [one.severity for one in found(soft(500), again, only=only)] == ["note"]
    assert found(first, second, again, only=only, config={}) == []


def test_a_filter_that_is_not_in_the_nic_is_named():
    out = (A0, None, lambda text: text.replace("in_hw in_hw_count 1", "not_in_hw"))
    (one,) = found(out)
    assert (one.check, one.severity) == ("in-software", "warning")
    expected = "the filter on a0 is not in the NIC, though Open vSwitch takes it for offloaded"
    assert one.text == expected
    assert "not_in_hw" in dict(one.quotes)["hardware"]
    assert [one.severity for one in found(out, config={})] == ["note"]


def test_a_filter_that_is_gone_is_named():
    gone = (A0, None, lambda _: "")
    (one,) = found(gone)
    assert (one.check, one.severity) == ("missing-filter", "warning")
    assert dict(one.quotes)["hardware"] == "no filter"
    assert [f.severity for f in found((A0, 1, lambda _: ""))] == ["note"]


def test_a_filter_that_open_vswitch_forgot_is_named():
    gone = (DUMP, None, lambda text: text.replace(from_a0(text), ""))
    (one,) = found(gone)
    assert (one.check, one.severity) == ("orphan-filter", "warning")
    assert one.text == "the NIC forwards by a filter on a0 that Open vSwitch forgot"
    assert [what for what, _ in one.quotes] == ["intent", "datapath", "hardware"]


def test_a_counter_that_stands_still_while_the_nic_s_moves_is_named():
    """Open vSwitch would expire the flow in the middle of its traffic."""
    still = (DUMP, None, told("a0", packets=5, used="8.1s"))
    (one,) = found(still, (A0, 0, moved(5)), (A0, 1, moved(905)))
    assert (one.check, one.severity) == ("stale-counter", "warning")
    assert one.text == (
        "tc counted 900 packets that Open vSwitch did not; it takes the flow for idle since 8.1 s"
    )
    assert found(still, (A0, None, moved(5))) == []
    fresh = (DUMP, None, told("a0", packets=5, used="0.1s"))
    assert [f.severity for f in found(fresh, (A0, 0, moved(5)), (A0, 1, moved(9)))] == ["note"]


def aged(seconds):
    return lambda text: re.sub(r"installed \d+ sec", f"installed {seconds} sec", text)


def test_a_flow_that_is_offloaded_again_and_again_is_named():
    """Its filter is younger than the sample before; once may be chance."""
    thrice = [*KEPT.answers]
    for later in (1, 2):
        thrice += [
            replace(answer, wall_ns=answer.wall_ns + later * 20_000_000_000)
            for answer in KEPT.answers
            if answer.command in {DUMP, A0, B0}
        ][-3:]
    anew = [(A0, n, aged(1)) for n in (2, 3)]
    (one,) = found(*anew, (B0, None, aged(900)), answers=thrice, only=["offload-churn"])
    assert (one.severity, "made anew 2 times" in one.text) == ("warning", True)
    assert "in_port(a0)" in dict(one.quotes)["datapath"]
    (once,) = found(
        (A0, 2, aged(1)), (A0, 3, aged(900)), (B0, None, aged(900)),
        answers=thrice, only=["offload-churn"],
    )  # fmt: skip
    assert once.severity == "note"
    out = (DUMP, 2, told("a0", offloaded="no"))
    (toggled,) = found(
        out, (A0, None, aged(900)), (B0, None, aged(900)), answers=thrice, only=["offload-churn"]
    )
    assert "in and out of hardware 2 times" in toggled.text


def masks(count, packets=1):
    """Put filters of other masks, which carry little, before a device's own."""

    def change(text):
        before = [
            f"filter protocol ip pref {n} flower chain 0 handle 0x1\n  eth_type ipv4\n"
            f"  in_hw in_hw_count 1\n\taction order 1: gact action drop\n"
            f"\tSent 60 bytes {packets} pkt (dropped 0)\n"
            for n in range(100, 100 + count)
        ]
        return "".join(before) + text.replace("pref 2 ", "pref 900 ").replace("bytes 1", "bytes 99")

    return change


def test_busy_filters_behind_many_masks_are_named():
    busy = (A0, None, moved(5000))
    (one,) = found(busy, (A0, None, masks(8)), only=["offload-order"])
    assert one.severity == "warning"
    assert one.text == (
        "99 % of the packets of a0, chain 0, are tried against 8 masks that carry 8 of 5008 "
        "before theirs"
    )
    assert found(busy, (A0, None, masks(7)), only=["offload-order"]) == []
    assert found(busy, (A0, None, masks(8, packets=900)), only=["offload-order"]) == []


def test_rdma_on_a_software_path_is_named():
    """Told by the port of RoCE v2; in the NIC it is where it belongs."""

    def roce(text):
        return text.replace("ipv4(", "udp(src=0/0,dst=4791),ipv4(")

    hard = (DUMP, None, roce)
    only = ["rdma-in-software"]
    assert found(hard, (DUMP, None, told("a0", packets=900)), only=only) == []
    said = found(hard, soft(900, 1), soft(100, 0), (A0, None, lambda _: ""), only=only)
    where = "to RDMA's port 4791 went through the software datapath"
    assert [(f.severity, f.text) for f in said] == [
        ("warning", f"900 packets, 800 of them between the samples, {where}"),
    ]
    out = (A0, None, lambda text: text.replace("in_hw in_hw_count 1", "not_in_hw"))
    (one,) = found(hard, (DUMP, None, told("a0", packets=900)), out, only=only)
    assert (one.severity, one.text.endswith("went through tc in software")) == ("note", True)


def test_without_a_dump_of_the_datapath_nothing_can_be_told():
    kept = replace(KEPT, answers=tuple(a for a in KEPT.answers if a.command != DUMP))
    with pytest.raises(Unreachable, match="no dump of its flows"):
        layers_of(kept, assemble(kept, kept.host))
    with pytest.raises(KeyError):
        found(only=["nope"])


def test_a_flow_that_open_vswitch_updated_meanwhile_is_a_note():
    """Its actions changed, or the tables did."""
    sends = "set(tunnel(tun_id=0x65,dst=172.30.0.11)),vxlan_sys_4789"
    (one,) = found((DUMP, 1, told("a0", actions=sends)))
    assert (one.check, one.severity) == ("stale-megaflow", "note")
    tables = "ovs-appctl bridge/dump-flows --offload-stats br-int"
    counted = (tables, 1, lambda text: re.sub(r"n_packets=\d+", "n_packets=777", text))
    assert found(counted) == []
    (still,) = found(counted, (DUMP, None, told("a0", actions=sends)))
    assert still.severity == "warning"
    changed = (tables, 1, lambda text: f"{text}\ntable_id=7, priority=1,actions=drop")
    (noted,) = found(changed, (DUMP, None, told("a0", actions=sends)))
    assert noted.severity == "note"


def gone(text):
    return text.replace(from_a0(text), "")


def test_a_flow_that_came_and_went_between_the_dumps_is_a_note():
    said = found((DUMP, 0, gone), (A0, None, lambda _: ""))
    assert [(one.check, one.severity) for one in said] == [("missing-filter", "note")]


def test_counters_are_compared_from_where_both_were_seen():
    """A flow that the first sample lacks begins with the second."""
    thrice = [*KEPT.answers]
    thrice += [
        replace(answer, wall_ns=answer.wall_ns + 20_000_000_000)
        for answer in KEPT.answers
        if answer.command in {DUMP, A0, B0}
    ][-3:]
    idle = told("a0", packets=500, used="9s")
    assert (
        found(
            (DUMP, 0, gone), (A0, 0, lambda _: ""), (DUMP, 1, idle), (DUMP, 2, idle),
            (A0, 1, moved(500)), (A0, 2, moved(500)),
            answers=thrice, only=["stale-counter"],
        )
        == []
    )  # fmt: skip


def test_what_carries_little_or_other_protocols_is_no_bad_order():
    only = ["offload-order"]
    assert found((A0, None, moved(99)), (A0, None, masks(8, packets=0)), only=only) == []
    arp = (A0, None, lambda text: text.replace("protocol ip pref 1", "protocol arp pref 1"))
    assert found((A0, None, moved(5000)), (A0, None, masks(8)), arp, only=only) == []


def test_a_policy_without_offload_keeps_nothing_out():
    assert found(config={"tc-policy": "skip_hw"}, only=["in-software"]) == []
