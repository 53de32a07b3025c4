# SPDX-License-Identifier: Apache-2.0
"""RNIC facts and findings on real Soft-RoCE devices."""

import asyncio
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from netagent.adapters.host.rdmalink import RdmaQuery
from netagent.adapters.host.rnics import RnicMonitor, RnicReader
from netagent.host.counters import CounterTally
from netagent.host.facts import Namespace
from netagent.host.rdma_facts import RdmaDevice, RdmaView, device_of, mac_gid
from netagent.host.rdma_watch import RdmaWatch, WatchedRnic
from netagent.model.finding import FindingKind
from netagent.model.ids import EndpointId
from netagent.model.window import Window
from tests.conftest import RDMA, require
from tests.waiting import wait_until

pytestmark = pytest.mark.rdma

DEADLINE_S = 30.0
TABLES = (7101, 7102)
SYSCTLS = ("rp_filter=0", "accept_local=1", "arp_ignore=1", "arp_announce=2")


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def eventually(condition: Callable[[], object]) -> None:
    wait_until(condition, within_s=DEADLINE_S)


@dataclass
class Host:
    """Two Soft-RoCE devices at the ends of a cable, and what is watched of the first."""

    netdevs: tuple[str, str]
    devices: tuple[str, str]
    addresses: tuple[str, str]
    reader: RnicReader = field(default_factory=RnicReader)
    watch: RdmaWatch = field(default_factory=lambda: RdmaWatch("h0"))

    @property
    def watched(self) -> WatchedRnic:
        gid = f"::ffff:{self.addresses[0]}"
        return WatchedRnic(EndpointId("c", 0), self.devices[0], gid, mtu_bytes=1450)

    def view(self, *, whole: bool = True) -> RdmaView:
        return self.reader.read([], whole=whole)

    def first(self, *, whole: bool = True) -> RdmaDevice:
        return self.view(whole=whole).by_name()[self.devices[0]]

    def kinds(self) -> dict[FindingKind, str]:
        found = self.watch.observe(
            [self.watched],
            self.view().by_name(),
            now_ns=time.monotonic_ns(),
            wall_ns=time.time_ns(),
        )
        assert {str(each.component) for each in found} <= {f"rnic h0/{self.devices[0]}"}
        return {each.kind: each.text for each in found}


@pytest.fixture
def host() -> Iterator[Host]:
    """Cable two Soft-RoCE devices so that both ends' traffic really crosses the cable."""
    require(RDMA)
    tag = secrets.token_hex(2)
    made = Host((f"v{tag}a", f"v{tag}b"), (f"rxe{tag}a", f"rxe{tag}b"), ("10.77.0.1", "10.77.0.2"))
    with ExitStack() as cleanup:
        run("ip", "link", "add", made.netdevs[0], "mtu", "1450", "type", "veth",
            "peer", "name", made.netdevs[1], "mtu", "1450")  # fmt: skip
        cleanup.callback(subprocess.run, ["ip", "link", "del", made.netdevs[0]], check=False)
        local_rule_last(cleanup)
        for netdev, address, table in zip(made.netdevs, made.addresses, TABLES, strict=True):
            place(cleanup, netdev, address, str(table))
        for netdev, device in zip(made.netdevs, made.devices, strict=True):
            run("rdma", "link", "add", device, "type", "rxe", "netdev", netdev)
        eventually(lambda: made.first().ports[0].state == "ACTIVE")
        yield made


def local_rule_last(cleanup: ExitStack) -> None:
    """Let traffic between two addresses of this host take the cable instead of the loopback."""
    if not run("ip", "rule", "show", "pref", "0"):
        return  # someone else's lab did it
    run("ip", "rule", "add", "pref", "100", "lookup", "local")
    run("ip", "rule", "del", "pref", "0", "lookup", "local")
    cleanup.callback(run, "ip", "rule", "del", "pref", "100", "lookup", "local")
    cleanup.callback(run, "ip", "rule", "add", "pref", "0", "lookup", "local", "protocol", "kernel")


def place(cleanup: ExitStack, netdev: str, address: str, table: str) -> None:
    # `all` counts beside the device's own: the larger of both.
    run("sysctl", "-qw", *(f"net.ipv4.conf.{netdev}.{each}" for each in SYSCTLS))
    before = run("sysctl", "net.ipv4.conf.all.rp_filter").replace(" ", "").strip()
    run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
    cleanup.callback(run, "sysctl", "-qw", before)
    run("ip", "addr", "add", f"{address}/24", "dev", netdev)
    run("ip", "link", "set", netdev, "up")
    run("ip", "route", "add", "10.77.0.0/24", "dev", netdev, "src", address, "table", table)
    for rule in (("pref", "10", "iif", "lo", "from", address), ("pref", "11", "oif", netdev)):
        run("ip", "rule", "add", *rule, "lookup", table)
        cleanup.callback(subprocess.run, ["ip", "rule", "del", *rule, "lookup", table], check=False)


@pytest.fixture
def elsewhere() -> Iterator[Namespace]:
    """Make a namespace that has nothing."""
    require(RDMA)
    name = f"na-{secrets.token_hex(3)}"
    run("ip", "netns", "add", name)
    path = f"/run/netns/{name}"
    try:
        inode = int(run("stat", "-Lc", "%i", path))
        yield Namespace(path, inode)
    finally:
        run("ip", "netns", "del", name)


def pingpong(host: Host, count: int = 100) -> None:
    """Send `count` messages each way over a reliable connection."""
    port = str(20000 + secrets.randbelow(10000))
    common = ["-p", port, "-n", str(count), "-s", "64"]
    with subprocess.Popen(
        ["ibv_rc_pingpong", "-d", host.devices[1], "-g", gid_index(host, 1), *common],
        stdout=subprocess.DEVNULL,
    ) as server:
        try:
            asking = ["ibv_rc_pingpong", "-d", host.devices[0], "-g", gid_index(host, 0), *common]
            # Refused until the server listens; it then takes one client and ends.
            eventually(
                lambda: (
                    not subprocess.run(
                        [*asking, "127.0.0.1"], check=False, capture_output=True, timeout=DEADLINE_S
                    ).returncode
                )
            )
            assert server.wait(DEADLINE_S) == 0
        finally:
            server.kill()


def gid_index(host: Host, end: int) -> str:
    found = device_of(host.view().devices, host.netdevs[end], host.addresses[end])
    assert found is not None
    return str(found[1].index)


def test_the_facts_are_those_that_the_tools_show(host):
    device = host.first()
    (port,) = device.ports
    assert (device.name, device.driver, device.pci) == (host.devices[0], "rxe", None)
    assert (port.state, port.phys_state, port.link_layer) == ("ACTIVE", "LinkUp", "Ethernet")
    assert port.netdevs == (host.netdevs[0],)
    assert port.rate_bps is not None
    mac = run("cat", f"/sys/class/net/{host.netdevs[0]}/address").strip()
    assert port.find(mac_gid(mac)) is not None
    found = device_of(host.view().devices, host.netdevs[0], host.addresses[0], mac)
    assert found is not None
    assert found[0].device == host.devices[0]
    told = run("rdma", "statistic", "show", "link", f"{host.devices[0]}/1").split()[2:]
    names = dict(zip(told[::2], map(int, told[1::2]), strict=True))
    assert names.items() <= port.counters.items()


def test_rdma_netlink_agrees_with_sysfs(host):
    (port,) = host.first().ports
    with RdmaQuery() as query:
        assert query.system().mode == "shared"
        link = next(each for each in query.links() if each.device == host.devices[0])
        assert (link.state, link.phys_state, link.netdev) == ("ACTIVE", "LinkUp", host.netdevs[0])
        assert query.statistics(link.index, 1).items() <= port.counters.items()
        assert query.statistics(link.index, 9) == {}
        assert query.resources()[host.devices[0]]["mr"] == 0


def test_a_port_that_goes_down_is_found_and_clears(host):
    assert host.kinds() == {}
    run("ip", "link", "set", host.netdevs[0], "down")
    eventually(
        lambda: (
            host.kinds()
            == {
                FindingKind.RNIC_DOWN: f"{host.devices[0]} port 1 is DOWN (physical state Disabled)"
            }
        )
    )
    run("ip", "link", "set", host.netdevs[0], "up")
    eventually(lambda: host.kinds() == {})


def test_a_flapping_port_is_found(host):
    host.kinds()
    for _ in range(2):
        # Too fast for anybody who only looks; the driver counts.
        run("ip", "link", "set", host.netdevs[0], "down")
        run("ip", "link", "set", host.netdevs[0], "up")
    eventually(lambda: FindingKind.RNIC_FLAPPING in host.kinds())


def test_another_address_is_a_changed_gid(host):
    assert host.kinds() == {}
    run("ip", "addr", "del", f"{host.addresses[0]}/24", "dev", host.netdevs[0])
    run("ip", "addr", "add", "10.77.0.9/24", "dev", host.netdevs[0])
    eventually(lambda: list(host.kinds()) == [FindingKind.GID_CHANGED])
    run("ip", "addr", "add", f"{host.addresses[0]}/24", "dev", host.netdevs[0])
    # It is back, but at another place of the table: whoever sends still names the first.
    eventually(lambda: "moved from index" in host.kinds().get(FindingKind.GID_CHANGED, ""))


def test_a_deleted_device_is_removed_until_it_is_made_anew(host):
    host.kinds()
    run("rdma", "link", "del", host.devices[0])
    eventually(lambda: host.kinds() == {FindingKind.RNIC_DOWN: f"{host.devices[0]} was removed"})
    run("rdma", "link", "add", host.devices[0], "type", "rxe", "netdev", host.netdevs[0])
    eventually(lambda: host.kinds() == {})


def counted(host: Host, tally: CounterTally, counters: dict[str, int]) -> None:
    tally.add(host.devices[0], counters, wall_ns=time.time_ns())


def grown(tally: CounterTally) -> dict[str, int]:
    window = Window.covering(time.time_ns() + 10**9, width_ns=10**9)
    return {row.counter: row.delta for row in tally.close(window).rows}


def test_counters_grow_with_traffic(host):
    tally = CounterTally()
    counted(host, tally, host.first().ports[0].counters)
    pingpong(host, 100)
    counted(host, tally, host.first(whole=False).ports[0].counters)
    deltas = grown(tally)
    assert deltas["rdma_sends"] == 100
    assert deltas["sent_pkts"] >= 100
    assert deltas["rcvd_pkts"] >= 100


def test_inside_a_namespace_of_shared_mode_the_same_is_read(host, elsewhere):
    tally = CounterTally()
    before = host.reader._inside(elsewhere, whole=True)[host.devices[0]]
    assert before.ports[0].find(f"::ffff:{host.addresses[0]}") is not None
    counted(host, tally, before.ports[0].counters)
    pingpong(host, 50)
    after = host.reader._inside(elsewhere, whole=False)[host.devices[0]]
    counted(host, tally, after.ports[0].counters)
    assert grown(tally)["rdma_sends"] == 50


def test_an_agent_in_another_namespace_reads_the_same(host, elsewhere):
    """With the /sys of that namespace, which has the devices, but none of their counters."""
    script = (
        "from netagent.adapters.host.rnics import RnicReader\n"
        "reader = RnicReader()\n"
        "for whole in (True, False):\n"
        f"    device = reader.read([], whole=whole).by_name()[{host.devices[0]!r}]\n"
        "    print(device.ports[0].counters['rdma_sends'])\n"
    )
    before = host.first().ports[0].counters["rdma_sends"]
    pingpong(host, 50)
    name = elsewhere.path.rpartition("/")[2]
    told = run("ip", "netns", "exec", name, ".venv/bin/python", "-c", script)
    assert told.split() == [str(before + 50)] * 2


@pytest.mark.parametrize(
    "change",
    [
        ("ip", "link", "set", "{netdev}", "down"),
        ("ip", "addr", "add", "10.77.0.9/24", "dev", "{netdev}"),
        ("rdma", "link", "del", "{device}"),
    ],
    ids=["link", "address", "device"],
)
def test_a_change_wakes_the_monitor(host, change):
    """Nobody looks by the clock here."""
    words = [each.format(netdev=host.netdevs[0], device=host.devices[0]) for each in change]

    def relevant(view: RdmaView) -> object:
        device = view.by_name().get(host.devices[0])
        return device and [(port.state, port.gids) for port in device.ports]

    async def watch() -> None:
        changed = asyncio.Event()
        seen: list[object] = []

        def callback(view: RdmaView) -> None:
            if not seen:
                subprocess.run(words, check=True)
            seen.append(relevant(view))
            if seen[-1] != seen[0]:
                changed.set()

        running = asyncio.create_task(RnicMonitor(look_s=3600).run(callback))
        try:
            async with asyncio.timeout(DEADLINE_S):
                await changed.wait()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(watch())


def set_mode(mode: str) -> bool:
    """Return whether it could be set: not while there is a second namespace."""
    tried = subprocess.run(
        ["rdma", "system", "set", "netns", mode], check=False, capture_output=True
    )
    return tried.returncode == 0


@pytest.fixture
def exclusive() -> Iterator[None]:
    """Give each namespace its own RDMA devices; needs a host without other namespaces."""
    require(RDMA)
    eventually(lambda: set_mode("exclusive"))
    try:
        yield
    finally:
        eventually(lambda: set_mode("shared"))


def test_in_exclusive_mode_devices_are_read_inside_their_namespace(exclusive, host, elsewhere):
    """The agent is in a namespace without devices, the endpoint in the one that has them."""
    script = (
        "from netagent.adapters.host.rnics import RnicReader\n"
        "from netagent.host.facts import Namespace\n"
        "import os\n"
        "here = RnicReader().read([], whole=True)\n"
        "print(here.mode, len(here.devices))\n"
        "place = Namespace('/proc/1/ns/net', os.stat('/proc/1/ns/net').st_ino)\n"
        "there = RnicReader().read([place], whole=True)\n"
        f"port = there.by_name()[{host.devices[0]!r}].ports[0]\n"
        f"print(port.state, port.find('::ffff:{host.addresses[0]}').netdev)\n"
        "print(port.counters['link_downed'])\n"
    )
    name = elsewhere.path.rpartition("/")[2]
    told = run("ip", "netns", "exec", name, ".venv/bin/python", "-c", script).splitlines()
    downs = host.first().ports[0].counters["link_downed"]
    assert told == ["exclusive 0", f"ACTIVE {host.netdevs[0]}", str(downs)]
