# SPDX-License-Identifier: Apache-2.0
"""What all RNICs of a host have in common: firmware, driver, PFC, reaction to marks, offload."""

from collections.abc import Iterator, Mapping

from netagent.host.checks.contract import Checked, Inspected, State, odd_ones
from netagent.host.hardware import Nic
from netagent.model.path import rnic


def firmware(seen: Inspected) -> Iterator[Checked]:
    """Check that RNICs of one model have one firmware and one driver."""
    nics = [nic for nic in seen.hardware.nics if nic.driver]
    if not nics:
        yield Checked("firmware", State.UNKNOWN, "no RNIC says its driver (ETHTOOL_GDRVINFO)")
        return
    odd = False
    for model in sorted({_model(nic) for nic in nics}):
        alike = [nic for nic in nics if _model(nic) == model]
        for what, values in (
            ("firmware", {nic.netdev: nic.firmware for nic in alike}),
            ("driver", {nic.netdev: f"{nic.driver} {nic.driver_version}" for nic in alike}),
        ):
            for checked in _odd(seen, "firmware", what, values):
                odd = True
                yield checked
    if not odd:
        said = sorted({f"{nic.driver} {nic.firmware}".strip() for nic in nics})
        yield Checked("firmware", State.OK, ", ".join(said))


def congestion(seen: Inspected) -> Iterator[Checked]:
    """Check that RNICs pause (PFC) and slow down (DCQCN) for the same priorities."""
    pause = {n.netdev: _said(n.pause) for n in seen.hardware.nics if n.pause is not None}
    marks = {n.netdev: _said(n.marks) for n in seen.hardware.nics if n.marks is not None}
    odd = False
    for what, values in (("PFC", pause), ("DCQCN", marks)):
        for checked in _odd(seen, "PFC and DCQCN", f"{what} for priorities", values):
            odd = True
            yield checked
    if not pause and not marks:
        text = "no RNIC says (DCB's netlink, ecn/roce_rp of its driver)"
        yield Checked("PFC and DCQCN", State.UNKNOWN, text)
    elif not odd:
        said = "; ".join(
            f"{what} for priorities {', '.join(sorted(set(values.values())))}"
            for what, values in (("PFC", pause), ("DCQCN", marks))
            if values
        )
        yield Checked("PFC and DCQCN", State.OK, said)


def offload(seen: Inspected) -> Iterator[Checked]:
    """Check that flows go into the NICs, where those have a switch of their own (switchdev)."""
    switched = [nic for nic in seen.hardware.nics if nic.switch]
    if not switched:
        yield Checked("offload", State.OK, "no RNIC has a switch (switchdev): nothing to offload")
        return
    wrong = False
    if seen.view.settings.get("hw-offload", "false") != "true":
        wrong = True
        text = f"{switched[0].netdev} has a switch that Open vSwitch does not use (hw-offload)"
        remedy = "ovs-vsctl set Open_vSwitch . other_config:hw-offload=true; restart ovs-vswitchd"
        yield Checked("offload", State.WRONG, text, remedy, seen.itself)
    for nic in switched:
        if nic.offload is False:
            wrong = True
            text = f"{nic.netdev} takes no flows from the kernel: hw-tc-offload is off"
            remedy = f"ethtool -K {nic.netdev} hw-tc-offload on"
            component = rnic(seen.host, nic.netdev)
            yield Checked("offload", State.WRONG, text, remedy, component)
    if not wrong:
        text = (
            f"{', '.join(nic.netdev for nic in switched)}: what flows go into the NIC, "
            "`netagent flows layers` tells; their outer headers are not seen by the host"
        )
        yield Checked("offload", State.OK, text)


def functions(seen: Inspected) -> Iterator[Checked]:
    """Tell of virtual functions that have no port of the vSwitch: nobody finds who is there."""
    apart = [n for n in seen.hardware.nics if n.virtual_functions and not n.switch]
    for nic in apart:
        text = (
            f"{nic.netdev} has {nic.virtual_functions} virtual functions and no switch (legacy "
            "mode): containers behind them have no port of Open vSwitch, and are found only where "
            "a file declares them"
        )
        remedy = "devlink dev eswitch set pci/ADDRESS mode switchdev, and plug representors in"
        component = rnic(seen.host, nic.netdev)
        yield Checked("virtual functions", State.UNKNOWN, text, remedy, component, None)
    if not apart:
        count = sum(nic.virtual_functions for nic in seen.hardware.nics)
        text = f"{count}, each with its representor" if count else "none are switched on"
        yield Checked("virtual functions", State.OK, text)


def _model(nic: Nic) -> str:
    return nic.placed.function.model if nic.placed else ""


def _odd(seen: Inspected, check: str, what: str, values: Mapping[str, str]) -> Iterator[Checked]:
    for name, common in odd_ones(values).items():
        text = f"{name} has {what} {values[name]}, and the host's {len(values) - 1} others {common}"
        remedy = f"set up {name} as the others are"
        evidence = {"read": values[name], "others": common}
        component = rnic(seen.host, name)
        yield Checked(check, State.WRONG, text, remedy, component, evidence=evidence)


def _said(priorities: tuple[int, ...] | None) -> str:
    return ",".join(map(str, priorities or ())) or "none"
