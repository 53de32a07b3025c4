# SPDX-License-Identifier: Apache-2.0
"""Interconnect: each host gets databases and a northd of its own, instead of the lab's central.

As ovn-kubernetes has it: of other zones' hosts there are chassis that say `is-remote`, of their
containers ports of type `remote`, and keys of tunnels are the same everywhere (createRemoteZone...
in go-controller/pkg/ovn/zone_interconnect). It is for tests that begin a lab without agents.
"""

from collections.abc import Iterable
from pathlib import Path

from tests.lab import cms, ovn
from tests.lab.commands import in_parallel, run, wait_for
from tests.lab.ovs import external_ids, start_daemon
from tests.lab.processes import Processes
from tests.lab.shape import CENTRAL, Shape, namespace
from tests.lab.workload import Container, Endpoint

BOUND_WITHIN_S = ovn.BOUND_WITHIN_S
_FIRST_KEY = 16
"""Key of the first network's tunnels; each port's is its place in a list."""


class Zones:
    """The zones of a lab, one for each host."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        self._directory, self._shape = directory, shape
        self._processes = Processes(directory)

    def start(self, containers: Iterable[Container]) -> None:
        """Take the central's place, for the hosts that are up and these containers."""
        endpoints = cms.endpoints(containers, self._shape.rails)
        in_parallel(lambda host: self._start(host, endpoints), range(self._shape.hosts))
        for name in ("ovn-northd", "nb", "sb"):
            self._processes.kill(f"{CENTRAL}/{name}")
        in_parallel(lambda host: self._wait(host, endpoints), range(self._shape.hosts))

    def northd(self, host: int) -> str:
        """Return the process of a zone's northd."""
        return f"h{host}/ovn-northd"

    def nbctl(self, host: int, *words: str) -> str:
        """Return what ovn-nbctl says of a zone."""
        return run("ovn-nbctl", f"--db={self._socket(host, 'nb')}", *words)

    def sbctl(self, host: int, *words: str) -> str:
        """Return what ovn-sbctl says of a zone."""
        return run("ovn-sbctl", f"--db={self._socket(host, 'sb')}", *words)

    def ask(self, host: int) -> None:
        """Ask a zone for a new generation, and wait for nothing."""
        asked = int(self.nbctl(host, "get", "NB_Global", ".", "nb_cfg"))
        self.nbctl(host, "set", "NB_Global", ".", f"nb_cfg={asked + 1}")

    def _start(self, host: int, endpoints: list[Endpoint]) -> None:
        rundir = self._rundir(host)
        for name in ("nb", "sb"):
            file = str(rundir / f"ovn{name}_db.db")
            run("ovsdb-tool", "create", file, str(ovn.SCHEMAS / f"ovn-{name}.ovsschema"))
            served = f"--remote=p{self._socket(host, name)}"
            start_daemon(namespace(f"h{host}"), rundir, "ovsdb-server", file, served,
                         f"--unixctl={rundir / name}.ctl", name=name)  # fmt: skip
        self.nbctl(host, "init")
        self.sbctl(host, "init")
        databases = (f"--ovn{name}-db={self._socket(host, name)}" for name in ("nb", "sb"))
        start_daemon(namespace(f"h{host}"), rundir, "ovn-northd", *databases)
        for other in range(self._shape.hosts):
            if other != host:
                self._believe(host, other)
        self.nbctl(host, *self._ports(host, endpoints))
        self._bind(host, endpoints)
        own = {"ovn-remote": self._socket(host, "sb"), "ovn-is-interconn": "true"}
        database = f"unix:{rundir / 'db.sock'}"
        words = ("--no-wait", "set", "Open_vSwitch", ".", *external_ids(own))
        run("ovs-vsctl", f"--db={database}", *words)

    def _believe(self, host: int, other: int) -> None:
        """Have a zone know another one's host, as ovnkube-controller does."""
        name, first, *more = (f"h{other}", *self._vteps(other))
        kind = str(self._shape.encapsulation)
        words = ["chassis-add", name, kind, first, "--", "set", "Chassis", name,
                 f"hostname={name}", "other_config:is-remote=true"]  # fmt: skip
        for number, address in enumerate(more):
            words += ["--", f"--id=@e{number}", "create", "Encap", f"chassis_name={name}",
                      f"type={kind}", f"ip={address}", "--", "add", "Chassis", name, "encaps",
                      f"@e{number}"]  # fmt: skip
        self.sbctl(host, *words)

    def _bind(self, host: int, endpoints: list[Endpoint]) -> None:
        """Say where remote ports are: setRemotePortBindingChassis there, as northd does not."""
        listed = self.sbctl(host, "--bare", "--columns=name,_uuid", "list", "Chassis").split()
        chassis = dict(zip(listed[::2], listed[1::2], strict=True))
        words = [f"--timeout={BOUND_WITHIN_S:.0f}"]
        for each in endpoints:
            if each.container.host != host:
                row = ("Port_Binding", cms.port(each))
                there = f"chassis={chassis[f'h{each.container.host}']}"
                words += ["--", "wait-until", *row, "type=remote", "--", "set", *row, there]
        self.sbctl(host, *words)

    def _vteps(self, host: int) -> list[str]:
        return [self._shape.vtep(host, rail) for rail in range(self._shape.rails)]

    def _ports(self, host: int, endpoints: list[Endpoint]) -> list[str]:
        """Return ovn-nbctl's words for all ports, those of other hosts as remote ones."""
        switches = sorted({cms.switch(each) for each in endpoints})
        commands = []
        for key, switch in enumerate(switches, _FIRST_KEY):
            commands.append(["ls-add", switch])
            options = f"other_config:requested-tnl-key={key}"
            commands.append(["set", "Logical_Switch", switch, options])
        for key, each in enumerate(endpoints, 1):
            port, addresses = cms.port(each), f"{each.mac} {each.address}"
            row = ("set", "Logical_Switch_Port", port)
            commands.append(["lsp-add", cms.switch(each), port])
            commands.append(["lsp-set-addresses", port, addresses])
            commands.append([*row, *external_ids(cms.port_ids(each)),
                             f"options:requested-tnl-key={key}",
                             f"options:requested-chassis=h{each.container.host}"])  # fmt: skip
            if each.container.host == host:
                commands.append(["lsp-set-port-security", port, addresses])
            else:
                commands.append(["lsp-set-type", port, "remote"])
        return [word for command in commands for word in ("--", *command)]

    def _wait(self, host: int, endpoints: list[Endpoint]) -> None:
        wait_for(f"h{host} in its zone", lambda: self._knows(host), timeout_s=BOUND_WITHIN_S)
        words = [f"--timeout={BOUND_WITHIN_S:.0f}"]
        for each in endpoints:
            if each.container.host == host:
                words += ["--", "wait-until", "Port_Binding", cms.port(each), "up=true"]
        self.sbctl(host, *words)
        self.nbctl(host, f"--timeout={BOUND_WITHIN_S:.0f}", "--wait=hv", "sync")

    def _knows(self, host: int) -> bool:
        return f"h{host}" in self.sbctl(host, "--bare", "--columns=name", "list", "Chassis").split()

    def _rundir(self, host: int) -> Path:
        return self._directory / f"h{host}"

    def _socket(self, host: int, name: str) -> str:
        return f"unix:{self._rundir(host) / f'ovn{name}_db.sock'}"
