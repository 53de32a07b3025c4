# SPDX-License-Identifier: Apache-2.0
"""A packet's way through one host, as the host sends it.

The fields are those of `ovs_checks.walk.values` and `ovs_checks.translate.ends`, which say what
each means; `netagent.wire.conversion` goes from one to the other. Fields of a newer version are
passed over.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from netagent.model.walk import EndKind, OpinionKind

MAX_INTEGER = (1 << 64) - 1
"""The largest number: cookies and tunnel keys have 64 bits (OpenFlow 1.5.1). msgspec's own bounds
have 63 at most, so each Struct checks this one itself."""

Integer = Annotated[int, Meta(ge=-1)]
"""-1 stands for no table."""

MAX_STEPS = 100_000
"""Most steps of a walk. Chosen: Open vSwitch looks 4,096 times into tables, of which
each may print several lines; more are refused before they are decoded."""

Options = Annotated[str, Meta(max_length=4096)]
"""Geneve's options as the datapath prints them; 252 bytes of them (RFC 8926) take no more."""


Reason = Annotated[str, Meta(max_length=1 << 16)]
"""Why a packet ends there. Chosen: it becomes an incident's sentence, and what agents say is far
shorter."""


def _bounded(*values: int | None) -> None:
    if any(value is not None and value > MAX_INTEGER for value in values):
        raise ValueError("integer of 64 bits expected")


class Quote(Struct, frozen=True, kw_only=True):
    """A flow, quoted as evidence."""

    bridge: str
    table: Integer
    priority: Integer
    cookie: Integer
    n_packets: Integer | None = None
    n_bytes: Integer | None = None
    text: str

    def __post_init__(self) -> None:
        _bounded(self.table, self.priority, self.cookie, self.n_packets, self.n_bytes)


class End(Struct, frozen=True, kw_only=True):
    """What became of one copy of the packet. A quote that there is not is left out."""

    header: str = "in_port=0"
    """The packet as it was there, in the flow syntax that `ofproto/trace` takes."""
    kind: EndKind
    bridge: str
    table: Integer
    reason: Reason
    port: str = ""
    flow: Quote | UnsetType = UNSET
    nearest: Quote | UnsetType = UNSET
    field: str = ""
    cycle: tuple[Quote, ...] = ()
    tun_id: Integer = 0
    tun_src: str = ""
    tun_dst: str = ""
    options: Options = ""
    tun_id_by: Quote | UnsetType = UNSET
    tun_dst_by: Quote | UnsetType = UNSET
    eth_dst_by: Quote | UnsetType = UNSET
    nw_dst_by: Quote | UnsetType = UNSET
    case: str = ""
    shadowed: Quote | UnsetType = UNSET

    def __post_init__(self) -> None:
        _bounded(self.table, self.tun_id)


class Step(Struct, frozen=True, array_like=True):
    """One line of the tree that shows a walk to humans."""

    level: Integer
    where: str
    text: str

    def __post_init__(self) -> None:
        _bounded(self.level)


class Opinion(Struct, frozen=True, kw_only=True):
    """What Open vSwitch itself says of the packet."""

    kind: OpinionKind
    ours: str
    theirs: str


class LocalWalk(Struct, frozen=True, kw_only=True):
    """A packet's way through one host: how every copy ended, and the steps for humans."""

    host: str
    bridge: str
    port: str
    ends: Annotated[tuple[End, ...], Meta(min_length=1)]
    steps: Annotated[tuple[Step, ...], Meta(max_length=MAX_STEPS)]
    opinion: Opinion | None = None
