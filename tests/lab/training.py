# SPDX-License-Identifier: Apache-2.0
"""A real training job on the containers of a task: one rank per endpoint."""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from signal import Signals

from tests.lab.commands import run, wait_for
from tests.lab.errors import LabError
from tests.lab.processes import Processes
from tests.lab.workload import Container, Endpoint

START_S = 90
QUICK: Mapping[str, float] = {
    "forward_s": 0.03, "pause_s": 0.1, "load_s": 0.02, "microbatches": 2, "norm": 1, "hidden": 128,
    "tokens": 64,
}  # fmt: skip
"""A job whose steps take about a second on cores that it shares with the lab."""
SEND_BYTES = 32768
"""A connection has so much under way at most. A userspace datapath has no more room: bursts beyond
it are real loss, of probes too."""


class Training:
    """The job of one task; ranks lie over its containers in order, rail by rail."""

    def __init__(self, directory: Path, containers: tuple[Container, ...], rails: int) -> None:
        self._folder = directory / "training" / containers[0].task
        self._processes = Processes(directory)
        ordered = sorted(containers, key=lambda each: each.host)
        self.endpoints = tuple(c.endpoint(rail) for c in ordered for rail in range(rails))
        """By rank."""

    @property
    def folder(self) -> Path:
        """Where the job meets, and reads what is wrong with it."""
        return self._folder

    def start(
        self, *, dp: int, pp: int, environment: Mapping[str, str] | None = None, **options: float
    ) -> None:
        """Start every rank, and return once the job knows its groups.

        In values of `environment`, ``{host}`` stands for the number of the rank's host.
        """
        ranks = len(self.endpoints)
        tp = ranks // (dp * pp)
        if dp * pp * tp != ranks:
            raise LabError(f"DP {dp} and PP {pp} do not divide {ranks} endpoints")
        for container in {endpoint.container for endpoint in self.endpoints}:
            _tame(container)
        self._folder.mkdir(parents=True)
        degrees = ("--dp", str(dp), "--pp", str(pp), "--tp", str(tp))
        more = [part for name, value in options.items() for part in (_flag(name), str(value))]
        for rank, endpoint in enumerate(self.endpoints):
            host = str(endpoint.container.host)
            given = [f"{n}={v.replace('{host}', host)}" for n, v in (environment or {}).items()]
            self._processes.start(
                self._name(rank),
                *("env", f"GLOO_SOCKET_IFNAME={endpoint.interface}", "OMP_NUM_THREADS=1"),
                *(f"RANK={rank}", f"WORLD_SIZE={ranks}", *given),
                *(sys.executable, "-m", "tests.lab.train", "--folder", str(self._folder)),
                *("--rank", str(rank), *degrees, *more),
                namespace=endpoint.container.namespace,
            )
        wait_for("the job to form its groups", self._formed, timeout_s=START_S)

    def stop(self) -> None:
        """Kill every rank."""
        for rank in range(len(self.endpoints)):
            self._processes.kill(self._name(rank))
        shutil.rmtree(self._folder, ignore_errors=True)

    def groups(self) -> dict[str, list[list[Endpoint]]]:
        """Return what the job itself says its process groups are: by ``dp``, ``pp``, ``tp``."""
        told = json.loads((self._folder / "groups.json").read_text())
        return {
            kind: [[self.endpoints[rank] for rank in group] for group in groups]
            for kind, groups in told.items()
        }

    def alive(self) -> bool:
        """Tell whether every rank lives."""
        return all(self._processes.pid(self._name(r)) for r in range(len(self.endpoints)))

    def pid(self, rank: int) -> int | None:
        """Return the process of a rank; None where it is dead."""
        return self._processes.pid(self._name(rank))

    def steps(self, rank: int = 0) -> int:
        """Return how many steps a rank has done."""
        log = self._processes.log_file(self._name(rank))
        return log.read_text().count("\nstep ") if log.exists() else 0

    def signal(self, rank: int, number: Signals) -> None:
        """Send a signal to a rank."""
        self._processes.signal(self._name(rank), number)

    def _formed(self) -> bool:
        if not self.alive():
            raise LabError("a rank ended at once", f"its log is in {self._folder}")
        return (self._folder / "groups.json").exists()

    def _name(self, rank: int) -> str:
        return f"{self._folder.relative_to(self._folder.parent.parent)}/rank{rank}"


def _tame(container: Container) -> None:
    if container.shares_namespace:
        raise LabError("containers have no namespace of their own", "bring the lab up with udp")
    sizes = f"net.ipv4.tcp_wmem=4096 {SEND_BYTES} {SEND_BYTES}"
    run("ip", "netns", "exec", container.namespace, "sysctl", "-qw", sizes)


def recorded_as(job: str, folder: str) -> dict[str, str]:
    """Return the environment in which a rank records what it does into a folder."""
    return {"NETAGENT_TORCH": "1", "NETAGENT_OPERATORS": folder, "NETAGENT_JOB": job}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
