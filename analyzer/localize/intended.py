# SPDX-License-Identifier: Apache-2.0
"""What a controller wants where walks end that arrive nowhere: a policy, or what is not there.

A virtual switch that does what it is told drops packets, too: which of its flows does so says
where, and not whose fault it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from analyzer.intent.differences.contract import Difference
from analyzer.localize.case import Endpoints, OrderedPair, unordered
from analyzer.questions import (
    CHANGED,
    Ask,
    Asking,
    Failed,
    MeaningReply,
    MeaningRequest,
    Meant,
    Why,
)
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Kind, controller, flow_table
from netagent.wire import walk as wire
from netagent.wire.conversion import walk_to_wire
from ovs_checks.walk.reach import Reach
from ovs_checks.walk.values import LocalWalk

Walks = Mapping[OrderedPair, LocalWalk]
STOPPED = frozenset({"dropped", "missed", "controller"})
"""Ends of which a controller may say what it wants."""
_ELSEWHERE = {FindingKind.PORT_CONTESTED, FindingKind.PORT_MISPLACED}
"""Then a port is, for its controller, at another host."""
_ENDS = {Kind.TUNNEL, Kind.VSWITCH}
"""What misses a packet that no tunnel takes."""
REFUSED, MISSING = "refused", "missing"
"""`analyzer.intent.reading.Meaning`'s values for these."""
UNTOLD = "untold"
"""The controller did not say in time what it wants there."""
KEPT_NS = 60_000_000_000
"""Nanoseconds for which a policy is taken to stand, while walks are not answered. Chosen: a host
that is too busy to answer is so for some windows, and a policy stands for longer."""


def read(
    reaches: Mapping[OrderedPair, Reach], egress: Walks, ingress: Walks, missing: list[str]
) -> Asking[tuple[dict[OrderedPair, Reach | None], dict[OrderedPair, str]]]:
    """Return where walks end, as their controller has it; None for what a policy refuses.

    A walk of which nobody says more stays as it is; `missing` gets why not. And what the controller
    said of each that was asked about, by `Meant.meaning`; UNTOLD where it did not in time.
    """
    stopped: dict[OrderedPair, tuple[str, str, wire.End]] = {}
    for pair, reach in reaches.items():
        found = _end(reach, ingress.get(pair), egress.get(pair))
        if found is not None:
            stopped[pair] = found
    by_host: defaultdict[str, defaultdict[str, list[OrderedPair]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for pair, (host, _, end) in stopped.items():
        by_host[host][end.bridge].append(pair)
    told: dict[OrderedPair, Reach | None] = dict(reaches)
    said: dict[OrderedPair, str] = {}
    if not by_host:
        return told, said
    asks, asked = [], list[tuple[str, str, list[OrderedPair]]]()
    for host, bridges in by_host.items():
        # A controller drives one bridge of a host, and each question costs it and its database.
        bridge, pairs = max(sorted(bridges.items()), key=lambda each: len(each[1]))
        missing += [
            f"what the controller of {host} wants on {other}: asked about {bridge} alone"
            for other in sorted(bridges.keys() - {bridge})[:1]
        ]
        _, ports, ends = zip(*(stopped[pair] for pair in pairs), strict=True)
        asks.append(Ask(host, MeaningRequest(bridge=bridge, ends=ends, ports=ports)))
        asked.append((host, bridge, pairs))
    replies = yield asks
    for (host, bridge, pairs), reply in zip(asked, replies, strict=True):
        if not isinstance(reply, MeaningReply) or len(reply.meant) != len(pairs):
            why = reply.text if isinstance(reply, Failed) else "no answer to the question"
            missing.append(f"what the controller of {host} wants: {why}")
            if isinstance(reply, Failed) and reply.why is Why.TIMEOUT:
                said |= dict.fromkeys(pairs, UNTOLD)
            continue
        for pair, meant in zip(pairs, reply.meant, strict=True):
            told[pair] = _told(reaches[pair], host, bridge, meant)
            said[pair] = meant.meaning
    return told, said


class Apart:
    """Pairs that a policy keeps apart, by when it was said; that holds while nobody can be asked.

    All unordered.
    """

    def __init__(self) -> None:
        self._said_ns: dict[OrderedPair, int] = {}

    def saw(
        self,
        pairs: Iterable[OrderedPair],
        told: Mapping[OrderedPair, Reach | None],
        said: Mapping[OrderedPair, str],
        now_ns: int,
    ) -> set[OrderedPair]:
        """Return which of these were kept apart, where nothing else is known of them now.

        `told` and `said` are of both directions, as `read` returns them.
        """
        still: set[OrderedPair] = set()
        known = {p: ns for p, ns in self._said_ns.items() if abs(now_ns - ns) < KEPT_NS}
        for pair in set(map(unordered, pairs)):
            ways = pair, (pair[1], pair[0])
            meanings = {said.get(way) for way in ways}
            arrive = [reach and reach.outcome == "delivered" for reach in map(told.get, ways)]
            if REFUSED in meanings:
                known[pair] = now_ns
            elif all(arrive) or not meanings.isdisjoint({MISSING, CHANGED}):
                known.pop(pair, None)
            elif pair in known:
                still.add(pair)
        self._said_ns = known
        return still


def astray(
    reaches: Mapping[OrderedPair, Reach],
    endpoints: Endpoints,
    differences: Iterable[Difference],
) -> dict[OrderedPair, Reach]:
    """Return where walks end; by whom, where tables do what a controller was misled to.

    Where a host offers tunnels at an address that it has not, others send elsewhere what is for it,
    and take nothing that it sends. What is for a port goes where the controller has it: to another
    host where that one claims it as well.
    """
    tunnels: dict[str, Finding] = {}
    ports: dict[EndpointId, Finding] = {}
    for each in differences:
        if each.finding.kind is FindingKind.TUNNEL_ADDRESS_WRONG:
            tunnels[each.hosts[0]] = each.finding
        elif each.finding.kind in _ELSEWHERE:
            ports |= dict.fromkeys(each.endpoints, each.finding)
    told = dict(reaches)
    for pair, reach in reaches.items():
        source, target = (endpoints[end].host for end in pair)
        finding = None
        if reach.outcome in {"wrong_tunnel", "wrong_port"}:
            finding = ports.get(pair[1]) or tunnels.get(target)
        elif reach.outcome == "missed" and reach.component and reach.component.kind in _ENDS:
            finding = tunnels.get(source)
        if finding is not None:
            told[pair] = replace(
                reach, outcome="dropped", component=finding.component, reason=finding.text
            )
    return told


def _end(reach: Reach, *walks: LocalWalk | None) -> tuple[str, str, wire.End] | None:
    """Return the host on which a walk is stopped, its port there, and how.

    None where it arrives, or is stopped elsewhere.
    """
    if reach.outcome not in {"dropped", "missed", "cannot_tell"}:
        return None
    for walk in walks:
        if walk is not None and walk.end.kind in STOPPED:
            # The walk of the far host comes first: a packet that gets there is not stopped here.
            ends = zip(walk.ends, walk_to_wire(walk).ends, strict=True)
            found = (said for end, said in ends if end is walk.end)
            return next(((walk.host, walk.port, said) for said in found), None)
    return None


def _told(reach: Reach, host: str, bridge: str, meant: Meant) -> Reach | None:
    if meant.meaning in {REFUSED, CHANGED}:
        return None
    if meant.meaning != MISSING:
        return reach
    if meant.part:
        part = controller(meant.part)
        return replace(reach, outcome="dropped", component=part, reason=meant.text)
    if meant.table >= 0:
        part = flow_table(host, bridge, meant.table)
        return replace(reach, outcome="missed", component=part, reason=meant.text)
    return reach
