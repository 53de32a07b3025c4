# SPDX-License-Identifier: Apache-2.0
"""Dumps of flows and single packets, read into values.

Takes what `ovs-ofctl dump-flows` prints (any OpenFlow version, port names or numbers, with or
without statistics), what the unixctl command `bridge/dump-flows` prints, and the flow syntax of
`ofproto/trace`.

The PyPI package `ovs` has a parser too (`ovs.flow`); it does not serve here. It refuses a whole
flow for one unknown keyword, every flow that matches everything at the default priority (it takes
`n_bytes=` for a match field), `importance=`, and port names with a comma; and it pulls in netaddr
and pyparsing. The tests use it as an oracle for the flows both can read.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from netagent.model.errors import RemoteProtocolError

from .action_text import NotUnderstoodError, Ports, StrayError, parse_actions, port_number, split
from .actions import Action, Unknown
from .fields import FIELDS, applies, read, write
from .flow import Flow, Match, Term
from .heap import only_growing
from .notation import SHORTHANDS, SPECIAL_PORTS, bounded, decode, integer
from .packet import SLOTS, TAG_PRESENT, Header

DEFAULT_PRIORITY = 32768
"""Priority of a flow whose text has none (`OFP_DEFAULT_PRIORITY`)."""


class MalformedLine(RemoteProtocolError):
    """A line that cannot be what Open vSwitch printed; truncated, most likely."""

    def __init__(self, reason: str, *, line: int, column: int, text: str, source: str = "") -> None:
        where = f"{source}: " if source else ""
        super().__init__(f"{where}line {line}, column {column}: {reason}")
        self.reason, self.line, self.column, self.text = reason, line, column, text
        self.source = source


@dataclass(frozen=True)
class Dump:
    """All that could be read of a dump, and the lines that could not."""

    flows: tuple[Flow, ...]
    problems: tuple[MalformedLine, ...]


_TOKEN = re.compile(r'(?:"(?:[^"\\]|\\.)*"|\([^()]*\)|[^,\s"(])+|\(')
_NO_FLOW = re.compile(
    r"\s*(?:NXST|OFPST)_FLOW reply"
    r"|\d{4}-\d\d-\d\dT[\d:.]+Z\|\d+\|"  # what ovs-ofctl logs, in a dump kept with its errors
)
_ACTIONS = re.compile(r"(?:^|[\s,])actions=")
_INFO_BITS = {
    "cookie": 64,
    "table": 8,
    "table_id": 8,
    "n_packets": 64,
    "n_bytes": 64,
    "priority": 16,
}
"""Key before the match of a flow -> bits of its number (OpenFlow 1.5.1)."""
_INFO_IGNORED = frozenset(
    {"duration", "idle_age", "hard_age", "idle_timeout", "hard_timeout", "importance"}
    | {"n_offload_packets", "n_offload_bytes", "out_port", "out_group"}
)
_COUNTERS = frozenset({"n_packets", "n_bytes"})
_FLAGS = frozenset(
    {"send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"}
)
_MAX_KNOWN = 100_000
"""Texts whose reading is kept for the next line that has them; at more, they are all forgotten.
Chosen: it bounds memory."""


@dataclass(frozen=True, slots=True)
class _Info:
    """A word that is no condition: a counter, the table, the priority."""

    key: str
    value: int


_Word = tuple[Term, ...] | Unknown | _Info | None


class FlowReader:
    """Reads the flows of one bridge; words that were read once are not read again."""

    def __init__(self, ports: Ports | None = None, *, source: str = "") -> None:
        self._ports = ports or {}
        self._source = source
        self._words: dict[str, _Word] = {}
        self._actions: dict[str, tuple[Action, ...]] = {}

    def dump(self, text: str | Iterable[str]) -> Dump:
        """Read a dump of flows; headings and empty lines are passed over.

        A malformed line is reported and costs nothing but itself.
        """
        flows, problems = [], []
        lines = text.splitlines() if isinstance(text, str) else text
        with only_growing():
            for number, line in enumerate(lines, start=1):
                if not is_flow(line):
                    continue
                try:
                    flows.append(self.flow(line, line=number))
                except MalformedLine as problem:
                    problems.append(problem)
        return Dump(tuple(flows), tuple(problems))

    def flow(self, text: str, *, line: int = 1) -> Flow:
        """Read one flow.

        Raises
        ------
        MalformedLine
            Where the text is no flow. Fields and actions that are merely unknown raise nothing.
        """
        actions = _ACTIONS.search(text)
        if actions is None:
            raise self._malformed("no actions", line, len(text) + 1, text)
        self._check_actions(text, actions.end(), line)
        info: dict[str, int] = {}
        terms: list[Term] = []
        unknown: list[Unknown] = []
        for token in _TOKEN.finditer(text, 0, actions.end() - len("actions=")):
            word = token[0]
            if word in self._words:
                known = self._words[word]
            else:
                known = self._word(word, token.start() + 1, line, text)
            if isinstance(known, tuple):
                terms += known
            elif isinstance(known, _Info):
                info[known.key] = known.value
            elif known is not None:
                unknown.append(Unknown(text=word, column=token.start() + 1))
        return Flow(
            info.get("table", info.get("table_id", 0)),
            info.get("priority", DEFAULT_PRIORITY),
            Match(tuple(terms), tuple(unknown)),
            self._read_actions,
            text.strip(),
            cookie=info.get("cookie", 0),
            n_packets=info.get("n_packets"),
            n_bytes=info.get("n_bytes"),
            line=line,
        )

    def _malformed(self, reason: str, line: int, column: int, text: str) -> MalformedLine:
        return MalformedLine(reason, line=line, column=column, text=text, source=self._source)

    def _check_actions(self, text: str, start: int, line: int) -> None:
        """Raise if what follows cannot be actions; they are parsed at their first use."""
        if not text[start:].strip():
            raise self._malformed("no actions", line, start + 1, text)
        if "(" not in text[start:] and ")" not in text[start:] and '"' not in text[start:]:
            return
        try:
            for _ in split(text, start):
                pass
        except StrayError as e:
            raise self._malformed(str(e), line, e.index + 1, text) from e

    def _read_actions(self, text: str) -> tuple[Action, ...]:
        found = _ACTIONS.search(text)
        start = found.end() if found else 0
        said = text[start:]
        known = self._actions.get(said)
        if known is None:
            known = parse_actions(text, self._ports, start)
            if not any(isinstance(action, Unknown) for action in known):  # those know their column
                if len(self._actions) >= _MAX_KNOWN:
                    self._actions.clear()
                self._actions[said] = known
        return known

    def _word(self, word: str, column: int, line: int, text: str) -> _Word:
        """Read one comma-separated piece of what precedes the actions."""
        key, assigned, value = word.partition("=")
        known: _Word
        try:
            if key in _INFO_IGNORED:
                return None
            if key in _INFO_BITS:
                known = _Info(key, bounded(value, _INFO_BITS[key]))
                if key in _COUNTERS:  # no two are alike
                    return known
            elif word in _FLAGS:
                known = None
            else:
                known = tuple(_terms(key, value if assigned else None, self._ports))
        except NotUnderstoodError:
            known = Unknown(text=word, column=column)
        except ValueError as e:
            raise self._malformed(str(e), line, column, text) from e
        if len(self._words) >= _MAX_KNOWN:
            self._words.clear()
        self._words[word] = known
        return known


def is_flow(line: str) -> bool:
    """Tell a flow, or what is left of one, from headings and empty lines."""
    return bool(line.strip()) and not _NO_FLOW.match(line)


def parse_dump(text: str, ports: Ports | None = None, *, source: str = "") -> Dump:
    """Read a dump of flows; see `FlowReader.dump`."""
    return FlowReader(ports, source=source).dump(text)


def parse_flow(text: str, ports: Ports | None = None, *, line: int = 1) -> Flow:
    """Read one flow; see `FlowReader.flow`."""
    return FlowReader(ports).flow(text, line=line)


def _terms(key: str, value: str | None, ports: Ports) -> list[Term]:
    """Read one comma-separated piece of a match."""
    if value is None:
        if key.startswith("tun_metadata") and key in FIELDS:
            return [Term(key, 0, 0)]
        if key not in SHORTHANDS:
            raise NotUnderstoodError
        return [Term(name, fixed, FIELDS[name].bits) for name, fixed in SHORTHANDS[key]]
    if key in _TAG_WORDS:
        slot, pcp = _TAG_WORDS[key]
        return [_vlan_term(slot, integer(value), pcp=pcp)]
    if key == "vlan_vid":
        decoded, mask = decode(FIELDS[key], value)
        return [Term(key, decoded, mask)] if mask else []
    field = FIELDS.get(key)
    if field is None or key.isupper():
        raise NotUnderstoodError
    if field.kind == "port":
        return [Term(key, port_number(value, ports), field.bits)]
    decoded, mask = decode(field, value)
    return [Term(key, decoded, mask)] if mask or field.present else []


_TAG_WORDS = {
    "dl_vlan": ("vlan_tci", False),
    "dl_vlan1": ("vlan_tci1", False),
    "dl_vlan_pcp": ("vlan_tci", True),
    "dl_vlan_pcp1": ("vlan_tci1", True),
}


def _vlan_term(field: str, number: int, *, pcp: bool) -> Term:
    """Read OpenFlow 1.0's VLAN fields, which imply a tag; VLAN 0xffff means that there is none."""
    if pcp:
        return Term(field, (number & 7) << 13 | TAG_PRESENT, 0xE000 | TAG_PRESENT)
    if number == 0xFFFF:
        return Term(field, 0, 0xFFFF)
    return Term(field, number & 0xFFF | TAG_PRESENT, 0xFFF | TAG_PRESENT)


def parse_header(text: str, ports: Ports | None = None) -> Header:
    """Read a packet in the flow syntax that `ofproto/trace` takes; it came in nowhere by default.

    Raises
    ------
    MalformedLine
        For anything that is not understood, and for masks: a packet has one value per field.
    """
    slots = [0] * len(SLOTS)
    slots[SLOTS["in_port"]] = SPECIAL_PORTS["none"]
    for token in _TOKEN.finditer(text):
        key, assigned, value = token[0].partition("=")
        column = token.start() + 1
        try:
            terms = _terms(key, value if assigned else None, ports or {})
        except NotUnderstoodError:
            reason = f"unknown field or port: {token[0][:60]}"
            raise MalformedLine(reason, line=1, column=column, text=text) from None
        except ValueError as e:
            raise MalformedLine(str(e), line=1, column=column, text=text) from e
        for term in terms:
            field = FIELDS[term.field]
            implied = key in SHORTHANDS or key in _TAG_WORDS
            if term.mask != field.bits and not implied and not field.present:
                raise MalformedLine("a packet has no masks", line=1, column=column, text=text)
            _assign(slots, term)
    return Header._make(slots)


_LOOSE = frozenset({"icmp_type", "icmp_code"})
"""Open vSwitch prints them of ICMPv6, too."""


def parse_packet(text: str, ports: Ports | None = None) -> Header:
    """Read a packet that somebody wrote: `parse_header`, and it must be able to have its fields.

    Raises
    ------
    MalformedLine
        Also for a field that no such packet has, or that has two values.
    """
    header = parse_header(text, ports)
    if not text.strip():
        raise MalformedLine("no packet", line=1, column=1, text=text)
    for token in _TOKEN.finditer(text):
        key, assigned, value = token[0].partition("=")
        for term in _terms(key, value if assigned else None, ports or {}):
            field, reason = FIELDS[term.field], ""
            if read(field, header) & term.mask != term.value:
                reason = f"{token[0][:60]}: said otherwise, too"
            elif key not in _LOOSE and not applies(field, header):
                reason = f"{key} needs {field.needs}, which the packet is not"
            if reason:
                raise MalformedLine(reason, line=1, column=token.start() + 1, text=text)
    return header


def _assign(slots: list[int], term: Term) -> None:
    field = FIELDS[term.field]
    if field.name == "vlan_pcp" or (field.name == "vlan_vid" and term.value):
        write(field, slots, term.value, term.mask)
        slots[SLOTS["vlan_tci"]] |= TAG_PRESENT
    else:
        write(field, slots, term.value, term.mask)
