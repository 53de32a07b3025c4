# SPDX-License-Identifier: Apache-2.0
"""Whether the copies of one host's flow tables agree for one pair of endpoints, asked and answered.

The copies are OpenFlow's tables, the datapath's flows, and the filters of tc and of the RNIC.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from netagent.model.ids import EndpointId
from netagent.model.path import Component

MAX_FINDINGS = 16
"""Findings of one answer. Chosen: what an operator reads."""
MAX_QUOTES = 4
"""Quotes of one finding. Chosen: the tables, the datapath, and a filter or two."""
MAX_TEXT = 2000
"""Characters of each text. Chosen: a flow with its masks and actions fits; a whole answer stays
below 200 kB."""
MAX_UNREAD = 8
"""Reasons why something was not read. Chosen: the first ones tell what to mend."""

Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Count = Annotated[int, Meta(ge=0, le=1 << 31)]
Port = Annotated[int, Meta(ge=0, le=0xFFFF)]


class ValidateRequest(Struct, frozen=True, kw_only=True):
    """Ask what is inconsistent for the packets between an endpoint of the host and another."""

    local: EndpointId
    """The end on the host that is asked."""
    remote_address: Text
    """Overlay address of the other end."""
    remote_mac: Text
    local_underlay: Text = ""
    """The ends' addresses of the tunnel; empty where there is none."""
    remote_underlay: Text = ""
    source_port: Port = 40000
    """Of the packet that is carried through the tables, and only there."""
    destination_port: Port = 18515


class Quoted(Struct, frozen=True, kw_only=True):
    """An entry as dumped: `intent` is OpenFlow's, `datapath`, `hardware` is tc's."""

    what: Text
    entry: Text


class Inconsistency(Struct, frozen=True, kw_only=True):
    """What a check found (`netagent flows layers`, `netagent flows lint`)."""

    check: Text
    """Name of the check: `stale-megaflow`. A later version may know more."""
    severity: Literal["warning", "note"]
    """A warning is likely to cost packets; what one look cannot settle is a note."""
    component: Component
    """A flow table, a tunnel or the virtual switch of the host."""
    text: Text
    quotes: Annotated[tuple[Quoted, ...], Meta(max_length=MAX_QUOTES)] = ()


class ValidateReply(Struct, frozen=True, kw_only=True):
    """What was compared, what differs, and what could not be read."""

    host: Text
    wall_ns: int
    """When the tables were read."""
    looks: Count
    """How often the datapath was read: a warning was seen each time."""
    flows: Count
    """Flows of the datapath that these packets match."""
    judged: Count
    """Those of them that could be held against the tables."""
    in_hardware: Count
    """Those of them that Open vSwitch takes for offloaded."""
    findings: Annotated[tuple[Inconsistency, ...], Meta(max_length=MAX_FINDINGS)] = ()
    """Warnings first."""
    omitted: Count = 0
    """Findings beyond `MAX_FINDINGS`."""
    unread: Annotated[tuple[Text, ...], Meta(max_length=MAX_UNREAD)] = ()
