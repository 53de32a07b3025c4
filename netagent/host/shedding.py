# SPDX-License-Identifier: Apache-2.0
"""What an agent leaves undone near its limits, in which order. Reads no clock.

A service manager ends what passes its memory limit, and starts it again, and so on: a flap. Before
that the agent does less, least needed first: traces of the virtual switch, then walks and
comparisons of flow tables, then probes of pairs that their task does not use. What a task uses is
probed to the end.
"""

from dataclasses import dataclass
from enum import IntEnum


class Shed(IntEnum):
    """What is left undone; each includes those before it."""

    NOTHING = 0
    TRACES = 1
    WALKS = 2
    RARE = 3


MEMORY_SHARES = (0.65, 0.75, 0.85)
"""Shares of the memory limit from which traces, walks and rare targets are left undone. Chosen: a
worker takes some 50 MB of the unit's 512, and the kernel begins to reclaim at three quarters."""
THROTTLED_SHARES = (0.3, 0.5, 0.7)
"""Shares of the CPU quota's periods in which the agent was made to wait, likewise. Chosen: a burst
now and then is what the quota is for."""
MARGIN = 0.05
"""How far below a share it has to be, for what was left undone to be done again. Chosen: what is
taken up again must not bring it back at once."""


@dataclass(frozen=True, slots=True)
class Load:
    """How near an agent is to its limits; None where there is none, or it cannot be read."""

    memory: float | None = None
    """Share of the memory limit that is in use, helpers included."""
    throttled: float | None = None
    """Share of the CPU quota's periods, since the look before, in which it was used up."""


class Shedding:
    """Turns successive looks at the load into what is left undone."""

    def __init__(self) -> None:
        self.level = Shed.NOTHING
        self._throttled = 0.0
        """Of the look before."""

    def observe(self, load: Load) -> Shed:
        """Return what to leave undone from now on: more at once, less one step a look.

        Of the CPU two looks in a row have to ask for it: one walk uses up the quota for a moment.
        """
        throttled = load.throttled or 0.0
        lasting, self._throttled = min(throttled, self._throttled), throttled
        wanted = max(_level(load.memory, MEMORY_SHARES), _level(lasting, THROTTLED_SHARES))
        if wanted >= self.level:
            self.level = wanted
        elif self._is_over(load):
            self.level = Shed(self.level - 1)
        return self.level

    def _is_over(self, load: Load) -> bool:
        place = self.level - 1
        near = (load.memory, MEMORY_SHARES[place]), (load.throttled, THROTTLED_SHARES[place])
        return all(share is None or share < limit - MARGIN for share, limit in near)


def _level(share: float | None, shares: tuple[float, ...]) -> Shed:
    return Shed(sum(share >= each for each in shares)) if share is not None else Shed.NOTHING
