# SPDX-License-Identifier: Apache-2.0
"""Where flow tables and votes leave a doubt, traces are asked for, and their answers taken in.

A trace compiles and hooks into the kernel: it is asked for doubts that last two windows, of hosts
that are not too busy to answer probes.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from analyzer.detect.loss import FlowView
from analyzer.localize import overlay, stages
from analyzer.localize.evidence import Evidence, OrderedPair, pair_of, unordered
from analyzer.localize.facts import Explained
from analyzer.tracing import Tracing, Wanted
from analyzer.walker import TracesRpc
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from ovs_checks.reach import Reach
from ovs_checks.walk import LocalWalk

HOLD_NS = 30_000_000_000
"""A pair's losses are kept from the vote for so long at most while it is being traced; a doubt that
is not there for so long is over."""
_INSIDE = {Kind.RNIC, Kind.HOST, Kind.ENDPOINT, Kind.CONTAINER}
"""What a vote may name that a trace of the hosts says more about."""


@dataclass(frozen=True, slots=True)
class Walked:
    """What the flow tables say of a window's dead pairs."""

    explained: tuple[Explained, ...] = ()
    missing: tuple[str, ...] = ()
    reaches: Mapping[OrderedPair, Reach] = field(default_factory=dict)
    egress: Mapping[OrderedPair, LocalWalk] = field(default_factory=dict)

    def delivered(self) -> list[OrderedPair]:
        """Return, once each, the dead pairs that the tables deliver both ways."""
        fine = {pair for pair, reach in self.reaches.items() if reach.outcome == "delivered"}
        return sorted((a, b) for a, b in fine if a < b and (b, a) in fine)


class Doubts:
    """Pairs whose losses nothing explains yet, and the traces made of them."""

    def __init__(self, probe_port: int) -> None:
        self._probe_port = probe_port
        self._tracing: Tracing | None = None
        self._since_ns: dict[OrderedPair, tuple[int, int]] = {}
        """When each doubt began, and when it was last there."""
        self._mute: AbstractSet[str] = frozenset()
        self._named: set[Component | None] = set()
        """By the vote of the window before: what lasts one window only is not worth a trace."""

    def ask(self, agents: TracesRpc) -> None:
        """Ask these agents from now on."""
        self._tracing = Tracing(agents)

    def settle(
        self,
        evidence: Evidence,
        walked: Walked,
        flows: Sequence[FlowView],
        *,
        mute: AbstractSet[str],
        now_ns: int,
    ) -> list[Explained]:
        """Return what traces explain of the pairs that the tables deliver, and ask for more.

        The hosts in `mute` were too busy to answer probes: a trace would make that worse.
        """
        self._mute = mute
        doubtful = [pair for pair in walked.delivered() if not mute & _hosts(pair, evidence)]
        self._doubt(doubtful, now_ns)
        if self._tracing is None:
            return []
        tunnels = _tunnels(walked)
        settled: list[Explained] = []
        for pair in doubtful:
            mine = tuple(v for v in flows if v.lost and unordered(pair_of(v.flow)) == pair)
            traced = self._tracing.known(pair, now_ns=now_ns)
            found = traced and stages.explain(traced, mine, evidence.endpoints, tunnels)
            if mine and found:
                settled.append(found)
        lasting = [pair for pair in doubtful if self._since_ns[pair][0] < now_ns]
        wanted = [self._wanted(pair, evidence, walked) for pair in lasting]
        self._tracing.want(wanted, now_ns=now_ns)
        return settled

    def _doubt(self, pairs: Sequence[OrderedPair], now_ns: int) -> None:
        # A window whose tables could not be read ends no doubt.
        for pair in pairs:
            self._since_ns[pair] = (self._since_ns.get(pair, (now_ns, 0))[0], now_ns)
        self._since_ns = {
            pair: (since_ns, last_ns)
            for pair, (since_ns, last_ns) in self._since_ns.items()
            if now_ns - last_ns < HOLD_NS
        }

    def leave(self, flows: Sequence[FlowView], *, now_ns: int) -> tuple[FlowView, ...]:
        """Return the flows that may be voted on: not those that are being traced just now."""
        held = {
            pair
            for pair, (since_ns, _) in self._since_ns.items()
            if self._tracing and self._tracing.under_way(pair) and now_ns - since_ns < HOLD_NS
        }
        return tuple(view for view in flows if unordered(pair_of(view.flow)) not in held)

    def tell(
        self,
        evidence: Evidence,
        voted: Sequence[Explained],
        *,
        unread: bool = False,
        now_ns: int,
    ) -> list[Explained]:
        """Return the voted verdicts with what traces add, and ask for traces that could.

        Not where flow tables are `unread`: they cost less, and are asked again.
        """
        if self._tracing is None:
            return list(voted)
        before, self._named = self._named, {each.verdict.component for each in voted}
        told: list[Explained] = []
        for each in voted:
            component, failing = each.verdict.component, each.verdict.failing
            if component is None or component.kind not in _INSIDE or not failing:
                told.append(each)
                continue
            pair = unordered((failing[0].source, failing[0].target))
            traced = self._tracing.known(pair, now_ns=now_ns)
            told.append(stages.told(each, traced) if traced else each)
            if component in before and not unread and not self._mute & _hosts(pair, evidence):
                self._tracing.want([self._wanted(pair, evidence, Walked())], now_ns=now_ns)
        return told

    def _wanted(self, pair: OrderedPair, evidence: Evidence, walked: Walked) -> Wanted:
        forward, backward = (
            stages.question(
                way, evidence.endpoints, port=self._probe_port, vni=_vni(walked.egress.get(way))
            )
            for way in (pair, (pair[1], pair[0]))
        )
        ends = (evidence.endpoints[key].host for key in pair)
        return Wanted(pair, (next(ends), next(ends)), forward, backward)


def _hosts(pair: OrderedPair, evidence: Evidence) -> set[str]:
    return {evidence.endpoints[key].host for key in pair}


def _vni(walk: LocalWalk | None) -> int:
    end = overlay.tunnelled(walk) if walk else None
    return (end.tun_id or 0) if end else 0


def _tunnels(walked: Walked) -> dict[EndpointId, str]:
    ends = {pair[0]: overlay.tunnelled(walk) for pair, walk in walked.egress.items()}
    return {source: end.port for source, end in ends.items() if end is not None}
