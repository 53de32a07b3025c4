# SPDX-License-Identifier: Apache-2.0
"""Differences where each host has a controller of its own: a zone is held against its host alone.

Theory of operation. A zone is read through its host's agent, by a certificate that speaks for that
host. So each zone has differences of its own, in which nobody else is seen: what one says of
others' ports or chassis finds nobody whom it could concern, and that one is away, or stands still,
says nothing of others. Between zones there is what hosts say of their own tunnels, and where a zone
sends to others: it is mistaken where the other's own zone and most of all zones say otherwise, so
that nobody is accused by one host's word.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from analyzer.intent.differences.binding import contested, unbound
from analyzer.intent.differences.contract import Difference, HostSaid, Mismatch, Sight, quoted
from analyzer.intent.differences.ghosts import ghosts
from analyzer.intent.differences.ladder import STALE_NS, away, instances, translation
from analyzer.intent.differences.lasting import YOUNG_NS, Differences
from analyzer.intent.differences.security import refused
from analyzer.intent.differences.tunnels import taken, wrong
from analyzer.intent.model import Chassis, Encapsulation, Intent
from netagent.model.endpoint import Endpoint
from netagent.model.finding import FindingKind

OF_A_ZONE: tuple[Callable[[Sight], Iterator[Mismatch]], ...] = (
    away, translation, instances, contested, unbound, ghosts, refused,
)  # fmt: skip
"""What is asked of each zone and its host, in the order of `lasting.ASKED`."""
LATE_NS = 60_000_000_000
"""Nanoseconds after the first step within which all zones are known. Chosen: hosts say once a
minute that they have one."""
LEAST = 3
"""Zones that say where a chassis is, before one of them may be mistaken. Chosen: of two that differ
either may be."""

T = TypeVar("T")
Place = frozenset[str]
"""Tunnel addresses of a chassis; empty where a zone does not know it."""


class ZonedDifferences:
    """What differs between zones and their hosts, followed over time."""

    def __init__(self) -> None:
        self._between = Differences((wrong, taken, self._mistaken))
        self._of: dict[str, Differences] = {}
        self._votes = _Votes()
        self._zones: dict[str, Intent] = {}
        self._began_ns: int | None = None
        self.is_young = True
        """Whether it is too early to tell that nothing differs any more."""

    def step(
        self,
        zones: Iterable[Intent],
        states: Mapping[str, HostSaid],
        endpoints: Iterable[Endpoint],
        now_ns: int,
    ) -> tuple[Difference, ...]:
        """Return the differences that stand, in order; else as `Differences.step`."""
        self._began_ns = min(now_ns, now_ns if self._began_ns is None else self._began_ns)
        self.is_young = now_ns - self._began_ns < YOUNG_NS + LATE_NS
        self._zones = {each.zone: each for each in zones}
        self._of = {host: self._of.get(host) or Differences(OF_A_ZONE) for host in self._zones}
        by_host: dict[str, list[Endpoint]] = defaultdict(list)
        for each in endpoints:
            by_host[each.host].append(each)
        everybody = [end for ends in by_host.values() for end in ends]
        self._votes.take(self._zones)
        whole = Sight(self._records(states, now_ns), self._named(states), everybody, now_ns)
        told = list(self._between.look(whole))
        for host, zone in self._zones.items():
            said = {host: states[host]} if host in states else {}
            sight = Sight(zone, said, by_host.get(host, ()), now_ns)
            sight.hosts, sight.knows_installed = whole.hosts, whole.knows_installed
            told += self._of[host].look(sight)
        return tuple(sorted(told, key=lambda each: each.finding.key))

    def _records(self, states: Mapping[str, HostSaid], now_ns: int) -> Intent:
        """Return where most zones have each host's chassis."""
        found = {}
        for said in states.values():
            name = said.state.chassis
            if (place := self._votes.place(name)) is not None:
                ends = tuple(Encapsulation("", address) for address in sorted(place))
                found[name] = Chassis(name, self._votes.hostname(name), ends)
        source = next((each.source for each in self._zones.values()), "ovn")
        return Intent(source, now_ns, chassis=found)

    def _named(self, states: Mapping[str, HostSaid]) -> dict[str, HostSaid]:
        """Return the hosts but those that go by the name of another, as most zones call that."""
        claims: dict[str, set[str]] = defaultdict(set)
        for host, said in states.items():
            claims[said.state.chassis].add(host)
        strangers = set()
        for name, hosts in claims.items():
            if len(hosts) > 1 and (owner := _known(self._votes.hostname(name), hosts)):
                strangers |= hosts - {owner}
        return {host: said for host, said in states.items() if host not in strangers}

    def _mistaken(self, sight: Sight) -> Iterator[Mismatch]:
        """Yield zones that send to another one's chassis where it is not."""
        wrongly: dict[str, dict[str, str]] = defaultdict(dict)
        for host, state in sight.heard.items():
            zone, name = self._zones.get(host), state.chassis
            if zone is None or zone.away or name not in zone.chassis:
                continue
            own = _place(zone.chassis[name])
            if self._votes.place(name) != own or self._votes.count() < LEAST:
                continue
            for other, there in self._votes.others(name, own):
                wrongly[other][f"{name} of {host}"] = (
                    f"{quoted(there) or 'nowhere'}, and it is at {quoted(own)}"
                )
        for host, read in wrongly.items():
            if host not in sight.heard:
                continue
            text = f"the zone of {host} has {quoted(read)} where it is not"
            yield Mismatch(
                FindingKind.CONTROLLER_STALE, f"zone {host}", text, STALE_NS, read, (host,),
                mark="mistaken",
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Said:
    """Where one zone has chassis, its own and others', and what their hosts are called."""

    believed: Mapping[str, Place]
    hostnames: Mapping[str, str]
    own: Mapping[str, tuple[Place, str]]

    @classmethod
    def of(cls, zone: Intent) -> "_Said":
        own = {name: (_place(each), each.hostname) for name, each in zone.chassis.items()}
        return cls(zone.believed, zone.hostnames, own)

    def is_as(self, other: "_Said") -> bool:
        """Whether it is the same; a zone keeps the objects of what did not change."""
        kept = self.believed is other.believed and self.hostnames is other.hostnames
        return kept and self.own == other.own

    def all(self) -> Iterator[tuple[str, Place, str]]:
        for name, place in self.believed.items():
            if name not in self.own:
                yield name, place, self.hostnames.get(name, "")
        for name, (place, hostname) in self.own.items():
            yield name, place, hostname


class _Votes:
    """Where zones have each chassis. All know all, so only what changed is counted anew."""

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}
        self._places: dict[str, Counter[Place]] = defaultdict(Counter)
        self._hostnames: dict[str, Counter[str]] = defaultdict(Counter)

    def take(self, zones: Mapping[str, Intent]) -> None:
        """Take what zones say now; one that is away has no say."""
        now = {host: _Said.of(each) for host, each in zones.items() if not each.away}
        for host in self._said.keys() | now.keys():
            was, new = self._said.get(host), now.get(host)
            if was is not None and new is not None and new.is_as(was):
                continue
            for said, vote in ((was, -1), (new, 1)):
                for name, place, hostname in said.all() if said is not None else ():
                    _count(self._places, name, place, vote)
                    _count(self._hostnames, name, hostname, vote)
        self._said = now

    def count(self) -> int:
        """Return how many zones have a say: those that do not know a chassis, too."""
        return len(self._said)

    def place(self, name: str) -> Place | None:
        """Return where most zones have a chassis; None where they do not agree."""
        return self._most(self._places.get(name))

    def hostname(self, name: str) -> str:
        """Return what most zones call a chassis' host; "" where they do not agree."""
        return self._most(self._hostnames.get(name)) or ""

    def _most(self, votes: Counter[T] | None) -> T | None:
        for value, times in votes.most_common(1) if votes else ():
            if 2 * times > self.count():
                return value
        return None

    def others(self, name: str, place: Place) -> list[tuple[str, Place]]:
        """Return the zones that have a chassis elsewhere, or do not know it: nowhere."""
        if self._places[name][place] == self.count():
            return []
        found = []
        for host, said in sorted(self._said.items()):
            there = said.own[name][0] if name in said.own else said.believed.get(name, Place())
            if there != place:
                found.append((host, there))
        return found


def _count(votes: dict[str, Counter[T]], name: str, value: T, vote: int) -> None:
    votes[name][value] += vote
    if not votes[name][value]:
        del votes[name][value]
        if not votes[name]:
            del votes[name]


def _place(chassis: Chassis) -> Place:
    return Place(each.address for each in chassis.encapsulations)


def _known(hostname: str, hosts: Iterable[str]) -> str:
    """Return the host that is called so; "" where it is none of them."""
    short = hostname.partition(".")[0]
    return next((host for host in sorted(hosts) if host in {hostname, short}), "")
