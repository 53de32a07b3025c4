# SPDX-License-Identifier: Apache-2.0
"""What checks of a host's tables find that concerns the packets of one pair of endpoints.

Both directions are looked at: what the endpoint on this host sends, and what comes for it. Of the
datapath and of tc only the flows are judged that these packets match, of the tables only what the
packets cross.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ovs_checks.datapath.crossing import Entrance, crosses, passes
from ovs_checks.datapath.essence import essence
from ovs_checks.datapath.layers import Megaflow
from ovs_checks.openflow.actions import ToGroup
from ovs_checks.openflow.addresses import outer
from ovs_checks.openflow.flow import Flow
from ovs_checks.openflow.packet import Header
from ovs_checks.openflow.parse import MalformedLine
from ovs_checks.switch.snapshot import Bridge, Port, Snapshot
from ovs_checks.walk.reach import walk_egress, walk_ingress
from ovs_checks.walk.values import LocalWalk

from . import layers as copies
from . import tables
from .finding import TableFinding
from .layers import Layers, entered, intent

ON_FLOWS = ("missing", "dead-group")
"""Checks of tables that need only the flows that packets cross."""
ON_TABLES = ("shadowed-flow", "conjunction")
"""Checks of tables that need all flows of a table that packets cross."""
STALE = "stale-megaflow"
MAX_FLOWS = 500
"""Flows of the datapath that are judged, those with the most packets first. Chosen: each is a whole
translation, and where tables match ports a pair has one for each connection."""
_TRACED = "Datapath actions: "

Trace = Callable[[str, Header], str]
"""Asks the live Open vSwitch what it does with a packet that enters a bridge (`ofproto/trace`);
returns an empty text where it does not answer."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The packets of an endpoint of this host and of another endpoint, one header a direction."""

    port: str
    """OVS port of the endpoint on this host."""
    out: Header
    """What it sends; of the datapath's flows those of every source port are looked at."""
    back: Header
    """What comes for it."""
    here: str = ""
    """This host's and the other host's address of the tunnel, as Open vSwitch writes them; empty
    where there is none."""
    there: str = ""
    neighbour: str = ""
    """OVS port of the other endpoint, where it is on this host; else empty."""


# --- the tables ----------------------------------------------------------------------------------


def walks_of(snapshot: Snapshot, talk: Conversation) -> tuple[LocalWalk, ...]:
    """Return the packets' ways through this host: of what is sent, and of what comes back.

    What comes back is taken to come by the tunnel and with the key that the packets leave with;
    where these leave by no tunnel, its way is not known.
    """
    sent = walk_egress(snapshot, talk.port, talk.out)
    if talk.neighbour:
        return sent, walk_egress(snapshot, talk.neighbour, talk.back)
    key = key_of((sent,), talk)
    if key is None:
        return (sent,)
    return sent, walk_ingress(
        snapshot, tun_dst=talk.here, tun_src=talk.there, tun_id=key, header=talk.back
    )


def key_of(walks: Sequence[LocalWalk], talk: Conversation) -> int | None:
    """Return the tunnel's key that the packets leave with; None if they leave by none of theirs."""
    left = walks[0].tunnelled_to({talk.there})
    return left.tun_id if left is not None and left.tun_dst == talk.there else None


def of_tables(snapshot: Snapshot, walks: Iterable[LocalWalk]) -> list[TableFinding]:
    """Return what is wrong with the flows and groups that these walks cross."""
    crossed: dict[tuple[str, int], set[str]] = {}
    for one in walks:
        for step in one.steps:
            bridge, separator, number = step.where.partition("/table=")
            if separator:
                crossed.setdefault((bridge, int(number)), set()).add(step.text)
    texts = {text for each in crossed.values() for text in each}
    narrow = replace(snapshot, bridges=tuple(_with_flows(b, crossed) for b in snapshot.bridges))
    wide = replace(snapshot, bridges=tuple(_with_tables(b, crossed) for b in snapshot.bridges))
    found = tables.check([narrow], ON_FLOWS)
    found += [
        one
        for one in tables.check([wide], ON_TABLES)
        if any(quoted in texts for _, quoted in one.quotes)
    ]
    return found


def _with_flows(bridge: Bridge, crossed: dict[tuple[str, int], set[str]]) -> Bridge:
    """Return the bridge with nothing but the flows that are crossed, and their groups."""
    flows = tuple(
        flow
        for number in sorted(bridge.tables)
        if (texts := crossed.get((bridge.name, number)))
        for flow in bridge.tables[number].flows
        if flow.text in texts
    )
    used = set(_groups(bridge, flows))
    return replace(
        bridge,
        flows=flows,
        index=None,
        groups=tuple(group for group in bridge.groups if group.id in used),
        ports=tuple(port for port in bridge.ports if port.ofport >= 0),
    )


def _groups(bridge: Bridge, flows: Iterable[Flow]) -> Iterator[int]:
    for flow in flows:
        for action in tables.every(flow.actions, bridge.by_group):
            if isinstance(action, ToGroup):
                yield action.group


def _with_tables(bridge: Bridge, crossed: dict[tuple[str, int], set[str]]) -> Bridge:
    """Return the bridge with nothing but the tables that are crossed."""
    index = {n: bridge.tables[n] for n in sorted(bridge.tables) if (bridge.name, n) in crossed}
    flows = tuple(flow for table in index.values() for flow in table.flows)
    return replace(bridge, flows=flows, index=index)


# --- the datapath and tc -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crossed:
    """The datapath's flows that the packets match."""

    flows: tuple[Megaflow, ...] = ()
    ufids: frozenset[str] = frozenset()
    """Their ids, and those of filters that the packets match and whose flow is gone."""
    problems: tuple[str, ...] = ()
    """What could not be read."""


def crossed_by(layers: Layers, talk: Conversation, tun_id: int | None = None) -> Crossed:
    """Return which of the newest sample's flows the packets match, recirculated ones included."""
    entrances = _entrances(layers, talk, tun_id)
    flows, problems = [], []
    for megaflow in layers.last.megaflows:
        try:
            if any(crosses(each, megaflow) for each in entrances):
                flows.append(megaflow)
        except ValueError as error:
            problems.append(f"a flow of the datapath: {error}")
    orphans = set()
    for ufid in layers.filters.keys() - layers.last.by_ufid.keys():
        try:
            if any(passes(each, one) for one in layers.filters[ufid] for each in entrances):
                orphans.add(ufid)
        except ValueError as error:
            problems.append(f"a filter of tc: {error}")
    if left := len(flows[MAX_FLOWS:]):
        flows = sorted(flows, key=lambda one: -one.packets)[:MAX_FLOWS]
        problems.append(f"{left} more flows of the datapath are left out")
    ufids = frozenset(one.ufid for one in flows) | orphans
    return Crossed(tuple(flows), ufids, tuple(dict.fromkeys(problems)))


def _entrances(layers: Layers, talk: Conversation, tun_id: int | None) -> list[Entrance]:
    ours = [port for bridge in layers.snapshot.bridges for port in bridge.ports]
    near = _names(layers, (port for port in ours if port.name == talk.port))
    sent = [Entrance(known, near) for known in _known(talk.out)]
    if talk.neighbour:
        far = _names(layers, (port for port in ours if port.name == talk.neighbour))
        return sent + [Entrance(known, far) for known in _known(talk.back)]
    tunnels = _names(layers, (port for port in ours if port.is_tunnel))
    came = _tunnelled(talk)
    if tun_id is not None:
        came["tun_id"] = tun_id
    return sent + [Entrance(known | came, tunnels) for known in _known(talk.back)]


def _tunnelled(talk: Conversation) -> dict[str, int]:
    """Return what is known of the outer header: of known ends that the other family is absent."""
    slots = outer(talk.here, talk.there)
    known = {end for end in ("dst", "src") if slots[f"tun_{end}"] or slots[f"tun_ipv6_{end}"]}
    return {slot: value for slot, value in slots.items() if slot.rpartition("_")[2] in known}


def _names(layers: Layers, ports: Iterable[Port]) -> frozenset[str]:
    """Return what the datapath may call these ports."""
    numbers = {port.datapath for port in ports} - {None}
    return frozenset(map(str, numbers)) | {n for n, at in layers.names.items() if at in numbers}


_INNER = (
    *("eth_src", "eth_dst", "eth_type", "nw_src", "nw_dst"),
    *("ipv6_src", "ipv6_dst", "nw_proto"),
)


def _known(header: Header) -> list[dict[str, int]]:
    """Return what is known of probes, and of replies, which come from the port that is probed."""
    plain = {slot: value for slot in _INNER if (value := getattr(header, slot))}
    return [plain | {slot: header.tp_dst} for slot in ("tp_dst", "tp_src")]


def of_copies(layers: Layers, crossed: Crossed, trace: Trace) -> list[TableFinding]:
    """Return where the datapath's and tc's copies of these flows differ from the tables.

    The live Open vSwitch is asked about each stale flow: if it would do what the datapath does, the
    tables as dumped are older than the datapath, or misread, and nothing is stale.
    """
    mine = replace(layers, only=crossed.ufids)
    by_text = {one.text: one for one in crossed.flows}
    found = []
    for one in copies.check(mine):
        megaflow = by_text.get(dict(one.quotes).get("datapath", ""))
        if one.severity == "warning" and megaflow is not None:
            if one.check == STALE and _defended(mine, megaflow, trace):
                continue
            if not _lasts(one.check, mine, megaflow):
                found.append(replace(one, severity="note"))
                continue
        found.append(one)
    return found


def _lasts(check: str, layers: Layers, megaflow: Megaflow) -> bool:
    """Return whether every look shows a flow in software, where others are in hardware.

    Where nothing is in hardware, that is how the host is, and no reason for anything new.
    """
    if check == "in-software":
        is_used = any(one.in_hw for one in layers.last.filters)
        return is_used and all(
            any(not one.in_hw for one in sample.filters_by_ufid.get(megaflow.ufid, ()))
            for sample in layers.samples
        )
    if check == "not-offloaded":
        history = layers.history(megaflow.ufid)
        return len(history) == len(layers.samples) and not any(one.offloaded for one in history)
    return True


def _defended(layers: Layers, megaflow: Megaflow, trace: Trace) -> bool:
    """Return whether the live Open vSwitch does not bear a stale flow out."""
    try:
        bridge, packet = entered(layers, megaflow)
    except (MalformedLine, LookupError):
        return True
    said = trace(bridge, packet).partition(_TRACED)[2].partition("\n")[0].strip()
    if not said:
        return False
    exact = megaflow.layer != "tc"
    theirs, held, ours = (
        essence(actions, layers.names, exact=exact)
        for actions in (said, megaflow.actions, intent(layers, megaflow).actions)
    )
    return theirs == held or theirs != ours


def judged(layers: Layers, crossed: Crossed) -> int:
    """Return how many of the flows can be held against the tables."""
    return sum(not intent(layers, one).unknown for one in crossed.flows)
