# SPDX-License-Identifier: Apache-2.0
"""Packets that vanish although the tables say fine: the trace names the place, with its reason."""

import os
import secrets
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from bpf.trace.journey import (
    UPCALL_QUEUE,
    WRONG_VNI,
    HostView,
    Verdict,
    diagnose,
    view_of,
)
from tests.kernel.conftest import Lens, packets
from tests.kernel.overlay import MAX_IDLE_MS, UPLINK, Overlay, Switch
from tests.ovs.host import run
from tests.waiting import wait_until

pytestmark = pytest.mark.kernel

COUNT = 20
SLOW_S = 120.0
"""Seconds that an emulated machine may take. Chosen: beside another one, a look takes several."""
BURST = 12_000
"""More than the queues of two handlers hold, of two megabytes each."""


@pytest.fixture
def look(lens: Lens, overlay: Overlay) -> Callable[..., Verdict]:
    """Return a function that sends, counts on both hosts, and says where packets vanish."""

    def trace(*, size: int = 64, vni: str = "") -> Verdict:
        target = 20_000 + secrets.randbelow(20_000)
        flow = f"udp,nw_src=10.0.0.10,nw_dst=10.0.0.12{vni}"

        def send() -> None:
            overlay.send(
                "a", count=COUNT, target_port=target, source_port=target, size=size, whole=True
            )

        def counted(host: Switch) -> HostView:
            """Look again until no upcall was needed: the datapath has its flows then."""
            seen: list[dict[str, Any]] = []

            def known() -> bool:
                seen.append(lens.look(host, flow, send))
                return not packets(seen[-1])["upcall"]

            wait_until(known, "the flows in the datapath", SLOW_S)
            return view_of(seen[-1])

        sender, receiver = map(counted, overlay.hosts)
        verdict = diagnose(sender=sender, receiver=receiver)
        print(verdict, *verdict.evidence, sep="\n  ")
        return verdict

    return trace


@pytest.fixture
def undo(overlay: Overlay):
    """Run what a test pushed when it ends, then restore the flows."""
    with ExitStack() as stack:
        stack.callback(lambda: [host.forward() for host in overlay.hosts])
        yield stack


def test_a_drop_by_tc_on_the_uplink(look, overlay: Overlay, undo: ExitStack):
    host = overlay.hosts[0]
    host.in_host("tc", "qdisc", "add", "dev", UPLINK, "clsact")
    undo.callback(host.in_host, "tc", "qdisc", "del", "dev", UPLINK, "clsact")
    rule = ("protocol", "ip", "matchall", "action", "drop")
    host.in_host("tc", "filter", "add", "dev", UPLINK, "egress", *rule)
    verdict = look()
    assert (verdict.where, verdict.host) == ("uplink transmit (after encapsulation)", "sender")
    assert verdict.lost == COUNT
    assert "after encapsulate" in verdict.evidence[1]
    assert "TC_EGRESS at __dev_queue_xmit" in verdict.evidence[1]


def test_a_packet_that_encapsulated_does_not_fit_the_uplink(look, overlay, undo):
    host = overlay.hosts[0]
    host.ip("link", "set", UPLINK, "mtu", "1400")
    undo.callback(host.ip, "link", "set", UPLINK, "mtu", "1500")
    verdict = look(size=1400)
    assert verdict.host == "sender"
    assert verdict.where == "uplink transmit (after encapsulation)"
    assert any("1442 bytes" in line and "MTU" in line for line in verdict.evidence)


def test_a_packet_filter_that_refuses_the_tunnels_source(look, overlay, undo):
    host = overlay.hosts[1]
    table = "add table inet t; add chain inet t c { type filter hook input priority 0; };"
    rule = f"add rule inet t c ip saddr {overlay.hosts[0].address} udp dport 4789 drop"
    host.in_host("nft", f"{table} {rule}")
    undo.callback(host.in_host, "nft", "delete table inet t")
    verdict = look()
    assert (verdict.where, verdict.host) == ("between uplink receive and the tunnel", "receiver")
    # nft_do_chain where its verdict carries the reason, nf_hook_slow before.
    assert any("NETFILTER_DROP at n" in line for line in verdict.evidence)


def test_a_loss_between_the_hosts(look, overlay, undo):
    peer = "up1-f"
    run("ip", "-n", overlay.fabric, "link", "set", peer, "nomaster")
    undo.callback(run, "ip", "-n", overlay.fabric, "link", "set", peer, "master", "br0")
    verdict = look()
    assert (verdict.where, verdict.lost) == ("underlay", COUNT)


def test_a_flow_that_drops(look, overlay, undo):
    overlay.hosts[1].ofctl("add-flow", "priority=60000,udp,nw_dst=10.0.0.12,actions=drop")
    overlay.hosts[1].forget()
    verdict = look()
    assert (verdict.where, verdict.host) == ("datapath action drop", "receiver")
    assert "OVS_" in verdict.evidence[1]


def test_a_wrong_vni_at_the_far_end(look, overlay, undo):
    sender = overlay.hosts[0]
    sender.vsctl("set", "interface", "vxa", "options:key=999")
    undo.callback(sender.vsctl, "set", "interface", "vxa", "options:key=100")
    wait_until(lambda: "999" in sender.appctl("dpif/show"), "the new key")
    verdict = look(vni=",tun_id=100")
    assert verdict.where == WRONG_VNI
    assert "VNI 999" in verdict.evidence[0]


def test_a_vni_the_far_end_does_not_know(lens: Lens, look, overlay, undo):
    receiver = overlay.hosts[1]
    # A flow whose tunnel port nobody knows is deleted at the next revalidation, every 500 ms: on an
    # emulated machine each look would need an upcall.
    setting = ("Open_vSwitch", ".", "other_config")
    receiver.vsctl("set", *setting[:2], f"{setting[2]}:max-revalidator={MAX_IDLE_MS}")
    undo.callback(receiver.vsctl, "remove", *setting, "max-revalidator")
    receiver.vsctl("set", "interface", "vxa", "options:key=998")
    undo.callback(receiver.vsctl, "set", "interface", "vxa", "options:key=100")
    wait_until(lambda: "998" in receiver.appctl("dpif/show"), "the new key")
    verdict = look()
    assert (verdict.where, verdict.host) == ("datapath action drop", "receiver")
    assert any("VNI 100" in line and "no tunnel port" in line for line in verdict.evidence)


def test_a_full_upcall_queue(lens: Lens, overlay: Overlay, undo: ExitStack):
    host = overlay.hosts[0]
    pid = int((host.rundir / "ovs-vswitchd.pid").read_text())
    host.ofctl("add-flow", "priority=60000,in_port=a0,udp,tp_dst=1,actions=drop")  # ports matter
    host.forget()
    undo.callback(os.kill, pid, signal.SIGCONT)
    os.kill(pid, signal.SIGSTOP)

    def send() -> None:
        overlay.send("a", count=BURST, target_port=10_000, size=1_200, ports=BURST)

    seen = lens.look(host, "udp,nw_dst=10.0.0.12", send)
    full = {row["result"]: row["packets"] for row in seen["upcalls"]}
    assert full["EAGAIN"] > 0
    assert sum(full.values()) == packets(seen)["upcall"] == BURST
    verdict = diagnose(sender=view_of(seen))
    assert verdict.where == UPCALL_QUEUE
    assert any("EAGAIN" in line for line in verdict.evidence)
