# SPDX-License-Identifier: Apache-2.0
"""Where flow tables and votes leave a doubt, traces are asked for, and their answers taken in.

A trace compiles and hooks into the kernel: it is asked for doubts that last two windows, of hosts
that are not too busy to answer probes.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from analyzer.detect.loss import FlowView, unconnected_pairs
from analyzer.localize import stages
from analyzer.localize.evidence import Evidence, OrderedPair, pair_of, unordered
from analyzer.localize.facts import Explained
from analyzer.tracing import Tracing, Wanted
from analyzer.walker import TracesRpc
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.model.verdict import Verdict
from ovs_checks.reach import Reach
from ovs_checks.walk import LocalWalk

HOLD_NS = 30_000_000_000
"""A pair's losses are kept from the vote for so long at most while it is being traced."""
FORGET_NS = 120_000_000_000
"""A doubt is over when no walk confirmed it for so long: a trace may take as long."""
READ_NS = 60_000_000_000
"""Flow tables need not be read again for so long while a trace is at work."""
HEALED_NS = 10_000_000_000
"""A pair that lost nothing for so long is well again: two windows, where loss is not in each."""
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
        self._egress: dict[OrderedPair, LocalWalk] = {}
        """The last walk of each way of a doubt."""
        self._lossy_ns: dict[OrderedPair, int] = {}
        """When each pair lost a probe last."""
        self._mute: AbstractSet[str] = frozenset()
        self._named: set[Component | None] = set()
        """By the vote of the window before: what lasts one window only is not worth a trace."""

    def ask(self, agents: TracesRpc, clock: Callable[[], int]) -> None:
        """Ask these agents from now on; `clock` gives wall nanoseconds."""
        self._tracing = Tracing(agents, clock)

    @property
    def tracing(self) -> AbstractSet[str]:
        """Hosts that make a trace now: one that compiles may be slow to answer anything else."""
        return self._tracing.busy if self._tracing is not None else frozenset()

    def walkable(
        self, evidence: Evidence, flows: Sequence[FlowView], *, now_ns: int
    ) -> tuple[FlowView, ...]:
        """Return the flows whose pairs are worth a walk: not where a trace is at work on a doubt.

        Their flow tables were read lately, and the hosts have enough to do.
        """
        held = {
            pair
            for pair, (_, last_ns) in self._since_ns.items()
            if now_ns - last_ns < READ_NS and self._busy(pair, evidence)
        }
        return tuple(view for view in flows if unordered(pair_of(view.flow)) not in held)

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

        What a trace names explains all doubtful pairs that cross it. The hosts in `mute` were too
        busy to answer probes: a trace would make that worse.
        """
        self._mute = mute
        self._doubt(walked, now_ns)
        if self._tracing is None:
            return []
        self._tracing.healed(self._healed(evidence.flows, now_ns))
        dead = self._dead(flows)
        tunnels = self._tunnels()
        settled: list[Explained] = []
        for pair in sorted(dead):
            traced = self._tracing.known(pair)
            named = stages.component(traced, evidence.endpoints, tunnels) if traced else None
            if traced is None or named is None or pair not in dead:
                continue
            share = [each for each in dead if each == pair or _crosses(each, named, evidence)]
            mine = tuple(view for each in share for view in dead.pop(each))
            found = stages.explain(traced, mine, evidence.endpoints, tunnels)
            settled += [found] if found else []
        lasting = [
            pair
            for pair in dead
            if self._since_ns[pair][0] < now_ns and not mute & _hosts(pair, evidence)
        ]
        self._tracing.want([self._wanted(pair, evidence) for pair in lasting])
        return settled

    def _doubt(self, walked: Walked, now_ns: int) -> None:
        # A window whose tables were not read ends no doubt.
        for pair in walked.delivered():
            self._since_ns[pair] = (self._since_ns.get(pair, (now_ns, 0))[0], now_ns)
        self._since_ns = {
            pair: (since_ns, last_ns)
            for pair, (since_ns, last_ns) in self._since_ns.items()
            if now_ns - last_ns < FORGET_NS
        }
        known = {**self._egress, **walked.egress}
        self._egress = {
            way: walk for way, walk in known.items() if unordered(way) in self._since_ns
        }

    def _healed(self, flows: Sequence[FlowView], now_ns: int) -> set[OrderedPair]:
        lossy = {unordered(pair_of(view.flow)) for view in flows if view.lost}
        self._lossy_ns |= dict.fromkeys(lossy, now_ns)
        self._lossy_ns = {p: ns for p, ns in self._lossy_ns.items() if now_ns - ns < HEALED_NS}
        return {unordered(pair_of(view.flow)) for view in flows} - self._lossy_ns.keys()

    def _dead(self, flows: Sequence[FlowView]) -> dict[OrderedPair, list[FlowView]]:
        # A pair that is answered again is no doubt any more, whatever it still loses.
        dead = {unordered(pair): list[FlowView]() for pair in unconnected_pairs(flows)}
        for view in flows:
            pair = unordered(pair_of(view.flow))
            if pair in dead:
                dead[pair] += [view] if view.lost else []
            else:
                self._since_ns.pop(pair, None)
        return {pair: views for pair, views in dead.items() if pair in self._since_ns}

    def leave(
        self, evidence: Evidence, flows: Sequence[FlowView], *, now_ns: int
    ) -> tuple[FlowView, ...]:
        """Return the flows that may be voted on: not where a trace is at work on a doubt."""
        held = {
            pair
            for pair, (since_ns, _) in self._since_ns.items()
            if now_ns - since_ns < HOLD_NS and self._busy(pair, evidence)
        }
        return tuple(view for view in flows if unordered(pair_of(view.flow)) not in held)

    def _busy(self, pair: OrderedPair, evidence: Evidence) -> bool:
        return bool(self.tracing & _hosts(pair, evidence))

    def tell(
        self,
        evidence: Evidence,
        voted: Sequence[Explained],
        *,
        unread: bool = False,
    ) -> list[Explained]:
        """Return the voted verdicts with what traces add, and ask for traces that could.

        Not where flow tables are `unread`: they cost less, and are asked again.
        """
        if self._tracing is None:
            return list(voted)
        before, self._named = self._named, {each.verdict.component for each in voted}
        told: list[Explained] = []
        for each in voted:
            if not _inside(each.verdict):
                told.append(each)
                continue
            first = each.verdict.failing[0]
            pair = unordered((first.source, first.target))
            traced = self._tracing.known(pair)
            told += self._better(each, traced, evidence) if traced else [each]
            lasts = each.verdict.component in before
            if lasts and not unread and not self._mute & _hosts(pair, evidence):
                self._tracing.want([self._wanted(pair, evidence)])
        return told

    def _better(
        self, each: Explained, traced: stages.Traced, evidence: Evidence
    ) -> list[Explained]:
        # A trace settles what the vote left open, for the flows that cross what it names; else it
        # is evidence. A few packets lost on the way say nothing of many.
        named = stages.component(traced, evidence.endpoints, self._tunnels())
        if each.verdict.component is not None or named is None or not stages.many(traced):
            return [stages.told(each, traced)]
        crossing = [v for v in each.flows if _crosses(pair_of(v.flow), named, evidence)]
        found = stages.explain(traced, tuple(crossing), evidence.endpoints, self._tunnels())
        if found is None or not crossing:
            return [stages.told(each, traced)]
        verdict = replace(found.verdict, symptom=each.verdict.symptom)
        return [Explained(verdict, found.flows)]

    def _tunnels(self) -> dict[EndpointId, str]:
        ends = {pair[0]: walk.tunnelled for pair, walk in self._egress.items()}
        return {source: end.port for source, end in ends.items() if end is not None}

    def _wanted(self, pair: OrderedPair, evidence: Evidence) -> Wanted:
        forward, backward = (
            stages.questions(
                way, evidence.endpoints, port=self._probe_port, vni=_vni(self._egress.get(way))
            )
            for way in (pair, (pair[1], pair[0]))
        )
        hosts = (evidence.endpoints[pair[0]].host, evidence.endpoints[pair[1]].host)
        return Wanted(pair, hosts, forward, backward)


def _inside(verdict: Verdict) -> bool:
    """Tell whether a trace of the hosts says more about what was voted."""
    if not verdict.failing:
        return False
    if verdict.component is not None:
        return verdict.component.kind in _INSIDE
    suspected = {each.component.kind for each in verdict.alternatives}
    return bool(suspected & _INSIDE)


def _hosts(pair: OrderedPair, evidence: Evidence) -> set[str]:
    return {evidence.endpoints[key].host for key in pair if key in evidence.endpoints}


def _crosses(pair: OrderedPair, component: Component, evidence: Evidence) -> bool:
    """Tell whether packets of `pair` pass `component`, a part of a host or an endpoint."""
    if component.kind is Kind.ENDPOINT:
        return component.name in map(str, pair)
    host, _, part = component.name.partition("/")
    ends = [evidence.endpoints[key] for key in pair]
    return any(
        end.host == host and (component.kind is not Kind.RNIC or end.rnic == part) for end in ends
    )


def _vni(walk: LocalWalk | None) -> int:
    end = walk.tunnelled if walk else None
    return (end.tun_id or 0) if end else 0
