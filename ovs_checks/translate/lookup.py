# SPDX-License-Identifier: Apache-2.0
"""From table to table: lookups, what they find, and what a copy is made for."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ovs_checks.openflow.actions import Action, CheckPacketLarger, Clone, Ct, Meter, ToPortTruncated
from ovs_checks.openflow.classifier import Found, nearest
from ovs_checks.openflow.fields import FIELDS, write
from ovs_checks.openflow.flow import Flow
from ovs_checks.openflow.packet import FRAGMENT, SLOTS, is_ip

from . import datapath
from .commit import commit
from .context import IN_PORT, Context, Node, Recirculation
from .ends import End, Quote
from .freezing import wind_up

_FRAG, _TP_SRC, _TP_DST = SLOTS["nw_frag"], SLOTS["tp_src"], SLOTS["tp_dst"]
_SWAPS = (
    ("nw_proto", "ct_nw_proto"),
    ("nw_src", "ct_nw_src"),
    ("nw_dst", "ct_nw_dst"),
    ("ipv6_src", "ct_ipv6_src"),
    ("ipv6_dst", "ct_ipv6_dst"),
    ("tp_src", "ct_tp_src"),
    ("tp_dst", "ct_tp_dst"),
)
_CT_PROTO = SLOTS["ct_nw_proto"]

Executor = Callable[[Context, Sequence[Action], bool], None]


def enter(
    x: Context,
    table: int,
    in_port: int,
    *,
    last: bool,
    executor: Executor | None = None,
    conntrack: bool = False,
) -> None:
    """Look the packet up in a table and do what is found (`xlate_table_action`)."""
    if x.was_mpls:
        x.freeze()
        return
    if limit := x.exceeded():
        note_loop(x, table, limit)
        return
    if conntrack and not (x.flow[_CT_PROTO] and is_ip(x.flow)):
        x.tell("error", "resubmit(ct) with non-tracked or non-IP packet!")
        x.excuse("resubmit(ct) of a packet that is not tracked")
        return
    outer, x.table = x.table, table
    if conntrack:
        _swap(x)
    found = look_up(x, table, in_port)
    if conntrack:
        _swap(x)
    _follow(x, found, table, outer, in_port, last=last, executor=executor or x.go.execute)
    x.table = outer


def look_up(x: Context, table: int, in_port: int) -> Found:
    """Look the packet up as if it had come in by `in_port` (`rule_dpif_lookup_from_table`)."""
    flow = x.flow
    saved = flow[IN_PORT], flow[_TP_SRC], flow[_TP_DST]
    if flow[_FRAG] & FRAGMENT and x.bridge.fragments != "nx-match":
        if x.bridge.fragments == "drop":
            x.finish(x.end("dropped", "the bridge is set to drop fragments"))
            return Found(None)
        flow[_TP_SRC] = flow[_TP_DST] = 0  # a table cannot see ports that later fragments lack
    flow[IN_PORT] = in_port
    tables = x.bridge.tables
    found = tables[table].look_up(flow, x.looked) if table in tables else Found(None)
    if found.doubt:
        raise x.give_up(found.doubt, found.flow)
    if found.flow is None:
        _note_miss(x, table)
    flow[IN_PORT], flow[_TP_SRC], flow[_TP_DST] = saved
    return found


def _note_miss(x: Context, table: int) -> None:
    tables = x.bridge.tables
    flows = tables[table].flows if table in tables else ()
    near = nearest(flows, x.flow)
    quote = Quote.of(x.bridge.name, near.flow) if near else None
    reason = "no flow matches" if flows else "the table is empty"
    field = ",".join(near.failed) if near else ""
    end = End("missed", x.bridge.name, table, reason, x.header, nearest=quote, field=field)
    x.finish(end)


def _follow(
    x: Context,
    found: Found,
    table: int,
    outer: int,
    in_port: int,
    *,
    last: bool,
    executor: Executor,
) -> None:
    """Do what a lookup found, one level down."""
    node = tell_table(x, found, table)
    with x.below(node):
        if found.flow is None:
            x.resubmits += 1
            x.tell("action", "drop")
            return
        deepens = table <= outer
        state = (x.bridge.name, table, in_port, x.header)
        x.visiting.append((state, Quote.of(x.bridge.name, found.flow)))
        x.resubmits += 1
        x.depth += deepens
        saved, x.rule, cookie = x.rule, found.flow, x.cookie
        x.cookie = found.flow.cookie
        run_flow(x, found.flow, last=last, executor=executor)
        x.rule, x.cookie = saved, cookie
        x.depth -= deepens
        x.visiting.pop()


def run_flow(x: Context, flow: Flow, *, last: bool, executor: Executor) -> None:
    """Do what a flow says; if nothing becomes of the packet, note that this flow dropped it."""
    ends, waiting = len(x.ends), len(x.recirculations)
    frozen, outer, x.why_not = x.freezing, x.why_not, None
    executor(x, flow.actions, last)
    nothing = len(x.ends) == ends and len(x.recirculations) == waiting
    if nothing and not x.error and x.freezing == frozen and not x.action_set:
        drop(x, flow)
    x.why_not = outer


def drop(x: Context, flow: Flow) -> None:
    """Note that a flow sent the packet nowhere; a table's default flow is as good as a miss."""
    said = any(getattr(action, "verb", "") == "drop" for action in flow.actions)
    reason, port = x.why_not or ("", "")
    reason = reason or ("drop" if said else "its actions send the packet nowhere")
    end = x.end("dropped", reason, port)
    if not flow.match.terms and not flow.match.unknown:
        near = nearest(x.bridge.tables[flow.table].flows, x.flow)
        if near:
            quote = Quote.of(x.bridge.name, near.flow)
            end = x.end("dropped", reason, port, nearest=quote, field=",".join(near.failed))
    x.finish(end)


def tell_table(x: Context, found: Found, table: int) -> Node:
    """Add the line that says what a lookup found."""
    if found.flow is None:
        return x.tell("table", f"{table:2d}. No match.")
    node = x.tell("table", f"{table:2d}. {spell(found.flow)}", found.flow)
    for part in found.parts:
        with x.below(node):
            x.tell("detail", f"conj. {spell(part)}", part)
    return node


def spell(flow: Flow) -> str:
    """Return a flow as the tree shows it: match, priority, cookie, counters."""
    text = flow.text
    cut = text.rfind(" actions=")
    match = text[: cut if cut >= 0 else text.rfind(",actions=")]
    words = [
        word for word in re.split(r"[,\s]+", match) if word and word.partition("=")[0] not in _INFO
    ]
    said = ",".join(words)
    said = f"{said}, priority {flow.priority}" if said else f"priority {flow.priority}"
    if flow.cookie:
        said += f", cookie {flow.cookie:#x}"
    if flow.n_packets is not None:
        said += f", n_packets {flow.n_packets}"
    if flow.n_bytes is not None:
        said += f", n_bytes {flow.n_bytes}"
    return said


_INFO = frozenset(
    {"cookie", "duration", "table", "table_id", "n_packets", "n_bytes", "priority", "idle_age",
     "hard_age", "idle_timeout", "hard_timeout", "importance", "send_flow_rem", "check_overlap",
     "no_packet_counts", "no_byte_counts", "reset_counts", "n_offload_packets", "n_offload_bytes"}
)  # fmt: skip


def _swap(x: Context) -> None:
    """Exchange addresses and ports with those that the connection began with (`tuple_swap`)."""
    for own, original in _SWAPS:
        a, b = SLOTS[own], SLOTS[original]
        for flow in (x.flow, x.looked):
            flow[a], flow[b] = flow[b], flow[a]


def note_loop(x: Context, table: int, limit: str) -> None:
    """Note a loop, with the flows from the last visit to the same place until now."""
    state = (x.bridge.name, table, x.in_port, x.header)
    start = next((n for n in range(len(x.visiting) - 1, -1, -1) if x.visiting[n][0] == state), -1)
    if start >= 0:
        reason = "the packet comes back as it was"
    else:
        last = x.visiting[-1][1] if x.visiting else None
        same = [n for n, (_, quote) in enumerate(x.visiting[:-1]) if quote == last]
        start = same[-1] + 1 if same else 0
        reason = f"over {limit}, where Open vSwitch gives up"
    cycle = [quote for _, quote in x.visiting[start:]]
    entry = next((n for _, quote in x.visiting for n, q in enumerate(cycle) if q == quote), 0)
    cycle = cycle[entry:] + cycle[:entry]
    x.finish(End("loop", x.bridge.name, table, reason, x.header, cycle=tuple(cycle)))


# --- copies --------------------------------------------------------------------------------------

_CLONING = 3
"""Nested `sample` actions beyond which a datapath copies packets by `sample`
(`compose_clone()`)."""

_IRREVERSIBLE = (Ct, Meter, ToPortTruncated)


def _reversible(actions: Sequence[Action]) -> bool:
    """Return whether further datapath actions can undo what the actions do to the packet."""
    return not any(isinstance(action, _IRREVERSIBLE) for action in actions)


def clone(x: Context, actions: Sequence[Action], last: bool) -> None:
    """Do actions to a copy (`clone_xlate_actions`)."""
    stack, x.stack = x.stack, list(x.stack)
    action_set, x.action_set = x.action_set, list(x.action_set)
    flow, origins = list(x.flow), x.origins
    x.origins = dict(origins)
    if last or _reversible(actions):
        x.go.execute(x, actions, last)
        wind_up(x)
    elif not x.features.clone and x.features.sample_nesting <= _CLONING:
        x.tell("error", "Failed to compose clone action")
        x.excuse("the datapath cannot copy the packet")
    else:
        commit(x)
        base, was_mpls, conntracked = list(x.base), x.was_mpls, x.conntracked
        steps, x.steps = x.steps, []
        x.go.execute(x, actions, True)
        wind_up(x)
        inner, x.steps = x.steps, steps
        if inner:
            copy = datapath.clone if x.features.clone else datapath.always
            x.steps.append(copy(inner))
        x.base, x.was_mpls, x.conntracked = base, was_mpls, conntracked
    x.stack, x.action_set, x.origins = stack, action_set, origins
    x.flow[:] = flow


def do_clone(x: Context, action: Clone, last: bool) -> None:
    """Do the action `clone`; leaving it early is not leaving what follows."""
    clone(x, action.inner, last)


_Cased = TypeVar("_Cased", End, Recirculation)


def _in(case: str, one: _Cased) -> _Cased:
    return replace(one, case=f"{case}, {one.case}" if one.case else case)


def check_larger(x: Context, action: CheckPacketLarger, rest: Sequence[Action]) -> None:
    """Do the rest of the actions once for either answer (`xlate_check_pkt_larger`)."""
    stack, action_set, flow = x.stack, x.action_set, list(x.flow)
    commit(x)
    base, was_mpls, conntracked = list(x.base), x.was_mpls, x.conntracked
    steps, left_early, branches = x.steps, False, []
    field, start = FIELDS[action.target.field], action.target.start
    for answer in (1, 0):
        ends, recirculations = len(x.ends), len(x.recirculations)
        x.steps, x.stack, x.action_set = [], list(stack), list(action_set)
        write(field, x.flow, answer << start, 1 << start)
        x.go.execute(x, rest, True)
        wind_up(x)
        branches.append(x.steps)
        case = f"{'over' if answer else 'up to'} {action.length} bytes"
        x.ends[ends:] = [_in(case, end) for end in x.ends[ends:]]
        x.recirculations[recirculations:] = [
            _in(case, again) for again in x.recirculations[recirculations:]
        ]
        x.base, x.was_mpls, x.conntracked = list(base), was_mpls, conntracked
        x.flow[:] = flow
        left_early = x.exit if answer else left_early
        x.exit = False
    x.steps = [*steps, datapath.check_length(action.length, *branches)]
    x.stack, x.action_set, x.exit = stack, action_set, left_early
