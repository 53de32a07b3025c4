# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the process that answers RDMA probes: its orders, its news and its life."""

from collections import deque
from collections.abc import Iterable, Mapping

from netagent.adapters.clock import now_ns
from netagent.adapters.rdma.channel import HelperProcess
from netagent.adapters.rdma.messages import (
    Aim,
    Asked,
    Orders,
    Place,
    RdmaEvent,
    Report,
    ResponderCounters,
    Served,
)
from netagent.model.endpoint import RdmaAddress
from netagent.model.ids import EndpointId
from netagent.probing.rdma.gids import canonical_gid

HUNG_NS = 30_000_000_000
"""Nanoseconds without a report after which the responder is killed: it hangs, or never came up.
Chosen: it reports every second, and a busy host delays that."""
MAX_TOLD = 4096
"""News of each kind that the agent has not taken yet; the oldest go first. Chosen: four full
reports."""


class ResponderClient:
    """The agent's side: it sends the endpoints to answer for, and takes the reports."""

    def __init__(
        self,
        *,
        replies_per_second: float,
        module: str = "netagent.adapters.rdma.responder",
    ) -> None:
        self._helper = HelperProcess(module)
        self._replies_per_second = replies_per_second
        self._endpoints: dict[EndpointId, Served] = {}
        self._aims: dict[EndpointId, tuple[str, ...]] = {}
        self._keys: tuple[tuple[EndpointId, bytes], ...] = ()
        self._changed = False
        self.opened: dict[EndpointId, RdmaAddress] = {}
        """Where each endpoint answers, now. Queue pair numbers change when the process restarts."""
        self.failed: dict[EndpointId, str] = {}
        """Why an endpoint does not answer."""
        self._asked: deque[Asked] = deque(maxlen=MAX_TOLD)
        self._events: deque[RdmaEvent] = deque(maxlen=MAX_TOLD)
        self._counters = ResponderCounters()
        self._heard_ns = 0
        """When the responder reported last, or was started (monotonic)."""

    @property
    def pid(self) -> int | None:
        """Process id; None where it does not run."""
        return self._helper.pid

    def fileno(self) -> int:
        """Return the descriptor that is readable when `step` has something to read."""
        return self._helper.fileno()

    def set_endpoints(self, endpoints: Mapping[EndpointId, tuple[Place, int]]) -> None:
        """Answer for exactly these: where each can be opened, and on how many flows."""
        new = {
            key: Served(endpoint=key, place=place, flows=flows)
            for key, (place, flows) in endpoints.items()
        }
        for key, served in self._endpoints.items():
            if new.get(key) != served:
                self.opened.pop(key, None)
                self.failed.pop(key, None)
        self._changed |= new != self._endpoints
        self._endpoints = new
        self.step()

    def seal(self, keys: Mapping[EndpointId, bytes]) -> None:
        """Take the keys by which probes to endpoints are sealed."""
        new = tuple(sorted(keys.items()))
        self._changed |= new != self._keys
        self._keys = new
        self.step()

    def aim(self, probers: Mapping[EndpointId, Iterable[str]]) -> None:
        """Expect probes from these GIDs, so that the first of them need not wait."""
        new = {key: tuple(sorted(map(canonical_gid, gids))) for key, gids in probers.items()}
        self._changed |= new != self._aims
        self._aims = new
        self.step()

    def step(self) -> None:
        """Read the process' reports and keep it alive. Call it when readable, and once a second."""
        at_ns = now_ns()
        for report in self._helper.receive(Report, now_ns=at_ns):
            self._heard_ns = at_ns
            self._learn(report)
        if self._helper.pid is not None and at_ns - self._heard_ns > HUNG_NS:
            self._helper.kill(now_ns=at_ns)
        if self._helper.pid is None:
            self.opened.clear()
        if self._endpoints or self._helper.pid is not None:
            started = self._helper.ensure(now_ns=at_ns)
            self._heard_ns = at_ns if started else self._heard_ns
            if self._helper.pid is not None and (started or self._changed):
                self._changed = False
                self._helper.send(self._orders())

    def _orders(self) -> Orders:
        return Orders(
            endpoints=tuple(self._endpoints.values()),
            aims=tuple(Aim(endpoint=k, gids=v) for k, v in self._aims.items()),
            replies_per_second=self._replies_per_second,
            keys=self._keys,
        )

    def _learn(self, report: Report) -> None:
        for opened in report.opened:
            if opened.place == self._place(opened.endpoint):
                self.opened[opened.endpoint] = opened.address
                self.failed.pop(opened.endpoint, None)
        for failed in report.failed:
            if failed.place == self._place(failed.endpoint):
                self.failed[failed.endpoint] = failed.reason
                self.opened.pop(failed.endpoint, None)
        self._asked += report.asked
        self._events += report.events
        self._counters.add(report.counters)

    def _place(self, endpoint: EndpointId) -> Place | None:
        served = self._endpoints.get(endpoint)
        return served.place if served else None

    def take_asked(self) -> list[Asked]:
        """Return the marked probes that were answered since the last call."""
        taken = list(self._asked)
        self._asked.clear()
        return taken

    def take_events(self) -> list[RdmaEvent]:
        """Return what happened to the devices since the last call."""
        taken = list(self._events)
        self._events.clear()
        return taken

    def take_counters(self) -> ResponderCounters:
        """Return the counts that the responder reported since the last call."""
        taken, self._counters = self._counters, ResponderCounters()
        return taken

    def close(self) -> None:
        """End the process."""
        self._helper.close()
