# SPDX-License-Identifier: Apache-2.0
"""Carries a packet through a host's bridges (`xlate_actions`)."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ovs_checks.openflow.classifier import Found
from ovs_checks.openflow.packet import NO_TARGET, SLOTS, TUNNEL, Header, Slots, is_ip
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate.output.mirrors import mirror_input
from ovs_checks.translate.output.normal import mirrors_to
from ovs_checks.translate.output.ports import (
    Held,
    clear_conntrack,
    compose_output,
    forwards,
    may_receive,
    special,
)

from . import datapath
from .context import (
    ACTSET_OUTPUT,
    MAX_RESUBMITS,
    Context,
    Frozen,
    Go,
    Node,
    Numbers,
    Recirculation,
    UnknownMet,
)
from .ends import End
from .execute import execute
from .freezing import wind_up
from .lookup import look_up, run_flow, tell_table

_S = SLOTS
_ECN_SLOT, _TUN_TOS = _S["nw_tos"], _S["tun_tos"]
_FRAMES_PER_LOOKUP = 8
"""Python frames that a nested lookup takes, at most. Chosen: with it Python's limit is not met
before Open vSwitch's."""


@dataclass(frozen=True, slots=True)
class Translation:
    """What Open vSwitch makes of one packet."""

    bridge: str
    initial: Header
    final: Header
    looked: tuple[int, ...]
    steps: tuple[datapath.Step, ...]
    tree: tuple[Node, ...]
    ends: tuple[End, ...]
    error: str
    """Why the packet is dropped although flows matched; empty for no error."""

    slow: frozenset[str]
    recirculations: tuple[Recirculation, ...]
    """Packets that come back from the datapath, in order."""

    unknown: str = ""
    """What was met that is not understood; nothing after it is certain."""

    choices: tuple[tuple[tuple[str, ...], int], ...] = ()
    """Choices of hashes that no snapshot knows: (the options, index of the assumed one)."""


GO = Go(execute, compose_output)


def translate(
    snapshot: Snapshot,
    bridge: str,
    packet: Header,
    *,
    numbers: Numbers | None = None,
    state: Frozen | None = None,
    picks: tuple[int, ...] | None = None,
    carried: bool = False,
    named: bool = False,
) -> Translation:
    """Carry a packet that enters `bridge` by its `in_port` through the host.

    With `state`, the packet comes back from the datapath. No snapshot knows the datapath's hashes:
    `picks` has an index, from 0, for each choice that they make. With `named`, datapath actions
    name ports, rather than number them.

    Raises
    ------
    KeyError
        If the host has no such bridge.
    """
    at = snapshot.by_name[bridge]
    flow: Slots = list(packet)
    flow[ACTSET_OUTPUT] = NO_TARGET
    x = Context(snapshot, at, flow, list(flow), [0] * len(flow), numbers or Numbers(), GO)
    for slot in TUNNEL:
        x.base[slot] = 0
    x.priority, x.picks, x.carried, x.named = packet.skb_priority, picks, carried, named
    x.arrived_at = packet.tun_dst, packet.tun_ipv6_dst
    initial = Header._make(flow)
    unknown = ""
    top = x.tell("bridge", f'bridge("{bridge}")')
    with _room():
        try:
            with x.below(top):
                _translate(x, state)
        except UnknownMet as met:
            x.ends.append(met.end)
            unknown = met.end.reason
    if not x.ends and not x.recirculations:  # an action set, put off until now, led nowhere
        x.ends.append(x.end("dropped", *(x.why_not or ("its actions send the packet nowhere",))))
    if x.error:
        x.steps, x.slow = [], set()
        loops = [end for end in x.ends if end.kind == "loop"]
        x.ends = loops or [end for end in x.ends if end.kind == "cannot_tell"] or x.ends
    elif x.steps and x.steps[-1].kind == "clone":  # nothing follows that needs the original
        x.steps[-1:] = x.steps[-1].inner
    return Translation(
        bridge,
        initial,
        Header._make(x.flow),
        tuple(x.looked),
        tuple(x.steps),
        (top,),
        tuple(x.ends),
        x.error,
        frozenset(x.slow),
        tuple(x.recirculations),
        unknown,
        tuple(x.choices),
    )


@contextmanager
def _room() -> Iterator[None]:
    """Let lookups nest as deeply as Open vSwitch lets them."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _FRAMES_PER_LOOKUP * MAX_RESUBMITS))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _translate(x: Context, state: Frozen | None) -> None:
    _look_at_basics(x)
    if state is not None:
        _thaw(x, state)
    port = x.port(x.in_port)
    lane = x.bridge.by_lane.get(x.in_port)
    found: Found | None = None
    held = Held(x)
    if port is not None and port.layer == "L3" and x.flow[_S["packet_type"]] and not x.table:
        for name in ("packet_type", "eth_src", "eth_dst"):  # tables see frames only
            x.flow[_S[name]] = 0
    if state is None or not state.actions:
        found = look_up(x, x.table, x.in_port)
        node = tell_table(x, found, x.table)
    if state is None and special(x, port):
        mirror_input(x)
        return
    if lane is not None and mirrors_to(x.bridge, lane):
        x.tell("error", f"dropping packet received on port {lane.name}, "
                        "which is reserved exclusively for mirroring")  # fmt: skip
        x.finish(x.end("dropped", f"{lane.name} is reserved for a mirror"))
        return
    if not _congestion(x) or (port is not None and not may_receive(x, port)):
        return
    mirror_input(x)
    if found is not None:
        _begin(x, found, node)
    elif state is not None:
        execute(x, state.actions, True)
    if port is not None and not x.error and not forwards(x, port):
        held.undo(x, port)
    elif not x.error:
        wind_up(x)


def _begin(x: Context, found: Found, node: Node) -> None:
    """Do what the first lookup found."""
    with x.below(node):
        if found.flow is None:
            x.tell("action", "drop")
            return
        x.rule, x.cookie = found.flow, found.flow.cookie
        run_flow(x, found.flow, last=True, executor=execute)


def _look_at_basics(x: Context) -> None:
    """Note what is always looked at (`xlate_wc_init`)."""
    looked, flow = x.looked, x.flow
    looked[_S["packet_type"]] = looked[_S["recirc_id"]] = 0xFFFFFFFF
    looked[_S["in_port"]] = looked[_S["eth_type"]] = 0xFFFF
    if is_ip(flow):
        looked[_S["nw_frag"]] |= 3
    if not (flow[_S["tun_dst"]] or flow[_S["tun_ipv6_dst"]]):
        return
    looked[_S["tun_id"]] = (1 << 64) - 1
    v4 = bool(flow[_S["tun_dst"]])
    for name in ("tun_src", "tun_dst") if v4 else ("tun_ipv6_src", "tun_ipv6_dst"):
        looked[_S[name]] = 0xFFFFFFFF if v4 else (1 << 128) - 1
    looked[_S["tun_flags"]] = 7
    looked[_TUN_TOS] = 0xFF
    if is_ip(flow) and flow[_TUN_TOS] & 3 == 3:
        looked[_ECN_SLOT] |= 3


def _congestion(x: Context) -> bool:
    """Take over congestion that the tunnel met; False if the packet cannot say so (RFC 6040)."""
    if not (x.flow[_S["tun_dst"]] or x.flow[_S["tun_ipv6_dst"]]):
        return True
    if is_ip(x.flow) and x.flow[_TUN_TOS] & 3 == 3:
        if not x.flow[_ECN_SLOT] & 3:
            x.finish(x.end("dropped", "its tunnel met congestion, and it is not ECN capable"))
            return False
        x.flow[_ECN_SLOT] |= 3
    return True


def _thaw(x: Context, state: Frozen) -> None:
    """Take up where the packet was frozen."""
    x.thawed = True
    node = x.tell("thaw", "thaw")
    x.bridge = x.snapshot.by_name[state.bridge]
    x.table = state.table
    with x.below(node):
        x.tell("thaw", f"Resuming from table {state.table}")
    x.conntracked = state.conntracked
    if not state.conntracked:
        clear_conntrack(x.flow)
    x.stack, x.mirrors = list(state.stack), state.mirrors
    if state.action_set:
        x.action_set = list(state.action_set)


def clear_looked(translation: Translation) -> Slots:
    """Return the mask that becomes the megaflow's (`xlate_wc_finish`)."""
    looked = list(translation.looked)
    for name in ("metadata", "conj_id", "actset_output", *(f"reg{n}" for n in range(16))):
        looked[_S[name]] = 0
    packet, final = translation.initial, translation.final
    if packet.packet_type:
        _clear(looked, "eth_dst", "eth_src")
    if _icmp(final):
        looked[_S["tp_src"]] &= 0xFF
        looked[_S["tp_dst"]] &= 0xFF
    if final.nw_frag & 2:
        _clear(looked, "tp_src", "tp_dst")
    if packet.eth_type not in {0x8847, 0x8848}:
        _clear(looked, "mpls_lse", "mpls_lse1", "mpls_lse2")
    for n in ("", "1"):
        if getattr(packet, f"vlan_tpid{n}") not in {0x8100, 0x88A8}:
            _clear(looked, f"vlan_tci{n}", f"vlan_tpid{n}")
        elif looked[_S[f"vlan_tci{n}"]]:
            looked[_S[f"vlan_tci{n}"]] |= 0x1000
    if not (packet.tun_dst or packet.tun_ipv6_dst):
        for slot in TUNNEL:
            looked[slot] = 0
    return looked


def _clear(looked: Slots, *names: str) -> None:
    for name in names:
        looked[_S[name]] = 0


def _icmp(header: Header) -> bool:
    kind, protocol = header.eth_type, header.nw_proto
    return (kind, protocol) in {(0x0800, 1), (0x86DD, 58)}
