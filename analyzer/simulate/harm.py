# SPDX-License-Identifier: Apache-2.0
"""What failures do to single probes: which are lost, late, held up by a host, or refused."""

from collections.abc import Iterator, Sequence

import numpy as np

from analyzer.simulate.clos import PORTS, Clos, Ints
from analyzer.simulate.failures import Effect, Failure
from analyzer.simulate.measured import Bools, Floats
from analyzer.simulate.routing import At, Routing
from netagent.model.path import Component, Kind

QUIET_NS, QUIET_SPREAD = (2_000.0, 3_000.0), 0.3
"""Medians of what a host takes that has time, as prober and as responder, and the deviation of
ln(ns). Chosen: as RNICs' stamps show it."""


class Harm:
    """The failures of a fabric, from an instant on."""

    def __init__(
        self, clos: Clos, routing: Routing, failures: Sequence[Failure] = (), began_ns: int = 0
    ) -> None:
        self._clos, self._routing = clos, routing
        self.failures, self.began_ns = tuple(failures), began_ns
        self._quiet = np.random.default_rng([began_ns, 1])
        """Its own: what it draws changes nothing that is drawn elsewhere."""
        self._ends: dict[At, Ints] = {}
        """Host or RNIC -> (n_flows,) how often a probe and its reply cross it."""

    def moved(self) -> None:
        """Take other flows than before."""
        self._ends.clear()

    def active(self, at_ns: int) -> list[Effect]:
        """Return what is at fault at an instant."""
        now_ns = np.asarray([at_ns])
        return [each for failure, each in self._effects() if self._hits(each, failure, now_ns)[0]]

    def _effects(self) -> Iterator[tuple[Failure, Effect]]:
        return ((failure, effect) for failure in self.failures for effect in failure.effects)

    def _hits(self, effect: Effect, failure: Failure, at_ns: Ints) -> Bools:
        since = at_ns - (self.began_ns + failure.start_ns)
        made = since >= 0
        if effect.period_ns:
            made &= since % effect.period_ns < effect.duty * effect.period_ns
        if effect.reroute_ns:
            made &= since < effect.reroute_ns
        return made

    def _crossings(self, at: At, flow: Ints, there: Ints, back: Ints) -> Ints:
        """Return (n_probes,) how often a probe and its reply cross what an effect is at."""
        clos = self._clos
        if isinstance(at, tuple) or at.kind in (Kind.SWITCH, Kind.LINK):
            return self._routing.crossings(at, there, back)
        known = self._ends.get(at)
        if known is None:
            ends = np.repeat(np.stack([clos.source, clos.target]), PORTS, axis=1)
            if at.kind is Kind.HOST:
                hit = ends // clos.shape.rails == int(at.name[1:])
            else:
                hit = ends == clos.number_of(at)
            known = self._ends[at] = 2 * hit.sum(axis=0)
        return known[flow]

    def crossed(
        self, flow: Ints, at_ns: Ints, large: Bools, ways: tuple[Ints, Ints], hashes: Floats,
        rng: np.random.Generator,
    ) -> tuple[Bools, Floats]:  # fmt: skip
        """Return which probes are lost, and by how much the others are late (ns).

        `ways` are the rows of the routes there and back, `hashes` are of the flows.
        """
        lost, added = np.zeros(len(flow), np.bool_), np.zeros(len(flow))
        for failure, effect in self._effects():
            times = self._crossings(effect.at, flow, *ways)
            if effect.share < 1.0:
                times = np.where(hashes[flow] < effect.share, times, 0)
            hit = np.flatnonzero(times)
            hit = hit[self._hits(effect, failure, at_ns[hit])]
            if effect.large_only:
                hit = hit[large[hit]]
            if effect.loss:
                passes = (1.0 - effect.loss) ** times[hit]
                lost[hit] |= rng.random(len(hit)) >= passes
            if effect.delay_ns:
                added[hit] += rng.lognormal(np.log(effect.delay_ns), effect.spread, len(hit))
        return lost, added

    def at(self, host: str) -> tuple[Bools, Bools]:
        """Return (n_flows,) whether a flow's prober, and its responder, is on a host."""
        rails, number = self._clos.shape.rails, int(host[1:])
        ends = np.repeat(np.stack([self._clos.source, self._clos.target]), PORTS, axis=1) // rails
        return ends[0] == number, ends[1] == number

    def kept(self, flow: Ints, at_ns: Ints, rng: np.random.Generator) -> Floats:
        """Return (2, n): nanoseconds that the prober's and the responder's host take."""
        kept = self._quiet.lognormal(np.log(QUIET_NS), QUIET_SPREAD, (len(flow), 2)).T.copy()
        for failure, effect in self._effects():
            if not effect.kept_ns or not isinstance(effect.at, Component):
                continue
            is_active = self._hits(effect, failure, at_ns)
            for row, side in zip(kept, self.at(effect.at.name), strict=True):
                hit = np.flatnonzero(side[flow] & is_active)
                row[hit] += rng.lognormal(np.log(effect.kept_ns), effect.spread, len(hit))
        return kept

    def refused(self, flow: Ints, at_ns: Ints) -> Bools:
        """Return which probes a host without an agent refuses."""
        refused = np.zeros(len(flow), np.bool_)
        for failure in self.failures:
            if failure.kills:
                refused |= self.at(failure.kills)[1][flow] & self.killed(failure, at_ns)
        return refused

    def back_ns(self, failure: Failure) -> int:
        """Return when a new agent is there."""
        return self.began_ns + failure.start_ns + failure.back_ns

    def killed(self, failure: Failure, at_ns: Ints) -> Bools:
        """Return whether the agent that a failure kills is gone at these instants."""
        since_ns = at_ns - self.began_ns - failure.start_ns
        return (since_ns >= 0) & ((since_ns < failure.back_ns) | (failure.back_ns == 0))

    def gone(self, now_ns: int) -> set[str]:
        """Return hosts whose agents are gone just before an instant."""
        return {
            f.kills
            for f in self.failures
            if f.kills and self.killed(f, np.asarray([now_ns - 1]))[0]
        }
