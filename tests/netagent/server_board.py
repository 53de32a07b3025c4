# SPDX-License-Identifier: Apache-2.0
"""The sysfs of a GPU server, as files: no such machine was there to record it from.

Written from the kernel's sources: drivers/pci/pci-sysfs.c (link speed and width, class, vendor,
config), drivers/pci/pcie/aer.c (aer_dev_*), drivers/net/core/net-sysfs.c (phys_switch_id, mtu),
mm/hugetlb.c, and, for ecn/roce_rp, from NVIDIA's description of its driver.
"""

from dataclasses import dataclass, field
from pathlib import Path

ACS_ON, ACS_OFF, ATS_ON = 0x001D, 0x0001, 0x8000


def space(capability: int, control: int) -> bytes:
    """Return a configuration space with one extended capability, behind one that nobody reads."""
    made = bytearray(4096)
    made[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")  # AER
    made[0x148:0x14C] = (capability | 1 << 16).to_bytes(4, "little")
    made[0x14E:0x150] = control.to_bytes(2, "little")
    return bytes(made)


@dataclass(slots=True)
class Board:
    """Writes one."""

    sysfs: Path
    procfs: Path
    placed: dict[str, Path] = field(default_factory=dict)
    """Folders of functions by address."""

    def function(
        self, address: str, below: str = "", driver: str = "", **files: str | bytes
    ) -> Path:
        """Add a function, plugged below another one; `files` replace what a healthy one says."""
        root = self.sysfs / "devices" / f"pci0000:{address[5:7]}"
        folder = (self.placed[below] if below else root) / address
        folder.mkdir(parents=True)
        self.placed[address] = folder
        said: dict[str, str | bytes] = {
            "vendor": "0x15b3", "device": "0x1021", "class": "0x020000", "numa_node": "0",
            "current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
            "current_link_width": "16", "max_link_width": "16",
            "aer_dev_correctable": "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0",
            "aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 0",
            "aer_dev_fatal": "Undefined 0\nTOTAL_ERR_FATAL 0",
            "config": bytes(4096), **files,
        }  # fmt: skip
        for name, text in said.items():
            data = text if isinstance(text, bytes) else f"{text}\n".encode()
            (folder / name).write_bytes(data)
        if driver:
            (folder / "driver").symlink_to(f"../../bus/pci/drivers/{driver}")
        listed = self.sysfs / "bus/pci/devices"
        listed.mkdir(parents=True, exist_ok=True)
        (listed / address).symlink_to(folder)
        return folder

    def netdev(self, name: str, address: str, mtu: int = 9000) -> Path:
        """Add a network device of the function at `address`."""
        folder = self.placed[address] / "net" / name
        folder.mkdir(parents=True)
        (folder / "mtu").write_text(f"{mtu}\n")
        (folder / "device").symlink_to(self.placed[address])
        listed = self.sysfs / "class/net"
        listed.mkdir(parents=True, exist_ok=True)
        (listed / name).symlink_to(folder)
        return folder

    def representor(self, name: str, of: str, port: str) -> None:
        """Have the device `of` be a switch, and add one of its ports: switchdev."""
        uplink = self.sysfs / "class/net" / of
        (uplink / "phys_switch_id").write_text("0c42a1\n")
        (uplink / "phys_port_name").write_text("p0\n")
        folder = self.sysfs / "class/net" / name
        folder.mkdir()
        (folder / "phys_switch_id").write_text("0c42a1\n")
        (folder / "phys_port_name").write_text(f"{port}\n")

    def hugepages(self, size_kb: int, total: int) -> None:
        """Set aside huge pages."""
        folder = self.sysfs / f"kernel/mm/hugepages/hugepages-{size_kb}kB"
        folder.mkdir(parents=True)
        (folder / "nr_hugepages").write_text(f"{total}\n")
        (folder / "free_hugepages").write_text(f"{total}\n")

    def say(self, address: str, **files: str | bytes) -> None:
        """Change what a function says."""
        for name, text in files.items():
            data = text if isinstance(text, bytes) else f"{text}\n".encode()
            (self.placed[address] / name).write_bytes(data)

    def module(self, name: str) -> None:
        """Load a kernel module."""
        (self.sysfs / "module" / name).mkdir(parents=True)


def gpu_server(folder: Path, rails: int = 4) -> Board:
    """Return a healthy server: on each rail a switch with an RNIC and a GPU below it.

    Rail N is on bus N: root port ``0000:N0:01.0``, the switch's ports ``N1:00.0``, ``N2:00.0`` and
    ``N2:01.0``, RNIC ``N3:00.0`` with netdev ``rnicN``, GPU ``N4:00.0``; two rails a NUMA node.
    """
    board = Board(folder / "sys", folder / "proc")
    for rail in range(rails):
        n, node = rail + 1, str(rail * 2 // rails)
        acs = space(0x000D, ACS_OFF)
        board.function(f"0000:{n}0:01.0", numa_node=node, config=acs)
        board.function(f"0000:{n}1:00.0", f"0000:{n}0:01.0", numa_node=node)
        for port in (0, 1):
            board.function(f"0000:{n}2:0{port}.0", f"0000:{n}1:00.0", numa_node=node, config=acs)
        board.function(f"0000:{n}3:00.0", f"0000:{n}2:00.0", numa_node=node)
        board.function(
            f"0000:{n}4:00.0", f"0000:{n}2:01.0", numa_node=node, vendor="0x10de",
            driver="nvidia", device="0x2330", **{"class": "0x030200"},
        )  # fmt: skip
        board.netdev(f"rnic{rail}", f"0000:{n}3:00.0")
    board.module("nvidia_peermem")
    board.hugepages(2048, 1024)
    return board
