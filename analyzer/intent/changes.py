# SPDX-License-Identifier: Apache-2.0
"""What became of an intent since it was last said, so that nobody reads ten thousand ports again.

One side says `Changes`, in order; the other puts them together again (`Known`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analyzer.intent.model import Chassis, Intent, Ladder, Placement, Port

PORTS, PLACEMENTS, CHASSIS = "ports", "placements", "chassis"
"""The maps of an intent."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What is another one than before; None in a map: it is not there any more."""

    source: str
    wall_ns: int
    """Unix nanoseconds at which it was read."""
    ports: Mapping[str, Port | None] = field(default_factory=dict)
    placements: Mapping[str, Placement | None] = field(default_factory=dict)
    chassis: Mapping[str, Chassis | None] = field(default_factory=dict)
    ladder: Ladder = field(default_factory=Ladder)
    """As it is now."""
    away: Mapping[str, str] = field(default_factory=dict)
    """As it is now."""
    afresh: tuple[str, ...] = ()
    """Maps that begin anew: what was in them before and is not said again is not there any more."""
    is_whole: bool = True
    """False: more of it follows, and only with that does it make sense."""
    begins: bool = False
    """Whether what was said before and was not whole never will be: who said it ended."""


class Known:
    """An intent that is put together of changes."""

    def __init__(self, source: str, away: Mapping[str, str]) -> None:
        self._source, self._away = source, dict(away)
        self._wall_ns = 0
        self._ladder = Ladder()
        self._maps: dict[str, dict[str, Any]] = {PORTS: {}, PLACEMENTS: {}, CHASSIS: {}}
        self._anew: dict[str, dict[str, Any]] = {}
        """Maps that began anew and are not whole."""

    def take(self, changes: Changes) -> bool:
        """Take what changed; return whether that makes sense without what follows."""
        if changes.begins:
            self._anew.clear()
        for name in changes.afresh:
            self._anew[name] = {}
        for name, held in self._maps.items():
            into = self._anew.get(name, held)
            said: Mapping[str, Any] = getattr(changes, name)
            for key, value in said.items():
                if value is None:
                    into.pop(key, None)
                else:
                    into[key] = value
        if changes.is_whole:
            self._maps.update(self._anew)
            self._anew.clear()
            self._wall_ns, self._ladder = changes.wall_ns, changes.ladder
            self._away = dict(changes.away)
        return changes.is_whole

    def intent(self) -> Intent:
        """Return what is known: a value of its own, which no later change reaches."""
        return Intent(
            source=self._source,
            wall_ns=self._wall_ns,
            away=dict(self._away),
            ports=dict(self._maps[PORTS]),
            placements=dict(self._maps[PLACEMENTS]),
            chassis=dict(self._maps[CHASSIS]),
            ladder=self._ladder,
        )
