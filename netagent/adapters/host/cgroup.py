# SPDX-License-Identifier: Apache-2.0
"""How near this process, with its helpers, is to the limits of its control group (version 2).

Documentation/admin-guide/cgroup-v2.rst has the files. A group without limits, and version 1, have
nothing to be near to.
"""

from pathlib import Path

from netagent.adapters.host.files import number, read_text
from netagent.host.shedding import Load

CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
_RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")
"""Of memory.stat: what the kernel takes back before it ends anybody."""


class Limits:
    """Looks at one group again and again."""

    def __init__(self, cgroups: Path = CGROUPS, own: Path = OWN) -> None:
        lines = read_text(str(own)).splitlines()
        paths = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
        own_folder = cgroups / paths[0] if paths else cgroups
        self._folder = str(own_folder) if paths else ""
        self._above = [str(each) for each in own_folder.parents if cgroups in each.parents]
        self._periods, self._throttled = self._cpu()

    def load(self) -> Load:
        """Return the load now; of the CPU, since the call before."""
        if not self._folder:
            return Load()
        return Load(self._memory(), self._share_throttled())

    def _memory(self) -> float | None:
        """Return the share of the nearest limit: of this group, or of one that it is part of."""
        shares = [
            self._held(folder) / most
            for folder in (self._folder, *self._above)
            if (most := number(f"{folder}/memory.max"))  # "max", which is no number: no limit
        ]
        return max(shares, default=None)

    @staticmethod
    def _held(folder: str) -> int:
        """Return the bytes of a group that the kernel cannot take back without harm."""
        stat = _stat(f"{folder}/memory.stat")
        given_up = sum(stat.get(name, 0) for name in _RECLAIMABLE)
        return max(0, (number(f"{folder}/memory.current") or 0) - given_up)

    def _share_throttled(self) -> float | None:
        before = self._periods, self._throttled
        self._periods, self._throttled = self._cpu()
        periods = self._periods - before[0]
        return (self._throttled - before[1]) / periods if periods > 0 else None

    def _cpu(self) -> tuple[int, int]:
        told = _stat(f"{self._folder}/cpu.stat") if self._folder else {}
        return told.get("nr_periods", 0), told.get("nr_throttled", 0)


def _stat(file: str) -> dict[str, int]:
    rows = (line.split() for line in read_text(file).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}
