# SPDX-License-Identifier: Apache-2.0
"""OVN: its two databases and northd in a namespace of their own, ovn-controller on each host."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.lab import cms
from tests.lab.commands import run, wait_for
from tests.lab.errors import LabError
from tests.lab.ovs import VirtualSwitch, external_ids, start_daemon
from tests.lab.processes import Processes
from tests.lab.shape import CENTRAL, NORTHBOUND, SOUTHBOUND, Shape, namespace
from tests.lab.workload import Container, Endpoint

SCHEMAS = Path("/usr/share/ovn")
BOUND_WITHIN_S = 20.0
"""Seconds for a port to be up. Chosen: it takes a fraction of one on an idle machine."""
NORTHD = f"{CENTRAL}/ovn-northd"
_DATABASES = {"nb": NORTHBOUND, "sb": SOUTHBOUND}
CENTRAL_PROCESSES = (NORTHD, *(f"{CENTRAL}/{name}" for name in _DATABASES))


def require() -> None:
    """Raise `LabError` where OVN is not installed."""
    if not SCHEMAS.exists() or shutil.which("ovn-controller") is None:
        raise LabError("OVN is not installed", "run: make setup-ovn")


def controller(host: int) -> str:
    """Return the process of a host's ovn-controller."""
    return f"h{host}/ovn-controller"


class Ovn:
    """The OVN of a lab."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        self._directory, self._shape = directory, shape
        self._rundir = directory / CENTRAL
        self._processes = Processes(directory)

    def start(self) -> None:
        """Start the databases, empty, and what translates between them."""
        self._rundir.mkdir()
        for name in _DATABASES:
            run("ovsdb-tool", "create", self._file(name), str(SCHEMAS / f"ovn-{name}.ovsschema"))
        self.serve()

    def serve(self) -> None:
        """Start what serves the databases on disk, and what translates between them."""
        for name, remote in _DATABASES.items():
            served = (f"--remote=p{self._socket(name)}", f"--remote=p{_listening(remote)}")
            self._start("ovsdb-server", self._file(name), *served, name=name)
        self.nbctl("init")
        self.sbctl("init")
        databases = (f"--ovn{name}-db={self._socket(name)}" for name in _DATABASES)
        self._start("ovn-northd", *databases)

    def start_controller(self, host: int) -> None:
        """Start a host's ovn-controller, and wait until it has entered its host."""
        switch = VirtualSwitch(self._directory, self._shape, host)
        start_daemon(namespace(f"h{host}"), switch.rundir, "ovn-controller", switch.database)
        wait_for(f"h{host} in OVN's database", lambda: self._knows(host), timeout_s=BOUND_WITHIN_S)

    def write(self, containers: Iterable[Container]) -> None:
        """Have these logical ports, and no others; what is right already stays."""
        wanted = {cms.port(each): each for each in cms.endpoints(containers, self._shape.rails)}
        there = set(self.nbctl("--bare", "--columns=name", "list", "Logical_Switch_Port").split())
        commands = [["lsp-del", name] for name in sorted(there - wanted.keys())]
        for name in sorted(wanted.keys() - there):
            commands += _port(wanted[name])
        if commands:
            self.nbctl(*(word for command in commands for word in ("--", *command)))

    def wait_until_bound(self, containers: Iterable[Container]) -> None:
        """Return once all ports of containers are up where they should be, and all hosts know it.

        Raises `LabError` if that takes too long.
        """
        known = self.sbctl("--bare", "--columns=name,_uuid", "list", "Chassis").split()
        chassis = dict(zip(known[::2], known[1::2], strict=True))
        words = [f"--timeout={BOUND_WITHIN_S:.0f}"]
        for each in cms.endpoints(containers, self._shape.rails):
            where = chassis.get(f"h{each.container.host}")
            if where is None:
                raise LabError(f"h{each.container.host} is not in OVN's database")
            bound = ("Port_Binding", cms.port(each), "up=true", f"chassis={where}")
            words += ["--", "wait-until", *bound]
        self.sbctl(*words)
        self.sync()

    def sync(self) -> None:
        """Return once all hosts have what was asked so far; raise `LabError` if that takes long."""
        self.nbctl(f"--timeout={BOUND_WITHIN_S:.0f}", "--wait=hv", "sync")

    def ask(self) -> None:
        """Ask for a new generation, as who waits for his changes does, and wait for nothing."""
        asked = int(self.nbctl("get", "NB_Global", ".", "nb_cfg"))
        self.nbctl("set", "NB_Global", ".", f"nb_cfg={asked + 1}")

    def nbctl(self, *words: str) -> str:
        """Return what ovn-nbctl says."""
        return run("ovn-nbctl", f"--db={self._socket('nb')}", *words)

    def sbctl(self, *words: str) -> str:
        """Return what ovn-sbctl says."""
        return run("ovn-sbctl", f"--db={self._socket('sb')}", *words)

    def appctl(self, process: str, *words: str) -> str:
        """Return what a process, such as ``h0/ovn-controller``, answers."""
        pid = self._processes.pid(process)
        return run("ovn-appctl", "-t", f"{self._directory / process}.{pid}.ctl", *words)

    def _knows(self, host: int) -> bool:
        return f"h{host}" in self.sbctl("--bare", "--columns=name", "list", "Chassis").split()

    def _file(self, name: str) -> str:
        return str(self._rundir / f"ovn{name}_db.db")

    def _socket(self, name: str) -> str:
        return f"unix:{self._rundir / f'ovn{name}_db.sock'}"

    def _start(self, program: str, *arguments: str, name: str = "") -> None:
        start_daemon(namespace(CENTRAL), self._rundir, program, *arguments, name=name)


def _port(endpoint: Endpoint) -> list[list[str]]:
    """Return ovn-nbctl's commands for an endpoint's port, and its switch where there is none."""
    switch, port = cms.switch(endpoint), cms.port(endpoint)
    addresses = f"{endpoint.mac} {endpoint.address}"
    return [
        ["--may-exist", "ls-add", switch],
        ["lsp-add", switch, port],
        ["lsp-set-addresses", port, addresses],
        ["lsp-set-port-security", port, addresses],
        ["set", "Logical_Switch_Port", port, *external_ids(cms.port_ids(endpoint))],
    ]


def _listening(remote: str) -> str:
    """Return the remote of a server that is reached at ``tcp:ADDRESS:PORT``."""
    kind, address, port = remote.split(":")
    return f"{kind}:{port}:{address}"
