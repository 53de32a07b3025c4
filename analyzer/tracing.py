# SPDX-License-Identifier: Apache-2.0
"""Has agents trace pairs that need it, beside the windows: a trace takes longer than one.

One pair at a time per host, since a host makes one trace at a time; a host that cannot trace is not
asked again for long, one that did not answer for a while.
"""

import asyncio
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
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
EMPTY_NS = 15_000_000_000
"""One in which nothing vanished for so long: it may have come before what is asked about now. The
next one of the same pair twice as long, and so on."""
MAX_EMPTY_NS = 240_000_000_000
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
    forward: tuple[TraceRequest, TraceRequest]
    """Of the host that sends, and of the one that receives."""
    backward: tuple[TraceRequest, TraceRequest]


@dataclass(frozen=True, slots=True)
class _Kept:
    traced: stages.Traced
    until_ns: int
    """It is believed until then."""
    next_ns: int
    """For how long the next one will be, if nothing vanishes in it."""


class Tracing:
    """Traces that run, and what those that ran say."""

    def __init__(self, agents: TracesRpc, clock: Callable[[], int]) -> None:
        self._agents, self._clock = agents, clock
        self._traced: dict[OrderedPair, _Kept] = {}
        self._running: dict[OrderedPair, asyncio.Task[None]] = {}
        self._busy: set[str] = set()
        self._not_before_ns: dict[str, int] = {}

    def known(self, pair: OrderedPair) -> stages.Traced | None:
        """Return what was seen of a pair, in either direction, if that is fresh."""
        kept = self._traced.get(unordered(pair))
        return kept.traced if kept is not None and self._clock() < kept.until_ns else None

    def healed(self, pairs: AbstractSet[OrderedPair]) -> None:
        """Believe no trace of these in which packets vanished: that is over."""
        now_ns = self._clock()
        for pair in pairs & self._traced.keys():
            if self._traced[pair].traced.verdict.where is not None:
                self._traced[pair] = replace(self._traced[pair], until_ns=now_ns)

    @property
    def busy(self) -> AbstractSet[str]:
        """Hosts that make a trace now."""
        return self._busy

    def under_way(self, pair: OrderedPair) -> bool:
        """Whether a pair is being traced."""
        return unordered(pair) in self._running

    def want(self, wanted: Iterable[Wanted]) -> None:
        """Trace these, as far as their hosts can and are idle."""
        for each in wanted:
            hosts = set(each.hosts)
            early = any(self._not_before_ns.get(host, 0) > self._clock() for host in hosts)
            fresh = self.known(each.pair) is not None
            if len(hosts) < 2 or fresh or early or hosts & self._busy or self.under_way(each.pair):
                continue
            self._busy |= hosts
            key = unordered(each.pair)
            self._running[key] = asyncio.create_task(self._run(each))
            self._running[key].add_done_callback(partial(self._done, each))

    def _done(self, wanted: Wanted, _task: asyncio.Task[None]) -> None:
        self._running.pop(unordered(wanted.pair), None)
        self._busy -= set(wanted.hosts)

    async def _run(self, wanted: Wanted) -> None:
        try:
            await self._trace(wanted)
        except Exception:  # supervision: whatever it was, the pair may be traced again
            log.exception("trace_failed", pair=str(wanted.pair))

    async def _trace(self, wanted: Wanted) -> None:
        forward = await self._both(wanted.pair, wanted.hosts, wanted.forward)
        found = forward
        if forward is None or forward.verdict.where is None:
            back = (wanted.pair[1], wanted.pair[0])
            hosts = (wanted.hosts[1], wanted.hosts[0])
            backward = await self._both(back, hosts, wanted.backward)
            if backward is not None and (forward is None or backward.verdict.where):
                found = backward
        if found is not None:
            self._keep(unordered(wanted.pair), found)
            log.info("pair_traced", pair=str(found.pair), verdict=str(found.verdict))

    def _keep(self, key: OrderedPair, found: stages.Traced) -> None:
        now_ns = self._clock()
        self._traced = {
            pair: kept
            for pair, kept in self._traced.items()
            if now_ns < kept.until_ns + MAX_EMPTY_NS
        }
        before = self._traced.get(key)
        is_empty = found.verdict.where is None
        valid_ns = before.next_ns if is_empty and before else EMPTY_NS
        self._traced[key] = _Kept(
            found,
            now_ns + (valid_ns if is_empty else VALID_NS),
            min(2 * valid_ns, MAX_EMPTY_NS) if is_empty else EMPTY_NS,
        )

    async def _both(
        self, pair: OrderedPair, hosts: tuple[str, str], asked: tuple[TraceRequest, TraceRequest]
    ) -> stages.Traced | None:
        asking = [self._one(host, request) for host, request in zip(hosts, asked, strict=True)]
        replies = await asyncio.gather(*asking)
        return stages.judge(pair, *replies) if any(replies) else None

    async def _one(self, host: str, request: TraceRequest) -> TraceReply | None:
        try:
            reply = await self._agents.trace(host, request, deadline_s=DEADLINE_S)
        except NetAgentError as error:
            log.warning("not_traced", host=host, error=str(error))
            wait_ns = CANNOT_NS if isinstance(error, CapabilityMissing) else RETRY_NS
            self._not_before_ns[host] = self._clock() + wait_ns
            return None
        if not reply.stages:
            self._not_before_ns[host] = self._clock() + CANNOT_NS
            return None
        return reply

    async def close(self) -> None:
        """Cancel what runs."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
