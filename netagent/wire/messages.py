# SPDX-License-Identifier: Apache-2.0
"""Messages between agent and analyzer, both ways.

Bodies are msgpack or JSON by content type. Columns (U8 … F32) are little-endian arrays packed as
bytes (base64 text in JSON), see `netagent.wire.columns`; all must agree on the row count.
"""

import zlib
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from netagent.model.endpoint import Endpoint
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId
from netagent.wire.columns import F32, N16, N32, U8, U16, U64
from netagent.wire.controller import ControllerState
from netagent.wire.inventory import Inventory
from netagent.wire.operators import OperatorColumns
from netagent.wire.unprobed import Unprobed
from netagent.wire.walk import LocalWalk, Options

SCHEMA = 1
"""Version of every message here; a receiver refuses a higher one. Chosen: the first."""
MAX_TABLE = 1 << 16
"""Most entries of a table that columns of 16 bits name."""
MAX_NAMES = 4_096
"""Most RDMA devices, and counters, of a host. Chosen: a driver has some hundred counters."""


class FlowColumns(Struct, frozen=True, kw_only=True):
    """One row per flow (source, target, UDP source port) that was probed in the window.

    The rows are counted by `source_port`, those of the histogram by the sum of `hist_len`.
    """

    source: N16 = b""
    """Row of the summary's endpoint table."""
    target: N16 = b""
    """Row of the endpoint table."""
    source_port: U16 = b""
    """UDP source port of its probes."""
    sent: N32 = b""
    """Probes that settled in the window; sent = lost + refused + answered."""
    lost: N32 = b""
    """No answer within the timeout."""
    refused: N32 = b""
    """ICMP said that the path is fine but nothing listens: no responder, no dead path."""
    sent_large: N32 = b""
    """Probes of the largest size among `sent`."""
    lost_large: N32 = b""
    """Probes of the largest size among `lost`."""
    run: N16 = b""
    """Losses in a row at the end of the window, counted across windows."""
    run_ms: N32 = b""
    """Milliseconds from the send time of the first to that of the last loss of that run."""
    count: N32 = b""
    """Round trips measured (four timestamps complete)."""
    min_ns: N32 = b""
    """Network round trip, as `netagent.wire.rounding` has times; 0 where count is 0."""
    max_ns: N32 = b""
    """Network round trip, as min_ns."""
    mean_ln: F32 = b""
    """Mean of ln(network round trip in ns); 0 where count is two or less: it follows from the
    extremes."""
    var_ln: F32 = b""
    """Population variance of the same, as mean_ln."""
    prober_ns: N32 = b""
    """Mean time the prober's host spent (user space to wire and back)."""
    responder_ns: N32 = b""
    """Mean time the responder's host held the probe."""
    hist_len: N16 = b""
    """How many (bucket, count) pairs of the histogram below belong to the row; 0 where count is two
    or less."""
    hist_bucket: N16 = b""
    """See `netagent.wire.histogram`; not one per row."""
    hist_count: N32 = b""
    """Parallel to hist_bucket."""


class PathColumns(Struct, frozen=True, kw_only=True):
    """One row per direction of a flow whose outer path this host traced recently.

    Once in a minute that are all; in between only those that are new or differ.
    """

    source: U16 = b""
    """Endpoint row of the prober."""
    target: U16 = b""
    """Endpoint row of the prober's target."""
    source_port: U16 = b""
    """The prober's UDP source port."""
    reply: U8 = b""
    """0 the probe's way, 1 the reply's way (traced by the target's host)."""
    outer_port: U16 = b""
    """UDP source port of the outer header, as seen on the uplink."""
    route: U16 = b""
    """Row of `routes`."""
    routes: Annotated[tuple[tuple[str, ...], ...], Meta(max_length=MAX_TABLE)] = ()
    """Addresses the routers answered with, nearest first; "" where one kept silent."""
    whole_ns: int = 0
    """Start of the window whose summary had all of the paths from which these differ; 0 where
    these are all."""


class CounterColumns(Struct, frozen=True, kw_only=True):
    """One row per counter of an RDMA device that grew in the window."""

    device: U16 = b""
    """Row of `devices`."""
    counter: U16 = b""
    """Row of `counters`."""
    delta: U64 = b""
    """Growth in the driver's own unit (``port_*_data``: 4 bytes); never 0."""
    devices: Annotated[tuple[str, ...], Meta(max_length=MAX_NAMES)] = ()
    counters: Annotated[tuple[str, ...], Meta(max_length=MAX_NAMES)] = ()
    """Names as in sysfs."""
    omitted: int = 0
    """Rows left out, the least important ones, because they were too many."""


UNKNOWN_BYTES = 0xFFFF_FFFF_FFFF_FFFF
"""Value of a traffic series where the bytes are not known. Chosen: no counter reaches 2^64 - 1."""


class TrafficBlock(Struct, frozen=True, kw_only=True):
    """What endpoints sent in successive ticks; a matrix of endpoints and ticks."""

    start_ns: int
    """Start of the first tick, by the host's clock; a multiple of `tick_ns`. Ticks end in the
    window that brings them or, the last one, just before it."""
    tick_ns: int
    endpoint: U16 = b""
    """Row of the summary's endpoint table."""
    sent: U64 = b""
    """Bytes, an endpoint's ticks one after the other; UNKNOWN_BYTES for a gap."""


class ClockOffset(Struct, frozen=True, kw_only=True):
    """What to add to the host's wall clock for the analyzer's."""

    offset_ns: int
    error_ns: int
    """Nanoseconds, at most, by which `offset_ns` is off."""


class Health(Struct, frozen=True, kw_only=True):
    """What the agent says about itself for the window; counters are of the window."""

    sent: int = 0
    """Probes sent."""
    answered: int = 0
    """Others' probes answered."""
    unanswered: int = 0
    """Others' probes not answered: they came faster than the cap on replies."""
    delayed: int = 0
    """Probes the agent itself sent more than 10 ms late."""
    capped: int = 0
    """Probes the rate caps suppressed."""
    send_errors: int = 0
    """Probes the local kernel refused to send; never counted as lost."""
    pending: int = 0
    """Probes not sent, because the target's link-layer address was still being asked for, or not
    answered before a target's first answer, because ours was."""
    bad_frames: int = 0
    queue_us: int = 0
    """Longest time a probe waited in the responder's process before it was answered."""
    spool_dropped: int = 0
    """Summaries thrown away because the spool was full, since the agent started."""
    cpu_ms: int = 0
    """CPU that the agent used in the window, and the processes that it started."""
    rss_kb: int = 0
    """Resident memory of the agent's own process."""
    stalled_ms: int = 0
    """Longest time the agent's loop stood still, in the window or beyond its end: while it does,
    nobody answers probes."""
    clock_steps: int = 0
    """Times the wall clock jumped against the monotonic clock."""
    shed: int = 0
    """What is left undone near the agent's limits: 1 traces, 2 also walks, 3 also rare targets."""


SummaryKey = tuple[str, int, int]
"""Host, start of the window (ns), and CRC-32 of the instance: a host has few of these."""


class SummaryHead(Struct, frozen=True, kw_only=True):
    """A summary without what it says of flows: who sends it, what it says of itself."""

    schema: int = SCHEMA
    host: str
    instance: str
    """Random, new at each start of the agent, and another one each time its clock went back."""
    start_ns: int
    width_ns: int
    endpoints: Annotated[tuple[EndpointId, ...], Meta(max_length=MAX_TABLE)] = ()
    """The table that the columns index; other hosts' endpoints included."""
    stamps: U8 = b""
    """One per row of `endpoints`: who takes t2 and t5 of its probes (`probing.session.Stamps`);
    255 for an endpoint of another host."""
    counters: CounterColumns = field(default_factory=CounterColumns)
    traffic: tuple[TrafficBlock, ...] = ()
    clock: ClockOffset | None = None
    """None: not compared yet."""
    inventory: Inventory | None = None
    """What the host and its RNICs are; None: nothing new since it was last said, once a minute."""
    controller: ControllerState | None = None
    """The host's part of a controller, as `inventory`; None also where none drives its virtual
    switch."""
    unprobed: Unprobed | None = None
    """What of the host's virtual switch is no endpoint, as `inventory`; older agents never say."""
    operators: OperatorColumns | None = None
    """What training jobs of the host communicated; None where nobody records it."""
    health: Health = field(default_factory=Health)

    @property
    def key(self) -> SummaryKey:
        """By what it is known: a second one of the same key is a duplicate."""
        return self.host, self.start_ns, zlib.crc32(self.instance.encode())


class Summary(SummaryHead, frozen=True, kw_only=True):
    """All that leaves a host for one window."""

    flows: FlowColumns = field(default_factory=FlowColumns)
    paths: PathColumns = field(default_factory=PathColumns)
    findings: tuple[Finding, ...] = ()
    """All that held at some time in the window."""


class SampleRequest(Struct, frozen=True, kw_only=True):
    """Sample traffic in finer ticks for a while; asking again prolongs it."""

    tick_ms: int
    seconds: float


class Accepted(Struct, frozen=True, kw_only=True):
    """The summary is on disk."""

    duplicate: bool = False
    received_ns: int = 0
    """When the request came in, by the analyzer's clock; 0: the analyzer does not say."""
    replied_ns: int = 0
    """When the analyzer answered, by its clock."""
    sample: SampleRequest | None = None
    """What the analyzer asks of the host besides: here it needs no connection of its own."""


class Registration(Struct, frozen=True, kw_only=True):
    """All endpoints of a host, whole: idempotent; what is missing is deregistered."""

    schema: int = SCHEMA
    host: str
    instance: str
    generation: int
    """Grows with each change within one instance; an older one is answered, not applied."""
    rpc_url: str
    """Where the analyzer reaches this agent."""
    endpoints: tuple[Endpoint, ...] = ()


class Peer(Struct, frozen=True, kw_only=True):
    """An agent that shares a task with the one that registers."""

    host: str
    rpc_url: str


class Registered(Struct, frozen=True, kw_only=True):
    """The registration was taken."""

    sources: int
    """Names the host's endpoints that may be probed now (`wire.roster.named`): an agent that
    follows others has not heard yet of what it registered."""


class Announcement(Struct, frozen=True, kw_only=True):
    """All endpoints of a host, sent to another agent after the analyzer took them. Idempotent."""

    schema: int = SCHEMA
    host: str
    instance: str
    generation: int
    endpoints: tuple[Endpoint, ...] = ()


# --- agent RPC ------------------------------------------------------------------------------


class Status(Struct, frozen=True, kw_only=True):
    """Who the agent is and what it does."""

    host: str
    instance: str
    version: str
    endpoints: tuple[Endpoint, ...]
    pinglist_version: int
    targets: int
    last_window_ns: int
    """Start of the newest window closed."""
    acknowledged_ns: int = 0
    """Start of the newest window that the analyzer has on disk."""
    health: Health
    findings: tuple[Finding, ...] = ()
    tick_ms: int = 0
    """Milliseconds per tick of the traffic series, now."""
    clock: ClockOffset | None = None
    wall_ns: int = 0
    """The host's wall clock as it answers; 0: an older agent does not tell."""
    controller: ControllerState | None = None
    """None where none drives the host's virtual switch."""
    unprobed: Unprobed | None = None
    """None: an older agent does not tell."""


Protocol = Literal["udp", "tcp", "icmp"]
Connection = Literal["", "new connection", "reply"]


class Service(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one endpoint asks another for: a connection, of which first packet and reply are walked.

    Of ICMP these are an echo request and its reply, without ports.
    """

    protocol: Protocol = "udp"
    port: Annotated[int, Meta(ge=0, le=0xFFFF)] = 0
    """Destination port."""
    source_port: Annotated[int, Meta(ge=0, le=0xFFFF)] = 40000
    address: Annotated[str, Meta(max_length=64)] = ""
    """Where the source sends to, where that is not the target's own: a load balancer's."""


class EgressQuestion(Struct, frozen=True, kw_only=True, tag="egress"):
    """Ask where this host's vSwitch takes a probe from a local endpoint."""

    source: EndpointId
    target_address: str
    target_mac: str
    source_port: int = 40000
    destination_port: int = 18515
    protocol: Protocol = "udp"
    """Older agents, which do not know it, walk UDP."""
    connection: Connection = ""
    """Of which packet of a connection it is, as far as connection tracking tells; "": of any."""
    next_hop: str = ""
    """Hardware address of the router behind which the target is for the source, as its host's agent
    finds it; "": none is between them."""
    untold: str = ""
    """Why the agent cannot tell it."""


class IngressQuestion(Struct, frozen=True, kw_only=True, tag="ingress"):
    """Ask where this host's vSwitch takes a packet that came out of a tunnel."""

    rail: int
    tun_src: str
    tun_dst: str
    tun_id: int
    options: Options = ""
    """Geneve's, as the datapath prints them; older agents pass them over."""
    source_address: str
    source_mac: str
    target_address: str
    target_mac: str
    source_port: int = 40000
    destination_port: int = 18515
    protocol: Protocol = "udp"
    """Older agents, which do not know it, walk UDP."""
    connection: Connection = ""
    """Of which packet of a connection it is, as far as connection tracking tells; "": of any."""


class CheckRequest(Struct, frozen=True, kw_only=True):
    """Questions answered over one snapshot of the host's flow tables."""

    questions: tuple[EgressQuestion | IngressQuestion, ...]


class CheckReply(Struct, frozen=True, kw_only=True):
    """A walk per question, in the order of the questions."""

    walks: tuple[LocalWalk, ...]
    wall_ns: int
    """When the snapshot was taken."""


class PathRequest(Struct, frozen=True, kw_only=True):
    """Ask for the outer paths from `source` to `target`, and where on them packets are lost."""

    source: EndpointId
    target: EndpointId
    source_port: int = 0
    """UDP source port of one flow; 0: every flow of the pair."""
    count: int = 0
    """Packets to send now to each router of the path; 0: answer with what is known already."""
    size: int = 64
    """Bytes of the outer IP packet, for `count`."""
    ways: int = 0
    """Distinct ways, at most, to find and count on with outer source ports of the host's own; 0:
    the ways of the pair's flows. It needs no outer header to be seen."""
    over_ms: int = 0
    """Milliseconds over which to count on the `ways`, so that what comes and goes is met; 0: as
    fast as the host may send."""


class PathAnswer(Struct, frozen=True, kw_only=True):
    """A flow's outer path, or one of the ways that were asked for."""

    source_port: int
    """0: of no flow, but of the host's own packets."""
    outer_port: int | None
    """None: not seen on the uplink, so nothing could be traced."""
    hops: tuple[str, ...] = ()
    """Routers of the latest trace, or, where counted, those that answered; "" for silence."""
    sent: int = 0
    """Packets sent to each router."""
    answered: tuple[int, ...] = ()
    """How many reached each router, nearest first: its own answers, or a farther router's."""
    rtt_ns: tuple[int, ...] = ()
    """Median round trip to each router; 0 where none answered."""


class PathReply(Struct, frozen=True, kw_only=True):
    """A row per source port, or per way."""

    paths: tuple[PathAnswer, ...]


class ProbeRequest(Struct, frozen=True, kw_only=True):
    """Probe `target` from `source` now, within the caps."""

    source: EndpointId
    target: EndpointId
    count: int = 10
    address: str | None = None
    """Overlay address, for a target that is not on the ping list."""


class ProbeAnswer(Struct, frozen=True, kw_only=True):
    """A probe of the burst."""

    source_port: int
    size: int
    outcome: str
    """`replied`, `lost`, `refused` or `failed`."""
    network_ns: int | None = None
    prober_ns: int | None = None
    responder_ns: int | None = None


class ProbeReply(Struct, frozen=True, kw_only=True):
    """A row per probe sent."""

    probes: tuple[ProbeAnswer, ...]


class Announced(Struct, frozen=True, kw_only=True):
    """An announcement was taken."""

    news: bool
    """False: a later one came before."""


class FlowsReply(Struct, frozen=True, kw_only=True):
    """Flows as dumped, with cookie and counters."""

    bridge: str
    wall_ns: int
    flows: tuple[str, ...]
