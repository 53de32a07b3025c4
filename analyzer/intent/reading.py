# SPDX-License-Identifier: Apache-2.0
"""What a walk's end means: somebody intends it, what was intended is missing, or neither.

That a packet is dropped says nothing yet: a policy may want it, a flow that should carry it may be
gone, or nobody ever asked for it to arrive.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from analyzer.intent.logical import Explainer, Host, LogicalFlow, sentence
from analyzer.intent.matches import Can, can_hold
from analyzer.intent.model import Port
from netagent.model.errors import RemoteProtocolError
from netagent.wire.walk import End


class Meaning(Enum):
    """What a dropped packet tells."""

    REFUSED = "refused"
    """A policy of the controller drops it: intended."""
    MISSING = "missing"
    """A flow that the controller asked for is not there: a fault of what implements it."""
    UNASKED = "unasked"
    """The pipeline drops it, since nothing says where it should go: the intent lacks something."""
    UNKNOWN = "unknown"
    """No row of the controller stands for the flow that dropped it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One end, read."""

    meaning: Meaning
    text: str
    """One sentence for a human."""
    by: str = ""
    """What intends it, or what the missing flow was made for; "" where nobody says."""
    flow: LogicalFlow | None = None
    port: str = ""
    """Logical port that no flow of the host leads to; "" where that is not what it means."""


_FIELDS = {
    "dl_src": "eth.src", "dl_dst": "eth.dst", "eth_src": "eth.src", "eth_dst": "eth.dst",
    "nw_src": "ip4.src", "nw_dst": "ip4.dst", "ipv6_src": "ip6.src", "ipv6_dst": "ip6.dst",
    "udp_src": "udp.src", "udp_dst": "udp.dst", "tcp_src": "tcp.src", "tcp_dst": "tcp.dst",
}  # fmt: skip
"""Fields of a packet as Open vSwitch writes them -> as logical flows do (ovn-fields(7))."""
_REGISTERS = {"in": "reg14", "out": "reg15"}
"""Registers that hold the tunnel key of the port by which a packet came, and will leave
(ovn-architecture(7))."""


def packet_of(header: str) -> dict[str, str]:
    """Return what `header`, in the flow syntax of Open vSwitch, says in a match's words."""
    said = dict(_pairs(header))
    protocol = next((each for each in ("udp", "tcp") if f"{each}6" in said or each in said), "")
    for end in ("src", "dst"):
        if protocol and f"tp_{end}" in said:
            said[f"{protocol}_{end}"] = said[f"tp_{end}"]
    return {name: said[key] for key, name in _FIELDS.items() if key in said}


def read_end(
    end: End,
    explainer: Explainer,
    host: Host,
    missing: Iterable[LogicalFlow],
    *,
    ports: Mapping[str, Port],
    start: str = "",
) -> Reading | None:
    """Return what an end means that is no arrival; None of one that goes on.

    `missing` are the logical flows that the host lacks, `start` is the packet as it came in, with
    the metadata of its logical switch: a router rewrites it. What is missing on its way explains
    more than where it then ends.
    """
    cookie = end.flow.cookie if end.flow else 0
    by_flow = explainer.flows.get(cookie)
    is_policy = by_flow is not None and by_flow.refuses
    if end.kind not in {"dropped", "missed"} and not (end.kind == "controller" and is_policy):
        return None
    seen = [_seen(header) for header in (end.header, start) if header]
    for flow in missing:
        if any(_may_take(flow, host, *each) for each in seen):
            owner = explainer.owners.get(flow.hint, "")
            text = f"a flow is missing on the host: {sentence(flow, owner)}"
            return Reading(Meaning.MISSING, text, owner, flow)
    return _unled(end, explainer) if by_flow is None else _dropped(end, by_flow, explainer, ports)


def _unled(end: End, explainer: Explainer) -> Reading:
    """Return what an end means at a flow that is no logical one's."""
    if end.flow and end.flow.cookie in explainer.doubtful:
        made = explainer.explain(end.flow.cookie)
        return Reading(Meaning.UNKNOWN, f"dropped by a flow of table {end.table}: {made}")
    said = dict(_pairs(end.header))
    leaving = _number(said.get("metadata", "")), _number(said.get(_REGISTERS["out"], ""))
    if named := explainer.ports.get(leaving, ""):
        text = f"no flow of the host takes packets to port {named}: it is bound nowhere, or no "
        by = f"port {named}"
        return Reading(Meaning.MISSING, f"{text}tunnel leads there", by, port=named)
    made = explainer.explain(end.flow.cookie if end.flow else 0)
    return Reading(Meaning.UNKNOWN, f"dropped by a flow of table {end.table}: {made}")


def _dropped(
    end: End, flow: LogicalFlow, explainer: Explainer, ports: Mapping[str, Port]
) -> Reading:
    owner = explainer.owners.get(flow.hint, "")
    if flow.refuses:
        by = owner or "an ACL"
        return Reading(Meaning.REFUSED, f"refused by {by}: {flow.match}", by, flow)
    if flow.stage.endswith("_port_sec"):
        return _secured(end, flow, explainer, ports)
    if owner.startswith("port ") and not _is_enabled(owner, ports):
        return Reading(Meaning.REFUSED, f"{owner} is disabled", owner, flow)
    return Reading(Meaning.UNASKED, f"nothing leads on: {sentence(flow, owner)}", owner, flow)


def _seen(header: str) -> tuple[dict[str, str], int]:
    """Return a packet as `packet_of` has it, and its metadata."""
    return packet_of(header), _number(dict(_pairs(header)).get("metadata", ""))


def _may_take(flow: LogicalFlow, host: Host, packet: Mapping[str, str], metadata: int) -> bool:
    """Return whether a logical flow may be for a packet: none of what is known speaks against."""
    # A flow that takes all there is says nothing of this packet.
    if not any(name in flow.match for name in packet):
        return False
    if metadata not in {host.datapaths.get(each) for each in flow.datapaths}:
        return False
    try:
        can = can_hold(flow.match, flow.pipeline, replace(host.local, packet=packet))
    except RemoteProtocolError:
        return False
    return can is not Can.NEVER


def _secured(
    end: End, flow: LogicalFlow, explainer: Explainer, ports: Mapping[str, Port]
) -> Reading:
    said = dict(_pairs(end.header))
    way = "out" if "_out_" in flow.stage else "in"
    keys = _number(said.get("metadata", "")), _number(said.get(_REGISTERS[way], ""))
    named = explainer.ports.get(keys, "")
    by = f"port {named}" if named else "a port"
    if named and not _is_enabled(by, ports):
        return Reading(Meaning.REFUSED, f"{by} is disabled", by, flow)
    end_of, words = ("dst", "goes to") if way == "out" else ("src", "comes from")
    packet = packet_of(end.header)
    names = (f"{layer}.{end_of}" for layer in ("eth", "ip4", "ip6"))
    what = ", ".join(packet[name] for name in names if name in packet)
    text = f"refused by port security of {by}: the packet {words} {what}"
    return Reading(Meaning.REFUSED, text, f"port security of {by}", flow)


def _is_enabled(owner: str, ports: Mapping[str, Port]) -> bool:
    port = ports.get(owner.removeprefix("port "))
    return port is None or port.is_enabled


def _pairs(header: str) -> Iterable[tuple[str, str]]:
    for part in header.split(","):
        key, _, value = part.partition("=")
        yield key.strip(), value.strip()


def _number(text: str) -> int:
    try:
        return int(text.partition("/")[0], 0)
    except ValueError:
        return 0
