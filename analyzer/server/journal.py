# SPDX-License-Identifier: Apache-2.0
"""The incidents that are told: stored first, then announced."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from analyzer.server.engine import Clock
from analyzer.store import Store
from netagent.model.verdict import Incident, IncidentState

POLL_S = 0.1
"""How often the engine is asked whether an incident changed."""

ADOPT_NS = 60 * 10**9
"""How long after a restart an open incident may wait for the engine to see it again."""

EVENTS_KEPT = 1000
"""Events that a watcher may be behind."""

EVENT_OF = {
    IncidentState.OPEN: "opened",
    IncidentState.CONFIRMED: "confirmed",
    IncidentState.RECOVERED: "recovered",
}


@dataclass(frozen=True, slots=True)
class Event:
    """An incident changed."""

    seq: int
    """Grows, over restarts too."""
    event: str
    """`opened`, `confirmed`, `recovered`, or `revised` where the state stayed."""
    incident: Incident


class Journal:
    """Every incident kept, and the latest events."""

    def __init__(
        self, stored: Iterable[Incident], *, wall_ns: int, announce: Callable[[], None]
    ) -> None:
        self._known = {incident.id: incident for incident in stored}
        self._adopted: set[str] = set()  # what the engine has spoken of since the restart
        self._started_ns = wall_ns
        self._seq = wall_ns
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._announce = announce

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
        return sorted(found, key=lambda i: (i.detected_ns, i.id), reverse=True)

    def get(self, incident: str) -> Incident | None:
        """Return one incident."""
        return self._known.get(incident)

    def events(self, after: int) -> list[Event]:
        """Return the events after number `after`, oldest first."""
        return [event for event in self._events if event.seq > after]

    async def take(self, current: Iterable[Incident], store: Store, wall_ns: int) -> None:
        """Store and announce what differs from what is known."""
        incidents = list(current)
        self._adopted.update(incident.id for incident in incidents)
        changed = [i for i in incidents if self._known.get(i.id) != i]
        changed += self._orphans(wall_ns)
        if not changed:
            return
        await store.put_incidents(changed)
        for incident in changed:
            self._seq = max(self._seq + 1, wall_ns)
            before, self._known[incident.id] = self._known.get(incident.id), incident
            event = EVENT_OF[incident.state]
            if before is not None and before.state is incident.state:
                if before.verdict.component == incident.verdict.component:
                    continue  # seen again: nothing to tell
                event = "revised"
            self._events.append(Event(self._seq, event, incident))
        self._announce()

    async def follow(
        self, current: Callable[[], list[Incident]], store: Store, clock: Clock
    ) -> None:
        """Take what the engine says, over and over."""
        while True:
            await self.take(current(), store, clock())
            await asyncio.sleep(POLL_S)

    def forget(self, before_ns: int) -> None:
        """Drop recovered incidents last touched before `before_ns`, as the store does."""
        self._known = {
            i.id: i
            for i in self._known.values()
            if i.state is not IncidentState.RECOVERED or i.updated_ns >= before_ns
        }

    # Incidents that were open when the analyzer went down, and that nothing bears out any more.
    def _orphans(self, wall_ns: int) -> list[Incident]:
        if wall_ns < self._started_ns + ADOPT_NS:
            return []
        note = "the analyzer restarted and has not seen it since"
        return [
            replace(
                incident,
                state=IncidentState.RECOVERED,
                updated_ns=wall_ns,
                recovered_ns=wall_ns,
                notes=(*incident.notes, note),
            )
            for incident in self._known.values()
            if incident.id not in self._adopted and incident.state is not IncidentState.RECOVERED
        ]
