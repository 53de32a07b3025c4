# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import secrets
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from netagent.adapters.host.setns import call_in_namespace
from netagent.adapters.host.sysfs import (
    SysfsReader,
    netdev_rate,
    physical_function,
    rdma_ports,
    sysfs_here,
)
from netagent.host.rates import PortRate
from netagent.host.rdma_facts import Gid, RdmaDevice, RdmaPort
from tests.conftest import NETNS, require

T = TypeVar("T")

ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def link(root: Path, name: str, target: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(root / target, path.parent))


def gids(root: Path, port: str, entries: dict[int, tuple[str, str, str]], places: int) -> None:
    for at in range(places):
        gid, kind, netdev = entries.get(at, (ZERO, "", ""))
        write(root, {f"{port}/gids/{at}": gid})
        if kind:
            write(
                root,
                {f"{port}/gid_attrs/types/{at}": kind, f"{port}/gid_attrs/ndevs/{at}": netdev},
            )


PF, VF = "0000:65:00.0", "0000:65:00.2"
MLX5 = f"devices/pci0000:64/0000:64:00.0/{VF}/infiniband/mlx5_2"


@pytest.fixture
def mlx5(tmp_path) -> Path:
    """Write a VF of a ConnectX whose netdev is in a bond, as the kernel's documentation has it.

    Documentation/ABI/stable/sysfs-class-infiniband names the files; the counters are those of
    drivers/infiniband/core/sysfs.c and drivers/infiniband/hw/mlx5/counters.c.
    """
    pci = f"devices/pci0000:64/0000:64:00.0/{VF}"
    port = f"{MLX5}/ports/1"
    write(
        tmp_path,
        {
            f"{MLX5}/node_guid": "0200:00ff:fe00:0002",
            f"{MLX5}/fw_ver": "28.39.1002",
            f"{MLX5}/node_desc": "h0 mlx5_2",
            f"{port}/state": "4: ACTIVE",
            f"{port}/phys_state": "5: LinkUp",
            f"{port}/link_layer": "Ethernet",
            f"{port}/rate": "400 Gb/sec (4X NDR)",
            f"{port}/counters/symbol_error": "0",
            f"{port}/counters/link_downed": "2",
            f"{port}/counters/port_rcv_data": "18446744073709551615",
            f"{port}/counters/VL15_dropped": "N/A (no PMA)",
            f"{port}/hw_counters/lifespan": "10",
            f"{port}/hw_counters/out_of_sequence": "7",
            f"{port}/hw_counters/rnr_nak_retry_err": "0",
            "devices/virtual/net/bond0/bonding/mode": "802.3ad 4",
            f"{pci}/net/ens1f0v0/address": "02:00:00:00:00:02",
            f"{pci}/net/ens1f0v0/statistics/rx_crc_errors": "3",
            f"devices/pci0000:64/0000:64:00.0/{PF}/sriov_numvfs": "8",
        },
    )
    gids(
        tmp_path,
        port,
        {
            0: ("fe80:0000:0000:0000:0000:00ff:fe00:0002", "IB/RoCE v1", "ens1f0v0"),
            1: ("fe80:0000:0000:0000:0000:00ff:fe00:0002", "RoCE v2", "ens1f0v0"),
            2: ("0000:0000:0000:0000:0000:ffff:0a00:000a", "IB/RoCE v1", "ens1f0v0"),
            3: ("0000:0000:0000:0000:0000:ffff:0a00:000a", "RoCE v2", "ens1f0v0"),
        },
        places=255,
    )
    link(tmp_path, "class/infiniband/mlx5_2", MLX5)
    link(tmp_path, f"{MLX5}/device", pci)
    link(tmp_path, f"{pci}/driver", "bus/pci/drivers/mlx5_core")
    link(tmp_path, f"{pci}/physfn", f"devices/pci0000:64/0000:64:00.0/{PF}")
    link(tmp_path, "class/net/ens1f0v0", f"{pci}/net/ens1f0v0")
    link(tmp_path, f"{pci}/net/ens1f0v0/master", "devices/virtual/net/bond0")
    link(tmp_path, "class/net/bond0", "devices/virtual/net/bond0")
    return tmp_path


RXE = "devices/virtual/infiniband/rxe0"


@pytest.fixture
def rxe(tmp_path) -> Path:
    """Write Soft-RoCE as Linux 6.1 shows it."""
    port = f"{RXE}/ports/1"
    write(
        tmp_path,
        {
            f"{RXE}/node_guid": "dc65:deff:fe73:9310",
            f"{RXE}/fw_ver": "",
            f"{RXE}/node_desc": "rxe",
            f"{RXE}/parent": "v0",
            f"{port}/state": "4: ACTIVE",
            f"{port}/phys_state": "5: LinkUp",
            f"{port}/link_layer": "Ethernet",
            f"{port}/rate": "10 Gb/sec (1X FDR10)",
            f"{port}/hw_counters/lifespan": "12",
            f"{port}/hw_counters/link_downed": "1",
            f"{port}/hw_counters/sent_pkts": "1000",
            "class/net/v0/address": "de:65:de:73:93:10",
            "class/net/v0/statistics/rx_crc_errors": "0",
        },
    )
    gids(
        tmp_path,
        port,
        {
            0: ("fe80:0000:0000:0000:dc65:deff:fe73:9310", "RoCE v2", "v0"),
            1: ("0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "v0"),
        },
        places=64,
    )
    link(tmp_path, "class/infiniband/rxe0", RXE)
    return tmp_path


def only(root: Path, reader: SysfsReader | None = None, *, whole: bool = True) -> RdmaDevice:
    (device,) = (reader or SysfsReader()).devices(root, whole=whole)
    return device


def test_a_virtual_function_in_a_bond_is_told_as_such(mlx5):
    device = only(mlx5)
    assert (device.name, device.driver, device.firmware) == ("mlx5_2", "mlx5_core", "28.39.1002")
    assert (device.pci, device.physical_function, device.virtual_functions) == (VF, PF, None)
    assert (device.bond, device.node_guid) == ("bond0", "0200:00ff:fe00:0002")


def test_a_port_has_state_rate_gids_and_counters(mlx5):
    (port,) = only(mlx5).ports
    assert (port.device, port.port, port.link_layer) == ("mlx5_2", 1, "Ethernet")
    assert (port.state, port.phys_state, port.rate_bps) == ("ACTIVE", "LinkUp", 400_000_000_000)
    assert port.lanes == 4
    assert port.netdevs == ("ens1f0v0",)
    assert port.gids is not None
    assert port.gids[3] == Gid(3, "::ffff:10.0.0.10", "RoCE v2", "ens1f0v0")
    assert [each.index for each in port.gids] == [0, 1, 2, 3]
    assert port.counters == {
        "symbol_error": 0,
        "link_downed": 2,
        "port_rcv_data": 2**64 - 1,
        "out_of_sequence": 7,
        "rnr_nak_retry_err": 0,
        "rx_crc_errors": 3,
    }


def test_a_physical_function_says_how_many_virtual_ones_it_has(mlx5):
    (mlx5 / MLX5 / "device").unlink()
    link(mlx5, f"{MLX5}/device", f"devices/pci0000:64/0000:64:00.0/{PF}")
    device = only(mlx5)
    assert (device.pci, device.physical_function, device.virtual_functions) == (PF, None, 8)


def test_a_subfunction_has_the_pci_address_of_what_it_lies_in(tmp_path):
    place = f"devices/pci0000:64/{PF}/mlx5_core.sf.4"
    write(tmp_path, {f"{place}/infiniband/mlx5_9/ports/1/state": "1: DOWN"})
    link(tmp_path, "class/infiniband/mlx5_9", f"{place}/infiniband/mlx5_9")
    link(tmp_path, f"{place}/infiniband/mlx5_9/device", place)
    assert only(tmp_path).pci == PF


def test_soft_roce_is_known_by_its_parent(rxe):
    device = only(rxe)
    assert (device.driver, device.pci, device.bond) == ("rxe", None, None)
    (port,) = device.ports
    assert port.netdevs == ("v0",)
    assert port.rate_bps == 10_000_000_000
    assert port.counters == {"link_downed": 1, "sent_pkts": 1000, "rx_crc_errors": 0}


def test_a_netdev_that_only_has_the_same_name_is_another(rxe):
    write(rxe, {"class/net/v0/address": "de:65:de:73:93:11"})
    (port,) = only(rxe).ports
    assert "rx_crc_errors" not in port.counters


def test_between_whole_readings_state_counters_and_gids_are_read_anew(rxe):
    reader = SysfsReader()
    only(rxe, reader)
    write(
        rxe,
        {
            f"{RXE}/ports/1/state": "1: DOWN",
            f"{RXE}/ports/1/hw_counters/sent_pkts": "1001",
            f"{RXE}/ports/1/gids/1": "0000:0000:0000:0000:0000:ffff:0a00:0009",
            f"{RXE}/node_guid": "0:0:0:1",
        },
    )
    device = only(rxe, reader, whole=False)
    (port,) = device.ports
    assert (port.state, port.counters["sent_pkts"]) == ("DOWN", 1001)
    assert port.find("::ffff:10.0.0.9") is not None
    assert device.node_guid == "dc65:deff:fe73:9310"
    assert only(rxe, reader).node_guid == "0:0:0:1"


def test_a_new_gid_in_the_first_free_place_is_seen_between_whole_readings(rxe):
    reader = SysfsReader()
    only(rxe, reader)
    entry = ("0000:0000:0000:0000:0000:ffff:0a00:0009", "RoCE v2", "v0")
    gids(rxe, f"{RXE}/ports/1", {2: entry}, places=0)
    write(rxe, {f"{RXE}/ports/1/gids/2": entry[0], f"{RXE}/ports/1/gid_attrs/types/2": entry[1]})
    (port,) = only(rxe, reader, whole=False).ports
    assert port.find("::ffff:10.0.0.9") is not None


def test_free_places_between_gids_are_passed_over(rxe):
    write(rxe, {f"{RXE}/ports/1/gids/1": ZERO})
    entry = ("0000:0000:0000:0000:0000:ffff:0a00:0009", "RoCE v2", "v0")
    port = f"{RXE}/ports/1"
    for at in (9, 63):
        write(rxe, {f"{port}/gids/{at}": entry[0], f"{port}/gid_attrs/types/{at}": entry[1]})
    found = only(rxe).ports[0].gids
    assert found is not None
    # The last one is behind more free places than a kernel leaves that fills the first.
    assert [each.index for each in found] == [0, 9]


def test_what_cannot_be_read_is_absent(tmp_path):
    write(
        tmp_path,
        {
            "class/infiniband/odd/ports/1/rate": "very fast (X)",
            "class/infiniband/odd/ports/1/gids/0": "no gid",
            "class/infiniband/odd/ports/1/counters/symbol_error": "",
            "class/infiniband/odd/ports/junk/state": "4: ACTIVE",
        },
    )
    (tmp_path / "class/infiniband/odd/ports/1/phys_state").mkdir()
    assert only(tmp_path).ports == (RdmaPort("odd", 1, "", "", gids=()),)


def test_a_device_without_a_gid_table_has_none(tmp_path):
    write(tmp_path, {"class/infiniband/odd/ports/1/state": "4: ACTIVE"})
    assert only(tmp_path).ports[0].gids is None


def test_ports_of_all_devices_are_read(rxe):
    write(rxe, {"class/infiniband/mlx5_0/ports/1/state": "1: DOWN"})
    assert [(p.device, p.port, p.state) for p in rdma_ports(rxe)] == [
        ("mlx5_0", 1, "DOWN"),
        ("rxe0", 1, "ACTIVE"),
    ]


def test_a_kernel_without_rdma_has_no_ports(tmp_path):
    assert rdma_ports(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("speed", "carrier", "rate"),
    [
        ("400000", "1", PortRate(400 * 10**9)),
        ("100000", "0", None),  # the driver still says what it ran at
        ("-1", "1", None),
        ("65535", "1", None),
        ("4294967295", "1", None),
        ("0", "1", None),
        ("fast", "1", None),
        ("100000", "", None),
    ],
)
def test_a_netdev_s_rate_is_what_it_says_unless_it_knows_none(tmp_path, speed, carrier, rate):
    write(tmp_path, {"class/net/ens1/speed": speed, "class/net/ens1/carrier": carrier})
    assert netdev_rate("ens1", tmp_path) == rate
    assert netdev_rate("ens2", tmp_path) is None


@pytest.mark.netns
def test_the_kernel_s_own_devices_say_what_they_run_at():
    """A veth has a fixed speed, a tap the one that it is given, and neither one without a link."""
    require(NETNS)
    name = f"na-{secrets.token_hex(3)}"

    def ip(*words: str) -> None:
        subprocess.run(["ip", "-n", name, *words], check=True, capture_output=True)

    def rates() -> dict[str, PortRate | None]:
        with sysfs_here() as sysfs:
            return {each: netdev_rate(each, sysfs) for each in ("v0", "tap0", "lo")}

    def there(function: Callable[[], T]) -> T:
        return call_in_namespace(f"/run/netns/{name}", function)

    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        ip("link", "add", "v0", "up", "type", "veth", "peer", "v1")
        assert there(rates) == {"v0": None, "tap0": None, "lo": None}
        ip("link", "set", "v1", "up")
        opened = there(tap_here)
        try:
            ip("link", "set", "tap0", "up")
            command = ("speed", "40000", "autoneg", "off")
            subprocess.run(
                ["ip", "netns", "exec", name, "ethtool", "-s", "tap0", *command], check=True
            )
            assert there(rates) == {
                "v0": PortRate(10 * 10**9),
                "tap0": PortRate(40 * 10**9),
                "lo": None,
            }
        finally:
            os.close(opened)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def tap_here() -> int:
    """Return the descriptor of a new tap0 of this namespace; it has a link as long as it is open.

    TUNSETIFF, IFF_TAP and IFF_NO_PI are of linux/if_tun.h.
    """
    opened = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(opened, 0x400454CA, struct.pack("16sH22x", b"tap0", 0x0002 | 0x1000))
    return opened


@pytest.mark.netns
def test_sysfs_can_be_read_as_a_namespace_shows_it():
    require(NETNS)
    before = names("/proc/self/fd")
    with sysfs_here() as sysfs:
        assert names(sysfs / "class/net") == names("/sys/class/net")
    assert names("/proc/self/fd") == before


def names(folder: str | Path) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


# --- what a device of a container is a part of ----------------------------------------------------


def test_a_function_is_a_part_of_its_physical_one(tmp_path):
    """The links that pci_iov_sysfs_link (drivers/pci/iov.c) and bus_add_device (drivers/base/bus.c)
    make for mlx5: a PF, its VF, and a sub-function of mlx5_sf_dev_add (mlx5/core/sf/dev/dev.c).
    """  # noqa: D205 - one sentence
    bridge = "devices/pci0000:64/0000:64:00.0"
    pf, vf = f"{bridge}/0000:65:00.0", f"{bridge}/0000:65:00.2"
    sub = f"{pf}/mlx5_core.sf.4"
    write(tmp_path, {f"{pf}/vendor": "0x15b3", f"{vf}/vendor": "0x15b3", f"{sub}/sfnum": "88"})
    link(tmp_path, "bus/pci/devices/0000:65:00.0", pf)
    link(tmp_path, "bus/pci/devices/0000:65:00.2", vf)
    link(tmp_path, f"{vf}/physfn", pf)
    link(tmp_path, "bus/auxiliary/devices/mlx5_core.sf.4", sub)
    found = {
        parent: physical_function(parent, tmp_path)
        for parent in (
            "0000:65:00.2",
            "0000:65:00.0",
            "mlx5_core.sf.4",
            "virtio3",
            "mlx5_core.sf.9",
        )
    }
    assert found == {
        "0000:65:00.2": "0000:65:00.0",
        "0000:65:00.0": "0000:65:00.0",
        "mlx5_core.sf.4": "0000:65:00.0",
        "virtio3": "",
        "mlx5_core.sf.9": "",
    }
