# SPDX-License-Identifier: Apache-2.0
"""A trace of the virtual switch, asked of a host and answered by it."""

from typing import Literal

from msgspec import Struct

Kind = Literal["drops", "latency", "upcalls", "path"]


class TraceCaps(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much a trace may take; None: the host's own default. Larger ones are refused."""

    journeys: int | None = None
    """Packets followed at one time."""
    journeys_per_s: int | None = None
    events_per_s: int | None = None
    rows: int | None = None
    """Entries of each kernel map."""
    ring_pages: int | None = None
    """Pages of the ring buffer, a power of two."""


class TraceRequest(Struct, frozen=True, kw_only=True):
    """Count packets of `flow` at each stage of the virtual switch for some time."""

    kind: Kind
    flow: str
    """The flow inside of the tunnel, as Open vSwitch has it: `udp,nw_dst=10.0.0.12,tun_id=100`."""
    duration_s: float = 5.0
    netns: int = 0
    """Inode of the network namespace that holds the switch; 0: the agent's own."""
    uplink: str = ""
    """Name of the only device whose encapsulated packets count; empty: any."""
    caps: TraceCaps = TraceCaps()
    tunnel: str = ""
    """``vxlan`` or ``geneve``; by RPC the host's own tunnels count, whatever is asked."""
    tunnel_port: int = 0
    """UDP destination port of the tunnels; 0: their kind's own."""


class StageRow(Struct, frozen=True, kw_only=True):
    """What passed one stage; stages that were not counted have no row."""

    stage: str
    packets: int
    bytes: int
    repeats: int = 0
    """Further passes of packets already counted: recirculation, a bond's slave."""
    foreign: int = 0
    """Packets of the flow with another VNI than asked for, not in `packets`."""
    samples: int = 0
    """Packets whose time since the stage before is known."""
    p50_ns: int | None = None
    p99_ns: int | None = None
    buckets: tuple[tuple[int, int], ...] = ()
    """(bucket, packets): four buckets per power of two nanoseconds; see bpf.trace.histogram."""


class PortRow(Struct, frozen=True, kw_only=True):
    """Packets by stage, device and VNI."""

    stage: str
    device: str
    vni: int
    """0: none, or not known yet at that stage."""
    packets: int


class DropRow(Struct, frozen=True, kw_only=True):
    """Packets that were dropped."""

    reason: str
    location: str
    """Kernel function and offset."""
    after: str
    """Last stage passed; empty if the packet was not followed."""
    device: str
    packets: int


class UpcallRow(Struct, frozen=True, kw_only=True):
    """Packets handed to ovs-vswitchd, or not."""

    command: str
    """`miss`: no flow; `action`: a flow says so."""
    result: str
    """`ok` or the error's name: EAGAIN and ENOBUFS are a full queue, ENOTCONN is no listener."""
    packets: int


class OuterRow(Struct, frozen=True, kw_only=True):
    """The outer header that carried an inner flow."""

    flow: str
    source: str
    target: str
    source_port: int
    """UDP, what the fabric spreads flows by."""
    vni: int
    transmitted: bool
    """By this host; else received."""
    packets: int


class RoceRow(Struct, frozen=True, kw_only=True):
    """RoCE (UDP 4791) that passed the kernel and not the RNIC, of any flow."""

    device: str
    transmitted: bool
    encapsulated: bool
    packets: int


class Hop(Struct, frozen=True, kw_only=True):
    """A followed packet at one stage; `dropped` is the last one of a packet that was."""

    stage: str
    device: str
    vni: int
    outer_port: int
    after_ns: int
    """Since the packet's first stage."""
    reason: str = ""
    location: str = ""


class Journey(Struct, frozen=True, kw_only=True):
    """A packet's way."""

    flow: str
    hops: tuple[Hop, ...]


class MissingProgram(Struct, frozen=True, kw_only=True):
    """A program that this host cannot run."""

    program: str
    reason: str
    remedy: str


class TraceReply(Struct, frozen=True, kw_only=True):
    """What a host saw."""

    kind: Kind
    flow: str
    netns: int
    lasted_ns: int
    stages: tuple[StageRow, ...] = ()
    ports: tuple[PortRow, ...] = ()
    drops: tuple[DropRow, ...] = ()
    upcalls: tuple[UpcallRow, ...] = ()
    outers: tuple[OuterRow, ...] = ()
    roce: tuple[RoceRow, ...] = ()
    journeys: tuple[Journey, ...] = ()
    lost: dict[str, int] = {}
    """What the programs missed or did not report, by cause; all zero if nothing."""
    missing: tuple[MissingProgram, ...] = ()
    notes: tuple[str, ...] = ()
