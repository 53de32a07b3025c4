# SPDX-License-Identifier: Apache-2.0
"""Differences between a controller and its hosts that last, each with its root only.

Theory of operation. `step` takes what everybody said last, and puts all questions to it. A
mismatch counts once it was seen at each step for as long as its question says; one step without it
begins anew, and a pause between two steps counts for little. What follows from another mismatch is
not told beside it. While a controller cannot be read nothing new can be seen of it: what stood is
kept until it is told that it is away, and then that is all there is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from analyzer.intent.differences.binding import contested, unbound
from analyzer.intent.differences.contract import (
    FRESH_NS,
    Difference,
    HostSaid,
    Mismatch,
    Sight,
)
from analyzer.intent.differences.ghosts import ghosts
from analyzer.intent.differences.ladder import away, instances, translation
from analyzer.intent.differences.security import refused
from analyzer.intent.differences.tunnels import taken, wrong
from analyzer.intent.model import Intent
from netagent.model.endpoint import Endpoint
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import controller

ASKED: tuple[Callable[[Sight], Iterator[Mismatch]], ...] = (
    away, translation, instances, contested, unbound, wrong, taken, ghosts, refused,
)  # fmt: skip
"""In the order in which what is asked for comes to a host."""
YOUNG_NS = 120_000_000_000
"""Nanoseconds after the first step before which it is not told that nothing differs. Chosen: by
then all that keeps a host from what is new has lasted."""
REASON_NS = 30_000_000_000
"""Nanoseconds for which a mismatch is seen before it may be the reason of another. Chosen: half of
what that one has to last; instances that are busy are behind at every other look."""
Key = tuple[FindingKind, str, str]
_KNOWN_TO_HOSTS = {
    FindingKind.CONTROLLER_AWAY, FindingKind.CONTROLLER_STALE, FindingKind.TUNNEL_ADDRESS_WRONG,
}  # fmt: skip
"""What can be told while a controller cannot be read."""
_WRITES_NOTHING = {FindingKind.TUNNEL_ADDRESS_TAKEN, FindingKind.GHOST_CHASSIS}
"""Then a host's instance is refused whatever it writes: it seems to stand still."""
_BINDS_NOTHING = {*_WRITES_NOTHING, FindingKind.CONTROLLER_STALE}


class Differences:
    """What differs between one controller and its hosts, followed over time."""

    def __init__(self, asked: Sequence[Callable[[Sight], Iterator[Mismatch]]] = ASKED) -> None:
        """Follow what `asked` say."""
        self._asked = asked
        self.is_young = True
        """Whether it is too early to tell that nothing differs any more, as what held before a
        restart may still."""
        self._began_ns: int | None = None
        self._stepped_ns = 0
        self._since: dict[Key, int] = {}
        """Mismatches seen at the newest step -> instant since when each is."""
        self._some: dict[Key, frozenset[str]] = {}
        """Of each mismatch what was among them at each step."""
        self._standing: dict[Key, Mismatch] = {}
        self._told: dict[Key, Difference] = {}

    def step(
        self,
        intent: Intent,
        states: Mapping[str, HostSaid],
        endpoints: Iterable[Endpoint],
        now_ns: int,
    ) -> tuple[Difference, ...]:
        """Return the differences that stand, in order; the same ones as before where none changed.

        `states` is the newest of each host that this controller drives, however old. `now_ns` is
        the analyzer's time, Unix nanoseconds.
        """
        return self.look(Sight(intent, states, endpoints, now_ns))

    def look(self, sight: Sight) -> tuple[Difference, ...]:
        """Return the differences that stand by what is seen now, as `step`."""
        now_ns = sight.now_ns
        seen: dict[Key, Mismatch] = {}
        for ask in self._asked:
            for mismatch in ask(sight):
                seen.setdefault(mismatch.key, mismatch)
        # Where nobody looked for long, or the clock was set ahead, nobody knows what was meanwhile.
        unseen_ns = max(0, now_ns - self._stepped_ns - FRESH_NS) if self._since else 0
        self._stepped_ns = now_ns
        since = {key: min(now_ns, self._since.get(key, now_ns) + unseen_ns) for key in seen}
        since |= dict.fromkeys(self._others_now(seen), now_ns)
        if sight.is_blind and not any(_is_away(self._standing[key]) for key in self._standing):
            held = {key: each for key, each in self._standing.items() if key not in seen}
            seen |= held
            since |= {key: min(now_ns, self._since[key] + unseen_ns) for key in held}
        ages = {key: now_ns - since[key] for key in seen}
        following = _following(seen, ages, REASON_NS)
        # A reason that is gone does not leave behind what nobody could have mended meanwhile.
        self._since = since | dict.fromkeys(following, now_ns)
        self._standing = {
            key: each
            for key, each in seen.items()
            if ages[key] >= each.after_ns and key not in following
        }
        self._began_ns = min(now_ns, now_ns if self._began_ns is None else self._began_ns)
        self.is_young = now_ns - self._began_ns < YOUNG_NS
        return self._tell(self._standing, self._soon(seen, ages), sight)

    def _others_now(self, seen: Mapping[Key, Mismatch]) -> list[Key]:
        """Return the mismatches of which nothing is left that was among them as they began."""
        parted = []
        kept: dict[Key, frozenset[str]] = {}
        for key, each in seen.items():
            if each.some:
                kept[key] = self._some.get(key, each.some) & each.some
                if not kept[key]:
                    parted.append(key)
                    kept[key] = each.some
        self._some = kept
        return parted

    def _soon(self, seen: Mapping[Key, Mismatch], ages: Mapping[Key, int]) -> dict[Key, Mismatch]:
        """Return what does not stand yet, and follows from nothing else that is seen."""
        following = _following(seen, ages, 0)
        return {
            key: each
            for key, each in seen.items()
            if key not in self._standing and key not in following and not _is_away(each)
        }

    def _tell(
        self, standing: Mapping[Key, Mismatch], soon: Mapping[Key, Mismatch], sight: Sight
    ) -> tuple[Difference, ...]:
        told: dict[Key, Difference] = {}
        parts: set[tuple[FindingKind, str]] = set()
        for key, mismatch in _alone({**standing, **soon}).items():
            if key[:2] in parts:
                continue  # seen by another sign
            parts.add(key[:2])
            new = _difference(mismatch, sight, lasts=key in standing)
            old = self._told.get(key)
            # Who is concerned decides; words that count on are no news.
            told[key] = old if old is not None and _whom(old) == _whom(new) else new
        self._told = told
        return tuple(sorted(told.values(), key=lambda each: each.finding.key))


def _alone(standing: Mapping[Key, Mismatch]) -> Mapping[Key, Mismatch]:
    """Return what is told: while a controller is away that, and what hosts know of themselves."""
    if not any(map(_is_away, standing.values())):
        return standing
    return {key: each for key, each in standing.items() if each.kind in _KNOWN_TO_HOSTS}


def _following(seen: Mapping[Key, Mismatch], ages: Mapping[Key, int], reason_ns: int) -> set[Key]:
    """Return what follows from something else that is seen for `reason_ns`.

    A reason need not stand yet: some have to last longer than what follows.
    """
    known = [each for key, each in seen.items() if ages[key] >= reason_ns]
    refused = _hosts(known, _WRITES_NOTHING)
    unable = _hosts(known, _BINDS_NOTHING)
    taken = _hosts(known, {FindingKind.TUNNEL_ADDRESS_TAKEN})
    contested = {each.part for each in known if each.kind is FindingKind.PORT_CONTESTED}
    # Then hosts have what was wanted before.
    is_old = any(
        each.kind is FindingKind.TRANSLATION_STALE
        and ages[key] >= min(reason_ns, REASON_NS) * each.after_ns // REASON_NS
        for key, each in seen.items()
    )
    misnamed = {each.interface for each in known if each.kind is FindingKind.PORT_UNBOUND}

    def follows(each: Mismatch) -> bool:
        match each.kind:
            case FindingKind.CONTROLLER_STALE:
                return not refused.isdisjoint(each.hosts)
            case FindingKind.TUNNEL_ADDRESS_WRONG:
                return not taken.isdisjoint(each.hosts[:1])
            case FindingKind.PORT_UNBOUND:
                return each.part in contested or unable.issuperset(each.hosts)
            case FindingKind.PORT_MISPLACED:
                return each.part in contested or is_old
            case FindingKind.ADDRESS_REFUSED:
                return is_old or each.interface in misnamed
            case _:
                return False

    return {key for key, each in seen.items() if follows(each)}


def _hosts(known: Iterable[Mismatch], kinds: set[FindingKind]) -> set[str]:
    return {host for each in known if each.kind in kinds for host in each.hosts}


def _is_away(mismatch: Mismatch) -> bool:
    return mismatch.kind is FindingKind.CONTROLLER_AWAY


def _difference(mismatch: Mismatch, sight: Sight, *, lasts: bool) -> Difference:
    ends = {end.id for port in mismatch.ports for end in sight.ends.of(port)}
    finding = Finding(
        mismatch.kind, controller(mismatch.part), mismatch.text, sight.now_ns,
        dict(mismatch.evidence),
    )  # fmt: skip
    whole = mismatch.is_whole
    ports, ordered = mismatch.ports, tuple(sorted(ends))
    return Difference(finding, mismatch.hosts, whole, ports, ordered, lasts)


def _whom(each: Difference) -> object:
    """Return whom a difference concerns."""
    return each.hosts, each.is_whole, each.ports, each.endpoints, each.lasts
