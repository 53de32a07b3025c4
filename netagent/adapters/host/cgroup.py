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


class Limits:
    """Looks at one group again and again."""

    def __init__(self, cgroups: Path = CGROUPS, own: Path = OWN) -> None:
        lines = read_text(str(own)).splitlines()
        paths = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
        self._folder = str(cgroups / paths[0]) if paths else ""
        self._periods, self._throttled = self._cpu()

    def load(self) -> Load:
        """Return the load now; of the CPU, since the call before."""
        if not self._folder:
            return Load()
        return Load(self._memory(), self._share_throttled())

    def _memory(self) -> float | None:
        most = number(f"{self._folder}/memory.max")  # "max", which is no number, without a limit
        held = self._stat("memory.stat").get("anon")  # the page cache is given up without harm
        return held / most if most and held is not None else None

    def _share_throttled(self) -> float | None:
        before = self._periods, self._throttled
        self._periods, self._throttled = self._cpu()
        periods = self._periods - before[0]
        return (self._throttled - before[1]) / periods if periods > 0 else None

    def _cpu(self) -> tuple[int, int]:
        told = self._stat("cpu.stat") if self._folder else {}
        return told.get("nr_periods", 0), told.get("nr_throttled", 0)

    def _stat(self, file: str) -> dict[str, int]:
        rows = (line.split() for line in read_text(f"{self._folder}/{file}").splitlines())
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}
