# SPDX-License-Identifier: Apache-2.0
"""What should be in the lab, and the file that remembers it between commands."""

import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.lab.errors import LabError
from tests.lab.shape import (
    NORTHBOUND,
    SOUTHBOUND,
    Controller,
    Runtime,
    Shape,
    Transport,
    Tunnel,
    Versions,
)
from tests.lab.workload import Container, container_of

DIRECTORY = Path("/run/netagent-lab")
"""State, sockets, pid files, logs and certificates of the one lab of this machine."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What a fault really is, in the vocabulary of verdicts."""

    layer: str
    component: str


NOBODY = Truth("", "")
"""The truth of what is no component's fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault."""

    name: str
    target: str
    parameters: dict[str, float]
    truth: Truth

    @property
    def key(self) -> str:
        """Return the name by which exactly this injection can be healed."""
        return f"{self.name}@{self.target}"


@dataclass(frozen=True, slots=True)
class State:
    """The desired state of a lab."""

    shape: Shape
    agents: bool = True
    containers: tuple[Container, ...] = ()
    faults: tuple[Fault, ...] = ()

    def with_container(self, container: Container) -> "State":
        """Return the state with one more container."""
        return replace(self, containers=tuple(sorted({*self.containers, container})))

    def without_container(self, container: Container) -> "State":
        """Return the state with one container less."""
        kept = tuple(other for other in self.containers if other != container)
        return replace(self, containers=kept)

    def with_fault(self, fault: Fault) -> "State":
        """Return the state with one more fault."""
        return replace(self, faults=(*self.faults, fault))

    def without_faults(self, healed: Iterable[Fault]) -> "State":
        """Return the state without the faults in `healed`."""
        gone = {fault.key for fault in healed}
        return replace(self, faults=tuple(f for f in self.faults if f.key not in gone))

    def tasks(self) -> tuple[str, ...]:
        """Return the tasks that have containers."""
        return tuple(sorted({container.task for container in self.containers}))

    def encode(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {
            "shape": asdict(self.shape),
            "agents": self.agents,
            "containers": [container.id for container in self.containers],
            "faults": [asdict(fault) for fault in self.faults],
            **self._databases(),
        }

    def _databases(self) -> dict[str, dict[str, str]]:
        if self.shape.controller is Controller.NONE:
            return {}
        return {"databases": {"northbound": NORTHBOUND, "southbound": SOUTHBOUND}}


def decode(document: dict[str, Any]) -> State:
    """Return the state that `State.encode` described."""
    transport = Transport(document["shape"]["transport"])
    ip = Versions(**document["shape"]["ip"])
    tunnel = Tunnel(document["shape"]["encapsulation"])
    controller = Controller(document["shape"]["controller"])
    kinds = {
        "transport": transport, "encapsulation": tunnel, "ip": ip, "controller": controller,
        "containers": Runtime(document["shape"]["containers"]),
    }  # fmt: skip
    return State(
        shape=Shape(**(document["shape"] | kinds)),
        agents=document["agents"],
        containers=tuple(container_of(name, transport, ip) for name in document["containers"]),
        faults=tuple(
            Fault(**(fault | {"truth": Truth(**fault["truth"])})) for fault in document["faults"]
        ),
    )


class Store:
    """The state file and its lock."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self.path = directory / "state.json"
        self._lock = directory / "lock"

    def read(self) -> State:
        """Return the state; raise `LabError` if no lab is up."""
        try:
            return decode(json.loads(self.path.read_text()))
        except FileNotFoundError as error:
            raise LabError("no lab is up", "run: .venv/bin/python -m tests.lab up") from error

    def write(self, state: State) -> None:
        """Replace the state at once: a reader sees the old or the new, never half."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(state.encode(), indent=1))
        fresh.rename(self.path)

    @contextmanager
    def locked(self) -> Iterator[State]:
        """Keep other commands from changing the lab meanwhile; yield the state."""
        self.read()
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.read()
