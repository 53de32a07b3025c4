# SPDX-License-Identifier: Apache-2.0
"""What is wrong with flow tables whatever packet comes: named checks over snapshots."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from netagent.model.path import Component, flow_table, tunnel, vswitch
from ovs_checks.openflow.actions import (
    Action,
    Clone,
    Conjunction,
    Ct,
    Enqueue,
    Goto,
    Learn,
    Members,
    Meter,
    Move,
    Pop,
    Resubmit,
    ToGroup,
    ToPort,
    ToPortTruncated,
    Unknown,
    Write,
    WriteActions,
)
from ovs_checks.openflow.classifier import Subtable, Table, covers
from ovs_checks.openflow.fields import FIELDS
from ovs_checks.openflow.flow import Flow
from ovs_checks.openflow.notation import (
    SPECIAL_PORTS,
    format_ipv4,
    format_ipv6,
    integer,
    or_zero,
)
from ovs_checks.switch.snapshot import Bridge, Group, Port, Snapshot
from ovs_checks.translate.groups import is_live
from ovs_checks.walk.reach import taker

from .finding import Severity, TableFinding, run_checks

MAX_FINDINGS = 1000
"""Findings of one check that are reported. Chosen: a table that is wrong as a whole needs no
more."""

_NO_PORT = frozenset(SPECIAL_PORTS.values())


def check(snapshots: Sequence[Snapshot], names: Iterable[str] = ()) -> list[TableFinding]:
    """Run `CHECKS`, or those called `names`, on the snapshots of different hosts."""
    return run_checks(CHECKS, snapshots, names, at_most=MAX_FINDINGS)


def _place(snapshot: Snapshot, bridge: Bridge, table: int) -> Component:
    return flow_table(snapshot.host, bridge.name, table)


def _bridges(snapshots: Iterable[Snapshot]) -> Iterator[tuple[Snapshot, Bridge]]:
    for snapshot in snapshots:
        for bridge in snapshot.bridges:
            yield snapshot, bridge


# --- flows that another covers -------------------------------------------------------------------


def shadowed(snapshots: Iterable[Snapshot]) -> Iterator[TableFinding]:
    """Find flows that never match, because one of higher priority matches all that they do.

    Several flows that cover another only together are not looked for. A controller's pipeline has
    many that repeat others, and is meant so.
    """
    for snapshot, bridge in _bridges(snapshots):
        for number in bridge.tables:
            for flow, by in shadows(bridge.tables[number]):
                same, expires = flow.actions == by.actions, "_timeout=" in by.text
                if bridge.is_driven and same and not expires:
                    continue
                costs = "it does the same" if same else "it does something else"
                costs += ", for as long as it lasts" * expires
                text = (
                    f"priority {flow.priority} never matches: priority {by.priority} matches "
                    f"all that it does, and {costs}"
                )
                severity: Severity = "note" if same or expires else "warning"
                quotes = (("never matches", flow.text), ("covers it", by.text))
                place = _place(snapshot, bridge, number)
                yield TableFinding("shadowed-flow", severity, place, text, quotes)


def shadows(table: Table) -> Iterator[tuple[Flow, Flow]]:
    """Yield each flow that never matches, with the flow that covers it."""
    for subtable in table.subtables:
        wider = [other for other in table.subtables if _is_wider(other, subtable)]
        for flows in subtable.flows.values():
            for flow in flows:
                by = _cover(flow, wider)
                if by is not None:
                    yield flow, by


def _is_wider(one: Subtable, other: Subtable) -> bool:
    """Tell whether one mask looks at no bit that the other does not look at."""
    bits = dict(other.mask)
    return all(bits.get(slot, 0) & mask == mask for slot, mask in one.mask)


def _cover(flow: Flow, wider: Iterable[Subtable]) -> Flow | None:
    values = {slot: value for slot, value, _ in flow.match.tests}
    for subtable in wider:  # highest priority first
        if subtable.top <= flow.priority:
            return None
        key = tuple(values[slot] & mask for slot, mask in subtable.mask)
        for other in subtable.flows.get(key, ()):
            if covers(other, flow):
                return other
    return None


def _conditions(flow: Flow) -> list[Conjunction]:
    if "conjunction(" not in flow.text:
        return []
    return [action for action in flow.actions if isinstance(action, Conjunction)]


# --- tables that nothing leads to ----------------------------------------------------------------


def unreachable(snapshots: Iterable[Snapshot]) -> Iterator[TableFinding]:
    """Find tables with flows to which no flow of a table in use leads.

    A controller's pipeline has tables that only some networks need, and fixed flows in all of them.
    """
    for snapshot, bridge in _bridges(snapshots):
        reached, unknown = reachable(bridge)
        severity: Severity = "note" if unknown else "warning"
        but = f"; but not understood: {unknown.text}" if unknown else ""
        for number in sorted(set(bridge.tables) - reached):
            flows = bridge.tables[number].flows
            if bridge.is_driven and number < max(reached) and not any(f.cookie for f in flows):
                continue
            text = f"no flow leads to table {number}, which has {len(flows)} flows{but}"
            place, quotes = _place(snapshot, bridge, number), (("first flow", flows[0].text),)
            yield TableFinding("unreachable-table", severity, place, text, quotes)


def reachable(bridge: Bridge) -> tuple[set[int], Unknown | None]:
    """Return the tables that flows lead to from the first, and an action that may lead anywhere."""
    reached, waiting, unknown = {0}, [0], None
    while waiting:
        number = waiting.pop()
        for flow in bridge.tables[number].flows if number in bridge.tables else ():
            for action in every(flow.actions, bridge.by_group):
                if isinstance(action, Unknown):
                    unknown = unknown or action
                table = action.table if isinstance(action, Goto | Resubmit | Ct) else None
                if table is not None and table not in reached:
                    reached.add(table)
                    waiting.append(table)
    return reached, unknown


def every(
    actions: Iterable[Action], groups: Mapping[int, Group], entered: frozenset[int] = frozenset()
) -> Iterator[Action]:
    """Yield all actions, also those within others and within groups."""
    for action in actions:
        yield action
        if isinstance(action, Clone | WriteActions | Ct):
            yield from every(action.inner, groups, entered)
        elif isinstance(action, ToGroup) and action.group not in entered:
            group = groups.get(action.group)
            for bucket in group.buckets if group else ():
                yield from every(bucket.actions, groups, entered | {action.group})


# --- what does not exist -------------------------------------------------------------------------


def missing(snapshots: Iterable[Snapshot]) -> Iterator[TableFinding]:
    """Find ports, groups and meters that flows and groups name, and that do not exist."""
    for snapshot, bridge in _bridges(snapshots):
        untold = " ".join(one for one in snapshot.problems if one.startswith(f"{bridge.name}: "))
        for port in bridge.ports:
            if port.ofport < 0:
                text = f"port {port.name} of {bridge.name} could not be opened"
                yield TableFinding("missing", "warning", vswitch(snapshot.host), text)
        for flow in bridge.flows:
            place = _place(snapshot, bridge, flow.table)
            for check, severity, text in _absent(bridge, flow, untold):
                yield TableFinding(check, severity, place, text, (("flow", flow.text),))
        for group in bridge.groups:
            place = vswitch(snapshot.host)
            for what in dict.fromkeys(_absent_from(bridge, group)):
                text = f"group {group.id} of {bridge.name} {what}"
                yield TableFinding("missing", "warning", place, text, (("group", group.text),))


def _absent(bridge: Bridge, flow: Flow, untold: str) -> Iterator[tuple[str, Severity, str]]:
    groups = "dump-groups" not in untold
    meters = "dump-meters" not in untold
    for term in flow.match.terms:
        if term.field == "in_port" and (port := _unknown_port(bridge, term.value)):
            yield "missing", "note", f"matches port {port}"
    for action in every(flow.actions, {}):
        for number in _ports_of(action):
            if port := _unknown_port(bridge, number):
                yield "missing", "warning", f"sends to port {port}"
        if groups and isinstance(action, ToGroup) and action.group not in bridge.by_group:
            text = f"sends to group {action.group}, which does not exist"
            yield "missing", "warning", text
        if meters and isinstance(action, Meter) and action.meter not in bridge.meters:
            text = f"passes meter {action.meter}, which does not exist"
            yield "missing", "warning", text


def _absent_from(bridge: Bridge, group: Group) -> Iterator[str]:
    for bucket in group.buckets:
        watched = () if bucket.watch_port is None else (bucket.watch_port,)
        for number in watched:
            if port := _unknown_port(bridge, number):
                yield f"watches port {port}"
        for action in every(bucket.actions, {}):
            for number in _ports_of(action):
                if port := _unknown_port(bridge, number):
                    yield f"sends to port {port}"


def _ports_of(action: Action) -> tuple[int, ...]:
    match action:
        case ToPort() | ToPortTruncated() | Enqueue():
            return (action.port,)
        case Resubmit():
            return () if action.port is None else (action.port,)
        case Members():
            return action.ports
    return ()


def _unknown_port(bridge: Bridge, number: int) -> str:
    """Return a port's number and what is wrong with it; empty if it exists."""
    if number in bridge.by_number or number in _NO_PORT:
        return ""
    return f"{number}, which does not exist"


# --- groups --------------------------------------------------------------------------------------


def dead_groups(snapshots: Iterable[Snapshot]) -> Iterator[TableFinding]:
    """Find groups that lose every packet, for they have no bucket or none that is live."""
    for snapshot, bridge in _bridges(snapshots):
        users = _users(bridge)
        for group in bridge.groups:
            watching = group.type in {"select", "ff"}
            if any(not watching or is_live(bridge, bucket) for bucket in group.buckets):
                continue
            what = "has no bucket that is live" if group.buckets else "has no buckets"
            flows = users.get(group.id, [])
            place = vswitch(snapshot.host)
            if flows:
                place = _place(snapshot, bridge, flows[0].table)
            used = f", and {len(flows)} flows send to it" if flows else "; no flow sends to it"
            text = f"{group.type} group {group.id} of {bridge.name} {what}{used}"
            quotes = (("group", group.text), *(("flow", flow.text) for flow in flows[:1]))
            severity: Severity = "warning" if flows else "note"
            yield TableFinding("dead-group", severity, place, text, quotes)


def _users(bridge: Bridge) -> dict[int, list[Flow]]:
    found: dict[int, list[Flow]] = defaultdict(list)
    for flow in bridge.flows:
        if "group:" in flow.text:
            actions = every(flow.actions, bridge.by_group)
            for group in {action.group for action in actions if isinstance(action, ToGroup)}:
                found[group].append(flow)
    return found


# --- conjunctive matches -------------------------------------------------------------------------


def conjunctions(snapshots: Iterable[Snapshot]) -> Iterator[TableFinding]:
    """Find conjunctive matches that cannot hold, or that two rules share by mistake.

    See ovs-fields(7): the conditions of one have the same priority and number of clauses, each
    clause has a flow, and one flow matches the `conj_id`.
    """
    for snapshot, bridge in _bridges(snapshots):
        for number in bridge.tables:
            parts: dict[int, list[tuple[Flow, Conjunction]]] = defaultdict(list)
            takers: dict[int, list[Flow]] = defaultdict(list)
            for flow in bridge.tables[number].flows:
                for part in _conditions(flow):
                    parts[part.id].append((flow, part))
                for term in flow.match.terms:
                    if term.field == "conj_id" and term.value:
                        takers[term.value].append(flow)
            place = _place(snapshot, bridge, number)
            for one in sorted(parts.keys() | takers.keys()):
                for text, quoted in _wrong(one, parts.get(one, []), takers.get(one, [])):
                    quotes = tuple(("flow", flow.text) for flow in quoted)
                    yield TableFinding("conjunction", "warning", place, text, quotes)


def _wrong(
    number: int, parts: Sequence[tuple[Flow, Conjunction]], takers: Sequence[Flow]
) -> Iterator[tuple[str, Sequence[Flow]]]:
    flows = [flow for flow, _ in parts]
    if not parts:
        yield f"conj_id {number} is matched, but has no conditions", takers[:1]
        return
    if not takers:
        yield f"conj_id {number} has conditions, but no flow matches it", flows[:1]
    numbers = sorted({part.clauses for _, part in parts})
    if len(numbers) > 1:
        said = " and ".join(map(str, numbers))
        yield (
            f"conj_id {number} is used twice: with {said} clauses",
            _differing(parts, lambda _, part: part.clauses),
        )
        return
    for text in _lacking(number, numbers[0], {part.clause for _, part in parts}):
        yield text, flows[:1]
    by_priority = {flow.priority for flow in flows}
    if len(by_priority) > 1:
        text = f"conj_id {number} has conditions of {len(by_priority)} priorities"
        yield text, _differing(parts, lambda flow, _: flow.priority)
    rivals = {(taker.match, taker.priority): taker for taker in takers if taker.cookie}
    cookies = {taker.cookie: taker for taker in rivals.values()}
    if len(cookies) > 1 and len({taker.actions for taker in cookies.values()}) > 1:
        text = f"conj_id {number} is used twice: flows of {len(cookies)} cookies match it"
        yield text, list(cookies.values())


def _lacking(number: int, clauses: int, held: set[int]) -> Iterator[str]:
    lacking = [str(clause + 1) for clause in range(clauses) if clause not in held]
    if lacking:
        yield f"conj_id {number} never holds: no flow for clause {', '.join(lacking)} of {clauses}"


def _differing(
    parts: Iterable[tuple[Flow, Conjunction]], key: Callable[[Flow, Conjunction], int]
) -> list[Flow]:
    """Return one flow for each value of `key`."""
    return list({key(flow, part): flow for flow, part in parts}.values())


# --- tunnels -------------------------------------------------------------------------------------


def one_way(snapshots: Sequence[Snapshot]) -> Iterator[TableFinding]:
    """Find tunnels whose far end does not take what they send, or does not send back.

    Needs the far end's snapshot, and knows it by the `local_ip` of its tunnels. Addresses that
    flows write come from the flows themselves; a key that flows write is not held against it.
    """
    ends = {port.tunnel.local_ip: s for s in snapshots for port in _tunnels(s) if port.tunnel}
    for snapshot in snapshots:
        for port, remote, flow in _remotes(snapshot):
            far, near = ends.get(remote), port.tunnel
            if far is None or far is snapshot or near is None:
                continue
            quotes = [("tunnel", f"{port.name}: {dict(port.options)}")]
            quotes += [("flow", flow.text)] if flow else []
            local = near.local_ip if near.local_ip != "flow" else ""
            key = None if near.out_key == "flow" else or_zero(integer, near.out_key)
            place = tunnel(snapshot.host, port.name)
            if taker(_tunnels(far), remote, local, key) is None:
                text = f"{far.host} has no tunnel that takes what {snapshot.host} sends to {remote}"
                yield TableFinding("one-way-tunnel", "warning", place, text, tuple(quotes))
            elif local and not _learns(far) and local not in {b for _, b, _ in _remotes(far)}:
                text = f"{far.host} is sent to at {remote}, but nothing there sends to {local}"
                yield TableFinding("one-way-tunnel", "warning", place, text, tuple(quotes))


def _tunnels(snapshot: Snapshot) -> list[Port]:
    return [port for bridge in snapshot.bridges for port in bridge.ports if port.is_tunnel]


def _remotes(snapshot: Snapshot) -> Iterator[tuple[Port, str, Flow | None]]:
    """Yield where tunnels lead to: port, address, and the flow that wrote it, if one did."""
    seen = set()
    for bridge in snapshot.bridges:
        tunnels = [(port, port.tunnel.remote_ip) for port in bridge.ports if port.tunnel]
        yield from ((port, remote, None) for port, remote in tunnels if remote != "flow")
        open_to = [port for port, remote in tunnels if remote == "flow"]
        for flow in bridge.flows if open_to else ():
            for remote in _written(bridge, flow):
                for port in _sent_by(bridge, flow, open_to):
                    if (port, remote) not in seen:
                        seen.add((port, remote))
                        yield port, remote, flow


def _written(bridge: Bridge, flow: Flow) -> Iterator[str]:
    """Yield the addresses that a flow has a tunnel send to."""
    if _TUN_DST.search(flow.text):  # reading the actions of every flow takes its time
        for action in every(flow.actions, bridge.by_group):
            if isinstance(action, Write) and FIELDS[action.field] is FIELDS["tun_dst"]:
                yield format_ipv4(action.value)
            elif isinstance(action, Write) and FIELDS[action.field] is FIELDS["tun_ipv6_dst"]:
                yield format_ipv6(action.value)


_TUN_DST = re.compile(r"(?i)tun_(?:ipv[46]_)?dst|group:")


def _learns(snapshot: Snapshot) -> bool:
    """Tell whether flows send to addresses that they have from packets."""
    return any(
        isinstance(action, Move | Pop | Learn) and "dst" in action.text.lower()
        for bridge in snapshot.bridges
        for flow in bridge.flows
        if _TUN_DST.search(flow.text)
        for action in every(flow.actions, bridge.by_group)
    )


def _sent_by(bridge: Bridge, flow: Flow, tunnels: Sequence[Port]) -> list[Port]:
    """Return the tunnels that a flow sends to; all of them where it leaves that to others."""
    actions = every(flow.actions, bridge.by_group)
    numbers = {number for action in actions for number in _ports_of(action)}
    return [port for port in tunnels if port.ofport in numbers] or list(tunnels)


CHECKS: Mapping[str, Callable[[Sequence[Snapshot]], Iterator[TableFinding]]] = {
    "shadowed-flow": shadowed,
    "unreachable-table": unreachable,
    "missing": missing,
    "dead-group": dead_groups,
    "conjunction": conjunctions,
    "one-way-tunnel": one_way,
}
"""The checks by name."""
