# SPDX-License-Identifier: Apache-2.0
"""Soft-RoCE's own packets by IPv6: two devices at the ends of a cable, in the initial namespace."""

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from bpf.kernel.host import read_facts
from bpf.kernel.loader import Sizes, load
from bpf.trace.programs import choose
from tests.conftest import KERNEL, RDMA, require
from tests.kernel.conftest import Lens, packets
from tests.ovs.host import run
from tests.waiting import wait_until

pytestmark = [pytest.mark.kernel, pytest.mark.rdma]

COUNT = 40
ENDS = ("fd78::1", "fd78::2")
GIDS = tuple(f"fd78:0000:0000:0000:0000:0000:0000:000{n}" for n in (1, 2))
LOCAL = ("local", "100")


@pytest.fixture(scope="module")
def devices() -> Iterator[list[str]]:
    """Two RDMA devices whose packets cross a cable instead of the loopback interface."""
    require(KERNEL)
    require(RDMA)
    tag = secrets.token_hex(2)
    netdevs, made = [f"r{tag}{end}" for end in "ab"], [f"rxe{tag}{end}" for end in "ab"]
    with ExitStack() as cleanup:
        run("ip", "-6", "rule", "add", "pref", LOCAL[1], "lookup", LOCAL[0])
        cleanup.callback(run, "ip", "-6", "rule", "del", "pref", LOCAL[1])
        run("ip", "-6", "rule", "del", "pref", "0")
        cleanup.callback(run, "ip", "-6", "rule", "add", "pref", "0", "lookup", LOCAL[0])
        run("ip", "link", "add", netdevs[0], "type", "veth", "peer", "name", netdevs[1])
        cleanup.callback(run, "ip", "link", "del", netdevs[0])
        for netdev in netdevs:
            run("ip", "link", "set", netdev, "up")
        for n, netdev in enumerate(netdevs):
            mac = Path(f"/sys/class/net/{netdevs[1 - n]}/address").read_text().strip()
            run("ip", "addr", "add", f"{ENDS[n]}/64", "dev", netdev, "nodad")
            run("ip", "neigh", "add", ENDS[1 - n], "lladdr", mac, "dev", netdev)
            table = f"78{n}0"
            run("ip", "-6", "rule", "add", "pref", "11", "oif", netdev, "lookup", table)
            cleanup.callback(run, "ip", "-6", "rule", "del", "oif", netdev, "lookup", table)
            run("ip", "-6", "route", "add", "fd78::/64", "dev", netdev, "table", table)
        for n, name in enumerate(made):
            run("rdma", "link", "add", name, "type", "rxe", "netdev", netdevs[n])
            cleanup.callback(run, "rdma", "link", "del", name)
            wait_until(partial(_is_there, name, n), "the GID", 60)
        yield made


def _is_there(device: str, end: int) -> bool:
    return _index(device, end) is not None


def _index(device: str, end: int) -> int | None:
    """Return the index of the GID that an end's address makes."""
    for entry in Path(f"/sys/class/infiniband/{device}/ports/1/gids").iterdir():
        try:
            if entry.read_text().strip() == GIDS[end]:
                return int(entry.name)
        except OSError:  # an empty entry
            continue
    return None


@pytest.fixture(scope="module")
def lens(devices: list[str]) -> Iterator[Lens]:
    """Load what counts Soft-RoCE's packets; its driver is there by now."""
    facts = read_facts()
    programs = [each for each in choose("path", facts)[0] if each.name.startswith("rxe_")]
    assert len(programs) == len(devices)
    assert facts.layout is not None
    with load(programs, facts, facts.layout, Sizes(4096, 1024, 64)) as tracer:
        assert tracer.refusals == []
        yield Lens(tracer, facts)


def pingpong(devices: list[str]) -> None:
    """Send datagrams to and fro; raises CalledProcessError if they do not arrive."""
    words = [
        ["ibv_ud_pingpong", "-d", name, "-g", str(_index(name, n)), "-n", str(COUNT), "-s", "256"]
        for n, name in enumerate(devices)
    ]
    with subprocess.Popen(words[1], stdout=subprocess.PIPE) as server:
        wait_until(_listens, "the server", 30)
        subprocess.run([*words[0], "127.0.0.1"], check=True, capture_output=True, timeout=120)
        assert server.wait(timeout=60) == 0


def _listens() -> bool:
    return ":18515 " in run("ss", "-Hltn")


@pytest.mark.parametrize("end", [0, 1])
def test_soft_roce_s_packets_are_counted_by_their_ipv6_addresses(
    lens: Lens, devices: list[str], end: int
) -> None:
    here = SimpleNamespace(netns=Path("/proc/self/ns/net").stat().st_ino)
    flow = f"udp6,ipv6_src={ENDS[end]},ipv6_dst={ENDS[1 - end]},tp_dst=4791"
    seen = lens.look(here, flow, lambda: pingpong(devices))  # type: ignore[arg-type]
    counted = packets(seen)
    assert (counted["rxe_transmit"], counted["rxe_receive"]) == (COUNT, COUNT)
    journey = seen["journeys"][0]
    assert [hop["stage"] for hop in journey["hops"]] == ["rxe_transmit", "rxe_receive"]
    assert set(flow.split(",")) <= set(journey["flow"].split(","))
