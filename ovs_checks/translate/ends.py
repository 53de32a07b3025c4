# SPDX-License-Identifier: Apache-2.0
"""How a copy of a packet ended, and the flows that are quoted for it."""

from dataclasses import dataclass

from netagent.model.walk import EndKind
from ovs_checks.openflow.flow import Flow
from ovs_checks.openflow.packet import Header

_NO_HEADER = Header()


@dataclass(frozen=True, slots=True)
class Quote:
    """A flow, quoted as evidence."""

    bridge: str
    table: int
    priority: int
    cookie: int
    n_packets: int | None
    n_bytes: int | None
    text: str

    @classmethod
    def of(cls, bridge: str, flow: Flow) -> "Quote":
        """Quote `flow` of `bridge`."""
        counters = (flow.n_packets, flow.n_bytes)
        return cls(bridge, flow.table, flow.priority, flow.cookie, *counters, flow.text)

    @property
    def place(self) -> str:
        """Where the flow is: `br-int/table=40`."""
        return f"{self.bridge}/table={self.table}"


@dataclass(frozen=True, slots=True)
class End:
    """What became of one copy of the packet."""

    kind: EndKind
    bridge: str
    table: int
    reason: str
    """A sentence for humans."""

    header: Header = _NO_HEADER
    """The packet as it was there."""

    port: str = ""
    """`output`, `tunnelled`: the port it left by."""

    flow: Quote | None = None
    """The flow that did it; None for a miss."""

    nearest: Quote | None = None
    """`missed`, or dropped by a table's default flow: the flow that came nearest to matching."""

    field: str = ""
    """The fields in which the nearest flow differs, comma-separated."""

    cycle: tuple[Quote, ...] = ()
    """`loop`: the flows that lead back to the first of them."""

    tun_id: int = 0
    tun_src: str = ""
    tun_dst: str = ""
    """`tunnelled`: the encapsulation. Addresses are text, empty if routing chooses."""

    options: str = ""
    """`tunnelled`: Geneve's options, as the datapath prints them: the far end's tables match on
    these. OVN has a packet's logical ports there (ovn-architecture(7), "Tunnel Encapsulations")."""

    tun_id_by: Quote | None = None
    tun_dst_by: Quote | None = None
    """`tunnelled`: the flow that the value comes from; None for the tunnel port's own settings."""

    case: str = ""
    """What is assumed of state that no snapshot holds; empty if nothing is, or nothing depends."""

    shadowed: Quote | None = None
    """The flow that would have matched, and never does: `flow` matches all that it does."""

    eth_dst_by: Quote | None = None
    """`output`, `tunnelled`: the flow that wrote the destination's hardware address, if one did."""

    nw_dst_by: Quote | None = None
    """The same of its IP address, of whichever family the packet is."""
