# SPDX-License-Identifier: Apache-2.0
"""Which UDP source port, hence which ECMP path, a RoCE v2 packet takes, by driver."""

from zlib import crc32

from netagent.model.strenum import StrEnum

VENDOR_RXE = 0xFFFFFF
"""Vendor id of Soft-RoCE: RXE_VENDOR_ID of drivers/infiniband/sw/rxe/rxe_param.h."""
PORT_BASE = 0xC000
"""Lowest source port of RoCE v2, whose ports are 0xC000 to 0xFFFF
(IB_ROCE_UDP_ENCAP_VALID_PORT_MIN, include/rdma/ib_verbs.h)."""
_GOLDEN_RATIO_32 = 0x61C88647
"""Factor of `hash_32`: GOLDEN_RATIO_32 of include/linux/hash.h."""


class Steering(StrEnum):
    """What decides the source port."""

    FLOW_LABEL = "flow label"
    """The flow label of the address handle. One queue pair serves all flows."""

    QUEUE_PAIR = "queue pair"
    """The queue pair's own number. Each flow has a queue pair."""


_BY_VENDOR = {
    # rxe_send.c of 6.1 and 6.12 passes qp->src_port, which rxe_qp.c draws from the QPN; the
    # handle's flow label is copied to IPv6's header alone.
    VENDOR_RXE: Steering.QUEUE_PAIR,
}


def steering_of(vendor_id: int) -> Steering:
    """Return what decides the source port on a device.

    Flow labels where nothing else is known: mlx5, irdma, bnxt_re, hns and erdma follow
    `rdma_flow_label_to_udp_sport`, and a device that does not merely sends all flows one way.
    """
    return _BY_VENDOR.get(vendor_id, Steering.FLOW_LABEL)


def port_label(port: int) -> int:
    """Return a flow label whose source port is `port`, which is at least PORT_BASE.

    The port has the low 14 bits of the label, folded with the next 6
    (rdma_flow_label_to_udp_sport, include/rdma/ib_verbs.h). Label 0 lets the device choose, so
    that PORT_BASE itself is named by a label that folds to 0.
    """
    return port & 0x3FFF or 0x4001


def queue_port(qpn: int) -> int:
    """Return the source port of a Soft-RoCE queue pair: 0xC000 + hash_32(qpn, 14)."""
    return PORT_BASE + ((qpn * _GOLDEN_RATIO_32 & 0xFFFFFFFF) >> 18)


def flow_ports(name: str, flows: int) -> tuple[int, ...]:
    """Return `flows` distinct source ports, the same ones each time for the same `name`.

    Drawn like ephemeral ports, so that two endpoints' flows rarely share all their paths.
    """
    ports: dict[int, None] = {}
    draw = 0
    while len(ports) < flows:
        ports[PORT_BASE | crc32(f"{name}/{draw}".encode()) & 0x3FFF] = None
        draw += 1
    return tuple(ports)
