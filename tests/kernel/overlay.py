# SPDX-License-Identifier: Apache-2.0
"""Two hosts with Open vSwitch's kernel datapath and tunnels between them, and two tenants.

Both tenants use the same addresses: `a` (VNI 100) has 10.0.0.10 on host 0 and 10.0.0.12 on host 1,
so has `b` (VNI 200); where the overlay is IPv6, fd00::10 and fd00::12. A container is a namespace
with one veth, which is port `<tenant><host>`.
"""

import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netagent.adapters.host.setns import call_in_namespace
from tests.ovs.host import Host, run
from tests.waiting import wait_until

VNIS = {"a": 100, "b": 200}
ADDRESSES = {4: ("10.0.0.10", "10.0.0.12"), 6: ("fd00::10", "fd00::12")}
UNDERLAY = {4: ("172.30.0.10", "172.30.0.11"), 6: ("fd30::10", "fd30::11")}
PREFIXES = {4: 24, 6: 64}
MACS = ("02:00:00:00:00:0a", "02:00:00:00:00:0c")
UPLINK = "up0"
MTU = 1450
MAX_IDLE_MS = 600_000
ETH_ALL = 3
SO_RCVBUFFORCE = 33
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3


class Switch(Host):
    """One host: its switch, its uplink, one container of each tenant."""

    def __init__(
        self, number: int, fabric: str, *, bridged: bool, tunnel: str, inner: int, outer: int
    ) -> None:
        self.number, self.tunnel, self.inner, self.outer = number, tunnel, inner, outer
        self._underlay = "br-phy" if bridged else UPLINK
        super().__init__(rails=0)
        run("ip", "netns", "del", self.fabric)
        self.fabric = fabric
        self.vsctl("set", "bridge", "br-int", "datapath_type=system", "fail_mode=secure")
        # Emulated, ten seconds pass between two packets of a flow: it would be forgotten by then.
        self.vsctl("set", "Open_vSwitch", ".", f"other_config:max-idle={MAX_IDLE_MS}")
        wait_until(lambda: "system@" in self.appctl("dpif/show"), "the kernel datapath")
        self._uplink()
        for tenant, vni in VNIS.items():
            self._container(tenant, vni)
        self.forward()

    @property
    def netns(self) -> int:
        """Inode of the host's network namespace."""
        return Path(f"/run/netns/{self.name}").stat().st_ino

    @property
    def address(self) -> str:
        """Underlay address."""
        return UNDERLAY[self.outer][self.number]

    def ofctl(self, *words: str, bridge: str = "br-int") -> None:
        """Run ovs-ofctl on a bridge."""
        verb, *more = words
        run("ovs-ofctl", verb, f"unix:{self.rundir}/{bridge}.mgmt", *more)

    def appctl(self, *words: str) -> str:
        """Ask ovs-vswitchd."""
        return run("ovs-appctl", "--timeout=10", "-t", f"{self.rundir}/ovs-vswitchd.ctl", *words)

    def forward(self) -> None:
        """Install the flows that connect each tenant's two containers, and forget all others."""
        self.ofctl("del-flows")
        for tenant in VNIS:
            port, tunnel = f"{tenant}{self.number}", f"vx{tenant}"
            self.ofctl("add-flow", f"in_port={port},actions=output:{tunnel}")
            self.ofctl("add-flow", f"in_port={tunnel},actions=output:{port}")
        self.forget()

    def forget(self) -> None:
        """Empty the datapath's flow table, so that the next packet needs an upcall."""
        self.appctl("dpctl/del-flows")

    def inside(self, tenant: str) -> str:
        """Return the namespace of a tenant's container."""
        return self.containers[f"{tenant}{self.number}"]

    def in_host(self, *words: str) -> str:
        """Run a command in the host's namespace."""
        return run("ip", "netns", "exec", self.name, *words)

    def capture(self, device: str) -> socket.socket:
        """Return a socket that gets a copy of every packet the device sends or receives."""

        def make() -> socket.socket:
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ALL))
            raw.bind((device, ETH_ALL))
            raw.settimeout(5)
            return raw

        return call_in_namespace(f"/run/netns/{self.name}", make)

    def _uplink(self) -> None:
        peer = f"up{self.number}-f"
        self.ip("link", "add", UPLINK, "type", "veth", "peer", peer, "netns", self.fabric)
        run("ip", "-n", self.fabric, "link", "set", peer, "master", "br0", "up")
        self.ip("link", "set", UPLINK, "up")
        if self._underlay != UPLINK:
            self.vsctl("add-br", self._underlay, "--", "add-port", self._underlay, UPLINK)
            wait_until(lambda: self.has_device(self._underlay), self._underlay)
        nodad = ["nodad"] if self.outer == 6 else []
        place = f"{self.address}/{PREFIXES[self.outer]}"
        self.ip("addr", "add", place, "dev", self._underlay, *nodad)
        self.ip("link", "set", self._underlay, "up")

    def _container(self, tenant: str, vni: int) -> None:
        port = f"{tenant}{self.number}"
        namespace = self.containers[port] = f"na-{self.tag}-{port}"
        run("ip", "netns", "add", namespace)
        self.ip("link", "add", port, "type", "veth", "peer", "eth0", "netns", namespace)
        inside = ("ip", "-n", namespace)
        mine, other = self.number, 1 - self.number
        # No other IPv6 and no ARP: nothing but what a test sends, and what tells of its groups.
        quiet = "eth0.addr_gen_mode=1" if self.inner == 6 else "all.disable_ipv6=1"
        setting = f"net.ipv6.conf.{quiet}"
        run("ip", "netns", "exec", namespace, "sysctl", "-qw", setting)
        run(*inside, "link", "set", "eth0", "address", MACS[mine], "mtu", str(MTU), "up")
        nodad = ["nodad"] if self.inner == 6 else []
        ends = ADDRESSES[self.inner]
        place = f"{ends[mine]}/{PREFIXES[self.inner]}"
        run(*inside, "addr", "add", place, "dev", "eth0", *nodad)
        run(*inside, "neigh", "add", ends[other], "lladdr", MACS[other], "dev", "eth0")
        self.ip("link", "set", port, "up")
        remote = f'"{UNDERLAY[self.outer][other]}"'
        tunnel = (f"type={self.tunnel}", f"options:remote_ip={remote}", f"options:key={vni}")
        name = f"vx{tenant}"
        self.vsctl("add-port", "br-int", port)
        self.vsctl("add-port", "br-int", name, "--", "set", "interface", name, *tunnel)
        wait_until(lambda: name in self.appctl("dpif/show"), f"{name} in the datapath")


class Overlay:
    """Both hosts; `close` leaves nothing behind.

    `bridged`: the uplink is a port of a second bridge, which has the underlay address. `inner` and
    `outer` are the versions of IP inside of the tunnels and outside.
    """

    def __init__(
        self, *, bridged: bool = False, tunnel: str = "vxlan", inner: int = 4, outer: int = 4
    ) -> None:
        self.inner, self.addresses = inner, ADDRESSES[inner]
        self.fabric = f"na-{secrets.token_hex(3)}-fabric"
        run("ip", "netns", "add", self.fabric)
        run("ip", "-n", self.fabric, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.fabric, "link", "set", "br0", "up")
        self.hosts: list[Switch] = []
        try:
            for number in range(2):
                made = Switch(
                    number, fabric=self.fabric, bridged=bridged, tunnel=tunnel,
                    inner=inner, outer=outer,
                )  # fmt: skip
                self.hosts.append(made)
            self._settle()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all and delete the namespaces."""
        for host in self.hosts:
            host.close()
        subprocess.run(["ip", "netns", "del", self.fabric], check=False, capture_output=True)

    def _settle(self) -> None:
        """Wait until packets pass: the underlay resolves addresses first."""
        with self.listening("a", 9) as receiver:

            def passes() -> bool:
                self.send("a", count=1, target_port=9)
                try:
                    return bool(receiver.recv(64))
                except TimeoutError:
                    return False

            wait_until(passes, "a packet across", 20)

    def send(
        self,
        tenant: str,
        *,
        count: int,
        target_port: int,
        source_port: int = 0,
        size: int = 64,
        ports: int = 1,
        whole: bool = False,
    ) -> None:
        """Send UDP from host 0 to host 1, to `ports` ports in turn; payloads are numbered.

        `whole`: never in fragments, whatever ICMP said of the path's MTU.
        """
        with self._socket(self.hosts[0].inside(tenant)) as sender:
            if whole:
                sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
            sender.bind((self.addresses[0], source_port))
            for index in range(count):
                payload = index.to_bytes(16, "big").ljust(size, b"\0")
                sender.sendto(payload, (self.addresses[1], target_port + index % ports))

    def deliver(self, tenant: str, *, count: int, target_port: int, source_port: int = 0) -> None:
        """Send, and return when all have arrived in the container on host 1."""
        with self.listening(tenant, target_port) as receiver:
            receiver.settimeout(10)
            self.send(tenant, count=count, target_port=target_port, source_port=source_port)
            for _ in range(count):
                receiver.recv(2048)

    @contextmanager
    def listening(self, tenant: str, port: int) -> Iterator[socket.socket]:
        """Receive on host 1; a packet that does not come is a TimeoutError."""
        with self._socket(self.hosts[1].inside(tenant)) as receiver:
            receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
            receiver.bind((self.addresses[1], port))
            receiver.settimeout(0.5)
            yield receiver

    def _socket(self, namespace: str) -> socket.socket:
        def make() -> socket.socket:
            family = socket.AF_INET6 if self.inner == 6 else socket.AF_INET
            return socket.socket(family, socket.SOCK_DGRAM)

        return call_in_namespace(f"/run/netns/{namespace}", make)
