# SPDX-License-Identifier: Apache-2.0
"""What a flow does to a packet, one value per action; see ovs-actions(7). Read by `action_text`."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Action:
    """Anything a flow can do."""

    text: str = field(default="", compare=False, kw_only=True)
    """The action as dumped."""


@dataclass(frozen=True, slots=True)
class Unknown(Action):
    """A match field or an action that is not understood: kept, reported, never skipped silently."""

    column: int = 0
    """1-based, in the line it was found in."""

    text: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Subfield:
    """`width` bits of a field from bit `start` up, as in `reg0[3..8]`."""

    field: str
    start: int
    width: int


# --- where to ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToPort(Action):
    """Send to an OpenFlow port, reserved ones (`notation.SPECIAL_PORTS`) included."""

    port: int
    max_len: int = 0
    """Bytes of the packet that the controller gets, where the port is the controller."""


@dataclass(frozen=True, slots=True)
class ToField(Action):
    """Send to the port whose number a field holds."""

    source: Subfield
    max_len: int = 0


@dataclass(frozen=True, slots=True)
class ToPortTruncated(Action):
    """Send the first `max_len` bytes to a port."""

    port: int
    max_len: int


@dataclass(frozen=True, slots=True)
class ToController(Action):
    """Send to controllers, with arguments (`controller(...)`)."""

    max_len: int = 0xFFFF
    reason: int = 1
    """`enum ofp_packet_in_reason`; 1 is "an action said so"."""

    controller_id: int = 0
    pause: bool = False
    """Whether the pipeline waits for the controller to let it go on."""

    userdata: bytes = b""
    meter_id: int | None = None


@dataclass(frozen=True, slots=True)
class Enqueue(Action):
    """Send to a port by one of its queues."""

    port: int
    queue: int


@dataclass(frozen=True, slots=True)
class ToGroup(Action):
    """Hand over to a group of the bridge."""

    group: int


@dataclass(frozen=True, slots=True)
class Resubmit(Action):
    """Look the packet up again as if it had come in by `port`; None: as it is, in this table."""

    port: int | None = None
    table: int | None = None
    conntrack: bool = False
    """Look up with the original tuple of the packet's connection."""


@dataclass(frozen=True, slots=True)
class Goto(Action):
    """Go on in a later table, which may miss as the first may."""

    table: int


# --- what the packet becomes ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write(Action):
    """Set the bits of `field` in `mask`: set_field, load, and most mod_ and set_ actions."""

    field: str
    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class WriteTag(Action):
    """Set VLAN number or priority; without a tag, make one or do nothing."""

    part: Literal["vid", "pcp"]
    value: int
    make: bool
    """OpenFlow 1.0's `mod_vlan_vid` makes a tag, 1.1's `set_vlan_vid` does not."""


@dataclass(frozen=True, slots=True)
class WritePort(Action):
    """Set a port of TCP, UDP or SCTP, whichever it is."""

    field: Literal["tp_src", "tp_dst"]
    value: int


@dataclass(frozen=True, slots=True)
class WriteMetadata(Action):
    """Set bits of the pipeline's metadata, as an instruction."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class SetTunnel(Action):
    """Set the key of the tunnel that the packet is going to be sent by."""

    value: int


@dataclass(frozen=True, slots=True)
class Move(Action):
    """Copy bits between fields."""

    source: Subfield
    target: Subfield


@dataclass(frozen=True, slots=True)
class Push(Action):
    """Put bits of a field on the packet's stack."""

    source: Subfield


@dataclass(frozen=True, slots=True)
class Pop(Action):
    """Take bits of a field from the packet's stack."""

    target: Subfield


@dataclass(frozen=True, slots=True)
class PushVlan(Action):
    """Add a VLAN tag."""

    ethertype: int


@dataclass(frozen=True, slots=True)
class PushMpls(Action):
    """Add an MPLS label."""

    ethertype: int


@dataclass(frozen=True, slots=True)
class PopMpls(Action):
    """Remove an MPLS label; what is below is of type `ethertype`."""

    ethertype: int


@dataclass(frozen=True, slots=True)
class WriteMpls(Action):
    """Set a part of the outermost MPLS label."""

    part: Literal["label", "tc", "ttl"]
    value: int


@dataclass(frozen=True, slots=True)
class DecTtl(Action):
    """Decrement the packet's time to live; notify these controllers when none is left."""

    controllers: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class SetQueue(Action):
    """Choose the queue of whatever port the packet leaves by."""

    queue: int


@dataclass(frozen=True, slots=True)
class DeleteField(Action):
    """Forget a tunnel option."""

    field: str


# --- what decides --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Multipath(Action):
    """Write the number of one of `links` links, chosen by a hash, into a field."""

    fields: str
    basis: int
    algorithm: str
    links: int
    argument: int
    target: Subfield


@dataclass(frozen=True, slots=True)
class Members(Action):
    """Choose a live port of several (`bundle`, `bundle_load`)."""

    fields: str
    basis: int
    algorithm: str
    ports: tuple[int, ...]
    target: Subfield | None = None
    """The field that gets the number of the chosen port; None: send the packet to that port."""


@dataclass(frozen=True, slots=True)
class CheckPacketLarger(Action):
    """Write into one bit whether the packet is longer than `length` bytes."""

    length: int
    target: Subfield


@dataclass(frozen=True, slots=True)
class LearnSpec:
    """A field of the flow that `learn` makes."""

    source: Subfield | None
    """None where the flow gets the constant `value`."""

    value: int
    kind: Literal["match", "load", "output"]
    target: Subfield | None


@dataclass(frozen=True, slots=True)
class Learn(Action):
    """Make a flow; as dumped: a snapshot is not changed by the questions asked of it."""

    specs: tuple[LearnSpec, ...] = ()
    result: Subfield | None = None


@dataclass(frozen=True, slots=True)
class Conjunction(Action):
    """Be the `clause`-th of `clauses` conditions of conjunctive match `id`."""

    id: int
    clause: int
    clauses: int


@dataclass(frozen=True, slots=True)
class Nat(Action):
    """Translate addresses, within `ct`."""

    kind: Literal["", "src", "dst"] = ""
    low: int | None = None
    high: int | None = None
    """Addresses; None where the connection's own are used, or there is one only."""

    v6: bool = False
    port_low: int = 0
    port_high: int = 0
    flags: tuple[str, ...] = ()
    """`persistent`, `hash`, `random`."""


@dataclass(frozen=True, slots=True)
class Ct(Action):
    """Ask connection tracking; go on in `table` with what it says, if given."""

    zone: int | Subfield = 0
    commit: bool = False
    force: bool = False
    table: int | None = None
    alg: str = ""
    inner: tuple[Action, ...] = ()
    """What is written to the connection (`exec`), and `nat`, in the order dumped."""


@dataclass(frozen=True, slots=True)
class Clone(Action):
    """Do something to a copy."""

    inner: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class WriteActions(Action):
    """Add to the actions that are done when the pipeline ends."""

    inner: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Meter(Action):
    """Pass a meter."""

    meter: int


@dataclass(frozen=True, slots=True)
class Sample(Action):
    """Show some packets to a collector."""

    probability: int
    collector_set_id: int = 0
    obs_domain_id: int = 0
    obs_point_id: int = 0
    sampling_port: int = 0xFFFF
    direction: Literal["", "ingress", "egress"] = ""


Verb = Literal[
    "drop",
    "pop_vlan",
    "pop_queue",
    "dec_mpls_ttl",
    "ct_clear",
    "clear_actions",
    "exit",
    "note",
    "fin_timeout",
    "debug_recirc",
    "debug_slow",
    "unroll",
]


@dataclass(frozen=True, slots=True)
class Plain(Action):
    """An action without arguments that matter here."""

    verb: Verb
