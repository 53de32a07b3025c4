# SPDX-License-Identifier: Apache-2.0
"""Has agents trace pairs that need it, beside the windows: a trace takes longer than one.

One pair at a time per host, since a host makes one trace at a time; a host that cannot trace is not
asked again for long, one that did not answer for a while.
"""

import asyncio
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

import structlog

from analyzer.localize import stages
from analyzer.localize.evidence import OrderedPair, unordered
from analyzer.walker import TracesRpc
from netagent.model.errors import CapabilityMissing, NetAgentError
from netagent.wire.tracing import TraceReply, TraceRequest

DEADLINE_S = 140.0
"""An agent may have to compile first, beside all else that an emulated machine does."""
VALID_NS = 60_000_000_000
"""A trace is believed for so long, and then made again if it is still wanted."""
CANNOT_NS = 600_000_000_000
"""A host that cannot trace is left alone for so long."""
RETRY_NS = 30_000_000_000
"""And one that did not answer, or was busy, for so long."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Both directions of a pair, with what is asked of their hosts."""

    pair: OrderedPair
    hosts: tuple[str, str]
    forward: TraceRequest
    backward: TraceRequest


class Tracing:
    """Traces that run, and what those that ran say."""

    def __init__(self, agents: TracesRpc) -> None:
        self._agents = agents
        self._traced: dict[OrderedPair, tuple[int, stages.Traced]] = {}
        self._running: dict[OrderedPair, asyncio.Task[None]] = {}
        self._busy: set[str] = set()
        self._not_before_ns: dict[str, int] = {}

    def known(self, pair: OrderedPair, *, now_ns: int) -> stages.Traced | None:
        """Return what was seen of a pair, in either direction, if that is fresh."""
        at_ns, traced = self._traced.get(unordered(pair), (0, None))
        return traced if traced is not None and now_ns - at_ns < VALID_NS else None

    @property
    def busy(self) -> AbstractSet[str]:
        """Hosts that make a trace now."""
        return self._busy

    def under_way(self, pair: OrderedPair) -> bool:
        """Whether a pair is being traced."""
        return unordered(pair) in self._running

    def want(self, wanted: Iterable[Wanted], *, now_ns: int) -> None:
        """Trace these, as far as their hosts can and are idle."""
        for each in wanted:
            hosts = set(each.hosts)
            early = any(self._not_before_ns.get(host, 0) > now_ns for host in hosts)
            fresh = self.known(each.pair, now_ns=now_ns) is not None
            if fresh or early or hosts & self._busy or self.under_way(each.pair):
                continue
            self._busy |= hosts
            key = unordered(each.pair)
            self._running[key] = asyncio.create_task(self._run(each, now_ns))
            self._running[key].add_done_callback(partial(self._done, each))

    def _done(self, wanted: Wanted, _task: asyncio.Task[None]) -> None:
        self._running.pop(unordered(wanted.pair), None)
        self._busy -= set(wanted.hosts)

    async def _run(self, wanted: Wanted, now_ns: int) -> None:
        try:
            await self._trace(wanted, now_ns)
        except Exception:  # supervision: whatever it was, the pair may be traced again
            log.exception("trace_failed", pair=str(wanted.pair))

    async def _trace(self, wanted: Wanted, now_ns: int) -> None:
        forward = await self._both(wanted.pair, wanted.hosts, wanted.forward, now_ns)
        found = forward
        if forward is None or forward.verdict.where is None:
            back = (wanted.pair[1], wanted.pair[0])
            hosts = (wanted.hosts[1], wanted.hosts[0])
            backward = await self._both(back, hosts, wanted.backward, now_ns)
            if backward is not None and (forward is None or backward.verdict.where):
                found = backward
        if found is not None:
            self._traced[unordered(wanted.pair)] = (now_ns, found)
            log.info("pair_traced", pair=str(found.pair), verdict=str(found.verdict))

    async def _both(
        self, pair: OrderedPair, hosts: tuple[str, str], request: TraceRequest, now_ns: int
    ) -> stages.Traced | None:
        replies = await asyncio.gather(*(self._one(host, request, now_ns) for host in hosts))
        return stages.judge(pair, *replies) if any(replies) else None

    async def _one(self, host: str, request: TraceRequest, now_ns: int) -> TraceReply | None:
        try:
            reply = await self._agents.trace(host, request, deadline_s=DEADLINE_S)
        except NetAgentError as error:
            log.warning("not_traced", host=host, error=str(error))
            wait_ns = CANNOT_NS if isinstance(error, CapabilityMissing) else RETRY_NS
            self._not_before_ns[host] = now_ns + wait_ns
            return None
        if not reply.stages:
            self._not_before_ns[host] = now_ns + CANNOT_NS
            return None
        return reply

    async def close(self) -> None:
        """Cancel what runs."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
