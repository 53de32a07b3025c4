# SPDX-License-Identifier: Apache-2.0
"""What this host does when it is asked to: whether, how often, and by which detour. No I/O.

Instants are Unix nanoseconds of this host.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from netagent.model.errors import TooSoon
from netagent.wire.actions import HostVerb

HOUR_NS = 3600 * 10**9
MOST_KEPT = 100
"""Actions that are remembered, so that none is done twice. Chosen: a day's, at the default limit.
More than an hour's are always kept."""

VERSIONS = tuple(f"OpenFlow1{minor}" for minor in range(6))
"""Versions of OpenFlow that Open vSwitch speaks (ovs-vswitchd.conf.db(5), Bridge, protocols). All
are spoken where none is named."""
SPARE = ("OpenFlow12", "OpenFlow11", "OpenFlow10")
"""Versions that a controller speaks the least, in this order. OVN speaks 1.5, ovs-ofctl 1.0."""


class Begun(Struct, frozen=True):
    """Something that was begun on this host."""

    id: str
    verb: HostVerb
    wall_ns: int
    outcome: str | None = None
    """Why it failed; "" where it was done, None while it is under way."""


class Held(Struct, frozen=True):
    """A bridge whose protocols are about to be changed, or are."""

    bridge: str
    before: tuple[str, ...]
    """What they were, and shall be again."""
    during: tuple[str, ...]


class Memory(Struct, frozen=True):
    """What outlives the agent."""

    begun: tuple[Begun, ...] = ()
    held: Held | None = None


def detour(before: Iterable[str]) -> tuple[str, ...]:
    """Return protocols that differ from `before`, so that every OpenFlow connection is made anew.

    Open vSwitch closes the connections of a bridge whose versions change (ofproto/connmgr.c,
    `ofservice_reconfigure`). One that hardly anybody speaks is added, or else left out.
    """
    known = set(before)
    missing = next((each for each in SPARE if each not in known), None)
    if known and missing:
        return tuple(sorted({*known, missing}))
    return tuple(sorted((known or set(VERSIONS)) - {SPARE[0]}))


@dataclass(slots=True)
class Ledger:
    """What was begun here, and how much more may be."""

    host: str
    per_hour: int
    begun: dict[str, Begun] = field(default_factory=dict)

    def known(self, action: str) -> Begun | None:
        """Return what was begun under an id."""
        return self.begun.get(action)

    def begin(self, action: str, verb: HostVerb, wall_ns: int) -> None:
        """Note that something begins. Raises TooSoon where too much was begun lately.

        What was begun in the future, by a clock that went back since, counts too: whoever asks
        gains nothing by a wrong clock.
        """
        lately = [each for each in self.begun.values() if each.wall_ns > wall_ns - HOUR_NS]
        if len(lately) >= self.per_hour:
            text = (
                f"{len(lately)} actions within an hour, {self.per_hour} at most (actions.per_hour)"
            )
            raise TooSoon(self.host, text)
        self.begun[action] = Begun(action, verb, wall_ns)
        while len(self.begun) > max(MOST_KEPT, self.per_hour):
            del self.begun[next(iter(self.begun))]

    def end(self, action: str, outcome: str) -> None:
        """Note how it ended; "" where it was done."""
        was = self.begun[action]
        self.begun[action] = Begun(action, was.verb, was.wall_ns, outcome)
