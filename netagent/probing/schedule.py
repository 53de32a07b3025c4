# SPDX-License-Identifier: Apache-2.0
"""Whom to probe when, within caps. Pure: time and randomness are arguments.

Each endpoint visits its targets one after another, in an order shuffled per round, with jitter, so
that hosts do not fall into step. A visit is a train of pings: two in a row on each of some source
ports (the second reply has the first one's responder delay), going on with the next ports at the
next visit; sizes rotate per source port. A target with a fresh loss is visited again soon, so that
three failures in a row need seconds and not three rounds.

Rare targets, those that the task does not use, have rounds of their own, and a share of the visits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from netagent.model.ids import EndpointId
from netagent.model.pinglist import Target

PINGS_PER_PORT = 2
"""Pings in a row on one source port. The second reply carries the first one's responder delay
(decision 4)."""
CONFIRM_NS = 400_000_000
"""Twice the nanoseconds after which a target that lost a probe is visited again. Chosen: three
failures in a row need seconds and not three rounds."""
LATE_NS = 20_000_000
"""Nanoseconds by which a probe must be sent late to count as delayed by the agent itself. Chosen:
what gathers goes out early rather than late, so that it is a busy host that is late."""
EARLY_NS = 40_000_000
"""Nanoseconds by which a visit may go out early, at most. Chosen: a wake-up costs more than a
packet, and visits vary by as much at the default rate."""


class Ping(NamedTuple):
    """A probe to send: which target, source port (by index) and size class."""

    target: Target
    port_index: int
    size_class: int
    late: bool = False


class TokenBucket:
    """At most `rate` tokens per second, with a burst of `burst`."""

    def __init__(self, rate: float, burst: float, *, now_ns: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at_ns = burst, now_ns

    def take(self, tokens: float, *, now_ns: int) -> bool:
        """Take `tokens` if they are there."""
        # A monotonic clock does not go back; max() guards against a caller that mixes clocks.
        if now_ns != self._at_ns:
            elapsed_s = max(0, now_ns - self._at_ns) / 1e9
            self._tokens = min(self._burst, self._tokens + elapsed_s * self._rate)
            self._at_ns = now_ns
        if self._tokens < tokens:
            return False
        self._tokens -= tokens
        return True


@dataclass(frozen=True, slots=True)
class Rates:
    """Caps and shape of one endpoint's schedule."""

    probes_per_s: float
    pings_per_visit: int
    ports: int
    sizes: int
    """Number of size classes."""

    @property
    def visit_ns(self) -> int:
        """Nanoseconds from one visit to the next."""
        return round(1e9 * self.pings_per_visit / self.probes_per_s)


@dataclass(slots=True)
class _Turn:
    """Where the visits to one target stand."""

    sizes: list[int]
    """The next size class of each source port."""
    port: int = 0
    """The next source port, by index."""


class _Round:
    """Targets in an order that is shuffled anew each time round."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._all: dict[EndpointId, Target] = {}
        self._left: list[Target] = []

    def __len__(self) -> int:
        return len(self._all)

    def replace(self, targets: Sequence[Target]) -> None:
        """Use these from now on; the running round keeps those that stay."""
        fresh = {target.target: target for target in targets}
        self._left = [fresh[t.target] for t in self._left if t.target in fresh]
        added = [target for key, target in fresh.items() if key not in self._all]
        self._rng.shuffle(added)
        self._left.extend(added)  # new targets are visited within this round
        self._all = fresh

    def next(self) -> Target:
        """Return whose turn it is."""
        if not self._left:
            self._left = list(self._all.values())
            self._rng.shuffle(self._left)
        return self._left.pop()


class Schedule:
    """Visits of one endpoint to its targets."""

    def __init__(self, rates: Rates, rng: Random, *, now_ns: int) -> None:
        self._rates = rates
        self._rng = rng
        self._targets: dict[EndpointId, Target] = {}
        self._often, self._rare = _Round(rng), _Round(rng)
        self._rare_share = 0.0
        self.skips_rare = False
        """Whether rare targets are left out, where there are others."""
        self._owed = 0.0
        """Visits, or a part of one, that rare targets are due."""
        self._confirm: dict[EndpointId, int] = {}  # target id -> not before
        self._turns: dict[EndpointId, _Turn] = {}
        self._next_ns = now_ns + round(rng.random() * rates.visit_ns)

    def replace(self, targets: Sequence[Target], rare_share: float = 0.0) -> None:
        """Use these targets from now on; running rounds keep those that stay."""
        self._targets = {target.target: target for target in targets}
        self._often.replace([target for target in targets if not target.rare])
        self._rare.replace([target for target in targets if target.rare])
        self._rare_share = rare_share
        self._confirm = {key: at for key, at in self._confirm.items() if key in self._targets}
        ports = self._rates.ports
        self._turns = {key: self._turns.get(key) or _Turn([0] * ports) for key in self._targets}

    def lost(self, target: EndpointId, *, now_ns: int) -> None:
        """Visit `target` again soon: it lost a probe."""
        if target in self._targets:
            self._confirm.setdefault(target, now_ns + CONFIRM_NS // 2)

    def next_ns(self) -> int | None:
        """Return when the next visit is due; None where there is no target."""
        return self._next_ns if self._targets else None

    @property
    def early_ns(self) -> int:
        """Nanoseconds by which a visit may go out early, with what goes out anyway."""
        return min(EARLY_NS, self._rates.visit_ns // 4)

    def due(self, *, now_ns: int) -> list[Ping]:
        """Return the pings of the visit that is due, or nearly, or nothing.

        A schedule that fell behind (a stopped process) skips what it missed instead of bursting.
        """
        if not self._targets or now_ns < self._next_ns - self.early_ns:
            return []
        late = now_ns - self._next_ns > LATE_NS
        visit_ns = self._rates.visit_ns
        behind = max(0, now_ns - self._next_ns) // visit_ns
        jitter = self._rng.uniform(-0.2, 0.2)
        self._next_ns += round(visit_ns * (behind + 1 + jitter))
        return self._visit(self._choose(now_ns), late=late)

    def _choose(self, now_ns: int) -> Target:
        for key, not_before in self._confirm.items():
            if not_before <= now_ns:
                # Half of the visits at most go to confirmation, so that coverage goes on.
                if self._rng.random() < 0.5:
                    del self._confirm[key]
                    return self._targets[key]
                break
        return (self._rare if self._is_rare_turn() else self._often).next()

    def _is_rare_turn(self) -> bool:
        if not self._rare or not self._often:
            return bool(self._rare)
        if self.skips_rare:
            return False
        self._owed += self._rare_share
        if self._owed < 1:
            return False
        self._owed -= 1
        return True

    def _visit(self, target: Target, *, late: bool) -> list[Ping]:
        rates, turn = self._rates, self._turns[target.target]
        pings: list[Ping] = []
        while len(pings) < rates.pings_per_visit:
            port = turn.port
            for _ in range(PINGS_PER_PORT):
                size = turn.sizes[port]
                turn.sizes[port] = (size + 1) % rates.sizes
                pings.append(Ping(target, port, size, late))
            turn.port = (port + 1) % rates.ports
        return pings[: rates.pings_per_visit]
