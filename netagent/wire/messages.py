# SPDX-License-Identifier: Apache-2.0
"""Messages between agent and analyzer, both ways.

Bodies are msgpack or JSON by content type. Columns are little-endian arrays packed as bytes (base64
text in JSON); the row count is the length of the shortest column's array, and all must agree.
"""

from msgspec import Struct, field

from netagent.model.endpoint import Endpoint
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList

SCHEMA = 1
"""Version of every message here; a receiver refuses a higher one."""


class FlowColumns(Struct, frozen=True, kw_only=True):
    """One row per flow (source, target, UDP source port) that was probed in the window."""

    source: bytes = b""
    """u16: row of the summary's endpoint table."""
    target: bytes = b""
    """u16: row of the endpoint table."""
    source_port: bytes = b""
    """u16."""
    sent: bytes = b""
    """u32: probes that settled in the window; sent = lost + refused + answered."""
    lost: bytes = b""
    """u32: no answer within the timeout."""
    refused: bytes = b""
    """u32: ICMP said that the path is fine but nothing listens: no responder, no dead path."""
    sent_large: bytes = b""
    """u32: of `sent`, those of the largest probe size."""
    lost_large: bytes = b""
    """u32: of `lost`, those of the largest probe size."""
    run: bytes = b""
    """u16: losses in a row at the end of the window, counted across windows."""
    run_ms: bytes = b""
    """u32: milliseconds from the send time of the first to that of the last loss of that run."""
    count: bytes = b""
    """u32: round trips measured (four timestamps complete)."""
    min_ns: bytes = b""
    """u32: network round trip; 0 where count is 0."""
    max_ns: bytes = b""
    """u32."""
    mean_ln: bytes = b""
    """f32: mean of ln(network round trip in ns)."""
    var_ln: bytes = b""
    """f32: population variance of the same."""
    prober_ns: bytes = b""
    """u32: mean time the prober's host spent (user space to wire and back)."""
    responder_ns: bytes = b""
    """u32: mean time the responder's host held the probe."""
    hist_len: bytes = b""
    """u16: how many (bucket, count) pairs of the histogram below belong to the row."""
    hist_bucket: bytes = b""
    """u16: see netagent.probing.digest; not one per row."""
    hist_count: bytes = b""
    """u32: parallel to hist_bucket."""


class PathColumns(Struct, frozen=True, kw_only=True):
    """One row per direction of a flow whose outer path this host traced lately."""

    source: bytes = b""
    """u16: endpoint row of the prober."""
    target: bytes = b""
    """u16: endpoint row of the prober's target."""
    source_port: bytes = b""
    """u16: the prober's UDP source port."""
    reply: bytes = b""
    """u8: 0 the probe's way, 1 the reply's way (traced by the target's host)."""
    outer_port: bytes = b""
    """u16: UDP source port of the outer header, as seen on the uplink."""
    route: bytes = b""
    """u16: row of `routes`."""
    routes: tuple[tuple[str, ...], ...] = ()
    """Addresses the routers answered with, nearest first; "" where one kept silent."""


class CounterColumns(Struct, frozen=True, kw_only=True):
    """One row per counter of an RDMA device that grew in the window."""

    device: bytes = b""
    """u16: row of `devices`."""
    counter: bytes = b""
    """u16: row of `counters`."""
    delta: bytes = b""
    """u64, in the driver's own unit (``port_*_data``: 4 bytes); never 0."""
    devices: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    """Names as in sysfs."""
    omitted: int = 0
    """Rows left out, the least important ones, because they were too many."""


UNKNOWN_BYTES = 0xFFFF_FFFF_FFFF_FFFF
"""In a traffic series: not known."""


class TrafficBlock(Struct, frozen=True, kw_only=True):
    """What endpoints sent in successive ticks; a matrix of endpoints and ticks."""

    start_ns: int
    """Of the first tick, by the host's clock; a multiple of `tick_ns`. Ticks end in the window that
    brings them or, the last one, just before it."""
    tick_ns: int
    endpoint: bytes = b""
    """u16: row of the summary's endpoint table."""
    sent: bytes = b""
    """u64: bytes, an endpoint's ticks one after the other; UNKNOWN_BYTES for a gap."""


class ClockOffset(Struct, frozen=True, kw_only=True):
    """What to add to the host's wall clock for the analyzer's."""

    offset_ns: int
    error_ns: int
    """It is off by so much at most."""


class Health(Struct, frozen=True, kw_only=True):
    """What the agent says about itself for the window; counters are of the window."""

    sent: int = 0
    """Probes sent."""
    answered: int = 0
    """Others' probes answered."""
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
    rss_kb: int = 0
    stalled_ms: int = 0
    """Longest time the agent's loop stood still, in the window or beyond its end: while it does,
    nobody answers probes."""
    clock_steps: int = 0
    """Times the wall clock jumped against the monotonic clock."""


class Summary(Struct, frozen=True, kw_only=True):
    """All that leaves a host for one window. The key is (host, start_ns)."""

    schema: int = SCHEMA
    host: str
    instance: str
    """Random, new at each start of the agent."""
    start_ns: int
    width_ns: int
    endpoints: tuple[EndpointId, ...] = ()
    """The table that the columns index; other hosts' endpoints included."""
    stamps: bytes = b""
    """u8 per row of `endpoints`: who takes t2 and t5 of its probes (`probing.session.Stamps`);
    255 for an endpoint of another host."""
    flows: FlowColumns = field(default_factory=FlowColumns)
    paths: PathColumns = field(default_factory=PathColumns)
    counters: CounterColumns = field(default_factory=CounterColumns)
    traffic: tuple[TrafficBlock, ...] = ()
    clock: ClockOffset | None = None
    """None: not compared yet."""
    findings: tuple[Finding, ...] = ()
    """All that held at some time in the window."""
    health: Health = field(default_factory=Health)


class Accepted(Struct, frozen=True, kw_only=True):
    """The summary is on disk."""

    duplicate: bool = False
    received_ns: int = 0
    """When it came in, by the analyzer's clock; 0: it does not say."""
    replied_ns: int = 0
    """When this was answered, by the same clock."""


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
    """Who is already up, as the host's ping list."""

    pinglist: PingList
    peers: tuple[Peer, ...] = ()
    """To whom to announce what is up here: the analyzer does not tell them of every container."""


class Announcement(Struct, frozen=True, kw_only=True):
    """All endpoints of a host, told to another agent after the analyzer took them. Idempotent."""

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
    """Of the traffic series, now."""
    clock: ClockOffset | None = None


class EgressQuestion(Struct, frozen=True, kw_only=True, tag="egress"):
    """Ask where this host's vSwitch takes a probe from a local endpoint."""

    source: EndpointId
    target_address: str
    target_mac: str
    source_port: int = 40000
    destination_port: int = 18515


class IngressQuestion(Struct, frozen=True, kw_only=True, tag="ingress"):
    """Ask where this host's vSwitch takes a packet that came out of a tunnel."""

    rail: int
    tun_src: str
    tun_dst: str
    tun_id: int
    source_address: str
    source_mac: str
    target_address: str
    target_mac: str
    source_port: int = 40000
    destination_port: int = 18515


class CheckRequest(Struct, frozen=True, kw_only=True):
    """Questions answered over one snapshot of the host's flow tables."""

    questions: tuple[EgressQuestion | IngressQuestion, ...]


class CheckReply(Struct, frozen=True, kw_only=True):
    """One `ovs_checks.reach.LocalWalk`, as plain data, per question, in order."""

    walks: tuple[dict[str, object], ...]
    wall_ns: int
    """When the snapshot was taken."""


class PathRequest(Struct, frozen=True, kw_only=True):
    """Ask for the outer paths from `source` to `target`, and where on them packets are lost."""

    source: EndpointId
    target: EndpointId
    source_port: int = 0
    """Of one flow; 0: of every flow of the pair."""
    count: int = 0
    """Packets to send now to each router of the path; 0: tell what is known already."""
    size: int = 64
    """Bytes of the outer IP packet, for `count`."""


class PathAnswer(Struct, frozen=True, kw_only=True):
    """One flow's outer path."""

    source_port: int
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
    """A row per source port."""

    paths: tuple[PathAnswer, ...]


class ProbeRequest(Struct, frozen=True, kw_only=True):
    """Probe `target` from `source` now, within the caps."""

    source: EndpointId
    target: EndpointId
    count: int = 10
    address: str | None = None
    """Overlay address, for a target that is not on the ping list."""


class ProbeAnswer(Struct, frozen=True, kw_only=True):
    """One probe of the burst."""

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


class SampleRequest(Struct, frozen=True, kw_only=True):
    """Sample traffic in finer ticks for a while; asking again prolongs it."""

    tick_ms: int
    seconds: float


class SampleReply(Struct, frozen=True, kw_only=True):
    """What was granted."""

    tick_ms: int
    seconds: float


class FlowsReply(Struct, frozen=True, kw_only=True):
    """Flows as dumped, with cookie and counters."""

    bridge: str
    wall_ns: int
    flows: tuple[str, ...]
