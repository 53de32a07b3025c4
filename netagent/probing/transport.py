# SPDX-License-Identifier: Apache-2.0
"""What the prober asks of a transport, and what all transports of a host share."""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

from netagent.model.ids import EndpointId
from netagent.model.pinglist import Target
from netagent.probing.recent import Recent
from netagent.probing.session import ProbeSession, Stamps

MAX_ASKERS = 8192
"""Askers remembered, by session and source port; the oldest go first. Chosen: it bounds memory."""
ASKED_FOR_NS = 60_000_000_000
"""Nanoseconds for which an asker is remembered at least. Chosen: a reply leaves at once, and is
seen on the uplink within a second."""


class Outcome(Enum):
    """What became of a probe that was to be sent."""

    SENT = auto()
    FAILED = auto()
    """The local kernel or device refused it: says nothing about the path."""
    PENDING = auto()
    """The target's link-layer address is being asked for, for the first time: not sent."""
    UNRESOLVED = auto()
    """Nobody answered for the target's link-layer address: not sent, and as good as lost."""


class Sent(NamedTuple):
    """Outcome of one send."""

    outcome: Outcome
    left_wall_ns: int | None = None
    """t2, where it is known at once."""


class Roamer(Protocol):
    """The last port of a transport, where that one is exchanged now and then."""

    def renew(self) -> int:
        """Open the port anew and return its descriptor; raises OSError, and changes nothing then.

        What was the port until now goes on taking replies until it was renewed twice.
        """

    def drained(self) -> int | None:
        """Return the descriptor of a port that was renewed twice; None where there is none."""

    def drop(self) -> None:
        """Close that one."""


class Transport(Protocol):
    """A local endpoint's way to send probes and to take their replies."""

    @property
    def ports(self) -> tuple[int, ...]:
        """UDP source ports inside the overlay; flows to different targets may take others."""

    @property
    def roamer(self) -> Roamer | None:
        """What exchanges the last one of `ports`; None where all of them stay."""

    @property
    def overhead_bytes(self) -> int:
        """What the overlay IP packet has beside the frame."""

    @property
    def max_frame_bytes(self) -> int:
        """The largest frame that one packet carries."""

    @property
    def stamps(self) -> Stamps:
        """Who takes t2 and t5."""

    @property
    def introduction_ns(self) -> int:
        """How long a target may need to learn the way back, when it hears from us first."""

    @property
    def broken(self) -> str | None:
        """Why it must be closed and opened anew; None while it works."""

    def descriptors(self) -> Iterable[int]:
        """Return what epoll is to watch."""

    def urgent(self) -> Iterable[int]:
        """Return those of them at which somebody waits; the others are read when it suits."""

    def aim(self, targets: Sequence[Target]) -> None:
        """Make ready to probe exactly these targets."""

    def send(self, target: Target, port: int, payload: bytes) -> Sent:
        """Send a frame from the port with index `port`."""

    def read(
        self, descriptor: int, events: int, session: ProbeSession, *, woken_ns: int, due_ns: int
    ) -> int:
        """Take what a ready descriptor holds into `session`; return how many frames were foreign.

        May take a part: a descriptor that stays ready is read again. `woken_ns` is the wall clock
        just after it was found ready, `due_ns` when it was to be read at the latest.
        """

    def close(self) -> None:
        """Give back what the kernel holds."""


class Askers:
    """The recent senders of marked probes: by them the uplink recognises the replies."""

    def __init__(self) -> None:
        self._seen = Recent[tuple[int, int], tuple[EndpointId, str]](
            span_ns=ASKED_FOR_NS, most=MAX_ASKERS
        )

    def add(self, session: int, port: int, local: EndpointId, address: str, *, now_ns: int) -> None:
        """Remember that `address` sent a probe to the endpoint `local`."""
        self._seen.put((session, port), (local, address), now_ns=now_ns)

    def get(self, session: int, port: int) -> tuple[EndpointId, str] | None:
        """Return the local endpoint that was asked, and the asker's overlay address."""
        return self._seen.get((session, port))
