# SPDX-License-Identifier: Apache-2.0
"""The journal of incidents: each change is stored, then announced.

Where the disk refuses or is slow, it is announced all the same, and stored once that is possible.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import structlog

from analyzer.webhooks.outbox import Letter
from netagent.model.errors import CapabilityMissing
from netagent.model.verdict import Incident, IncidentState

log = structlog.get_logger()

EVENTS_KEPT = 1000
"""Newest events kept for watchers. Chosen: memory stays bounded; a watcher that is farther behind
misses the oldest."""

STORE_S = 2.0
"""Seconds that a change waits to be stored. Chosen: a disk takes milliseconds; who waits for the
incident waits for the network to be mended."""
RETRY_S = 5.0
"""Seconds between two attempts to store what was refused. Chosen: a disk that has room again is
seen within a window."""
BATCH = 200
"""Most incidents that are stored at once. Chosen: a transaction of milliseconds, however many wait;
none is given up, for memory holds all of them anyway."""

EVENT_OF = {
    IncidentState.OPEN: "opened",
    IncidentState.CONFIRMED: "confirmed",
    IncidentState.RECOVERED: "recovered",
}


class Storage(Protocol):
    """Stores incidents; `analyzer.store.tables.Store` in production."""

    async def put_incidents(
        self, incidents: Iterable[Incident], letters: Sequence[Letter] = ()
    ) -> None:
        """Store incidents, and what is written of them; all is on disk when this returns."""


@dataclass(frozen=True, slots=True)
class Event:
    """An incident changed."""

    seq: int
    """Grows, over restarts too."""
    event: str
    """`opened`, `confirmed`, `recovered`; where the state stayed `revised`, or `unobserved` and
    `observed` where nothing is measured of it any more, or is again."""
    incident: Incident
    before: Incident | None = None
    """As it was before; None where it was not known."""


class Mail(Protocol):
    """Writes to receivers elsewhere; `analyzer.server.mail.Mail` in production."""

    def letters(self, events: Iterable[Event], *, stored: bool) -> list[Letter]:
        """Return what receivers are told of events; `stored`: a restart will know of them."""

    def take(self, letters: Iterable[Letter], stored: Iterable[str]) -> None:
        """Send letters; those of the keys `stored` are on disk."""


class Journal:
    """Every incident kept, and the latest events."""

    def __init__(
        self,
        stored: Iterable[Incident],
        *,
        wall_ns: int,
        announce: Callable[[], None],
        settled: Callable[[str | None, int], None] = lambda _refused, _wall_ns: None,
        mail: Mail | None = None,
    ) -> None:
        """Begin with the incidents `stored`; `settled` is told how each write ended, and when."""
        self._known = {incident.id: incident for incident in stored}
        self._changed: deque[Incident] = deque()
        self._unstored: dict[str, Incident] = {}
        """Incidents that were announced and are not stored, by id, as they now are."""
        self._refused = False
        """Whether the newest attempt to store failed."""
        self._news = asyncio.Event()
        self._seq = wall_ns
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._announce, self._settled, self._mail = announce, settled, mail

    @property
    def seq(self) -> int:
        """Number of the latest event."""
        return self._seq

    def incidents(self, state: str | None = None, since_ns: int = 0) -> list[Incident]:
        """Return incidents updated since, latest first; `state` may also be `active`."""
        found = [
            i
            for i in self._known.values()
            if i.updated_ns >= since_ns
            and (
                state in {None, i.state.value}
                or (state == "active" and i.state is not IncidentState.RECOVERED)
            )
        ]
        return sorted(found, key=lambda i: (-i.detected_ns, i.id))

    def active(self) -> list[Incident]:
        """Return the incidents that are not over, those included that nobody was told of so far."""
        newest = self._known | {incident.id: incident for incident in self._changed}
        return [i for i in newest.values() if i.state is not IncidentState.RECOVERED]

    def get(self, incident: str) -> Incident | None:
        """Return one incident."""
        return self._known.get(incident)

    def is_stored(self, incident: str) -> bool:
        """Return whether a restart would know the incident as it is."""
        return incident not in self._unstored

    @property
    def unstored(self) -> int:
        """Return how many incidents are shown and not stored."""
        return len(self._unstored)

    def events(self, after: int) -> list[Event]:
        """Return the events after number `after`, oldest first."""
        return [event for event in self._events if event.seq > after]

    def note(self, incident: Incident) -> None:
        """Take an incident that changed; it is stored and announced soon."""
        self._changed.append(incident)
        self._news.set()

    async def take(self, store: Storage, wall_ns: int) -> None:
        """Store and announce what changed since the last call, and store what was refused."""
        changed = list(self._changed)
        wanted = self._unstored | {incident.id: incident for incident in changed}
        if not wanted:
            return
        batch = dict(islice(wanted.items(), BATCH))
        events = list(self._happened(changed, wall_ns))
        letters = self._mail.letters(events, stored=True) if self._mail else []
        together = [letter for letter in letters if letter.incident in batch]
        refused = await self._put(store, list(batch.values()), together)
        self._refused = refused is not None
        self._unstored = {
            name: incident
            for name, incident in wanted.items()
            if self._refused or name not in batch
        }
        for incident in changed:
            self._changed.popleft()
            self._known[incident.id] = incident
        self._events += events
        self._seq = events[-1].seq if events else self._seq
        if self._mail and letters:
            if self._refused:
                letters, together = self._mail.letters(events, stored=False), []
            self._mail.take(letters, [letter.key for letter in together])
        self._settled(refused, wall_ns)
        self._announce()

    async def _put(
        self, store: Storage, incidents: list[Incident], letters: list[Letter]
    ) -> str | None:
        """Store incidents with what is written of them; return why it could not be done."""
        try:
            async with asyncio.timeout(STORE_S):
                await store.put_incidents(incidents, letters)
        except TimeoutError:
            return f"incidents not stored within {STORE_S:g} s"
        except CapabilityMissing as error:
            return error.remedy
        except Exception as error:  # a bug, but whoever waits for the incident shall see it
            log.exception("incidents_not_stored")
            return f"{type(error).__name__}: {error}"
        return None

    def _happened(self, changed: Iterable[Incident], wall_ns: int) -> Iterator[Event]:
        """Yield what the changes are, where they are news; nothing is remembered yet."""
        newest, seq = dict[str, Incident](), self._seq
        for incident in changed:
            before = newest.get(incident.id, self._known.get(incident.id))
            newest[incident.id] = incident
            event = _news(before, incident)
            if event is not None:
                seq = max(seq + 1, wall_ns)
                yield Event(seq, event, incident, before)

    async def follow(self, store: Storage, clock: Callable[[], int]) -> None:
        """Take what changes, over and over."""
        while True:
            if self._refused or not self._unstored:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S if self._unstored else None):
                        await self._news.wait()
            await self.take(store, clock())
            if not self._changed:
                self._news.clear()

    def forget(self, before_ns: int) -> None:
        """Drop recovered incidents last touched before `before_ns`, as the store does."""
        self._known = {
            i.id: i
            for i in self._known.values()
            if i.state is not IncidentState.RECOVERED or i.updated_ns >= before_ns
        }


def _news(before: Incident | None, now: Incident) -> str | None:
    """Return what happened to an incident; None where it was seen again, with no news."""
    if before is None or before.state is not now.state:
        return EVENT_OF[now.state]
    if before.verdict.component != now.verdict.component:
        return "revised"
    unseen = (before.unobserved_ns is None, now.unobserved_ns is None)
    if unseen[0] != unseen[1]:
        return "observed" if unseen[1] else "unobserved"
    return None
