# SPDX-License-Identifier: Apache-2.0
"""How far what is asked has come: from the controller's database to its translation and each host.

What cannot be read is one finding, whatever hangs on it: nobody is accused of what nobody can see.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from analyzer.intent.differences.contract import SHARED, Mismatch, Sight, quoted
from analyzer.intent.model import Chassis
from analyzer.intent.ovn import SOURCE as OVN
from netagent.model.finding import FindingKind
from netagent.wire.controller import Working

AWAY_NS = 30_000_000_000
"""Nanoseconds for which a controller cannot be read before it is told. Chosen: after the loss of
its leader a database of three was back in 3 s once, and another time not within 15 s."""
TRANSLATION_NS = 60_000_000_000
"""Nanoseconds for which a translation comes no step further. Chosen: ten times what ten thousand
ports took from nothing, 6.1 s."""
STALE_NS = 120_000_000_000
"""Nanoseconds for which an instance does not work, or comes no step further while others do.
Chosen: one that is upgraded stops before its image is there."""
TRANSLATION = "northd"
"""Name of OVN's part that makes flows of what is asked."""
_DOES = {
    Working.STOPPED: "does not run",
    Working.SILENT: "is there and does not answer",
    Working.CUT_OFF: "does not reach its database",
}


def away(sight: Sight) -> Iterator[Mismatch]:
    """Yield that a controller cannot be read, or that most hosts do not reach it."""
    cut_off = _cut_off(sight)
    source, zone = sight.intent.source, sight.intent.zone
    part = f"{source} {zone}" if zone else source
    if sight.is_blind:
        read = dict(sight.intent.away)
        text = f"{quoted(read)} of {part} cannot be read: what it wants now is not known"
    elif cut_off:
        read = {"cut off": quoted(cut_off)}
        text = f"{len(cut_off)} of {len(sight.heard)} hosts do not reach the database of {source}"
    else:
        return
    hosts = (zone,) if zone else ()
    yield Mismatch(FindingKind.CONTROLLER_AWAY, part, text, AWAY_NS, read, hosts)


def _cut_off(sight: Sight) -> list[str]:
    """Return the hosts that do not reach their database, where these are most."""
    cut_off = [h for h, state in sight.heard.items() if state.working is Working.CUT_OFF]
    return cut_off if len(cut_off) > max(1, SHARED * len(sight.heard)) else []


def translation(sight: Sight) -> Iterator[Mismatch]:
    """Yield that a controller makes no flows of what it is asked for."""
    if sight.is_blind:
        return
    intent, ladder = sight.intent, sight.intent.ladder
    if ladder.asked is None and ladder.translated is None:
        return  # it says nothing of steps: that a port is nowhere may be all that it knows
    name = TRANSLATION if intent.source == OVN else f"translation {intent.source}"
    # Of a port that another controller leaves out nothing is known; OVN has a row for each.
    untold = tuple(
        each.name
        for state in sight.heard.values()
        for each in state.ports
        if intent.source == OVN and each.name in intent.ports and each.name not in intent.placements
    )
    read = {"plugged in and not translated": quoted(untold)} if untold else {}
    if ladder.asked is not None and ladder.translated is not None:
        read = {"asked": str(ladder.asked), "translated": str(ladder.translated), **read}
        if ladder.translated < ladder.asked:
            text = f"is at {ladder.translated}, and {ladder.asked} is asked for"
            yield _translation(name, text, read, untold, str(ladder.translated), intent.zone)
    if untold:
        text = f"makes nothing of {len(untold)} ports that are plugged in"
        told = _translation(name, text, read, untold, "ports", intent.zone)
        yield replace(told, some=frozenset(untold))


def _translation(
    name: str, text: str, read: dict[str, str], ports: tuple[str, ...], mark: str, zone: str
) -> Mismatch:
    part = f"{name} {zone}" if zone else name
    return Mismatch(
        FindingKind.TRANSLATION_STALE, part, f"{part} {text}", TRANSLATION_NS, read,
        (zone,) if zone else (), ports=ports, mark=mark,
    )  # fmt: skip


def instances(sight: Sight) -> Iterator[Mismatch]:
    """Yield hosts whose instance installs nothing of what is new."""
    excused = {*_cut_off(sight)}
    steps = _Steps.of(sight)
    yield from _stuck(steps, sight)
    for host, state in sight.heard.items():
        chassis = sight.chassis_of(host)
        gone = chassis is None and bool(sight.intent.chassis) and not sight.is_blind
        if host in excused or (sight.is_blind and state.working is Working.CUT_OFF):
            continue
        if not state.chassis:
            continue  # nobody set it up yet
        if state.working in _DOES:
            text = f"the controller's instance on {host} {_DOES[state.working]}"
            text += ": it installs nothing of what is new"
            # Where its record moves on, something does: the host looks in the wrong place, or at
            # an instance that computes.
            mark = f"not working, at {chassis.installed if chassis else None}"
            yield _stale(host, sight, text, {}, is_whole=gone, mark=mark)
        elif gone:
            text = f"{host} runs its instance, and its controller has no record of {state.chassis}"
            yield _stale(host, sight, text, {}, is_whole=True, mark="gone")
        elif chassis is not None and not sight.is_blind:
            yield from _behind(host, chassis, steps, sight)


@dataclass(slots=True)
class _Steps:
    """What instances have installed, in order."""

    working: list[int]
    """Of those that are heard, and work."""
    others: list[int]
    """Of all other records: hosts without an agent, and such as are gone."""

    @classmethod
    def of(cls, sight: Sight) -> "_Steps":
        # Nobody has installed what is not translated: a word of before the database was set back,
        # or no true one. Both are rows of one database, so neither is read later than the other.
        translated = sight.intent.ladder.translated
        working = {each.chassis for host, each in sight.heard.items() if sight.connected(host)}
        found: tuple[list[int], list[int]] = [], []
        for each in sight.intent.chassis.values():
            if not each.is_registered or each.installed is None:
                continue
            if translated is None or each.installed <= translated:
                found[each.name not in working].append(each.installed)
        return cls(*map(sorted, found))

    @property
    def count(self) -> int:
        return len(self.working) + len(self.others)

    @property
    def newest(self) -> int:
        return max((*self.working[-1:], *self.others[-1:]), default=0)

    def is_behind(self, installed: int) -> bool:
        """Return whether most others have more; what is not ahead may be a host that is gone."""
        ahead = len(self.working) - bisect_right(self.working, installed)
        elsewhere = len(self.others) - bisect_right(self.others, installed)
        return ahead + elsewhere > max(0, SHARED * (len(self.working) - 1 + elsewhere))

    def stuck(self) -> int | None:
        """Return what most that work have, where some have more and nobody is behind for it."""
        most = self.working[len(self.working) // 2] if self.working else self.newest
        return most if most < self.newest and not self.is_behind(most) else None


def _behind(host: str, chassis: Chassis, steps: _Steps, sight: Sight) -> Iterator[Mismatch]:
    if chassis.installed is None:
        return
    if sight.intent.zone and steps.count < 2:  # there is nobody to compare it with
        whose, newest = "translated", sight.intent.ladder.translated or 0
        is_behind = chassis.installed < newest
    else:
        whose, newest = "others", steps.newest
        is_behind = steps.is_behind(chassis.installed)
    if not is_behind:
        return
    text = f"{host} has installed {chassis.installed}, and "
    text += f"others {newest}" if whose == "others" else f"{newest} is translated"
    read = {"installed": str(chassis.installed), whose: str(newest)}
    yield _stale(host, sight, text, read, mark=str(chassis.installed))


def _stuck(steps: _Steps, sight: Sight) -> Iterator[Mismatch]:
    """Yield that most hosts lack what some have: that is none of theirs, and no incident."""
    installed, source = steps.stuck(), sight.intent.source
    if installed is None or sight.is_blind or sight.intent.zone:
        return
    text = f"most hosts have installed {installed} of {source}, and others {steps.newest}"
    read = {"installed": str(installed), "others": str(steps.newest)}
    yield Mismatch(FindingKind.CONTROLLER_STALE, source, text, STALE_NS, read, mark=str(installed))


def _stale(
    host: str,
    sight: Sight,
    text: str,
    read: dict[str, str],
    *,
    mark: str,
    is_whole: bool = False,
) -> Mismatch:
    state = sight.heard[host]
    said = {"instance": state.working.value, "chassis": state.chassis}
    if state.generation is not None:
        said["generation on the host"] = str(state.generation)
    missing = (each.name for each in state.ports if not each.is_installed)
    ports = tuple(missing) if sight.knows_installed else ()
    return Mismatch(
        FindingKind.CONTROLLER_STALE, host, text, STALE_NS, read | said, (host,), is_whole, ports,
        mark=mark,
    )  # fmt: skip
