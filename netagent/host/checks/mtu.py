# SPDX-License-Identifier: Apache-2.0
"""The ladder of MTUs: what a container may send has to fit the NIC with its outer headers."""

from collections.abc import Iterator

from netagent.host.checks.contract import Checked, Inspected, State
from netagent.model.encapsulation import overhead_bytes
from netagent.model.path import rnic


def mtu_ladder(seen: Inspected) -> Iterator[Checked]:
    """Check that each endpoint's largest packet fits each device that it leaves the host by."""
    mtus = seen.hardware.mtus
    by_rail = {uplink.rail: uplink for uplink in seen.view.uplinks}
    short = set[str]()
    least: dict[str, int] = {}
    for end in seen.view.endpoints:
        uplink = by_rail.get(end.id.rail)
        if uplink is None or not end.bridge:
            continue  # what no tunnel carries has no outer headers
        needed = end.mtu + overhead_bytes(uplink.address)
        for device in dict.fromkeys((uplink.vtep, *filter(None, [uplink.bond]), *uplink.members)):
            if device in mtus:
                least[device] = max(least.get(device, 0), needed)
    for device, needed in sorted(least.items()):
        if mtus[device] < needed:
            short.add(device)
            yield _short(seen, device, needed)
    if not least:
        yield Checked("MTU ladder", State.UNKNOWN, "no endpoint and its uplink are known")
    elif not short:
        said = ", ".join(f"{name} {mtus[name]} >= {needed}" for name, needed in least.items())
        yield Checked("MTU ladder", State.OK, said)


def _short(seen: Inspected, device: str, needed: int) -> Checked:
    mtu = seen.hardware.mtus[device]
    text = f"{device} has an MTU of {mtu}, and containers send {needed} with outer headers"
    remedy = (
        f"ip link set {device} mtu {needed} and more, and at the switches, or lower containers'"
    )
    evidence = {"mtu": str(mtu), "needed": str(needed)}
    component = rnic(seen.host, device)
    return Checked("MTU ladder", State.WRONG, text, remedy, component, evidence=evidence)
