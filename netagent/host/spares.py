# SPDX-License-Identifier: Apache-2.0
"""Watches bonds: members that carry nothing while the others do their work. Reads no clock.

Probes lose nothing then, so nothing else shows that the rail has no spare any more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from netagent.host.facts import Link, Uplink
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import rnic

HOLD_NS = 3_000_000_000
"""Nanoseconds that it must last, and be seen again, to be a finding. Chosen: a bond notices a
member that came back within some hundred milliseconds, and members are plugged one after another.
"""

_Key = tuple[str, str]
"""Bond and member."""


@dataclass(frozen=True, slots=True)
class _Masked:
    """Why a member is not what it should be, as of one look."""

    text: str
    evidence: Mapping[str, str]


class SpareWatch:
    """Turns successive sights of the rails' bonds into findings."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._members: dict[str, set[str]] = {}
        """Bond -> members that it was seen to have."""
        self._masked: dict[_Key, _Masked] = {}
        self._since_ns: dict[_Key, int] = {}
        self._now_ns = 0
        self.covered: frozenset[str] = frozenset()
        """Members that carry nothing, and whose rail works all the same."""

    def observe(self, uplinks: Iterable[Uplink], links: Mapping[str, Link], *, now_ns: int) -> None:
        """Take in the bonds of `uplinks` as they are now; others are forgotten."""
        bonds = {uplink.bond: uplink for uplink in uplinks if uplink.bond}
        self._members = {
            name: {m for m in self._members.get(name, ()) if m not in links} | set(each.members)
            for name, each in bonds.items()
        }  # one that exists, and left the bond, was taken out of it
        masked: dict[_Key, _Masked] = {}
        covered: set[str] = set()
        for name, uplink in bonds.items():
            members = sorted(self._members[name])
            broken = {m: why for m in members if (why := _why_idle(links.get(m)))}
            fit = [member for member in members if member not in broken]
            if fit and broken:
                covered |= broken.keys()
                masked |= dict(_failed(uplink, fit, broken))
            elif idle := _idle_primary(links.get(name), members, links):
                masked[name, idle[0]] = _elsewhere(uplink, *idle)
        self._since_ns = {key: self._since_ns.get(key, now_ns) for key in masked}
        self._masked, self._now_ns, self.covered = masked, now_ns, frozenset(covered)

    def findings(self, *, wall_ns: int) -> Iterator[Finding]:
        """Yield what lasts."""
        for (bond, member), masked in sorted(self._masked.items()):
            if self._now_ns - self._since_ns[bond, member] >= HOLD_NS:
                component, evidence = rnic(self._host, member), dict(masked.evidence)
                yield Finding(FindingKind.RAIL_ON_SPARE, component, masked.text, wall_ns, evidence)

    def deadline_ns(self) -> int | None:
        """Return when to observe again, because something may have lasted."""
        ends = (since_ns + HOLD_NS for since_ns in self._since_ns.values())
        return min((end for end in ends if end > self._now_ns), default=None)


def _why_idle(link: Link | None) -> str:
    if link is None:
        return "does not exist"
    if not link.up:
        return "is administratively down"
    if not link.carrier:
        return "has no carrier"
    return "has a carrier, but its bond holds it for down" if link.held_down else ""


def _failed(
    uplink: Uplink, fit: Sequence[str], broken: Mapping[str, str]
) -> Iterator[tuple[_Key, _Masked]]:
    links = f"{len(fit)} of {len(fit) + len(broken)}"
    cost = f"it has {links} links" + (" and no spare" if len(fit) == 1 else "")
    bond = uplink.bond or ""
    for member, why in broken.items():
        text = (
            f"{bond} of rail {uplink.rail} runs on {', '.join(fit)}, for {member} {why}: "
            f"nothing is lost, but {cost}"
        )
        yield (bond, member), _Masked(text, {"bond": bond, "links": links})


def _idle_primary(
    bond: Link | None, members: Sequence[str], links: Mapping[str, Link]
) -> tuple[str, str] | None:
    """Return the primary of a bond and the member that it sends by instead, if it does."""
    if bond is None or None in (bond.active, bond.primary) or bond.active == bond.primary:
        return None
    names = {links[member].index: member for member in members if member in links}
    primary, active = names.get(bond.primary or 0), names.get(bond.active or 0)
    return (primary, active) if primary and active else None


def _elsewhere(uplink: Uplink, primary: str, active: str) -> _Masked:
    text = (
        f"{uplink.bond} of rail {uplink.rail} sends by its spare {active}, though its primary "
        f"{primary} is well: nothing is lost, but traffic takes another cable than it should"
    )
    return _Masked(text, {"bond": uplink.bond or "", "active": active, "primary": primary})
