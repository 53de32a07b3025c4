# SPDX-License-Identifier: Apache-2.0
"""What Open vSwitch prints, read into values.

Takes the dumps of `ovs-ofctl dump-flows` (any OpenFlow version, port names or numbers, with or
without statistics), of the unixctl command `bridge/dump-flows`, and of `fdb/show`.

The PyPI package `ovs` has a parser too (`ovs.flow`); it does not serve here. It refuses a whole
flow for one unknown keyword, every flow that matches everything at the default priority (it takes
`n_bytes=` for a match field), `importance=`, and port names with a comma; and it pulls in netaddr
and pyparsing. The tests use it as an oracle for the flows both can read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from netagent.model.errors import RemoteProtocolError

from .actions import NotUnderstoodError, Ports, parse_action, port_number
from .flow import (
    Action,
    FdbEntry,
    Flow,
    Match,
    Term,
    Unknown,
)
from .notation import SHORTHANDS, bounded, decode, integer, mac
from .packet import FIELDS, SLOTS, TAG_PRESENT, Header, spread

DEFAULT_PRIORITY = 32768


class MalformedLine(RemoteProtocolError):
    """A line that cannot be what Open vSwitch printed; truncated, most likely."""

    def __init__(self, reason: str, *, line: int, column: int, text: str) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason, self.line, self.column, self.text = reason, line, column, text


@dataclass(frozen=True)
class Dump:
    """All that could be read of a dump, and the lines that could not."""

    flows: tuple[Flow, ...]
    problems: tuple[MalformedLine, ...]


_TOKEN = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^,\s"])+')
_HEADING = re.compile(r"\s*(?:NXST|OFPST)_FLOW reply")
_INFO_BITS = {
    "cookie": 64,
    "table": 8,
    "table_id": 8,
    "n_packets": 64,
    "n_bytes": 64,
    "priority": 16,
}
_INFO_IGNORED = frozenset(
    {"duration", "idle_age", "hard_age", "idle_timeout", "hard_timeout", "importance"}
)
_FLAGS = frozenset(
    {"send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"}
)


def parse_dump(text: str, ports: Ports | None = None) -> Dump:
    """Read a dump of flows; headings and empty lines are passed over.

    A malformed line is reported and costs nothing but itself.
    """
    flows, problems = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or _HEADING.match(line):
            continue
        try:
            flows.append(parse_flow(line, ports, line=number))
        except MalformedLine as problem:
            problems.append(problem)
    return Dump(tuple(flows), tuple(problems))


def parse_flow(text: str, ports: Ports | None = None, *, line: int = 1) -> Flow:
    """Read one flow.

    Raises
    ------
    MalformedLine
        Where the text is no flow. Fields and actions that are merely unknown raise nothing.
    """
    info: dict[str, int] = {}
    terms: list[Term] = []
    unknown: list[Unknown] = []
    for token in _TOKEN.finditer(text):
        word, column = token[0], token.start() + 1
        if word.startswith("actions="):
            break
        key, assigned, value = word.partition("=")
        try:
            if key in _INFO_BITS:
                info[key] = bounded(value, _INFO_BITS[key])
            elif key not in _INFO_IGNORED and key not in _FLAGS:
                terms += _terms(key, value if assigned else None, ports or {})
        except NotUnderstoodError:
            unknown.append(Unknown(word, column))
        except ValueError as e:
            raise MalformedLine(str(e), line=line, column=column, text=text) from e
    else:
        raise MalformedLine("no actions", line=line, column=len(text) + 1, text=text)
    start = token.start() + len("actions=")
    return Flow(
        table=info.get("table", info.get("table_id", 0)),
        priority=info.get("priority", DEFAULT_PRIORITY),
        match=Match(tuple(terms), tuple(unknown)),
        actions=_actions(text, start, ports or {}, line),
        text=text.strip(),
        cookie=info.get("cookie", 0),
        n_packets=info.get("n_packets"),
        n_bytes=info.get("n_bytes"),
        line=line,
    )


def _terms(key: str, value: str | None, ports: Ports) -> list[Term]:
    """Read one comma-separated piece of a match."""
    if value is None:
        if key not in SHORTHANDS:
            raise NotUnderstoodError
        return [Term(name, fixed, FIELDS[name].bits) for name, fixed in SHORTHANDS[key]]
    if key in {"dl_vlan", "dl_vlan_pcp"}:
        return [_vlan_term(key, integer(value))]
    field = FIELDS.get(key)
    if field is None or key.isupper():
        raise NotUnderstoodError
    if field.kind == "port":
        number = port_number(value, ports)
        return [Term(key, number, field.bits)]
    decoded, mask = decode(field, value)
    return [Term(key, decoded, mask)] if mask else []


def _vlan_term(key: str, number: int) -> Term:
    """Read OpenFlow 1.0's VLAN fields, which imply a tag; VLAN 0xffff means that there is none."""
    if key == "dl_vlan_pcp":
        return Term("vlan_tci", (number & 7) << 13 | TAG_PRESENT, 0xE000 | TAG_PRESENT)
    if number == 0xFFFF:
        return Term("vlan_tci", 0, 0xFFFF)
    return Term("vlan_tci", number & 0xFFF | TAG_PRESENT, 0xFFF | TAG_PRESENT)


def _actions(text: str, start: int, ports: Ports, line: int) -> tuple[Action, ...]:
    actions: list[Action] = []
    for begin, end in _split(text, start, line):
        word = text[begin:end]
        try:
            actions += parse_action(word, ports)
        except (NotUnderstoodError, ValueError):
            actions.append(Unknown(word, begin + 1))
    if not actions:
        raise MalformedLine("no actions", line=line, column=start + 1, text=text)
    return tuple(actions)


_BREAKS = re.compile(r'[(),]|"(?:[^"\\]|\\.)*"|"')


def _split(text: str, start: int, line: int) -> Iterator[tuple[int, int]]:
    """Yield where each action begins and ends: at commas outside parentheses and quotes."""
    depth, begin = 0, start
    for found in _BREAKS.finditer(text, start):
        symbol = found[0]
        depth += (symbol == "(") - (symbol == ")")
        if depth < 0 or symbol == '"':
            raise MalformedLine(f"stray {symbol}", line=line, column=found.start() + 1, text=text)
        if symbol == "," and not depth:
            yield from _trimmed(text, begin, found.start())
            begin = found.end()
    if depth:
        raise MalformedLine("parenthesis left open", line=line, column=len(text) + 1, text=text)
    yield from _trimmed(text, begin, len(text))


def _trimmed(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    word = text[begin:end].strip()
    if word:
        begin = text.index(word, begin, end)
        yield begin, begin + len(word)


def parse_header(text: str, ports: Ports | None = None) -> Header:
    """Read a packet in the flow syntax that `ofproto/trace` takes.

    Raises
    ------
    MalformedLine
        For anything that is not understood, and for masks: a packet has one value per field.
    """
    slots = [0] * len(SLOTS)
    for token in _TOKEN.finditer(text):
        key, assigned, value = token[0].partition("=")
        column = token.start() + 1
        try:
            terms = _terms(key, value if assigned else None, ports or {})
        except NotUnderstoodError:
            raise MalformedLine("unknown field", line=1, column=column, text=text) from None
        except ValueError as e:
            raise MalformedLine(str(e), line=1, column=column, text=text) from e
        for term in terms:
            field = FIELDS[term.field]
            if term.mask != field.bits and term.field != "vlan_tci":
                raise MalformedLine("masked field", line=1, column=column, text=text)
            for slot, slot_value, slot_mask in spread(field, term.value, term.mask):
                slots[slot] = slots[slot] & ~slot_mask | slot_value
    return Header(*slots)


def parse_fdb(text: str) -> tuple[FdbEntry, ...]:
    """Read the output of `fdb/show`; lines that are no entries are passed over."""
    entries = []
    for line in text.splitlines():
        words = line.split()
        try:
            port, vlan, address, age = words
            age_s = integer(age) if age.isdigit() else 0
            entries.append(FdbEntry(port_number(port, {}), integer(vlan), mac(address), age_s))
        except (ValueError, NotUnderstoodError):
            continue
    return tuple(entries)
