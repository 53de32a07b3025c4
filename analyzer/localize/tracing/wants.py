# SPDX-License-Identifier: Apache-2.0
"""Traces that are wanted, that run and that ran: questions that outlive a window.

A trace takes longer than a window. A host makes one trace at a time, so each host traces one pair
at a time. A host that cannot trace is left alone for CANNOT_NS, one that did not answer for
RETRY_NS. Pure: `due` returns the questions to send, and `answer` takes the replies.
"""

from collections import deque
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from analyzer.localize.case import OrderedPair, unordered
from analyzer.localize.tracing import stages
from analyzer.questions import Ask, Failed, Reply, Why
from netagent.wire.trace import TraceReply, TraceRequest

DEADLINE_S = 140.0
"""Seconds that a trace may take. Chosen: an agent may have to compile first, on a busy emulated
machine."""
VALID_NS = 60_000_000_000
"""Nanoseconds for which a trace is trusted in which packets vanished (decision 25). Chosen: it
seldom changes within a minute; then a new trace is made if still wanted."""
EMPTY_NS = 15_000_000_000
"""Nanoseconds for which a pair's first trace is trusted in which nothing vanished (decision 25).
Chosen: it may have run before the fault. Each further empty trace of the pair is trusted for twice
as long as the one before."""
MAX_EMPTY_NS = 240_000_000_000
"""Most nanoseconds for which a trace is trusted in which nothing vanished. Chosen: 16 times
EMPTY_NS; a pair that keeps losing is looked at again."""
CANNOT_NS = 600_000_000_000
"""Nanoseconds for which a host that cannot trace is not asked again. Chosen: only an installation
or a restart changes that."""
RETRY_NS = 30_000_000_000
"""Nanoseconds for which a host that was busy or did not answer is not asked again. Chosen: it needs
its CPU for other things."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Both directions of a pair, with the requests to their hosts."""

    pair: OrderedPair
    hosts: tuple[str, str]
    """Hosts of the pair's source and target."""
    forward: tuple[TraceRequest, TraceRequest]
    """Requests to the source's and the target's host, about packets from source to target."""
    backward: tuple[TraceRequest, TraceRequest]
    """Requests to the target's and the source's host, about packets from target to source."""


@dataclass(frozen=True, slots=True)
class _Kept:
    traced: stages.Traced
    until_ns: int
    """Instant until which the trace is trusted."""
    next_ns: int
    """Nanoseconds for which the pair's next trace is trusted, if nothing vanishes in it."""


@dataclass(slots=True)
class _Running:
    wanted: Wanted
    forward: stages.Traced | None = None
    back: bool = False
    """Whether the way back is traced now."""
    replies: dict[int, TraceReply | None] = field(default_factory=dict)
    """Position -> reply; position 0 is the sender's host, 1 the receiver's."""

    @property
    def pair(self) -> OrderedPair:
        pair = self.wanted.pair
        return (pair[1], pair[0]) if self.back else pair

    @property
    def asks(self) -> list[Ask]:
        hosts = self.wanted.hosts[::-1] if self.back else self.wanted.hosts
        requests = self.wanted.backward if self.back else self.wanted.forward
        return [Ask(host, request) for host, request in zip(hosts, requests, strict=True)]


Token = tuple[OrderedPair, bool, int]
"""Unordered pair, whether the way back is traced, and which of its two hosts is asked."""


class Wants:
    """Traces by pair."""

    def __init__(self) -> None:
        self._traced: dict[OrderedPair, _Kept] = {}
        self._running: dict[OrderedPair, _Running] = {}
        self._due: deque[tuple[Token, Ask]] = deque()
        self._not_before_ns: dict[str, int] = {}

    def known(self, pair: OrderedPair, *, now_ns: int) -> stages.Traced | None:
        """Return the pair's trace, of either direction, while it is trusted; else None."""
        kept = self._traced.get(unordered(pair))
        return kept.traced if kept is not None and now_ns < kept.until_ns else None

    def healed(self, pairs: AbstractSet[OrderedPair], *, now_ns: int) -> None:
        """Trust traces of these pairs no longer in which packets vanished: the fault is over."""
        for pair in pairs & self._traced.keys():
            if self._traced[pair].traced.verdict.where is not None:
                self._traced[pair] = replace(self._traced[pair], until_ns=now_ns)

    @property
    def traced(self) -> AbstractSet[OrderedPair]:
        """Return the unordered pairs that have a trace, trusted or not."""
        return self._traced.keys()

    @property
    def busy(self) -> AbstractSet[str]:
        """Return the hosts that make a trace now."""
        return {host for each in self._running.values() for host in each.wanted.hosts}

    def under_way(self, pair: OrderedPair) -> bool:
        """Whether a pair is being traced."""
        return unordered(pair) in self._running

    def want(self, wanted: Iterable[Wanted], *, now_ns: int) -> None:
        """Trace these pairs, except where a host cannot, is busy or is left alone."""
        busy = set(self.busy)
        for each in wanted:
            hosts = set(each.hosts)
            early = any(self._not_before_ns.get(host, 0) > now_ns for host in hosts)
            fresh = self.known(each.pair, now_ns=now_ns) is not None
            if len(hosts) < 2 or fresh or early or hosts & busy or self.under_way(each.pair):
                continue
            busy |= hosts
            self._running[unordered(each.pair)] = running = _Running(each)
            self._ask(running)

    def _ask(self, running: _Running) -> None:
        key = unordered(running.wanted.pair)
        self._due.extend(((key, running.back, n), ask) for n, ask in enumerate(running.asks))

    def due(self) -> list[tuple[Token, Ask]]:
        """Return, once each, the questions to put to agents now."""
        due = list(self._due)
        self._due.clear()
        return due

    def answer(self, token: Token, reply: Reply, *, now_ns: int) -> stages.Traced | None:
        """Take the reply to a question; return what the pair's traces say once they are done."""
        key, back, position = token
        running = self._running.get(key)
        if running is None or running.back is not back:
            return None
        host = running.asks[position].host
        running.replies[position] = self._checked(host, reply, now_ns)
        if len(running.replies) < len(running.asks):
            return None
        sender, receiver = running.replies[0], running.replies[1]
        requests = running.wanted.backward if back else running.wanted.forward
        by_roce = stages.is_roce(requests[1])
        found = None
        if sender or receiver:
            found = stages.judge(running.pair, sender, receiver, by_roce=by_roce)
        if not back and (found is None or found.verdict.where is None):
            running.forward, running.back, running.replies = found, True, {}
            self._ask(running)
            return None
        if back and (found is None or (running.forward and not found.verdict.where)):
            found = running.forward
        del self._running[key]
        if found is not None:
            self._keep(key, found, now_ns)
        return found

    def _checked(self, host: str, reply: Reply, now_ns: int) -> TraceReply | None:
        if isinstance(reply, TraceReply) and reply.stages:
            return reply
        cannot = isinstance(reply, TraceReply) or (
            isinstance(reply, Failed) and reply.why is Why.CANNOT
        )
        self._not_before_ns[host] = now_ns + (CANNOT_NS if cannot else RETRY_NS)
        return None

    def _keep(self, key: OrderedPair, found: stages.Traced, now_ns: int) -> None:
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
