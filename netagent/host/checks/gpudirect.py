# SPDX-License-Identifier: Apache-2.0
"""GPUs and RNICs: whether one reaches the other's memory, and by which way."""

from collections.abc import Iterator

from netagent.host.checks.contract import Checked, Inspected, State
from netagent.host.hardware import Nic, PciFunction, Placed

NVIDIA = "nvidia"
"""Driver of GPUs that the check knows."""
PEERMEM = frozenset({"nvidia_peermem", "nv_peer_mem"})
"""Modules that let RNICs register GPUs' memory."""


def gpu_memory(seen: Inspected) -> Iterator[Checked]:
    """Check that RNICs can register GPUs' memory (GPUDirect RDMA)."""
    hardware = seen.hardware
    theirs = [gpu for gpu in hardware.gpus if gpu.function.driver == NVIDIA]
    if not hardware.gpus:
        yield Checked("GPUDirect", State.OK, "this host has no GPU")
    elif not theirs:
        drivers = ", ".join(sorted({gpu.function.driver or "none" for gpu in hardware.gpus}))
        text = f"{len(hardware.gpus)} GPUs of other drivers ({drivers}), whose way is not known"
        yield Checked("GPUDirect", State.UNKNOWN, text)
    elif loaded := sorted(hardware.modules & PEERMEM):
        yield Checked("GPUDirect", State.OK, f"{', '.join(loaded)} is loaded")
    elif hardware.open_gpu_driver:
        text = "no nvidia_peermem, but the GPUs' open driver shares buffers (dma-buf)"
        yield Checked("GPUDirect", State.OK, text)
    else:
        text = (
            f"{len(theirs)} GPUs, but neither nvidia_peermem nor the GPUs' open driver is "
            "loaded: what RNICs send and receive is copied by the host"
        )
        remedy = "modprobe nvidia_peermem, or install the open kernel modules"
        yield Checked("GPUDirect", State.WRONG, text, remedy, seen.itself)


def gpu_distance(seen: Inspected) -> Iterator[Checked]:
    """Tell how far each RNIC's nearest GPU is. Which distance is right, the board decides."""
    nics = _on_board(seen)
    gpus = seen.hardware.gpus
    if not gpus or not nics:
        yield Checked("GPU distance", State.OK, "there is no pair of GPU and RNIC to compare")
        return
    nearest = {nic.netdev: min(_far(placed, gpu) for gpu in gpus) for nic, placed in nics}
    said = ", ".join(f"{name} {_WORDS[far]}" for name, far in nearest.items())
    yield Checked("GPU distance", State.OK, f"nearest GPU: {said}")


_SWITCH, _NODE, _FAR = range(3)
_WORDS = ("behind the same switch", "in its NUMA node", "in another NUMA node")


def _far(nic: Placed, gpu: Placed) -> int:
    """Return how far two functions are, as ``nvidia-smi topo`` has PIX/PXB, NODE and SYS."""
    if _shared(nic, gpu):
        return _SWITCH
    return _NODE if nic.function.numa == gpu.function.numa else _FAR


def _shared(one: Placed, other: Placed) -> set[str]:
    return {port.address for port in one.above} & {port.address for port in other.above}


def _on_board(seen: Inspected) -> list[tuple[Nic, Placed]]:
    return [(nic, nic.placed) for nic in seen.hardware.nics if nic.placed]


def isolation(seen: Inspected) -> Iterator[Checked]:
    """Check that GPU and RNIC behind one switch talk through it, not by the root complex (ACS)."""
    below = [
        (nic.netdev, placed.function, _own_ports(placed, gpu))
        for nic, placed in _on_board(seen)
        for gpu in seen.hardware.gpus
        if _shared(placed, gpu)
    ]
    redirected: dict[str, set[str]] = {}
    for name, card, ports in below:
        if not card.ats and any(port.acs for port in ports):
            redirected.setdefault(name, set()).update(port.address for port in ports if port.acs)
    for name, addresses in redirected.items():
        text = (
            f"ACS of {', '.join(sorted(addresses))} sends what goes between {name} and its GPU by "
            "the root complex, and the card does not translate addresses itself (ATS)"
        )
        remedy = "switch ACS off at the switch's ports (firmware's setup), or ATS on in the card"
        yield Checked("ACS and ATS", State.WRONG, text, remedy, seen.itself)
    if not below:
        yield Checked("ACS and ATS", State.OK, "no GPU shares a PCIe switch with an RNIC")
    elif all(port.acs is None for _, _, ports in below for port in ports):
        text = "no port says whether it has ACS: it has none, or run this as root"
        yield Checked("ACS and ATS", State.UNKNOWN, text)
    elif not redirected:
        yield Checked("ACS and ATS", State.OK, "GPU and RNIC talk through their switch")


def _own_ports(one: Placed, other: Placed) -> list[PciFunction]:
    """Return the ports on the way of one function to another below what they share."""
    shared = _shared(one, other)
    return [port for port in (*one.above, *other.above) if port.address not in shared]
