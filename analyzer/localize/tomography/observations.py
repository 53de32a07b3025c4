# SPDX-License-Identifier: Apache-2.0
"""What flows sent and lost, and every way that each of them may have taken, as arrays.

A flow crosses one to three *legs* (there, back, its own ends), and takes one of the alternatives of
each, which is a set of components. Flows share legs: all flows between two leaves have the same
alternatives.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
K = TypeVar("K", bound=Hashable)
"""What names a component."""

NO_LEG = -1


@dataclass(frozen=True, slots=True)
class Arrived:
    """Probes of flows that lost nothing on ways that are known.

    Each speaks for everything that it crossed, and for each thing by itself: so they are counted by
    component, and no flow is made of them.
    """

    probes: Floats
    """(n_components,): how often they crossed each."""
    crossings: Floats
    """(n_components,): all that those across each crossed."""
    sent: int = 0
    """How many there are."""
    crossed: int = 0
    """How many components they crossed in all."""

    @classmethod
    def nothing(cls, components: int) -> "Arrived":
        """Return that no such probe was seen."""
        return cls(np.zeros(components), np.zeros(components))

    @classmethod
    def once(cls, probes: Mapping[int, int], components: int) -> "Arrived":
        """Return probes that crossed one component each: its row -> how many."""
        made, rows, sent = np.zeros(components), list(probes), list(probes.values())
        made[rows] = sent
        return cls(made, made, sum(sent), sum(sent))

    def __add__(self, other: "Arrived") -> "Arrived":
        """Return both together, of the same components."""
        return Arrived(
            self.probes + other.probes,
            self.crossings + other.crossings,
            self.sent + other.sent,
            self.crossed + other.crossed,
        )

    def at(self, rows: Ints, components: int) -> "Arrived":
        """Return the same where component n is number `rows[n]` of so many."""
        made = self.nothing(components)
        made.probes[rows], made.crossings[rows] = self.probes, self.crossings
        return Arrived(made.probes, made.crossings, self.sent, self.crossed)


@dataclass(frozen=True, slots=True)
class Observations(Generic[K]):
    """Flows over legs, legs over alternatives, alternatives over components."""

    components: tuple[K, ...]
    sent: Ints
    """(n_flows,)"""
    lost: Ints
    """(n_flows,), at most `sent`."""
    legs: Ints
    """(n_flows, n_legs): row of the leg, NO_LEG where a flow has fewer."""
    first_alternative: Ints
    """(n_legs + 1,): alternatives of leg i are first_alternative[i] to first_alternative[i + 1]."""
    weight: Floats
    """(n_alternatives,): probability of each; they add up to one within a leg."""
    first_member: Ints
    """(n_alternatives + 1,)"""
    members: Ints
    """Rows of `components`, alternative after alternative."""
    times: Ints
    """(n_flows,): how many flows a row stands for, each with these counts."""
    free: Floats
    """(n_flows,): probability that something else than these components lost a flow's probes: a
    way that nobody knows, or a reason of the flow's own. Below 1."""
    arrived: Arrived
    """Probes of no flow above."""

    @property
    def flows(self) -> int:
        """Return the number of flows."""
        return len(self.sent)

    def alternatives(self, leg: int) -> range:
        """Return the rows of a leg's alternatives."""
        return range(int(self.first_alternative[leg]), int(self.first_alternative[leg + 1]))

    def crossed(self, alternative: int) -> Ints:
        """Return the rows of the components that an alternative crosses."""
        return self.members[self.first_member[alternative] : self.first_member[alternative + 1]]


class Builder(Generic[K]):
    """Collects flows one by one; legs with the same alternatives are kept once."""

    def __init__(self) -> None:
        self._component: dict[K, int] = {}
        self._leg: dict[tuple[tuple[tuple[int, ...], float], ...], int] = {}
        self._legs: list[tuple[int, ...]] = []
        self._sent: list[int] = []
        self._lost: list[int] = []
        self._free: list[float] = []
        self._times: list[int] = []
        self._arrived = Arrived.nothing(0)

    def component(self, name: K) -> int:
        """Return the row of a component, a new one where it is not known yet."""
        return self._component.setdefault(name, len(self._component))

    def components(self) -> AbstractSet[K]:
        """Return the components so far."""
        return self._component.keys()

    def leg(
        self, ways: Iterable[Sequence[K] | AbstractSet[K]], weights: Sequence[float] | None = None
    ) -> int:
        """Return the row of a leg that takes one of `ways`, all alike where no `weights` are given.

        Where a way is a set, the order in which it happens to stand makes no other leg.

        Raises ValueError where there is no way, or where the weights are not one for each.
        """
        rows = [self._rows(way) for way in ways]
        weights = [1.0] * len(rows) if weights is None else list(weights)
        total = sum(weights)
        if not rows or len(rows) != len(weights) or min(weights) < 0 or not total > 0:
            raise ValueError(f"{len(rows)} ways with weights {weights}")
        key = tuple((way, w / total) for way, w in zip(rows, weights, strict=True))
        return self._leg.setdefault(key, len(self._leg))

    def _rows(self, way: Sequence[K] | AbstractSet[K]) -> tuple[int, ...]:
        rows = map(self.component, way)
        return tuple(sorted(rows) if isinstance(way, AbstractSet) else rows)

    def flow(
        self, legs: Sequence[int], sent: int, lost: int, *, free: float = 0.0, times: int = 1
    ) -> None:
        """Add as many flows over these legs; ValueError where one lost more than it sent."""
        if not 0 <= lost <= sent or not 0.0 <= free < 1.0:
            raise ValueError(f"{lost} lost of {sent} sent, {free} of them for other reasons")
        self._times.append(times)
        self._free.append(free)
        self._legs.append(tuple(legs))
        self._sent.append(sent)
        self._lost.append(lost)

    def arrive(self, probes: Arrived) -> None:
        """Add probes of flows that lost nothing, by the first components, in the order met."""
        count = max(len(probes.probes), len(self._arrived.probes))
        both = (each.at(np.arange(len(each.probes)), count) for each in (self._arrived, probes))
        self._arrived = next(both) + next(both)

    def build(self, name: Callable[[K], str] = str) -> Observations[K]:
        """Return all that was added, components by name: the order of flows makes no difference."""
        alternatives = [each for leg in self._leg for each in leg]
        components = sorted(self._component, key=name)
        row = np.empty(len(components), np.int64)
        row[[self._component[name] for name in components]] = np.arange(len(components))
        most = max(map(len, self._legs), default=1)
        padded = [[*legs, *[NO_LEG] * (most - len(legs))] for legs in self._legs]
        return Observations(
            components=tuple(components),
            sent=np.asarray(self._sent, np.int64),
            lost=np.asarray(self._lost, np.int64),
            legs=np.asarray(padded, np.int64).reshape(len(padded), most),
            first_alternative=offsets([len(leg) for leg in self._leg]),
            weight=np.asarray([weight for _, weight in alternatives], np.float64),
            first_member=offsets([len(way) for way, _ in alternatives]),
            members=row[np.asarray([c for way, _ in alternatives for c in way], np.int64)],
            free=np.asarray(self._free, np.float64),
            times=np.asarray(self._times, np.int64),
            arrived=self._arrived.at(row[: len(self._arrived.probes)], len(components)),
        )


def offsets(lengths: Sequence[int] | Ints) -> Ints:
    """Return where each of consecutive runs of these lengths begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)


def spread(starts: Ints, lengths: Ints) -> Ints:
    """Return the indices of all runs, one run after the other."""
    if not len(lengths):
        return np.zeros(0, np.int64)
    begin = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    return begin + np.arange(int(lengths.sum()))


def sums(rows: Ints, values: Floats | Ints, count: int) -> Floats:
    """Return (count,) sums of `values` by row; zeros where nothing is summed."""
    # numpy gives integers where there is nothing to sum.
    return np.bincount(rows, values, minlength=count).astype(np.float64, copy=False)
