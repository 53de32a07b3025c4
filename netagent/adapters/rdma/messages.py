# SPDX-License-Identifier: Apache-2.0
"""The messages between the agent and its RDMA helper processes. They never leave the host."""

from msgspec import Struct, field

from netagent.model.endpoint import RdmaAddress
from netagent.model.ids import EndpointId


class Place(Struct, frozen=True, kw_only=True):
    """A local endpoint's RNIC, and where it can be opened."""

    device: str
    """RDMA device, such as ``mlx5_3``."""
    gid: str
    """The endpoint's own GID, as ibverbs writes it."""
    path: str
    """Network namespace to open it in, where devices are visible in their own alone (RDMA's
    exclusive mode); empty: wherever we are (shared mode, the kernel's default)."""
    inode: int | None = None
    """Inode of the namespace at `path`, so that another one at the same path is noticed."""
    index: int | None = None
    """Where the GID is in its port's table: what is open must be opened anew where it moved, and
    the kernel completes a move only some time after it reported it."""


class Question(Struct, frozen=True, kw_only=True):
    """Whether an address handle can be made at `place` for `gid`."""

    key: int
    """Repeated in the answer."""
    place: Place
    gid: str


class Answer(Struct, frozen=True, kw_only=True):
    """What became of it."""

    key: int
    error: str = ""
    """Empty: it was made, so that another will be made in no time."""
    local: bool = False
    """The error is of this host, and says nothing of the neighbour."""


class Served(Struct, frozen=True, kw_only=True):
    """An endpoint to answer for."""

    endpoint: EndpointId
    place: Place
    flows: int


class Aim(Struct, frozen=True, kw_only=True):
    """GIDs that will probe an endpoint."""

    endpoint: EndpointId
    gids: tuple[str, ...]


class Orders(Struct, frozen=True, kw_only=True):
    """All that the responder process is to do; replaces what was ordered before."""

    endpoints: tuple[Served, ...]
    aims: tuple[Aim, ...]
    replies_per_second: float
    keys: tuple[tuple[EndpointId, bytes], ...] = ()
    """By which probes to endpoints are sealed."""


class Opened(Struct, frozen=True, kw_only=True):
    """An endpoint answers now."""

    endpoint: EndpointId
    place: Place
    address: RdmaAddress


class Unopened(Struct, frozen=True, kw_only=True):
    """An endpoint could not be opened, or had to be closed; it will be tried again."""

    endpoint: EndpointId
    place: Place
    reason: str


class Asked(Struct, frozen=True, kw_only=True):
    """A marked probe was answered."""

    endpoint: EndpointId
    session: int
    port: int
    sender: str
    """GID of the prober."""


class RdmaEvent(Struct, frozen=True, kw_only=True):
    """Something happened to a device."""

    device: str
    kind: str
    """Such as ``PORT_ERR``, ``PORT_ACTIVE``, ``GID_CHANGE``, ``DEVICE_FATAL``, ``QP_FATAL``: as
    ibverbs calls it."""
    wall_ns: int
    text: str = ""


class ResponderCounters(Struct, kw_only=True):
    """What the responder did since its last report."""

    answered: int = 0
    bad_frames: int = 0
    capped: dict[str, int] = field(default_factory=dict)
    """Probes not answered because of the cap on replies, by the endpoint's name."""
    unresolved: int = 0
    """Probes not answered because their sender's address was not resolved in time."""
    failed: int = 0
    """Replies that the device refused."""
    queue_ns_total: int = 0
    queue_ns_max: int = 0
    """Longest time from the moment a probe was seen until its reply was posted."""

    def add(self, other: "ResponderCounters") -> None:
        """Add the counts of a later report."""
        self.answered += other.answered
        self.bad_frames += other.bad_frames
        for endpoint, count in other.capped.items():
            self.capped[endpoint] = self.capped.get(endpoint, 0) + count
        self.unresolved += other.unresolved
        self.failed += other.failed
        self.queue_ns_total += other.queue_ns_total
        self.queue_ns_max = max(self.queue_ns_max, other.queue_ns_max)


class Report(Struct, frozen=True, kw_only=True):
    """What the responder process reports, as it happens and once a second."""

    opened: tuple[Opened, ...] = ()
    failed: tuple[Unopened, ...] = ()
    asked: tuple[Asked, ...] = ()
    events: tuple[RdmaEvent, ...] = ()
    counters: ResponderCounters
