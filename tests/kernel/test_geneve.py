# SPDX-License-Identifier: Apache-2.0
"""The same programs on tunnels of Geneve, with an option as OVN puts on every packet."""

import secrets
from collections.abc import Iterator

import pytest

from bpf.kernel.host import read_facts
from bpf.kernel.loader import Sizes, load
from bpf.trace.journey import EGRESS, INGRESS, diagnose, view_of
from bpf.trace.programs import choose
from netagent.model.encapsulation import GENEVE
from tests.conftest import KERNEL, require
from tests.kernel.conftest import Lens, packets
from tests.kernel.overlay import Overlay

pytestmark = pytest.mark.kernel

COUNT = 23
OPTION = "{class=0x102,type=0x80,len=4}->tun_metadata0"


@pytest.fixture(scope="module")
def overlay() -> Iterator[Overlay]:
    """Two hosts whose packets carry an option."""
    require(KERNEL)
    made = Overlay(tunnel="geneve")
    for host in made.hosts:
        host.ofctl("add-tlv-map", OPTION)
        actions = "set_field:0x10002->tun_metadata0,output:vxa"
        host.ofctl("add-flow", f"priority=50000,in_port=a{host.number},actions={actions}")
        host.forget()
    yield made
    made.close()


@pytest.fixture(scope="module")
def lens(overlay: Overlay) -> Iterator[Lens]:
    """Load the programs for Geneve; the overlay has loaded its driver."""
    facts = read_facts()
    programs, refusals = choose("path", facts, GENEVE.kind)
    assert [each for each in refusals if each.program in {"encapsulate", "decapsulate"}] == []
    assert facts.layout is not None
    with load(programs, facts, facts.layout, Sizes(4096, 1024, 64)) as tracer:
        assert tracer.refusals == []
        yield Lens(tracer, facts, GENEVE)


def test_every_stage_counts_what_is_sent(lens: Lens, overlay: Overlay) -> None:
    sender, receiver = overlay.hosts
    target = 20_000 + secrets.randbelow(20_000)
    flow = f"udp,nw_src=10.0.0.10,nw_dst=10.0.0.12,tp_dst={target}"

    def send() -> None:
        overlay.deliver("a", count=COUNT, target_port=target)

    send()  # the datapath has the flow now
    out, into = lens.look(sender, flow, send), lens.look(receiver, flow, send)
    for seen, stages in ((out, EGRESS), (into, INGRESS)):
        way = [stage for stage in stages if not stage.startswith("rxe")]
        assert {stage: packets(seen)[stage] for stage in way} == dict.fromkeys(way, COUNT)
    assert [(row["vni"], row["packets"]) for row in out["outers"]] == [(100, COUNT)]
    assert str(diagnose(sender=view_of(out), receiver=view_of(into))).startswith("no packet vanish")


def test_what_a_flow_drops_is_dropped_by_a_flow_and_not_lost_in_the_tunnel(
    lens: Lens, overlay: Overlay
) -> None:
    sender, receiver = overlay.hosts
    target = 20_000 + secrets.randbelow(20_000)
    flow = f"udp,nw_src=10.0.0.10,nw_dst=10.0.0.12,tp_dst={target}"
    receiver.ofctl("add-flow", f"priority=60000,udp,tp_dst={target},actions=drop")
    receiver.forget()

    def send() -> None:
        overlay.send("a", count=COUNT, target_port=target)

    out, into = lens.look(sender, flow, send), lens.look(receiver, flow, send)
    verdict = diagnose(sender=view_of(out), receiver=view_of(into))
    assert (verdict.where, verdict.host) == ("datapath action drop", "receiver")
