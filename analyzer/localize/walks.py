# SPDX-License-Identifier: Apache-2.0
"""Questions about flow tables, one batch per host, and what the answers hold.

The walk starts at the source's host; where it ends in a tunnel, the far host is asked to go on with
the very header.
"""

from collections.abc import Mapping, Sequence

from analyzer.localize.case import Endpoints, OrderedPair
from analyzer.questions import Ask, Asking, Failed
from analyzer.roster.registry import Registry
from netagent.model.endpoint import Endpoint
from netagent.model.errors import RemoteProtocolError
from netagent.wire.conversion import walk_from_wire
from netagent.wire.messages import CheckReply, CheckRequest, EgressQuestion, IngressQuestion
from ovs_checks.translate.ends import End
from ovs_checks.walk.values import LocalWalk

Question = EgressQuestion | IngressQuestion
Walks = Mapping[OrderedPair, LocalWalk]

ROCE_PORT = 4791
"""UDP destination port of RoCE v2 (IBTA, annex A17)."""


def egress(
    pairs: Sequence[OrderedPair], endpoints: Endpoints, port: int, missing: list[str]
) -> Asking[dict[OrderedPair, LocalWalk]]:
    """Return the walk of each pair through its source's host; `missing` gets what was not read."""
    questions = {
        pair: (endpoints[pair[0]].host, egress_question(pair, endpoints, port=port))
        for pair in pairs
    }
    return (yield from _batched(questions, missing))


def ingress(
    pairs: Sequence[OrderedPair],
    egress: Walks,
    endpoints: Endpoints,
    roster: Registry,
    port: int,
    missing: list[str],
) -> Asking[dict[OrderedPair, LocalWalk]]:
    """Return the walk through the far host, for pairs that leave by a tunnel to a known one."""
    questions: dict[OrderedPair, tuple[str, Question]] = {}
    for pair in pairs:
        there = {endpoints[pair[1]].underlay}
        end = egress[pair].tunnelled_to(there) if pair in egress else None
        far = roster.host_of_underlay(end.tun_dst) if end else None
        if end is not None and far is not None:
            questions[pair] = (far[0], ingress_question(pair, end, endpoints, port=port))
    return (yield from _batched(questions, missing))


def _batched(
    questions: Mapping[OrderedPair, tuple[str, Question]], missing: list[str]
) -> Asking[dict[OrderedPair, LocalWalk]]:
    by_host: dict[str, list[OrderedPair]] = {}
    for pair, (host, _) in questions.items():
        by_host.setdefault(host, []).append(pair)
    if not by_host:
        return {}
    replies = yield [
        Ask(host, CheckRequest(questions=tuple(questions[pair][1] for pair in pairs)))
        for host, pairs in by_host.items()
    ]
    found: dict[OrderedPair, LocalWalk] = {}
    for (host, pairs), reply in zip(by_host.items(), replies, strict=True):
        if not isinstance(reply, CheckReply):
            why = reply.text if isinstance(reply, Failed) else "answers something else"
            missing.append(f"flow tables of {host}: {why}")
            continue
        try:
            read = dict(zip(pairs, map(walk_from_wire, reply.walks), strict=True))
        except (RemoteProtocolError, ValueError) as error:
            missing.append(f"flow tables of {host}: {error}")
            continue
        if any(walk.host != host for walk in read.values()):
            missing.append(f"flow tables of {host}: it speaks of another host")
        else:
            found |= read
    return found


def egress_question(pair: OrderedPair, endpoints: Endpoints, *, port: int) -> EgressQuestion:
    """Return what to ask the source's host."""
    target = endpoints[pair[1]]
    return EgressQuestion(
        source=pair[0],
        target_address=target.address,
        target_mac=target.mac,
        destination_port=probed_port(target, port),
    )


def probed_port(target: Endpoint, port: int) -> int:
    """Return the UDP destination port of probes to `target`; `port` is that of UDP probes."""
    return ROCE_PORT if target.rdma else port


def ingress_question(
    pair: OrderedPair, end: End, endpoints: Endpoints, *, port: int
) -> IngressQuestion:
    """Return what to ask the host that the walk of `pair` tunnels to."""
    source, target = endpoints[pair[0]], endpoints[pair[1]]
    return IngressQuestion(
        rail=target.id.rail,
        tun_src=end.tun_src or source.underlay,
        tun_dst=end.tun_dst,
        tun_id=end.tun_id,
        source_address=source.address,
        source_mac=source.mac,
        target_address=target.address,
        target_mac=target.mac,
        destination_port=probed_port(target, port),
    )
