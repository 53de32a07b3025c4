# SPDX-License-Identifier: Apache-2.0
"""Evidence in sentences, for people. Nothing decides by them."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from netagent.model.evidence import Evidence, EvidenceKind

Values = Mapping[str, Any]


def sentences(evidence: Iterable[Evidence | str]) -> list[str]:
    """Return the lines that say what was seen, in order."""
    return [line for each in evidence for line in _lines(each)]


def _lines(evidence: Evidence | str) -> list[str]:
    if isinstance(evidence, str):
        return [evidence]
    said = _SAY[evidence.kind](evidence.values)
    return [said] if isinstance(said, str) else said


def _tally(v: Values) -> str:
    return f"{v['lost']} of {v['crossed']} probes{_size(v)} that cross {v['component']} are lost"


def _direction(v: Values) -> str:
    return (
        f"{v['lost']} of {v['crossed']} probes{_size(v)} that cross {v['component']} from "
        f"{v['source']} to {v['target']} are lost, {v['back_lost']} of {v['back_crossed']} that "
        "cross it the other way only"
    )


def _beside(v: Values) -> str:
    return (
        f"{v['lost']} of {v['sent']} probes{_size(v)} that cross another {v['kind']} are lost "
        "as well"
    )


def _size(v: Values) -> str:
    return " of the largest size" if v.get("large") else ""


def _large_only(v: Values) -> str:
    if "bytes" not in v:
        return "smaller probes on the same paths are all answered: an MTU or a size filter"
    return (
        f"from {v['bytes']} bytes on: {v['lost']} of {v['sent']} probes of that size are lost, "
        f"none of {v['small']} smaller ones on the same paths: an MTU or a size filter"
    )


def _some_ports(v: Values) -> str:
    told = (
        f"only some UDP source ports: {v['flows']} flows lose {v['lost']} of {v['sent']} probes, "
        f"{v['clean']} others of the same {v['pairs']} pairs none of {v['clean_sent']}"
    )
    if v["component"]:
        told += f"; those that lose are just those that cross {v['component']}"
    if v["mask"]:
        told += f"; those that lose are just the ports with port & {v['mask']:#x} = {v['value']:#x}"
    return told


def _rhythm(v: Values) -> str:
    return (
        f"comes and goes every {v['period_s']:.0f} s, for about {v['lasts_s']:.0f} s: "
        f"{v['cycles']} times in a row, {v['lossy']} of {v['windows']} windows lost probes"
    )


def _pooled(v: Values) -> str:
    return f"counted over {v['windows']} windows: each alone has too few losses"


def _sampled(v: Values) -> str:
    return (
        f"counted on {v['share']:.1%} of the pairs, drawn anew in each window: "
        "more lose probes than can be weighed in time"
    )


def _counted(v: Values) -> str:
    counts = ", ".join(f"{name or '?'} {reached}/{v['sent']}" for name, reached in v["routers"])
    return f"packets of {v['source']} that reached each router: {counts}"


def _timed(v: Values) -> str:
    times = ", ".join(
        f"{name or '?'} {rtt_ns / 1e3:.0f} us" if rtt_ns else f"{name or '?'} none"
        for name, rtt_ns in v["routers"]
    )
    end_to_end = f"{v['before_ns'] / 1e3:.0f} us -> {v['now_ns'] / 1e3:.0f} us"
    return f"how late each router answered {v['source']}: {times}; end to end {end_to_end}"


def _path(v: Values) -> str:
    what = "reply" if v["reply"] else "probe"
    way = " > ".join(hop or "?" for hop in v["way"])
    return f"{what} {way}: {v['lost']}/{v['sent']} lost, there or back"


def _shift(v: Values) -> str:
    times = f"{v['before_ns'] / 1e3:.0f} us -> {v['now_ns'] / 1e3:.0f} us"
    return f"{v['source']} -> {v['target']} port {v['port']}: {times}"


def _no_summary(v: Values) -> str:
    return f"no summary of {v['host']} for the window; RPC: {v['rpc']}"


def _awaited(v: Values) -> str:
    since = f"task {v['task']} declared it at {_clock(v['declared_ns'])}"
    return f"{since}; others of the task are there since {_clock(v['begun_ns'])}, it never was"


def _clock(wall_ns: int) -> str:
    return f"{datetime.fromtimestamp(wall_ns / 1e9, UTC):%Y-%m-%d %H:%M:%SZ}"


def _refused(v: Values) -> str:
    return (
        f"{v['probes']} probes were answered by ICMP port unreachable: the path and the "
        "containers' network stacks work, only the responder is gone"
    )


def _spared(v: Values) -> str:
    return f"probes from and to {v['host']}: {v['lost']} lost; none of them accuses a path"


def _walk(v: Values) -> list[str]:
    steps = ["  " * level + text for level, text in v["steps"]]
    return [f"walk {v['source']} -> {v['target']}:", *steps]


def _trace(v: Values) -> list[str]:
    return [f"trace {v['source']} -> {v['target']}: {v['text']}", *v["lines"]]


def _compared(v: Values) -> list[str]:
    agree = "; they agree" if v["judged"] else ""
    differ = "; what is wrong:" if v["lines"] else agree
    hardware = f" ({v['hardware']} offloaded)" if v["hardware"] else ""
    said = (
        f"flow tables of {v['host']}, {v['source']} -> {v['target']} and back: {v['judged']} of "
        f"{v['flows']} flows of the datapath{hardware} held against OpenFlow's{differ}"
    )
    return [said, *(f"  {line}" for line in v["lines"])]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _probed(v: Values) -> str:
    slow = f"{v['slow']} flows slower than before" if v["slow"] else "no flow slower than before"
    return f"probes of {v['task']}: {v['pairs']} pairs, {v['lost']} of {v['sent']} lost, {slow}"


_SAY: Mapping[EvidenceKind, Callable[[Values], str | list[str]]] = {
    EvidenceKind.TALLY: _tally,
    EvidenceKind.BESIDE: _beside,
    EvidenceKind.DIRECTION: _direction,
    EvidenceKind.PARTS: lambda v: f"{' and '.join(v['parts'])} explain the losses better",
    EvidenceKind.POOLED: _pooled,
    EvidenceKind.SAMPLED: _sampled,
    EvidenceKind.LARGE_ONLY: _large_only,
    EvidenceKind.SOME_PORTS: _some_ports,
    EvidenceKind.RHYTHM: _rhythm,
    EvidenceKind.COUNTED: _counted,
    EvidenceKind.TIMED: _timed,
    EvidenceKind.PATH: _path,
    EvidenceKind.TRACE_END: lambda v: (
        f"  its latest trace ends after {v['router'] or 'a silent router'}"
    ),
    EvidenceKind.SHIFT: _shift,
    EvidenceKind.FINDING: lambda v: str(v["text"]),
    EvidenceKind.READ: lambda v: f"{v['name']}: {v['text']}",
    EvidenceKind.CROSSED: lambda v: (
        f"probes that cross it: {v['lost']} of {v['sent']} lost"
        if v["sent"]
        else "no probe crosses it now"
    ),
    EvidenceKind.NO_SUMMARY: _no_summary,
    EvidenceKind.LATE: lambda v: (
        f"stamps of probes: {v['host']} takes {v['delay_ns'] / 1e6:.0f} ms of a round trip"
    ),
    EvidenceKind.AWAITED: _awaited,
    EvidenceKind.REFUSED: _refused,
    EvidenceKind.SPARED: _spared,
    EvidenceKind.FLOW: lambda v: f"{v['role']}: {v['text']}",
    EvidenceKind.WALK: _walk,
    EvidenceKind.TRACE: _trace,
    EvidenceKind.OPERATORS: lambda v: [f"operators of {v['task']}:", *_indented(v["lines"])],
    EvidenceKind.PROBED: _probed,
    EvidenceKind.COMPARED: _compared,
}
