# SPDX-License-Identifier: Apache-2.0
"""GIDs: each endpoint's address has one on its RDMA device, inside its namespace."""

from collections.abc import Iterator

from netagent.host.checks.contract import Checked, Inspected, State
from netagent.host.rdma_facts import RdmaPort, device_of, mac_gid
from netagent.model.endpoint import Endpoint
from netagent.model.finding import FindingKind
from netagent.model.path import Component, Kind


def pod_gids(seen: Inspected) -> Iterator[Checked]:
    """Check that each endpoint's RDMA device has a RoCE v2 GID of its address."""
    if not seen.rdma.devices:
        yield Checked("GIDs", State.OK, "this host has no RDMA device")
        return
    hidden, missing = [], []
    for end in seen.view.endpoints:
        netdev = seen.view.netdevs.get(end.id, "")
        if device_of(seen.rdma.devices, netdev, end.address, end.mac):
            continue
        port = _port_of(seen, end)
        if port is None:
            hidden.append(str(end.id))
        else:
            missing.append((end, port))
    for end, port in missing:
        text = (
            f"{port.device} of {end.id} has no RoCE v2 GID of {end.address}: connections of the "
            "task cannot be made, or take another address"
        )
        remedy = "set the address down and up again in the container; look at the CNI's RDMA plugin"
        component = Component(Kind.ENDPOINT, str(end.id))
        yield Checked("GIDs", State.WRONG, text, remedy, component, FindingKind.GID_CHANGED)
    if hidden:
        text = f"no RDMA device is seen in the namespaces of {', '.join(hidden[:4])}"
        yield Checked("GIDs", State.UNKNOWN, text + (" and others" if len(hidden) > 4 else ""))
    elif not missing:
        yield Checked("GIDs", State.OK, f"all {len(seen.view.endpoints)} endpoints have theirs")


def _port_of(seen: Inspected, end: Endpoint) -> RdmaPort | None:
    """Return the port whose default GID is the endpoint's hardware address."""
    default = mac_gid(end.mac)
    ports = (port for device in seen.rdma.devices for port in device.ports)
    return next((port for port in ports if port.find(default)), None)
