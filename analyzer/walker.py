# SPDX-License-Identifier: Apache-2.0
"""Questions about flow tables, one batch per host."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import structlog

from analyzer.localize import hops, overlay
from analyzer.localize.evidence import OrderedPair
from analyzer.registry import Registry
from netagent.model.endpoint import Endpoint
from netagent.model.errors import NetAgentError
from netagent.model.ids import EndpointId, FlowId
from netagent.wire.messages import (
    CheckReply,
    CheckRequest,
    EgressQuestion,
    IngressQuestion,
    PathAnswer,
    PathReply,
    PathRequest,
    Status,
)
from netagent.wire.tracing import TraceReply, TraceRequest
from ovs_checks.walk import LocalWalk

CHECK_DEADLINE_S = 5.0
COUNT_DEADLINE_S = 4.0

T = TypeVar("T")
Question = EgressQuestion | IngressQuestion
Endpoints = Mapping[EndpointId, Endpoint]

log = structlog.get_logger()


class TracesRpc(Protocol):
    """What is asked of agents; `analyzer.fleet.Fleet` in production."""

    async def trace(
        self, host: str, request: TraceRequest, *, deadline_s: float = ...
    ) -> TraceReply:
        """Return what a host's trace saw; raises Unreachable, or RemoteProtocolError if refused."""


class AgentsRpc(TracesRpc, Protocol):
    """What is asked of agents; `analyzer.fleet.Fleet` in production."""

    async def status(self, host: str, *, deadline_s: float = ...) -> Status:
        """Return the agent's status; raises Unreachable."""

    async def check(
        self, host: str, request: CheckRequest, *, deadline_s: float = ...
    ) -> CheckReply:
        """Return walks through the host's flow tables; raises Unreachable."""

    async def path(self, host: str, request: PathRequest, *, deadline_s: float = ...) -> PathReply:
        """Return outer paths, and counts per router if asked for; raises Unreachable."""


class Walker:
    """Asks agents for walks, one question batch per host."""

    def __init__(
        self,
        agents: AgentsRpc,
        registry: Registry,
        endpoints: Mapping[EndpointId, Endpoint],
        port: int,
    ) -> None:
        self._agents, self._registry = agents, registry
        self._endpoints, self._port = endpoints, port
        self.missing: list[str] = []

    async def egress(self, pairs: Sequence[OrderedPair]) -> dict[OrderedPair, LocalWalk]:
        """Return the walk of each pair through its source's host."""
        return await self._ask(
            {
                pair: (
                    self._endpoints[pair[0]].host,
                    overlay.egress_question(pair, self._endpoints, port=self._port),
                )
                for pair in pairs
            }
        )

    async def ingress(
        self, pairs: Sequence[OrderedPair], egress: Mapping[OrderedPair, LocalWalk]
    ) -> dict[OrderedPair, LocalWalk]:
        """Return the walk through the far host, for pairs that leave by a tunnel to a known one."""
        questions: dict[OrderedPair, tuple[str, Question]] = {}
        for pair in pairs:
            there = {self._endpoints[pair[1]].underlay}
            end = egress[pair].tunnelled_to(there) if pair in egress else None
            far = self._registry.host_of_underlay(end.tun_dst) if end else None
            if end is not None and far is not None:
                question = overlay.ingress_question(pair, end, self._endpoints, port=self._port)
                questions[pair] = (far[0], question)
        return await self._ask(questions)

    async def _ask(
        self, questions: Mapping[OrderedPair, tuple[str, Question]]
    ) -> dict[OrderedPair, LocalWalk]:
        by_host: dict[str, list[OrderedPair]] = {}
        for pair, (host, _) in questions.items():
            by_host.setdefault(host, []).append(pair)

        async def ask(host: str, pairs: list[OrderedPair]) -> dict[OrderedPair, LocalWalk]:
            asked = tuple(questions[pair][1] for pair in pairs)
            request = CheckRequest(questions=asked)
            try:
                reply = await self._agents.check(host, request, deadline_s=CHECK_DEADLINE_S)
                walks = [LocalWalk.from_data(walk) for walk in reply.walks]
                return dict(zip(pairs, walks, strict=True))
            except (NetAgentError, ValueError) as error:
                self.missing.append(f"flow tables of {host}: {error}")
                return {}

        return _merged(await _all(ask(host, pairs) for host, pairs in by_host.items()))


async def count_hops(
    agents: AgentsRpc, flows: Iterable[FlowId], endpoints: Endpoints, *, large: bool
) -> dict[FlowId, PathAnswer]:
    """Have the flows' hosts count packets per router; what cannot be had is left out."""

    async def ask(flow: FlowId) -> tuple[FlowId, PathAnswer] | None:
        source = endpoints[flow.source]
        host, request = source.host, hops.question(flow, source, large=large)
        try:
            reply = await agents.path(host, request, deadline_s=COUNT_DEADLINE_S)
        except NetAgentError as error:
            log.warning("hops_not_counted", host=host, error=str(error))
            return None
        return (flow, reply.paths[0]) if reply.paths else None

    answers = await _all(ask(flow) for flow in flows)
    return dict(answer for answer in answers if answer is not None)


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*work))


def _merged(parts: Iterable[Mapping[OrderedPair, LocalWalk]]) -> dict[OrderedPair, LocalWalk]:
    return {pair: walk for part in parts for pair, walk in part.items()}
