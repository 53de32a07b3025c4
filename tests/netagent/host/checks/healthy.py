# SPDX-License-Identifier: Apache-2.0
"""A healthy GPU server, with four endpoints, to break in one place."""

from collections.abc import Iterable, Mapping

from netagent.adapters.host.board import read_hardware
from netagent.adapters.host.settings import Settings
from netagent.host.checks import inspect
from netagent.host.checks.contract import Checked, Inspected, State
from netagent.host.facts import HostView, Uplink
from netagent.host.rdma_facts import Gid, RdmaDevice, RdmaPort, RdmaView, mac_gid
from netagent.model.endpoint import Endpoint, EndpointState
from netagent.model.ids import EndpointId
from tests.netagent.server_board import Board

HEALTHY = Settings("mlx5_core", "6.8", "28.39.1002", offload=True, pause=(3,))
ENDS = tuple(
    Endpoint(
        id=EndpointId("c0", rail), task="t", host="h0", address=f"10.0.{rail}.10",
        mac=f"02:00:00:00:00:0{rail}", underlay=f"172.30.{rail}.10", rnic=f"rnic{rail}",
        bridge="br-int", port=f"p{rail}", mtu=8950, bond=None, state=EndpointState.UP,
    )
    for rail in range(4)
)  # fmt: skip
UPLINKS = tuple(
    Uplink(
        rail, f"rnic{rail}", f"172.30.{rail}.10", f"rnic{rail}", f"vxlan{rail}", (f"rnic{rail}",)
    )
    for rail in range(4)
)
VIEW = HostView(ENDS, uplinks=UPLINKS, complete=True, netdevs={end.id: "eth1" for end in ENDS})


def _device(end: Endpoint, *gids: str) -> RdmaDevice:
    entries = (mac_gid(end.mac), *gids)
    table = tuple(Gid(at, gid, "RoCE v2", "eth1") for at, gid in enumerate(entries))
    port = RdmaPort(f"mlx5_{end.id.rail}", 1, "ACTIVE", "Ethernet", ("eth1",), gids=table)
    return RdmaDevice(port.device, "mlx5_core", ports=(port,))


def rdma(*without: int) -> RdmaView:
    """Return the endpoints' devices; those of rails `without` lack the GID of their address."""
    devices = (
        _device(end, *([] if end.id.rail in without else [f"::ffff:{end.address}"])) for end in ENDS
    )
    return RdmaView(tuple(devices), "exclusive")


def look(
    board: Board,
    view: HostView = VIEW,
    odd: Mapping[str, Settings] | None = None,
    seen_rdma: RdmaView | None = None,
) -> tuple[Checked, ...]:
    """Return what all checks say."""
    hardware = read_hardware(
        [f"rnic{n}" for n in range(4)], sysfs=board.sysfs, procfs=board.procfs,
        ask=lambda name: (odd or {}).get(name, HEALTHY),
    )  # fmt: skip
    return inspect(Inspected("h0", view, hardware, seen_rdma or rdma()))


def wrong(said: Iterable[Checked]) -> list[Checked]:
    """Return what is wrong."""
    return [each for each in said if each.state is State.WRONG]
