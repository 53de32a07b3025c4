# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes is told of incidents: Events of nodes and pods, and a condition of nodes.

Theory of operation. Events are told once, as they happen. The condition is compared over and over:
what a node should have follows from the incidents that are not over, what it has from the node
itself, so that an analyzer that was started again takes back what is not so any more. Of all nodes
there is one condition, not one of each rail: incidents of a virtual switch or of a host are of no
rail, and whoever acts on conditions matches on one name.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from analyzer.intent.kubernetes import CONDITION, Book
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.model.verdict import Incident, IncidentState, Symptom

MAX_EVENTS = 1_000
"""Most Events that wait; the oldest are dropped. Chosen: minutes of the rate at which they are
told, and memory stays bounded."""
NODE_NS = 10 * 10**9
"""Nanoseconds between two changes of a node's condition. Chosen: two windows, so that an incident
that comes and goes costs little."""
HEARTBEAT_NS = 600 * 10**9
"""Nanoseconds after which a condition that holds is told again. Chosen: who finds one that is much
older knows that nobody keeps it, and a thousand nodes cost two requests a second."""
_MAX_TEXT = 1_000
"""Characters of a message. Chosen: Events take 1,024."""
_MOST_NAMED = 3
"""Incidents that a condition's message names. Chosen: to be read."""

_OF_NODE = frozenset({Kind.RNIC, Kind.FLOW, Kind.TUNNEL, Kind.VSWITCH, Kind.HOST, Kind.AGENT})
"""Kinds of components whose name begins with their host's."""
_DEGRADING = _OF_NODE - {Kind.AGENT}
_SILENT = frozenset({Symptom.SILENCE, Symptom.DELAY, Symptom.MISSING})
"""Symptoms that say nothing of a network."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node or a pod."""

    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An Event to make."""

    namespace: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """A change of a node's status."""

    node: str
    status: str
    """Of the condition."""
    reason: str
    message: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Told:
    status: str
    reason: str
    message: str
    at_ns: int


def places(component: Component | None, book: Book) -> list[Place]:
    """Return the node that a component is of, and the pod that it names; what is known of both."""
    pod = node = None
    if component is not None and component.kind in {Kind.CONTAINER, Kind.ENDPOINT}:
        pod = book.pod_of(_container(component))
        node = book.nodes.get(pod.node) if pod else None
    elif component is not None and component.kind in _OF_NODE:
        node = book.node_of(component.name.partition("/")[0])
    found = [Place("Node", node.name, node.uid)] if node else []
    if pod is not None:
        found.append(Place("Pod", pod.name, pod.uid, pod.namespace))
    return found


class Teller:
    """Decides what is told, when. Does no I/O and reads no clock: `wall_ns` is Unix time."""

    def __init__(self, book: Book, confirmed: Iterable[str] = ()) -> None:
        """Tell of what `book` knows; the incidents `confirmed` were told of before."""
        self._book = book
        self._confirmed = set(confirmed)
        self._events: deque[Event] = deque()
        self._told: dict[str, _Told] = {}
        self.dropped = 0
        """Events that were dropped, being too many."""

    @property
    def waiting(self) -> int:
        """How many Events wait."""
        return len(self._events)

    def note(self, incident: Incident) -> None:
        """Take an incident that changed."""
        if incident.state is IncidentState.CONFIRMED:
            self._confirmed.add(incident.id)
        elif incident.state is IncidentState.OPEN or incident.id not in self._confirmed:
            return
        else:
            self._confirmed.discard(incident.id)
        for place in places(incident.verdict.component, self._book):
            if len(self._events) >= MAX_EVENTS:
                self._events.popleft()
                self.dropped += 1
            self._events.append(_event(incident, place))

    def next_event(self) -> Event | None:
        """Return the oldest Event that waits; it does until `done`."""
        return self._events[0] if self._events else None

    def done(self, event: Event) -> None:
        """Take that an Event was made, or never can be."""
        if self._events and self._events[0] is event:
            self._events.popleft()

    def patches(self, active: Iterable[Incident], wall_ns: int) -> Iterator[Patch]:
        """Yield what nodes' conditions should be, where they are not so and it is time."""
        wanted = self._wanted(active)
        for name, node in list(self._book.nodes.items()):
            told = self._told.get(name)
            if told is not None and 0 <= wall_ns - told.at_ns < NODE_NS:
                continue
            if name in wanted:
                status, (reason, message) = "True", wanted[name]
                is_new = told is None or (told.reason, told.message) != (reason, message)
                is_due = is_new or told is None or wall_ns >= told.at_ns + HEARTBEAT_NS
            else:
                status, reason = "False", "NetworkRecovered"
                message = "netagent names nothing of this node as at fault"
                is_due = (told.status if told else node.degraded) == "True"
            if is_due:
                was = told.status if told else node.degraded
                moved = was != status
                yield _patch(name, status, reason, message, wall_ns, moved=moved)

    def patched(self, patch: Patch, wall_ns: int) -> None:
        """Take that a node has its condition."""
        self._told[patch.node] = _Told(patch.status, patch.reason, patch.message, wall_ns)
        if len(self._told) > 2 * len(self._book.nodes):
            nodes = self._book.nodes
            self._told = {name: told for name, told in self._told.items() if name in nodes}

    def _wanted(self, active: Iterable[Incident]) -> dict[str, tuple[str, str]]:
        """Return each node that is degraded: why, in a word and in a sentence."""
        on: dict[str, list[Incident]] = {}
        for incident in active:
            component = incident.verdict.component
            if (
                incident.state is IncidentState.CONFIRMED
                and component is not None
                and component.kind in _DEGRADING
                and incident.verdict.symptom not in _SILENT
                and (node := self._book.node_of(component.name.partition("/")[0])) is not None
            ):
                on.setdefault(node.name, []).append(incident)
        wanted = {}
        for node_name, incidents in on.items():
            incidents.sort(key=lambda each: (each.detected_ns, each.id))
            named = [
                f"{each.verdict.component}: {each.verdict.symptom} ({each.id})"
                for each in incidents[:_MOST_NAMED]
            ]
            more = len(incidents) - _MOST_NAMED
            text = "; ".join([*named, *([f"{more} more"] if more > 0 else [])])
            symptom = incidents[0].verdict.symptom.capitalize()
            wanted[node_name] = f"Network{symptom}", _line(text)
        return wanted


def _line(text: str) -> str:
    """Return a message that a terminal shows as it is: hosts are quoted in it."""
    return "".join(c if c.isprintable() else " " for c in text[:_MAX_TEXT])


def _container(component: Component) -> str:
    if component.kind is Kind.CONTAINER:
        return component.name
    try:
        return EndpointId.parse(component.name).container
    except ValueError:
        return ""


def _event(incident: Incident, place: Place) -> Event:
    is_over = incident.state is IncidentState.RECOVERED
    namespace = place.namespace or "default"  # where Events of what has none are looked for
    # The same again has the same name, and is made once, whoever tells it.
    what = f"{incident.id} {incident.state} {incident.verdict.component} {place}"
    tag = blake2b(what.encode(), digest_size=8).hexdigest()
    at = _instant(incident.recovered_ns or incident.updated_ns)
    text = f"{incident.verdict.summary} (incident {incident.id})"
    return Event(
        namespace,
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"netagent.{tag}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": place.kind,
                "name": place.name,
                # `kubectl describe node` looks for the name here, as kubelets write it.
                "uid": place.name if place.kind == "Node" else place.uid,
                **({"namespace": place.namespace} if place.namespace else {}),
            },
            "type": "Normal" if is_over else "Warning",
            "reason": "NetworkRecovered" if is_over else "NetworkFault",
            "message": _line(f"over: {text}" if is_over else text),
            "source": {"component": "netagent"},
            "reportingComponent": "netagent",
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        },
    )


def _patch(
    node: str, status: str, reason: str, message: str, wall_ns: int, *, moved: bool
) -> Patch:
    at = _instant(wall_ns)
    condition = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": at,
        **({"lastTransitionTime": at} if moved else {}),  # else it stays as it is
    }
    return Patch(node, status, reason, message, {"status": {"conditions": [condition]}})


def _instant(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
