# SPDX-License-Identifier: Apache-2.0
"""What an RNIC or a host has that most of its kind have not: firmware, settings, versions. Pure.

Theory of operation. Like is compared with like: RNICs of one model, hosts whose RNICs are of one
model, property by property. Each host has one vote on each, the value that more than half of its
parts have: so however many parts a host claims to have, it is one among others. Where nearly all
hosts have nothing but the usual value, who differs is named. Two halves are no fault, be it of all
hosts or of each one's RNICs, and nobody is named; a value that several hosts were seen to turn to
is a rollout under way, and told as one, whichever half is ahead.

Nothing of it is kept over a restart: hosts say what they have once a minute, and the two minutes
that are read again hold all of them. What turned to what before is not known then, and seen again
as the next hosts turn. It accuses nobody and votes on nothing (decision 113).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from analyzer.intake.inventory import NETAGENT, Aspect, Parts
from analyzer.intake.windows import AHEAD_NS
from netagent.model.path import Component, Kind
from netagent.model.strenum import StrEnum

LEAST_OTHERS = 8
"""Fewest other hosts that must agree for one to differ. Chosen: a rack; of fewer, each new one
would differ from the rest."""
MAJORITY_PERCENT = 90
"""Percent of the other hosts that must agree, with all of their parts, for one to differ. Chosen:
where a tenth has another value it is a group with a purpose, or a change under way, rather than
somebody's slip."""
ROLLOUT_HOSTS = 2
"""Fewest hosts that turned from one value to another for a rollout. Chosen: one host that changed
is a host that was changed."""
ROLLOUT_PERCENT = 1
"""Percent of the hosts, at least, that so turned. Chosen: a few of thousands that fall back alike
have a fault in common, and no rollout begins with fewer for long."""
TURNED_NS = 86_400 * 10**9
"""Nanoseconds for which a host that turned counts for a rollout. Chosen: a day; rollouts rest
overnight."""
FORGET_NS = 3_600 * 10**9
"""Nanoseconds after which the inventory of a silent host is dropped. Chosen: new firmware takes a
reboot, and a large server a quarter of an hour for it."""
MOST_VALUES = 8
"""Most values of an aspect that are told, those of the most hosts. Chosen: of more, a person wants
the number."""
MOST_NAMED = 256
"""Most parts of an aspect that are named; one of each host comes before the second of any. Chosen:
a large answer's page, and no host takes another's place."""
MOST_REMARKS = 8
"""Most remarks on a component. Chosen: what a screen has room for beside an incident."""


class State(StrEnum):
    """How parts of one kind compare in one property."""

    ALIKE = "alike"
    DIFFERENT = "different"
    """Nearly all agree, and some do not."""
    ROLLOUT = "rollout"
    """Hosts turn from one value to another."""
    SPLIT = "split"
    """Cannot tell: too many disagree."""
    FEW = "few"
    """Cannot tell: too few hosts have such parts."""


_NAMED = {State.DIFFERENT, State.ROLLOUT}
"""Where it is told who differs."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value that parts have."""

    value: str
    hosts: int
    """Hosts that have it, by their votes."""
    parts: int
    """RNICs, or hosts."""
    usual: bool
    """Whether who has it is as the others are, or as they are to be."""


@dataclass(frozen=True, slots=True, order=True)
class Odd:
    """A part that differs."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One aspect over all hosts."""

    aspect: Aspect
    state: State
    hosts: int
    """Hosts that have such parts; those whose own parts disagree have no vote."""
    parts: int
    values: tuple[Value, ...]
    """Of the most hosts first."""
    more_values: int
    """Values beyond those."""
    turned: int
    """Hosts that turned from one of the values to another within a day."""
    odd: tuple[Odd, ...] = ()
    """Who has none of the usual values, in the order of names; where DIFFERENT or ROLLOUT."""
    more_odd: int = 0
    """Those beyond MOST_NAMED."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A host turned from one value to another."""

    before: str
    after: str
    at_ns: int


@dataclass(slots=True)
class _Tally:
    """What all hosts say of one aspect: a sum, whatever order they came in."""

    hosts: int = 0
    votes: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    having: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Value -> hosts of which a part has it."""
    turns: dict[str, _Turn] = field(default_factory=dict)
    """Host -> how it last turned, for a day."""
    ways: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Value before and after -> hosts that so turned, a sum of `turns`."""

    def turn(self, host: str, turned: _Turn | None) -> None:
        """Note how a host last turned; None: it is not known to have."""
        gone = self.turns.pop(host, None)
        if gone is not None:
            way = gone.before, gone.after
            self.ways[way] -= 1
            if not self.ways[way]:
                del self.ways[way]
        if turned is not None:
            self.turns[host] = turned
            self.ways[turned.before, turned.after] += 1


@dataclass(frozen=True, slots=True)
class _Known:
    start_ns: int
    heard_ns: int
    parts: Parts


class Uniformity:
    """The newest inventory of each host, counted. `now_ns` is the analyzer's Unix time.

    `expire` once a minute bounds what is remembered.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, _Known] = {}
        self._tallies: dict[Aspect, _Tally] = {}

    @property
    def hosts(self) -> int:
        """How many hosts say what they have."""
        return len(self._hosts)

    def version(self, host: str) -> str:
        """Return which netagent a host runs; "" where it does not say."""
        known = self._hosts.get(host)
        said = known.parts if known else {}
        return next((v for a, of in said.items() if a.what == NETAGENT for v in of), "")

    def take(self, host: str, start_ns: int, parts: Parts, now_ns: int) -> None:
        """Take what a host said in the window from `start_ns`, unless it said newer things.

        What is said of long ago, or by a clock that is far ahead, is passed over.
        """
        if not now_ns - FORGET_NS < start_ns <= now_ns + AHEAD_NS:
            return
        known = self._hosts.get(host)
        # A window of the future is one of a clock that went back since.
        if known is not None and start_ns < known.start_ns <= now_ns:
            return
        before = known.parts if known is not None else {}
        self._hosts[host] = _Known(start_ns, now_ns, parts)
        for aspect in before.keys() - parts.keys():
            self._remove(host, aspect, before)
        for aspect, values in parts.items():
            if before.get(aspect) == values:
                continue
            turned = None
            if aspect in before:
                turned = self._turned(host, aspect, before, parts, now_ns)
                self._remove(host, aspect, before)
            self._add(host, aspect, parts)
            if turned is not None:
                self._tallies[aspect].turn(host, turned)

    def drop(self, host: str) -> None:
        """Forget a host."""
        known = self._hosts.pop(host, None)
        if known is not None:
            for aspect in known.parts:
                self._remove(host, aspect, known.parts)

    def expire(self, now_ns: int) -> None:
        """Forget hosts that have been silent for long, and what turned long ago."""
        for host in [h for h, k in self._hosts.items() if k.heard_ns <= now_ns - FORGET_NS]:
            self.drop(host)
        for tally in self._tallies.values():
            old = [h for h, turn in tally.turns.items() if turn.at_ns <= now_ns - TURNED_NS]
            for host in old:
                tally.turn(host, None)

    def _turned(
        self, host: str, aspect: Aspect, before: Parts, after: Parts, now_ns: int
    ) -> _Turn | None:
        """Return how a host turned, now or before; None where it did not."""
        had, has = _vote(before, aspect), _vote(after, aspect)
        if had is None or has is None or had == has:
            return self._tallies[aspect].turns.get(host)
        return _Turn(had, has, now_ns)

    def _add(self, host: str, aspect: Aspect, parts: Parts) -> None:
        tally = self._tallies.setdefault(aspect, _Tally())
        tally.hosts += 1
        for value, names in parts[aspect].items():
            tally.parts[value] += len(names)
            tally.having[value].add(host)
        vote = _vote(parts, aspect)
        if vote is not None:
            tally.votes[vote] += 1

    def _remove(self, host: str, aspect: Aspect, parts: Parts) -> None:
        tally = self._tallies[aspect]
        tally.hosts -= 1
        tally.turn(host, None)
        for value, names in parts[aspect].items():
            tally.parts[value] -= len(names)
            tally.having[value].discard(host)
            if not tally.having[value]:
                del tally.having[value], tally.parts[value]
        vote = _vote(parts, aspect)
        if vote is not None:
            tally.votes[vote] -= 1
            if not tally.votes[vote]:
                del tally.votes[vote]
        if not tally.having:
            del self._tallies[aspect]

    # --- what is told -------------------------------------------------------------------------

    def compared(self) -> list[Compared]:
        """Return all aspects, in order."""
        return [self._compared(aspect) for aspect in sorted(self._tallies)]

    def remarks(self, component: Component) -> tuple[str, ...]:
        """Return what an RNIC has that others of its model have not, or a host and its RNICs."""
        known = self._hosts.get(component.name.partition("/")[0])
        if known is None or component.kind not in {Kind.RNIC, Kind.HOST}:
            return ()
        found = []
        for aspect in sorted(known.parts):
            if component.kind is Kind.RNIC and aspect.kind is not Kind.RNIC:
                continue
            state, usual, turned = self._judged(aspect)
            if state not in _NAMED:
                continue
            for value, names in sorted(known.parts[aspect].items()):
                ours = [n for n in names if component.kind is Kind.HOST or n == component.name]
                if ours and value != usual[0]:
                    found.append(self._remark(aspect, component, ours, value, usual, turned))
        return tuple(found[:MOST_REMARKS])

    def _remark(
        self, aspect: Aspect, component: Component, names: list[str], value: str,
        usual: list[str], turned: int,
    ) -> str:  # fmt: skip
        tally = self._tallies[aspect]
        few = names[0] if len(names) == 1 else f"{len(names)} of its RNICs"
        whose = "its" if names == [component.name] else f"{few}:"
        others = "RNICs of the same model" if aspect.kind is Kind.RNIC else "hosts with such RNICs"
        told = (
            f"{whose} {aspect.what} {value} differs from {tally.parts[usual[0]]} of "
            f"{tally.parts.total()} {others}, which have {usual[0]}"
        )
        if value in usual:
            told += f"; a rollout is under way ({turned} hosts turned within a day)"
        return told

    def _compared(self, aspect: Aspect) -> Compared:
        tally = self._tallies[aspect]
        state, usual, turned = self._judged(aspect)
        ranked = _ranked(tally)
        # One of each host comes before the second of any.
        odd = sorted(self._odd(aspect, set(usual))) if state in _NAMED else []
        return Compared(
            aspect=aspect,
            state=state,
            hosts=tally.hosts,
            parts=tally.parts.total(),
            values=tuple(
                Value(value, tally.votes[value], tally.parts[value], value in usual)
                for value in ranked[:MOST_VALUES]
            ),
            more_values=max(0, len(ranked) - MOST_VALUES),
            turned=turned,
            odd=tuple(sorted(each for _, each in odd[:MOST_NAMED])),
            more_odd=max(0, len(odd) - MOST_NAMED),
        )

    def _judged(self, aspect: Aspect) -> tuple[State, list[str], int]:
        """Return how an aspect compares, the usual values, and how many hosts turned to one."""
        tally = self._tallies[aspect]
        others = tally.hosts - 1
        turning, turned = _turning(tally)
        top, *rest = _ranked(tally)
        usual = [top, *(value for value in rest if value in turning)]
        unusual = tally.having.keys() - usual
        agree = tally.hosts - len(set[str]().union(*(tally.having[value] for value in unusual)))
        if others < LEAST_OTHERS:
            return State.FEW, [], turned
        if len(tally.parts) == 1:
            return State.ALIKE, usual, turned
        if agree < LEAST_OTHERS or 100 * agree < MAJORITY_PERCENT * others:
            return State.SPLIT, [], turned
        return (State.ROLLOUT if len(usual) > 1 else State.DIFFERENT), usual, turned

    def _odd(self, aspect: Aspect, usual: set[str]) -> Iterator[tuple[int, Odd]]:
        """Yield parts that differ, each with how many of its host come before it."""
        having = self._tallies[aspect].having
        for host in sorted({h for value in having.keys() - usual for h in having[value]}):
            values = self._hosts[host].parts[aspect]
            odd = sorted((n, v) for v, names in values.items() if v not in usual for n in names)
            yield from ((place, Odd(*each)) for place, each in enumerate(odd))


def _turning(tally: _Tally) -> tuple[set[str], int]:
    """Return the values that several hosts turned between and hosts have, and how many turned."""
    least = max(ROLLOUT_HOSTS, ROLLOUT_PERCENT * tally.hosts / 100)
    lately = {way: count for way, count in tally.ways.items() if count >= least}
    values = {value for way in lately for value in way if tally.votes[value]}
    return values, sum(lately.values())


def _ranked(tally: _Tally) -> list[str]:
    """Return all values, those of the most hosts first."""
    return sorted(tally.parts, key=lambda value: (-tally.votes[value], -tally.parts[value], value))


def _vote(parts: Parts, aspect: Aspect) -> str | None:
    """Return what more than half of a host's parts have; None where there is no such value."""
    values = parts[aspect]
    total = sum(map(len, values.values()))
    return next((value for value, names in values.items() if 2 * len(names) > total), None)
