# SPDX-License-Identifier: Apache-2.0
"""One GPU host in a namespace of its own: real Open vSwitch, two rails, containers on demand.

Far smaller than the lab: nothing is on the other side of the cables, for what a host sees of
itself needs no peer.
"""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.waiting import wait_until

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"


def run(*words: str, env: dict[str, str] | None = None) -> str:
    """Run a command to its end; CalledProcessError with its output if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


class Host:
    """A host namespace with its Open vSwitch; `close` leaves nothing behind."""

    def __init__(self, rails: int = 2) -> None:
        self.tag = secrets.token_hex(3)
        self.name = f"na-{self.tag}-host"
        self.fabric = f"na-{self.tag}-fabric"
        self.rundir = Path(tempfile.mkdtemp(prefix="na-ovs-"))
        self.containers: dict[str, str] = {}
        self._rails = rails
        for namespace in (self.name, self.fabric):
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        self._create_database()
        self.start_ovsdb()
        for rail in range(rails):
            self._wire(rail)
        self.vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
        self.start_vswitchd()
        for rail in range(rails):
            self.address_rail(rail)
            self._tunnel(rail)

    def close(self) -> None:
        """Kill the daemons, delete the namespaces and the files."""
        for daemon in ("ovs-vswitchd", "ovsdb-server"):
            self.kill(daemon)
        for namespace in (*self.containers.values(), self.fabric, self.name):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)
        shutil.rmtree(self.rundir)

    def vsctl(self, *words: str) -> None:
        """Change the database without waiting for ovs-vswitchd."""
        run("ovs-vsctl", "--no-wait", f"--db=unix:{self.rundir}/db.sock", "--timeout=10", *words)

    def ip(self, *words: str) -> None:
        """Run `ip` in the host's namespace."""
        run("ip", "-n", self.name, *words)

    def start_ovsdb(self) -> None:
        """Start ovsdb-server."""
        self._daemon(
            "ovsdb-server", f"{self.rundir}/conf.db", f"--remote=punix:{self.rundir}/db.sock"
        )

    def start_vswitchd(self) -> None:
        """Start ovs-vswitchd."""
        # 3.1 started in the first 10 s of a machine's life counts no CPU and starts no handler.
        uptime = Path("/proc/uptime")
        wait_until(lambda: float(uptime.read_text().split()[0]) > 11, "uptime of 11 s", 12)
        self._daemon("ovs-vswitchd", f"unix:{self.rundir}/db.sock")

    def kill(self, daemon: str) -> None:
        """Kill -9 a daemon, and wait for its end."""
        file = self.rundir / f"{daemon}.pid"
        if not file.exists():
            return
        pid = int(file.read_text())
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        wait_until(lambda: _ended(pid), f"end of {daemon}")

    def address_rail(self, rail: int) -> None:
        """Give the rail's internal port its underlay address, once it exists."""
        device = f"br-phy{rail}"
        wait_until(lambda: self.has_device(device), device)
        self.ip("addr", "replace", f"172.30.{rail}.10/24", "dev", device)
        self.ip("link", "set", device, "up")

    def start_container(
        self, container: str, *, rails: int = 1, octet: int = 10, address: str = ""
    ) -> None:
        """Start a container with its ports, in the order of a CNI plugin; `address` with prefix."""
        namespace = self.containers[container] = f"na-{self.tag}-{container}"
        run("ip", "netns", "add", namespace)
        for rail in range(rails):
            port = f"{container}-r{rail}"
            self.ip("link", "add", port, "type", "veth", "peer", f"eth{rail}", "netns", namespace)
            mac = f"02:00:00:00:{rail:02x}:{octet:02x}"
            inside = ("ip", "-n", namespace)
            run(*inside, "link", "set", f"eth{rail}", "address", mac, "mtu", "1450", "up")
            own = address or f"10.0.{rail}.{octet}/24"
            run(*inside, "addr", "add", own, "dev", f"eth{rail}")
            self.ip("link", "set", port, "up")
            self._plug(container, rail, mac, own)

    def unplug(self, container: str, rail: int = 0) -> None:
        """Remove a container's port from the vSwitch."""
        self.vsctl("del-port", "br-int", f"{container}-r{rail}")

    def delete_namespace(self, container: str) -> None:
        """Delete a container's namespace."""
        run("ip", "netns", "del", self.containers.pop(container))

    def _plug(self, container: str, rail: int, mac: str, address: str) -> None:
        port = f"{container}-r{rail}"
        ids = {
            "iface-id": f"a_{container}_rail{rail}",
            "attached_mac": mac,
            "ip_addresses": address,
            "sandbox": container,
            "task": "train",
            "rail": str(rail),
        }
        settings = [f'external_ids:{key}="{value}"' for key, value in ids.items()]
        self.vsctl("add-port", "br-int", port, "--", "set", "interface", port, *settings)

    def _tunnel(self, rail: int) -> None:
        options = ("remote_ip=flow", "key=flow", f"local_ip=172.30.{rail}.10")
        settings = ["type=vxlan", *(f"options:{option}" for option in options)]
        name = f"vxlan{rail}"
        settings.append(f"external_ids:rail={rail}")
        self.vsctl("add-port", "br-int", name, "--", "set", "interface", name, *settings)

    def _wire(self, rail: int) -> None:
        bridge, device = f"br-phy{rail}", f"rnic{rail}"
        self.ip("link", "add", device, "type", "veth", "peer", f"port{rail}", "netns", self.fabric)
        self.ip("link", "set", device, "up")
        run("ip", "-n", self.fabric, "link", "set", f"port{rail}", "up")
        self.vsctl("add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev")
        self.vsctl("add-port", bridge, device)

    def has_device(self, name: str) -> bool:
        """Whether the host's namespace has such a device."""
        shown = ["ip", "-n", self.name, "link", "show", name]
        return subprocess.run(shown, capture_output=True, check=False).returncode == 0

    def _create_database(self) -> None:
        run("ovsdb-tool", "create", f"{self.rundir}/conf.db", SCHEMA)

    def _daemon(self, name: str, *words: str) -> None:
        own = (
            f"--pidfile={self.rundir}/{name}.pid",
            f"--unixctl={self.rundir}/{name}.ctl",
            f"--log-file={self.rundir}/{name}.log",
            "--detach",
            "--no-chdir",
            "-vconsole:off",
        )
        environment = {**os.environ, "OVS_RUNDIR": str(self.rundir)}
        run("ip", "netns", "exec", self.name, name, *words, *own, env=environment)
        if name == "ovsdb-server":
            self.vsctl("init")


def _ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"
