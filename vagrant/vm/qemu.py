# SPDX-License-Identifier: Apache-2.0
"""How a guest is started: the accelerator, and QEMU's command line as a function of values."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vagrant.vm.errors import VmError
from vagrant.vm.images import Image

# Quiet, and without what only costs time here: each mitigation is emulated instruction by
# instruction, and no_timer_check spares a calibration that a busy host makes fail.
KERNEL_ARGUMENTS = "console=ttyS0 panic=-1 quiet mitigations=off nokaslr no_timer_check audit=0"


class Accelerator(StrEnum):
    """What executes the guest's instructions."""

    KVM = "kvm"
    TCG = "tcg"


# Emulated, a kernel takes 2 s to decompress itself; real processors boot the usual file.
_KERNEL = {Accelerator.KVM: "vmlinuz", Accelerator.TCG: "vmlinux"}


@dataclass(frozen=True, slots=True)
class Cable:
    """One end of an Ethernet cable between two guests: two datagram sockets."""

    here: Path
    """Made by QEMU; the other end sends to it."""
    there: Path
    index: int
    """Which end, 0 or 1."""

    @property
    def mac(self) -> str:
        """Return the address of this end's interface."""
        return f"52:54:00:6e:61:{self.index:02x}"


@dataclass(frozen=True, slots=True)
class Machine:
    """What QEMU is asked for."""

    accelerator: Accelerator
    memory_mib: int
    cpus: int
    tree: Path
    """Folder shared with the guest, at the same path."""
    job: Path
    """Folder through which the guest gets its work and hands back what came of it."""
    console: Path | None
    """File of the serial console; None: the terminal."""
    cable: Cable | None = None


def choose_accelerator(
    asked: str, *, writable: Callable[[], bool] | None = None, cpuinfo: str | None = None
) -> Accelerator:
    """Return the accelerator for `asked`: ``auto``, ``kvm`` or ``tcg``.

    ``auto`` takes KVM only where /dev/kvm can be opened and the processor's flags name its
    virtualisation: inside some clouds the device is there, but boots no stock kernel.
    """
    if asked != "auto":
        return Accelerator(asked)
    if not (writable or _kvm_opens)():
        return Accelerator.TCG
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    flags = {flag for line in text.splitlines() if line.startswith("flags")
             for flag in line.split()}  # fmt: skip
    return Accelerator.KVM if flags & {"vmx", "svm"} else Accelerator.TCG


def _kvm_opens() -> bool:
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR))
    except OSError:
        return False
    return True


def command_line(image: Image, machine: Machine) -> list[str]:
    """Return QEMU's command line; raise `VmError` for a path that it cannot express."""
    for path in (image.path, machine.tree, machine.job):
        if "," in str(path):
            raise VmError(f"{path}: QEMU separates options by commas", "use another folder")
    return [
        # setpriv: when the process that started it dies, by whatever signal, so does the guest.
        *("setpriv", "--pdeathsig", "KILL", "--", "qemu-system-x86_64"),
        *_processor(machine),
        *("-m", str(machine.memory_mib), "-M", "q35"),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none"),
        *_console(machine.console),
        *("-kernel", str(image.path / _KERNEL[machine.accelerator])),
        *("-initrd", str(image.path / "initrd")),
        *("-append", KERNEL_ARGUMENTS),
        *_disk(image.path / "root.ext4"),
        *_shared("job", machine.job),
        *_shared("tree", machine.tree),
        *("-object", "rng-random,filename=/dev/urandom,id=random"),
        *("-device", "virtio-rng-pci,rng=random"),
        *(_network(machine.cable) if machine.cable else ()),
    ]


def _processor(machine: Machine) -> list[str]:
    if machine.accelerator is Accelerator.KVM:
        return ["-accel", "kvm", "-cpu", "host", "-smp", str(machine.cpus)]
    return ["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(machine.cpus)]


def _console(file: Path | None) -> list[str]:
    if file is not None:
        return ["-serial", f"file:{file}"]
    # signal=off: Ctrl-C belongs to the shell in the guest.
    return ["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]


def _disk(file: Path) -> list[str]:
    # snapshot=on: writes go to a file that is gone with QEMU, so every boot is pristine, and
    # any number of guests run off one image.
    options = "format=raw,if=none,id=root,snapshot=on,cache=unsafe,file.locking=off"
    return ["-drive", f"file={file},{options}", "-device", "virtio-blk-pci,drive=root"]


def _shared(tag: str, folder: Path) -> list[str]:
    return [
        *("-fsdev", f"local,id={tag},path={folder},security_model=none,multidevs=remap"),
        *("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
    ]


def _network(cable: Cable) -> list[str]:
    local = f"local.type=unix,local.path={cable.here}"
    remote = f"remote.type=unix,remote.path={cable.there}"
    return [
        *("-netdev", f"dgram,id=cable,{local},{remote}"),
        *("-device", f"virtio-net-pci,netdev=cable,mac={cable.mac}"),
    ]
