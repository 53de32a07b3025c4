# SPDX-License-Identifier: Apache-2.0
"""One Open vSwitch per host: its own database server and daemon in the host's namespace."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from tests.lab import cms, pods
from tests.lab.commands import run, wait_for
from tests.lab.errors import LabError
from tests.lab.pipeline import Flow
from tests.lab.processes import Processes
from tests.lab.shape import (
    INTEGRATION_BRIDGE,
    SOUTHBOUND,
    Controller,
    Shape,
    namespace,
    rnic,
    tunnel,
    tunnel_ofport,
    underlay_bridge,
    vtep_mac,
)
from tests.lab.workload import Container, Endpoint

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")

_OFCTL = ("ovs-ofctl", "-O", "OpenFlow15")


class VirtualSwitch:
    """The virtual switch of a host."""

    def __init__(self, directory: Path, shape: Shape, host: int) -> None:
        self._shape, self._host, self._name = shape, host, f"h{host}"
        self._namespace = namespace(self._name)
        self.rundir = directory / self._name
        self._processes = Processes(directory)

    def start(self) -> None:
        """Start both daemons with all bridges and tunnels, but no flows yet."""
        self.rundir.mkdir(parents=True, exist_ok=True)
        run("ovsdb-tool", "create", str(self.rundir / "conf.db"), str(SCHEMA))
        self.start_database()
        self.vsctl(*self._bridges())
        self.start_daemon()

    def start_database(self) -> None:
        """Start ovsdb-server on the database as it is."""
        self._start_daemon(
            "ovsdb-server", str(self.rundir / "conf.db"), f"--remote=p{self.database}"
        )

    def start_daemon(self) -> None:
        """Start ovs-vswitchd from what the database holds, and wait for its bridges."""
        # Started in the first 10 s of a machine's life, 3.1 counts no CPU and starts no handler.
        wait_for("an uptime of 11 s", lambda: _uptime_s() > 11, timeout_s=12)
        self._start_daemon("ovs-vswitchd", self.database)
        self.vsctl("set", "Open_vSwitch", ".", f"external_ids:system-id={self._name}")

    def lives(self) -> bool:
        """Tell whether ovs-vswitchd runs."""
        return self._processes.pid(self._daemon) is not None

    def kill_daemon(self) -> None:
        """Kill ovs-vswitchd; its internal ports vanish with their addresses and routes."""
        self._processes.kill(self._daemon)
        for socket in self.rundir.glob("ovs-vswitchd.*.ctl"):
            socket.unlink()

    def add_ports(self, container: Container) -> None:
        """Plug all interfaces of a container in."""
        arguments: list[str] = []
        for rail in range(self._shape.rails):
            arguments += self._port(container.endpoint(rail))
        self.vsctl(*arguments)

    def delete_ports(self, container: Container) -> None:
        """Remove all ports of a container, if they are there."""
        arguments: list[str] = []
        for rail in range(self._shape.rails):
            port = container.endpoint(rail).port
            arguments += ["--", "--if-exists", "del-port", INTEGRATION_BRIDGE, port]
        self.vsctl(*arguments)

    def replace_flows(self, flows: Iterable[Flow]) -> None:
        """Make the integration bridge hold exactly `flows`; what is right already stays."""
        text = "".join(f"{flow.text()}\n" for flow in flows)
        run(*_OFCTL, "replace-flows", self._management, "-", stdin=text)

    def add_groups(self, groups: Iterable[str]) -> None:
        """Make the integration bridge hold these groups, beside those it has."""
        for group in groups:
            run(*_OFCTL, "--may-create", "mod-group", self._management, group)

    def remove_groups(self) -> None:
        """Take all groups away, and any flow that still uses one."""
        run(*_OFCTL, "del-groups", self._management)

    @property
    def _management(self) -> str:
        return f"unix:{self.rundir / INTEGRATION_BRIDGE}.mgmt"

    def accept_vni(self, rail: int, vni: int | None) -> None:
        """Let a rail's tunnel take one VNI only off the wire, or any (None), as flows expect."""
        port = ("Interface", tunnel(rail))
        keys = ["--", "remove", *port, "options", "key", "in_key", "out_key"]
        fresh = ["key=flow"] if vni is None else [f"in_key={vni}", "out_key=flow"]
        self.vsctl(*keys, "--", "set", *port, *(f"options:{key}" for key in fresh))

    def keep_mtu(self, rail: int, mtu: int | None) -> None:
        """Give a rail's bridge an MTU of its own, or let it follow its uplink (None)."""
        port = ("Interface", underlay_bridge(rail))
        if mtu is None:
            self.vsctl("clear", *port, "mtu_request")
        else:
            self.vsctl("set", *port, f"mtu_request={mtu}")

    def confine(self, processor: int) -> None:
        """Let ovs-vswitchd run on one processor only, and there after everybody else."""
        self._schedule({processor}, 19)

    def release(self) -> None:
        """Undo `confine`: ovs-vswitchd runs as the lab itself does."""
        self._schedule(os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))

    def _schedule(self, processors: set[int], niceness: int) -> None:
        pid = self._processes.pid(self._daemon)
        if pid is None:
            return  # it comes back with everybody's rights
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):  # threads come and go
                os.sched_setaffinity(int(thread.name), processors)
                os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)

    @property
    def _daemon(self) -> str:
        return f"{self._name}/ovs-vswitchd"

    @property
    def database(self) -> str:
        """Where its database is served, as clients write it."""
        return f"unix:{self.rundir / 'db.sock'}"

    @cached_property
    def _datapath(self) -> str:
        return "system" if kernel_datapath() else "netdev"

    def vsctl(self, *arguments: str) -> None:
        """Have ovs-vsctl do this, and the daemon, if that lives."""
        # Without a daemon nobody would confirm; it finds the change when it starts.
        patience = "--timeout=10" if self.lives() else "--no-wait"
        run("ovs-vsctl", f"--db={self.database}", patience, *arguments)

    def _start_daemon(self, program: str, *arguments: str) -> None:
        start_daemon(self._namespace, self.rundir, program, *arguments)

    def _bridges(self) -> list[str]:
        kind = f"datapath_type={self._datapath}"
        integration = INTEGRATION_BRIDGE
        arguments = ["--", "add-br", integration]
        arguments += ["--", "set", "Bridge", integration, kind, "fail_mode=secure"]
        for rail in range(self._shape.rails):
            bridge = underlay_bridge(rail)
            mac = vtep_mac(self._host, rail)
            arguments += ["--", "add-br", bridge, "--", "set", "Bridge", bridge, kind]
            arguments.append(f'other_config:hwaddr="{mac}"')
            arguments += ["--", "add-port", bridge, rnic(rail)]
            if self._shape.controller is Controller.NONE:
                arguments += self._tunnel(rail)
        if self._shape.controller is Controller.OVN:
            arguments += self._for_ovn()
        return arguments

    def _for_ovn(self) -> list[str]:
        """Return what ovn-controller(8) reads of a host."""
        vteps = [self._shape.vtep(self._host, rail) for rail in range(self._shape.rails)]
        told = {
            "hostname": self._name,
            "ovn-remote": SOUTHBOUND,
            "ovn-encap-type": str(self._shape.encapsulation),
            "ovn-encap-ip": ",".join(vteps),
            "ovn-bridge": INTEGRATION_BRIDGE,
            "ovn-bridge-datapath-type": self._datapath,
        }
        return ["--", "set", "Open_vSwitch", ".", *external_ids(told)]

    def _tunnel(self, rail: int) -> list[str]:
        return [
            *("--", "add-port", INTEGRATION_BRIDGE, tunnel(rail)),
            *("--", "set", "Interface", tunnel(rail), f"type={self._shape.encapsulation}"),
            *("options:remote_ip=flow", "options:key=flow"),
            f"options:local_ip={self._shape.vtep(self._host, rail)}",
            f"ofport_request={tunnel_ofport(rail)}",
            f"external_ids:rail={rail}",
        ]

    def _port(self, endpoint: Endpoint) -> list[str]:
        on_ovn = self._shape.controller is Controller.OVN
        identifiers = cms.interface_ids(endpoint) if on_ovn else endpoint.external_ids()
        return [
            *("--", "--may-exist", "add-port", INTEGRATION_BRIDGE, endpoint.port),
            *("--", "set", "Interface", endpoint.port, f"ofport_request={endpoint.ofport}"),
            *external_ids(identifiers | {"sandbox": pods.sandbox(endpoint.container.id)}),
        ]


def external_ids(keys: Mapping[str, str]) -> list[str]:
    """Return external_ids as ovs-vsctl, ovn-nbctl and ovn-sbctl set them."""
    return [f'external_ids:{key}="{value}"' for key, value in keys.items()]


def start_daemon(inside: str, rundir: Path, program: str, *arguments: str, name: str = "") -> None:
    """Start a daemon of Open vSwitch or OVN in the namespace `inside`, all its files in `rundir`.

    `name` is that of its pid file, if not the program's.
    """
    folders = [f"{of}_{kind}DIR" for of in ("OVS", "OVN") for kind in ("RUN", "LOG", "DB")]
    run(
        *("ip", "netns", "exec", inside, "env", *(f"{folder}={rundir}" for folder in folders)),
        *(program, *arguments, "--detach", "--no-chdir", "-vconsole:off"),
        f"--pidfile={rundir / (name or program)}.pid",
        f"--log-file={rundir / (name or program)}.log",
    )


def load_kernel_datapath() -> None:
    """Load the kernel's datapath if the kernel has it; otherwise userspace does the work."""
    with suppress(LabError):
        run("modprobe", "-q", "-a", "openvswitch", "vport-vxlan", "vport-geneve")


def kernel_datapath() -> bool:
    """Tell whether packets take the kernel's datapath."""
    return Path("/sys/module/openvswitch").exists()


def _uptime_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])
