# SPDX-License-Identifier: Apache-2.0
"""The text of a trace, as `ofproto/trace` writes it (`ofproto-dpif-trace.c`)."""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ovs_checks.openflow.actions import Nat
from ovs_checks.openflow.describe import describe_match, describe_packet
from ovs_checks.openflow.notation import CT_STATES, format_flags, format_ipv4, format_ipv6
from ovs_checks.openflow.packet import CS_NEW, CS_TRK, Header
from ovs_checks.switch.snapshot import Snapshot

from .context import Node, Numbers, Recirculation
from .datapath import text_of
from .translation import Translation, clear_looked, translate

MAX_RECIRCULATIONS = 4096
"""Recirculations at which `ofproto/trace` stops (`ofproto_trace()`, ofproto-dpif-trace.c)."""
_RULE = "=" * 79
_SLOW = {
    "lacp": "Consists of LACP packets",
    "stp": "Consists of STP packets",
    "action": "Uses action(s) not supported by datapath",
}


@dataclass(frozen=True, slots=True)
class Trace:
    """A packet's way through one host, recirculations included."""

    translations: tuple[Translation, ...]
    text: str

    @property
    def datapath_actions(self) -> str:
        """What the last lookup in the datapath does: the line that tools read."""
        return text_of(self.translations[-1].steps)

    @property
    def unknown(self) -> str:
        """What was met that is not understood; empty if nothing."""
        return next((one.unknown for one in self.translations if one.unknown), "")


def trace(
    snapshot: Snapshot,
    bridge: str,
    packet: Header,
    ct_states: Sequence[int] = (),
    *,
    carried: bool = False,
    names: bool = False,
) -> Trace:
    """Trace a packet; `ct_states` say what connection tracking answers, new once they run out.

    `carried` says that there is a packet and not only its headers, which controllers would get;
    `names`, that ports are called by their names.
    """
    states, numbers = deque(ct_states), Numbers()
    first = translate(snapshot, bridge, packet, numbers=numbers, carried=carried, named=names)
    done, lines = [first], list(_report(first))
    waiting = deque(_tracked(first))
    while waiting:
        again = waiting.popleft()
        if len(done) > MAX_RECIRCULATIONS:
            # The text is Open vSwitch's own, slip and all.
            said = "Trace reached the recirculation limit.  Sopping the trace here."
            left = f"Queued but not processed: {len(waiting) + 1} recirculations."
            lines += ["", "", _RULE, said, left]
            break
        flow, heading = _resumed(again, states)
        lines += ["", "", _RULE, *heading, _RULE, ""]
        one = translate(
            snapshot,
            bridge,
            flow,
            numbers=numbers,
            state=again.state,
            carried=carried,
            named=names,
        )
        done.append(one)
        lines += _report(one)
        waiting.extend(_tracked(one))
    text = "\n".join(lines)
    if names:
        ports = {str(n): port.name for n, port in snapshot.by_name[bridge].by_number.items()}
        ports["LOCAL"] = bridge
        text = _PACKETS.sub(lambda line: _named(line[0], ports), text)
    return Trace(tuple(done), text)


_PACKETS = re.compile(r"^(?:Flow|Final flow|Megaflow): .*$", re.MULTILINE)
_IN_PORT = re.compile(r"\bin_port=(\w+)")


def _named(line: str, ports: Mapping[str, str]) -> str:
    return _IN_PORT.sub(lambda found: f"in_port={ports.get(found[1], found[1])}", line)


def _tracked(translation: Translation) -> list[Recirculation]:
    return [one for one in translation.recirculations if one.kind == "conntrack"]


def _resumed(again: Recirculation, states: deque[int]) -> tuple[Header, list[str]]:
    """Return the packet as connection tracking gives it back, and the lines that say so."""
    head = f"recirc({again.id:#x}) - resume conntrack with "
    if states:
        state = states.popleft()
        head += f"ct_state={format_flags(state, CT_STATES)}"
    else:
        state = CS_TRK | CS_NEW
        head += "default ct_state=trk|new (use --ct-next to customize)"
    flow = resumed(again, state)
    if again.nat is None:
        return flow, [head]
    before = resumed(replace(again, nat=None), state)
    return flow, [
        head,
        "Replacing src/dst IP/ports to simulate NAT:",
        f" Initial flow: {_tuple(before, again.nat)}",
        f" Modified flow: {_tuple(flow, again.nat)}",
    ]


def resumed(again: Recirculation, ct_state: int) -> Header:
    """Return the packet as connection tracking gives it back."""
    flow = again.flow._replace(ct_state=ct_state, recirc_id=again.id, ct_zone=again.zone)
    return translated(flow, again.nat) if again.nat is not None else flow


def translated(flow: Header, nat: Nat) -> Header:
    """Return the packet after address translation to the first address and port of the range."""
    if not nat.kind or nat.low is None:
        return flow
    address = f"{'ipv6' if nat.v6 else 'nw'}_{nat.kind}"
    flow = flow._replace(**{address: nat.low})
    return flow._replace(**{f"tp_{nat.kind}": nat.port_low}) if nat.port_low else flow


def _tuple(flow: Header, nat: Nat) -> str:
    if nat.low is None:
        return ""
    if nat.v6:
        return (f"ipv6_src=[{format_ipv6(flow.ipv6_src)}],tp_src={flow.tp_src},"
                f"ipv6_dst=[{format_ipv6(flow.ipv6_dst)}],tp_dst={flow.tp_dst}")  # fmt: skip
    return (f"nw_src={format_ipv4(flow.nw_src)},tp_src={flow.tp_src},"
            f"nw_dst={format_ipv4(flow.nw_dst)},tp_dst={flow.tp_dst}")  # fmt: skip


def _report(translation: Translation) -> Iterator[str]:
    initial, final = translation.initial, translation.final
    yield f"Flow: {describe_packet(initial)}"
    yield from _tree(translation.tree, 0)
    yield ""
    unchanged = final == initial
    yield f"Final flow: {'unchanged' if unchanged else describe_packet(final)}"
    if translation.unknown:
        yield f"Cannot tell: {translation.unknown}"
        return
    looked = list(translation.looked) if translation.error else clear_looked(translation)
    yield f"Megaflow: {describe_match(initial._replace(actset_output=0), looked)}"
    yield f"Datapath actions: {text_of(translation.steps)}"
    if translation.error:
        yield f"Translation failed ({translation.error}), packet is dropped."
    elif translation.slow:
        yield "This flow is handled by the userspace slow path because it:"
        for reason in sorted(translation.slow):
            yield f"  - {_SLOW[reason]}."


def _tree(nodes: Sequence[Node], level: int) -> Iterator[str]:
    for n, node in enumerate(nodes):
        if node.kind == "bridge":
            yield ""
        more = int(n < len(nodes) - 1 or node.terminal)
        indent = " " * (level + more) * 4
        match node.kind:
            case "detail":
                yield f"{indent} -> {node.text}"
            case "warn":
                yield f"{indent} >> {node.text}"
            case "error":
                yield f"{indent} >>>> {node.text} <<<<"
            case "bridge":
                yield f"{indent}{node.text}"
                yield f"{indent}{'-' * len(node.text)}"
            case _:
                yield f"{indent}{node.text}"
        yield from _tree(node.inner, level + 2 * more)
