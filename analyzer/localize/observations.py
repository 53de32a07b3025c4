# SPDX-License-Identifier: Apache-2.0
"""What became of a pair's packets, hop by hop: from walks, probes and open incidents. Pure.

The order is that in which a packet meets the hops, from the source's endpoint to the target's, or
to the hop that stops the packet. Where nobody could look, a hop is `unknown` and the list goes on.
What an open incident accuses besides stands where its host is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Literal

from netagent.model.endpoint import Endpoint, EndpointState
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, link, rnic, switch, tunnel, vswitch
from netagent.model.strenum import StrEnum
from netagent.model.verdict import Incident, Symptom
from ovs_checks.openflow.addresses import canonical
from ovs_checks.walk.reach import Reach
from ovs_checks.walk.values import LocalWalk

MAX_TEXT = 300
"""Most characters of a text. Chosen: a flow's reason fits; what hosts say is bounded."""

_LOSES = frozenset({Symptom.LOSS, Symptom.UNCONNECTIVITY})
"""Symptoms of which a component stops packets."""


WayName = Literal["there", "back"]
WAYS: tuple[WayName, WayName] = ("there", "back")


class Action(StrEnum):
    """What a hop did with the packet."""

    FORWARDED = "forwarded"
    DELIVERED = "delivered"
    DROPPED = "dropped"
    """It stops here, or is sent astray from here; or an open incident says that it loses some."""
    REFUSED = "refused"
    """It stops here because somebody wants that: no fault."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Observation:
    """One hop of one direction."""

    way: WayName
    component: str
    """``KIND NAME``, as incidents name it."""
    action: Action
    text: str
    """One sentence for a human."""
    host: str = ""
    """Where it was; empty in the fabric."""
    by: str = ""
    """Who intends a refusal: the policy, or the logical port that is disabled."""
    incident: str = ""
    """The open incident that accuses the component."""
    cookie: str = ""
    """Of the flow that ends the walk, as ``0x2a``: what its controller knows it by."""


@dataclass(frozen=True, slots=True)
class Probed:
    """The probes of one flow in the newest window."""

    sent: int
    lost: int
    route: tuple[str, ...] = ()
    """Routers of its way there; "" where one is silent, nothing where it was not traced."""


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a pair, and what was seen of it."""

    name: WayName
    source: Endpoint
    target: Endpoint
    egress: LocalWalk | None = None
    ingress: LocalWalk | None = None
    reach: Reach | None = None
    """None where it was not walked."""
    missing: str = ""
    """Why it was not walked."""
    probed: Sequence[Probed] = ()
    is_probe: bool = True
    """Whether what is walked is a probe, so that probes tell what becomes of it."""

    @property
    def unprobed(self) -> str:
        """Return why nothing is known by probes, where that is so."""
        return _NOT_PROBED if self.is_probe else "a probe is another packet"

    @property
    def sent(self) -> int:
        """Return how many probes were sent."""
        return sum(each.sent for each in self.probed)

    @property
    def lost(self) -> int:
        """Return how many of them were not answered."""
        return sum(each.lost for each in self.probed)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a flow stands for that keeps packets back because somebody wants that."""

    name: str
    of: Literal["", "source", "target"] = ""
    """Whose it is, of those that the packet goes between; it has no name of its own."""


def observe(way: Way, incidents: Iterable[Incident]) -> list[Observation]:
    """Return the hops of a direction; `incidents` are those that are open, of any pair."""
    hops = list(_hops(way))
    for incident in incidents:
        if incident.recovered_ns is None and incident.verdict.component is not None:
            hops = _accused(hops, way, incident, incident.verdict.component)
    return [replace(hop, text=hop.text[:MAX_TEXT]) for hop in hops]


def intended(
    observations: Iterable[Observation],
    pair: tuple[EndpointId, EndpointId],
    disabled: Mapping[EndpointId, str],
    policies: Mapping[tuple[str, int], Policy],
) -> list[Observation]:
    """Return the observations with who intended what stops packets.

    `disabled` are endpoints whose logical port may not speak -> its name; `policies` are hosts
    and cookies of their flows that keep packets back because a policy says so -> the policy. Hops
    behind a refusal are left out, unless an incident accuses them: probes that crossed these were
    of before, or are no packets that it refuses.
    """
    ports = [disabled[end] for end in pair if end in disabled]
    port = f"logical port {ports[0]}, which is disabled" if ports else ""

    def told(seen: Observation) -> Observation:
        policy = policies.get((seen.host, int(seen.cookie, 16))) if seen.cookie else None
        stops = seen.action in {Action.DROPPED, Action.UNKNOWN}
        if policy and stops and not policy.of:
            return replace(seen, action=Action.REFUSED, by=policy.name)
        is_switched = Component.parse(seen.component).kind in _SWITCHED
        if port and is_switched and (seen.action is Action.DROPPED or (policy and stops)):
            return replace(seen, action=Action.REFUSED, by=port)
        if policy and stops:
            whose = pair[(policy.of == "target") == (seen.way == "there")]
            return replace(seen, action=Action.REFUSED, by=f"{policy.name} of {whose}")
        return seen

    found: list[Observation] = []
    over: set[WayName] = set()
    for each in map(told, observations):
        if each.way not in over or each.incident:
            found.append(each)
        if each.action is Action.REFUSED:
            over.add(each.way)
    return found


_SWITCHED = frozenset({Kind.FLOW, Kind.VSWITCH})


# --- the hops -------------------------------------------------------------------------------------


def _hops(way: Way) -> Iterator[Observation]:
    source, target = way.source, way.target
    yield _end(way, source, Action.FORWARDED, f"sends to {target.address} by {source.port}")
    if source.state is EndpointState.CRASHED:
        return
    stop = _stop(way)
    if source.bridge:
        yield from _switched(way, source, way.egress, stop)
        if stop is not None and stop.host == source.host and stop.action is Action.DROPPED:
            return
    if source.host != target.host or (way.reach is not None and way.reach.tunnel is not None):
        yield from _underlay(way)
        if target.bridge:
            yield from _switched(way, target, way.ingress, stop)
            if stop is not None and stop.action is Action.DROPPED:
                return
    yield _arrival(way)


def _stop(way: Way) -> Observation | None:
    """Return the hop at which the walk ends, or from which it cannot tell."""
    reach = way.reach
    if reach is None or reach.component is None or reach.outcome == "delivered":
        return None
    action = Action.UNKNOWN if reach.outcome == "cannot_tell" else Action.DROPPED
    text = f"{reach.outcome.replace('_', ' ')}: {reach.reason}"
    cookie = f"{reach.flow.cookie:#x}" if reach.flow is not None else ""
    host = reach.component.name.partition("/")[0]
    return Observation(way.name, str(reach.component), action, text, host, cookie=cookie)


def _switched(
    way: Way, end: Endpoint, walk: LocalWalk | None, stop: Observation | None
) -> Iterator[Observation]:
    """Yield what the virtual switch of one end does; `stop` may be of the other."""
    here = stop if stop is not None and stop.host == end.host else None
    is_near = end is way.source
    if walk is None:
        if here is not None:
            yield here
        else:
            text = f"not walked: {way.missing}" if way.missing else "not walked"
            yield _of(way, vswitch(end.host), Action.UNKNOWN, text, end.host)
        return
    if walk.port and not is_near:
        yield _of(way, tunnel(end.host, walk.port), Action.FORWARDED, "takes it", end.host)
    if here is None or here.component != str(vswitch(end.host)):
        text = f"in by {walk.port}" + (f" on {walk.bridge}" if walk.bridge else "")
        yield _of(way, vswitch(end.host), Action.FORWARDED, text, end.host)
    if here is not None:
        yield here
    elif is_near and way.reach is not None and way.reach.tunnel is not None:
        yield _of(way, way.reach.tunnel, Action.FORWARDED, _tunnelled(way, walk), end.host)


def _tunnelled(way: Way, walk: LocalWalk) -> str:
    end = walk.tunnelled_to({canonical(way.target.underlay)}) or walk.tunnelled
    return f"to {end.tun_dst}, VNI {end.tun_id}" if end is not None else "leaves by it"


def _underlay(way: Way) -> Iterator[Observation]:
    near, far = way.source, way.target
    yield _probed(way, rnic(near.host, near.rnic), way.probed, near.host)
    parts = [(_parts(flow.route), flow) for flow in way.probed]
    for stage in zip_longest(*(route for route, _ in parts)):
        crossed: dict[Component, list[Probed]] = {}
        for part, (_, flow) in zip(stage, parts, strict=True):
            if part is not None:
                crossed.setdefault(part, []).append(flow)
        for part in sorted(crossed):
            yield _probed(way, part, crossed[part], "")
    yield _probed(way, rnic(far.host, far.rnic), way.probed, far.host)


def _parts(route: Sequence[str]) -> list[Component | None]:
    """Return the links of a route, None for one with a silent end; the switch where it is alone."""
    if len(route) == 1:
        return [switch(route[0]) if route[0] else None]
    return [link(a, b) if a and b else None for a, b in pairwise(route)]


def _arrival(way: Way) -> Observation:
    if way.target.state is EndpointState.CRASHED:
        return _end(way, way.target, Action.DROPPED, "")
    if way.sent:
        action = Action.DELIVERED if way.lost < way.sent else Action.UNKNOWN
        return _end(way, way.target, action, _counted(way, way.probed))
    if way.reach is not None and way.reach.outcome == "delivered":
        return _end(way, way.target, Action.DELIVERED, f"{way.reach.reason}; {way.unprobed}")
    return _end(way, way.target, Action.UNKNOWN, way.unprobed)


_NOT_PROBED = "not probed in the newest window"


def _probed(way: Way, part: Component, flows: Sequence[Probed], host: str) -> Observation:
    """Return what probes say of a part that they cross: some were answered, or nothing is known."""
    answered = any(flow.lost < flow.sent for flow in flows)
    action = Action.FORWARDED if answered else Action.UNKNOWN
    return _of(way, part, action, _counted(way, flows), host)


def _counted(way: Way, flows: Sequence[Probed]) -> str:
    sent, lost = sum(flow.sent for flow in flows), sum(flow.lost for flow in flows)
    return f"{lost} of {sent} probes lost" if sent else way.unprobed


def _end(way: Way, end: Endpoint, action: Action, text: str) -> Observation:
    if end.state is EndpointState.CRASHED:
        action, text = Action.DROPPED, "its container's namespace is gone"
    return _of(way, Component(Kind.ENDPOINT, str(end.id)), action, text, end.host)


def _of(way: Way, part: Component, action: Action, text: str, host: str) -> Observation:
    return Observation(way.name, str(part), action, text, host)


# --- incidents ------------------------------------------------------------------------------------


def _accused(
    hops: list[Observation], way: Way, incident: Incident, part: Component
) -> list[Observation]:
    """Return the hops with an incident at the one that it accuses, or as a hop of its own."""
    ends = {way.source.id, way.target.id}
    concerns = any({p.source, p.target} == ends for p in incident.verdict.failing)
    named = [n for n, hop in enumerate(hops) if hop.component == str(part)]
    if not named and not concerns:
        return hops
    loses = incident.verdict.symptom in _LOSES and (concerns or way.lost > 0)
    said = f"incident {incident.id}: {incident.verdict.summary}"
    if named:
        return [
            replace(
                hop, incident=incident.id, text=f"{said}; {hop.text}",
                action=Action.DROPPED if loses else hop.action,
            ) if n in named and not hop.incident else hop
            for n, hop in enumerate(hops)
        ]  # fmt: skip
    host = _host_of(part, way)
    action = Action.DROPPED if loses else Action.UNKNOWN
    place = _after(hops, way, host)
    new = Observation(way.name, str(part), action, said, host, incident=incident.id)
    return [*hops[:place], new, *hops[place:]]


def _host_of(part: Component, way: Way) -> str:
    """Return which end's host a component is of; empty for neither."""
    name = part.name.partition("/")[0]
    for end in (way.source, way.target):
        if name in {end.host, end.id.container} and part.kind not in {Kind.SWITCH, Kind.LINK}:
            return end.host
    return ""


def _after(hops: Sequence[Observation], way: Way, host: str) -> int:
    """Return where a hop of a host, or of the fabric, belongs among the hops."""
    near = sum(1 for hop in hops if hop.host == way.source.host)
    if host == way.target.host:
        return len(hops) - (hops[-1].host == host and len(hops) > 1)
    fabric = sum(1 for hop in hops if not hop.host)
    return near if host else near + fabric
