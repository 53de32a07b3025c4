# SPDX-License-Identifier: Apache-2.0
"""RNICs' PCIe links: as fast as both ends can, and without errors."""

from collections.abc import Iterator

from netagent.host.checks.contract import Checked, Inspected, State
from netagent.host.hardware import PciFunction, PciLink, Placed
from netagent.model.finding import FindingKind
from netagent.model.path import rnic

RESEAT = "reseat the card or its riser; look for its slot's settings in the firmware's setup"


def pcie_link(seen: Inspected) -> Iterator[Checked]:
    """Check that each RNIC has the lanes and the speed that it and its slot can have.

    A slot may be wired with fewer lanes than its port says: so it is a remark, and none where all
    have less. What had more before is `host.board.BoardWatch`'s.
    """
    told = {
        nic.netdev: (nic.placed.function.link, _could(nic.placed))
        for nic in seen.hardware.nics
        if nic.placed and nic.placed.function.link
    }
    slow = {
        name: (link, could)
        for name, (link, could) in told.items()
        if link and could and (link.lanes < could.lanes or link.gts < could.gts)
    }
    for name, (link, could) in slow.items():
        yield _reduced(seen, name, link, could, alone=len(slow) < len(told))
    if not told:
        text = "no RNIC says what its PCIe link is: it is no PCI function, or a virtual machine's"
        yield Checked("PCIe link", State.UNKNOWN, text)
    elif not slow:
        said = "; ".join(f"{name}: {link}" for name, (link, _) in told.items())
        yield Checked("PCIe link", State.OK, said)


def _could(placed: Placed) -> PciLink | None:
    """Return what the card and the port above it can both do."""
    own = placed.function.most
    slot = placed.above[0].most if placed.above else None
    if own is None or slot is None:
        return own
    return PciLink(min(own.gts, slot.gts), min(own.lanes, slot.lanes))


def _reduced(seen: Inspected, name: str, link: PciLink, could: PciLink, *, alone: bool) -> Checked:
    share = link.gts * link.lanes / (could.gts * could.lanes)
    text = (
        f"{name} has {link} on PCIe, and could have {could}: nothing is lost, but the host can "
        f"feed it {share:.0%} of what it should"
    )
    if not alone:
        text += "; as all RNICs here, so that the board may be wired like that"
    return Checked(
        "PCIe link", State.WRONG, text, RESEAT, rnic(seen.host, name),
        FindingKind.MISCONFIGURED if alone else None, {"link": str(link), "could": str(could)},
    )  # fmt: skip


def pcie_errors(seen: Inspected) -> Iterator[Checked]:
    """Tell of errors that PCIe could not correct, since the devices were found.

    Whether they go on, `host.board.BoardWatch` says: here is no finding.
    """
    ways = {
        nic.netdev: [each for each in (nic.placed.function, *nic.placed.above) if each.errors]
        for nic in seen.hardware.nics
        if nic.placed
    }
    counted = [function for way in ways.values() for function in way]
    bad = [(name, each) for name, way in ways.items() for each in way if _lost(each)]
    for name, function in bad:
        text = f"{function.address}, on the way of {name}: {_lost(function)} since it was found"
        remedy = f"read dmesg for AER; {RESEAT}"
        yield Checked("PCIe errors", State.WRONG, text, remedy, rnic(seen.host, name), None)
    if not counted:
        text = "the kernel counts none (no aer_dev_* files: CONFIG_PCIEAER, or the firmware's)"
        yield Checked("PCIe errors", State.UNKNOWN, text)
    elif not bad:
        corrected = sum(each.errors.get("correctable", 0) for each in counted)
        yield Checked("PCIe errors", State.OK, f"all corrected: {corrected}")


def _lost(function: PciFunction) -> str:
    lost = ((name, count) for name, count in sorted(function.errors.items()) if count)
    return ", ".join(f"{count} {name}" for name, count in lost if name != "correctable")
