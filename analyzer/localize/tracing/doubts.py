# SPDX-License-Identifier: Apache-2.0
"""Pairs whose losses flow tables and votes leave open, and the traces that are made of them.

A trace compiles programs and hooks them into the kernel. So it is requested only for doubts that
last two windows, from hosts that are not too busy to answer probes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from analyzer.detect.flows import Flows, FlowView, unconnected_pairs
from analyzer.localize.case import (
    Case,
    Explained,
    OrderedPair,
    is_switched,
    pair_of,
    unordered,
)
from analyzer.localize.tracing import stages
from analyzer.localize.tracing.wants import Wanted, Wants
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.model.verdict import Verdict
from ovs_checks.walk.reach import Reach
from ovs_checks.walk.values import LocalWalk

HOLD_NS = 30_000_000_000
"""Most nanoseconds that a pair's losses are kept from the vote while the pair is traced. Chosen:
most traces are done by then, and a vote must not wait for a stuck one."""
FORGET_NS = 120_000_000_000
"""Nanoseconds without a confirming walk after which a doubt is over. Chosen: about what a trace may
take, DEADLINE_S."""
READ_NS = 60_000_000_000
"""Nanoseconds for which flow tables are not read again while a trace runs. Chosen: the hosts have
enough to do, and tables change rarely."""
HEALED_NS = 10_000_000_000
"""Nanoseconds without a loss after which a pair is healthy again. Chosen: two windows of five
seconds (decision 25)."""
_INSIDE = {Kind.RNIC, Kind.HOST, Kind.ENDPOINT, Kind.CONTAINER}
"""Kinds of components about which a trace of the hosts shows more than a vote."""


@dataclass(frozen=True, slots=True)
class Walked:
    """What the flow tables say of a window's dead pairs."""

    reaches: Mapping[OrderedPair, Reach] = field(default_factory=dict)
    egress: Mapping[OrderedPair, LocalWalk] = field(default_factory=dict)

    def delivered(self) -> list[OrderedPair]:
        """Return, once each, the dead pairs that the tables deliver both ways."""
        fine = {pair for pair, reach in self.reaches.items() if reach.outcome == "delivered"}
        return sorted((a, b) for a, b in fine if a < b and (b, a) in fine)


class Doubts:
    """Pairs whose losses nothing explains yet, and the traces made of them."""

    def __init__(self, probe_port: int) -> None:
        self.wants = Wants()
        self.walked = Walked()
        """What the flow tables say of this window's dead pairs."""
        self._probe_port = probe_port
        self._since_ns: dict[OrderedPair, tuple[int, int]] = {}
        """Pair -> when its doubt began, and when a walk last confirmed it, in ns."""
        self._egress: dict[OrderedPair, LocalWalk] = {}
        """Ordered pair with a doubt -> its newest walk through the source's host."""
        self._lossy_ns: dict[OrderedPair, int] = {}
        """Pair -> when it last lost a probe, in ns."""
        self._named: set[Component | None] = set()
        """Components that the vote named a window ago; a trace needs a second window."""

    def walkable(self, case: Case, flows: Flows) -> Flows:
        """Return the flows whose pairs are worth a walk: without doubts whose hosts make a trace.

        The flow tables of such pairs were read within READ_NS, and their hosts are busy.
        """
        held = {
            pair
            for pair, (_, last_ns) in self._since_ns.items()
            if case.now_ns - last_ns < READ_NS and self._busy(pair, case)
        }
        return flows.outside(held)

    def settle(self, case: Case) -> list[Explained]:
        """Return verdicts from traces on pairs that the tables deliver, and request more traces.

        A component that a trace names explains all doubtful pairs that cross it. Tired hosts were
        too busy to answer probes, so they are not asked for a trace.
        """
        now_ns = case.now_ns
        self._doubt(now_ns)
        self.wants.healed(self._healed(case.flows, now_ns), now_ns=now_ns)
        dead = self._dead(case.rest)
        tunnels = self._tunnels()
        settled: list[Explained] = []
        for pair in sorted(dead):
            traced = self.wants.known(pair, now_ns=now_ns)
            named = stages.component(traced, case.endpoints, tunnels) if traced else None
            if traced is None or named is None or pair not in dead:
                continue
            share = [each for each in dead if each == pair or _crosses(each, named, case)]
            mine = tuple(view for each in share for view in dead.pop(each))
            found = stages.explain(traced, mine, case.endpoints, tunnels)
            settled += [found] if found else []
        lasting = [
            pair
            for pair in dead
            if self._since_ns[pair][0] < now_ns and not case.tired & case.hosts(pair)
        ]
        self.wants.want([self._wanted(pair, case) for pair in lasting], now_ns=now_ns)
        return settled

    def _doubt(self, now_ns: int) -> None:
        # A window whose tables were not read ends no doubt.
        for pair in self.walked.delivered():
            self._since_ns[pair] = (self._since_ns.get(pair, (now_ns, 0))[0], now_ns)
        self._since_ns = {
            pair: (since_ns, last_ns)
            for pair, (since_ns, last_ns) in self._since_ns.items()
            if now_ns - last_ns < FORGET_NS
        }
        known = {**self._egress, **self.walked.egress}
        self._egress = {
            way: walk for way, walk in known.items() if unordered(way) in self._since_ns
        }

    def _healed(self, flows: Flows, now_ns: int) -> set[OrderedPair]:
        lossy = {unordered(pair_of(view.flow)) for view in flows.where(flows.lost > 0)}
        self._lossy_ns |= dict.fromkeys(lossy, now_ns)
        self._lossy_ns = {p: ns for p, ns in self._lossy_ns.items() if now_ns - ns < HEALED_NS}
        traced = self.wants.traced
        if not traced:
            return set()
        theirs = flows.where(flows.between(traced))
        probed = {unordered(pair_of(view.flow)) for view in theirs}
        return (probed & traced) - self._lossy_ns.keys()

    def _dead(self, flows: Flows) -> dict[OrderedPair, list[FlowView]]:
        # A pair that gets answers again is no longer a doubt, even if it still loses some probes.
        if not self._since_ns:
            return {}
        dead = {unordered(pair): list[FlowView]() for pair in sorted(unconnected_pairs(flows))}
        for view in flows.where(flows.between({*dead, *self._since_ns})):
            pair = unordered(pair_of(view.flow))
            if pair in dead:
                dead[pair] += [view] if view.lost else []
            else:
                self._since_ns.pop(pair, None)
        return {pair: views for pair, views in dead.items() if pair in self._since_ns}

    def leave(self, case: Case, flows: Flows) -> Flows:
        """Return the flows that may be voted on: without doubts whose hosts make a trace."""
        held = {
            pair
            for pair, (since_ns, _) in self._since_ns.items()
            if case.now_ns - since_ns < HOLD_NS and self._busy(pair, case)
        }
        return flows.outside(held)

    def _busy(self, pair: OrderedPair, case: Case) -> bool:
        return bool(self.wants.busy & case.hosts(pair))

    def better(self, case: Case, voted: Sequence[Explained]) -> list[Explained]:
        """Return the voted verdicts with the evidence of traces, and request traces for others.

        None are requested where flow tables could not be read: reading them again costs less.
        """
        before, self._named = self._named, {each.verdict.component for each in voted}
        found: list[Explained] = []
        for each in voted:
            if not _inside(each.verdict):
                found.append(each)
                continue
            first = each.verdict.failing[0]
            pair = unordered((first.source, first.target))
            traced = self.wants.known(pair, now_ns=case.now_ns)
            found += self._better(each, traced, case) if traced else [each]
            lasts = each.verdict.component in before
            asks = is_switched(pair, case.endpoints) and not case.tired & case.hosts(pair)
            if lasts and asks and not case.missing:
                self.wants.want([self._wanted(pair, case)], now_ns=case.now_ns)
        return found

    def _better(self, each: Explained, traced: stages.Traced, case: Case) -> list[Explained]:
        # A trace settles what the vote left open, for the flows that cross what it names; else it
        # is evidence. A few packets lost on the way say nothing of many.
        named = stages.component(traced, case.endpoints, self._tunnels())
        if each.verdict.component is not None or named is None or not stages.many(traced):
            return [stages.with_trace(each, traced)]
        crossing = [v for v in each.flows if _crosses(pair_of(v.flow), named, case)]
        found = stages.explain(traced, tuple(crossing), case.endpoints, self._tunnels())
        if found is None or not crossing:
            return [stages.with_trace(each, traced)]
        verdict = replace(found.verdict, symptom=each.verdict.symptom)
        return [Explained(verdict, found.flows)]

    def _tunnels(self) -> dict[EndpointId, str]:
        ends = {pair[0]: walk.tunnelled for pair, walk in self._egress.items()}
        return {source: end.port for source, end in ends.items() if end is not None}

    def _wanted(self, pair: OrderedPair, case: Case) -> Wanted:
        forward, backward = (
            stages.questions(
                way, case.endpoints, port=self._probe_port, vni=_vni(self._egress.get(way))
            )
            for way in (pair, (pair[1], pair[0]))
        )
        hosts = (case.endpoints[pair[0]].host, case.endpoints[pair[1]].host)
        return Wanted(pair, hosts, forward, backward)


def _inside(verdict: Verdict) -> bool:
    """Return whether a trace of the hosts would show more about a voted verdict."""
    if not verdict.failing:
        return False
    if verdict.component is not None:
        return verdict.component.kind in _INSIDE
    suspected = {each.component.kind for each in verdict.alternatives}
    return bool(suspected & _INSIDE)


def _crosses(pair: OrderedPair, component: Component, case: Case) -> bool:
    """Return whether packets of `pair` pass `component`, a part of a host or an endpoint."""
    if component.kind is Kind.ENDPOINT:
        return component.name in map(str, pair)
    host, _, part = component.name.partition("/")
    ends = [case.endpoints[key] for key in pair]
    return any(
        end.host == host and (component.kind is not Kind.RNIC or end.rnic == part) for end in ends
    )


def _vni(walk: LocalWalk | None) -> int:
    end = walk.tunnelled if walk else None
    return (end.tun_id or 0) if end else 0
