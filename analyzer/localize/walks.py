# SPDX-License-Identifier: Apache-2.0
"""Questions about flow tables, one batch per host, and what the answers hold.

The walk starts at the source's host; where it ends in a tunnel, the far host is asked to go on with
the very header.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec import structs

from analyzer.localize.case import Endpoints, OrderedPair
from analyzer.questions import Ask, Asking, Failed
from analyzer.roster.registry import Registry
from netagent.model.endpoint import Endpoint
from netagent.model.errors import RemoteProtocolError
from netagent.wire.conversion import walk_from_wire
from netagent.wire.messages import (
    CheckReply,
    CheckRequest,
    EgressQuestion,
    IngressQuestion,
    Service,
)
from ovs_checks.openflow.addresses import canonical, destination, either_or_zero, text_of
from ovs_checks.openflow.notation import format_mac, mac, or_zero
from ovs_checks.translate.ends import End
from ovs_checks.walk.reach import Destination
from ovs_checks.walk.values import LocalWalk

Question = EgressQuestion | IngressQuestion
Walks = Mapping[OrderedPair, LocalWalk]
Ports = Mapping[OrderedPair, int]
"""The UDP source port to walk a pair with, where it matters."""
_ANY: Ports = {}


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet of a connection: the first one, or the first reply."""

    service: Service
    is_reply: bool = False

    def of(self, question: EgressQuestion | IngressQuestion) -> Question:
        """Return a question about a probe as one about this packet."""
        asked, ports = self.service, (self.service.source_port, self.service.port)
        source_port, port = reversed(ports) if self.is_reply else ports
        return structs.replace(
            question,
            protocol=asked.protocol,
            connection="reply" if self.is_reply else "new connection",
            source_port=source_port,
            destination_port=port,
        )


Packets = Mapping[OrderedPair, Packet]
"""What to walk pairs with instead of probes."""
PROBES: Packets = {}
Key = TypeVar("Key", bound=Hashable)

ANY_PORT = 40_000
"""UDP source port of a packet that stands for all flows of a pair."""
ROCE_PORT = 4791
"""UDP destination port of RoCE v2 (IBTA, annex A17)."""


def egress(
    pairs: Sequence[OrderedPair],
    endpoints: Endpoints,
    port: int,
    missing: list[str],
    source_ports: Ports = _ANY,
    packets: Packets = PROBES,
) -> Asking[dict[OrderedPair, LocalWalk]]:
    """Return the walk of each pair through its source's host; `missing` gets what was not read."""
    questions: dict[OrderedPair, tuple[str, Question]] = {}
    for pair in pairs:
        source_port = source_ports.get(pair, ANY_PORT)
        question: Question = egress_question(pair, endpoints, port=port, source_port=source_port)
        if (packet := packets.get(pair)) is not None:
            question = packet.of(question)
            if packet.service.address and not packet.is_reply:
                question = structs.replace(question, target_address=packet.service.address)
        questions[pair] = (endpoints[pair[0]].host, question)
    return (yield from batched(questions, missing))


def ingress(
    pairs: Sequence[OrderedPair],
    egress: Walks,
    endpoints: Endpoints,
    roster: Registry,
    port: int,
    missing: list[str],
    source_ports: Ports = _ANY,
    packets: Packets = PROBES,
) -> Asking[dict[OrderedPair, LocalWalk]]:
    """Return the walk through the far host, for pairs that leave by a tunnel to a known one."""
    questions: dict[OrderedPair, tuple[str, Question]] = {}
    for pair in pairs:
        there = {canonical(endpoints[pair[1]].underlay)}
        end = egress[pair].tunnelled_to(there) if pair in egress else None
        far = roster.host_of_underlay(end.tun_dst) if end else None
        if end is not None and far is not None:
            source_port = source_ports.get(pair, ANY_PORT)
            question: Question = ingress_question(
                pair, end, endpoints, port=port, source_port=source_port
            )
            if (packet := packets.get(pair)) is not None:
                question = packet.of(question)
                if packet.service.address and not packet.is_reply:  # what it balances to
                    question = structs.replace(question, destination_port=end.header.tp_dst)
                    address = packet.service.address
                    if canonical(destination(end.header)) == canonical(address):  # to nobody
                        question = structs.replace(question, target_address=address)
            questions[pair] = (far[0], question)
    return (yield from batched(questions, missing))


def batched(
    questions: Mapping[Key, tuple[str, Question]], missing: list[str]
) -> Asking[dict[Key, LocalWalk]]:
    """Return the walk for each question to a host; `missing` gets what was not read."""
    by_host: dict[str, list[Key]] = {}
    for key, (host, _) in questions.items():
        by_host.setdefault(host, []).append(key)
    if not by_host:
        return {}
    replies = yield [
        Ask(host, CheckRequest(questions=tuple(questions[key][1] for key in keys)))
        for host, keys in by_host.items()
    ]
    found: dict[Key, LocalWalk] = {}
    for (host, keys), reply in zip(by_host.items(), replies, strict=True):
        if not isinstance(reply, CheckReply):
            why = reply.text if isinstance(reply, Failed) else "answers something else"
            missing.append(f"flow tables of {host}: {why}")
            continue
        try:
            read = dict(zip(keys, map(walk_from_wire, reply.walks), strict=True))
        except (RemoteProtocolError, ValueError) as error:
            missing.append(f"flow tables of {host}: {error}")
            continue
        if any(walk.host != host for walk in read.values()):
            missing.append(f"flow tables of {host}: it speaks of another host")
        else:
            found |= read
    return found


def egress_question(
    pair: OrderedPair, endpoints: Endpoints, *, port: int, source_port: int = ANY_PORT
) -> EgressQuestion:
    """Return what to ask the source's host."""
    target = endpoints[pair[1]]
    return EgressQuestion(
        source=pair[0],
        target_address=target.address,
        target_mac=target.mac,
        source_port=source_port,
        destination_port=probed_port(target, port),
    )


def probed_port(target: Endpoint, port: int) -> int:
    """Return the UDP destination port of probes to `target`; `port` is that of UDP probes."""
    return ROCE_PORT if target.rdma else port


def ingress_question(
    pair: OrderedPair, end: End, endpoints: Endpoints, *, port: int, source_port: int = ANY_PORT
) -> IngressQuestion:
    """Return what to ask the host that the walk of `pair` tunnels to.

    Of the packet itself the source's host is believed only what one of its own flows wrote: a
    packet that it makes up would be stopped by another host's flow.
    """
    source, target = endpoints[pair[0]], endpoints[pair[1]]
    return IngressQuestion(
        rail=target.id.rail,
        tun_src=end.tun_src or source.underlay,
        tun_dst=end.tun_dst,
        tun_id=end.tun_id,
        options=end.options,
        source_address=source.address,
        source_mac=format_mac(end.header.eth_src) if end.eth_dst_by else source.mac,
        target_address=destination(end.header) if end.nw_dst_by else target.address,
        target_mac=format_mac(end.header.eth_dst) if end.eth_dst_by else target.mac,
        source_port=source_port,
        destination_port=probed_port(target, port),
    )


def expected(target: Endpoint) -> Destination:
    """Return where packets to an endpoint ought to arrive."""
    return Destination(
        target.host,
        target.port,
        canonical(target.underlay),
        or_zero(mac, target.mac) or None,
        text_of(*either_or_zero(target.address)),
    )
