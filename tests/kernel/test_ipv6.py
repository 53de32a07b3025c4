# SPDX-License-Identifier: Apache-2.0
"""The same programs where addresses are IPv6: inside of the tunnels, outside, and both."""

import secrets
import socket
from collections.abc import Iterator

import pytest

from bpf.trace.journey import EGRESS, INGRESS, diagnose, view_of
from netagent.adapters.host.setns import call_in_namespace
from tests.conftest import KERNEL, require
from tests.kernel.conftest import Lens, packets
from tests.kernel.overlay import UNDERLAY, Overlay

pytestmark = pytest.mark.kernel

COUNT = 23
WORDS = {4: ("udp", "nw_src", "nw_dst"), 6: ("udp6", "ipv6_src", "ipv6_dst")}
PADDING = bytes([0, 0, 1, 4, 0, 0, 0, 0])
"""Hop-by-hop options that ask for nothing (RFC 8200, 4.2): PadN of six bytes."""


MIXES = [
    pytest.param((6, 4), id="6 in 4"),
    pytest.param((4, 6), id="4 in 6"),
    pytest.param((6, 6), id="6 in 6", marks=pytest.mark.again),
]
"""Inner and outer versions: two show each of both in each place."""


@pytest.fixture(scope="module", params=MIXES)
def mixed(request: pytest.FixtureRequest) -> Iterator[Overlay]:
    """Two hosts of each mix, one after the other."""
    require(KERNEL)
    inner, outer = request.param
    made = Overlay(inner=inner, outer=outer)
    yield made
    made.close()


def flow_of(overlay: Overlay, target: int, more: str = "") -> str:
    protocol, *words = WORDS[overlay.inner]
    ends = [f"{word}={end}" for word, end in zip(words, overlay.addresses, strict=True)]
    return ",".join([protocol, *ends, f"tp_dst={target}"]) + more


def port() -> int:
    return 20_000 + secrets.randbelow(20_000)


def test_every_stage_counts_what_is_sent_and_both_headers_are_told(lens: Lens, mixed: Overlay):
    sender, receiver = mixed.hosts
    target = port()

    def send() -> None:
        mixed.deliver("a", count=COUNT, target_port=target)

    send()  # the datapath has the flow now
    out, into = (lens.look(host, flow_of(mixed, target), send) for host in (sender, receiver))
    for seen, stages in ((out, EGRESS), (into, INGRESS)):
        way = [stage for stage in stages if not stage.startswith("rxe")]
        assert {stage: packets(seen)[stage] for stage in way} == dict.fromkeys(way, COUNT)
        assert seen["drops"] == []
        ends = {(row["source"], row["target"], row["vni"]) for row in seen["outers"]}
        assert ends == {(*UNDERLAY[sender.outer], 100)}
        assert sum(row["packets"] for row in seen["outers"]) == COUNT
        words = set(flow_of(mixed, target).split(","))
        assert all(words <= set(row["flow"].split(",")) for row in seen["outers"])
    assert str(diagnose(sender=view_of(out), receiver=view_of(into))).startswith("no packet vanish")


def test_the_other_family_and_the_other_tenant_do_not_count(lens: Lens, mixed: Overlay):
    target, other = port(), {4: "ipv6", 6: "ip"}[mixed.inner]

    def send() -> None:
        mixed.deliver("a", count=3, target_port=target)

    send()
    seen = lens.look(mixed.hosts[0], other, send)
    assert seen["outers"] == []
    foreign = lens.look(mixed.hosts[0], flow_of(mixed, target, ",tun_id=200"), send)
    assert packets(foreign)["uplink_transmit"] == 0
    assert {r["stage"]: r["foreign"] for r in foreign["stages"]}["uplink_transmit"] == 3


def test_packets_that_come_back_from_an_upcall_are_known_again(lens: Lens, mixed: Overlay):
    """Several of one flow at once, too; of those that a port brought, none is forgotten."""
    target, host = port(), mixed.hosts[0]

    def send() -> None:
        host.forget()
        mixed.deliver("a", count=5, target_port=target)

    seen = lens.look(host, flow_of(mixed, target, ",in_port=a0"), send)
    counted = packets(seen)
    assert counted["upcall"] >= 1
    if mixed.inner == 6:  # an IPv4 packet that may not be fragmented has no identification
        assert counted["execute"] == counted["upcall"]
        assert counted["lookup"] == counted["actions"] == counted["uplink_transmit"] == 5
    back = next(j for j in seen["journeys"] if any(h["stage"] == "execute" for h in j["hops"]))
    stages = [hop["stage"] for hop in back["hops"]]
    assert stages[:5] == ["port_receive", "lookup", "upcall", "execute", "actions"]
    assert stages[-1] == "uplink_transmit"


def test_what_a_flow_drops_is_dropped_there(lens: Lens, mixed: Overlay):
    sender, receiver = mixed.hosts
    target = port()
    protocol = WORDS[mixed.inner][0]
    receiver.ofctl("add-flow", f"priority=60000,{protocol},tp_dst={target},actions=drop")
    receiver.forget()

    def send() -> None:
        mixed.send("a", count=COUNT, target_port=target)

    flow = flow_of(mixed, target)
    out, into = lens.look(sender, flow, send), lens.look(receiver, flow, send)
    receiver.forward()
    verdict = diagnose(sender=view_of(out), receiver=view_of(into))
    assert (verdict.where, verdict.host) == ("datapath action drop", "receiver")


def test_what_is_behind_extension_headers_is_counted_as_unreadable(lens: Lens, mixed: Overlay):
    if mixed.inner != 6:
        pytest.skip("IPv4 has no extension headers")
    host, target = mixed.hosts[0], port()

    def send() -> None:
        def make() -> socket.socket:
            return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)

        with call_in_namespace(f"/run/netns/{host.inside('a')}", make) as sender:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_HOPOPTS, PADDING)
            for _ in range(COUNT):
                sender.sendto(bytes(64), (mixed.addresses[1], target))

    seen = lens.look(host, flow_of(mixed, target), send)
    assert packets(seen)["port_receive"] == 0
    assert seen["lost"]["unreadable"] >= COUNT
