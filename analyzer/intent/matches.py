# SPDX-License-Identifier: Apache-2.0
"""Whether a logical flow's match can hold on a host at all: what OVN's controllers ask of each.

The language is that of ovn-sb(5), Logical_Flow:match. Only ports, port groups, address sets and
residence are known here; whatever else is compared may hold or not.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address, ip_network

from netagent.model.errors import RemoteProtocolError

MOST_DEPTH = 64
"""Most parentheses and negations within each other. Chosen: northd's have five; it bounds the
stack."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<op>&&|\|\||==|!=|<=|>=|<|>|!|\(|\)|\{|\}|,)|"""
    r"""(?P<word>[$@]?[^\s&|=!<>(){},"]+))"""
)
_COMPARING = ("==", "!=", "<", "<=", ">", ">=")


class Can(Enum):
    """What is known of a condition."""

    NEVER = "never"
    MAYBE = "maybe"
    ALWAYS = "always"


_NOT = {Can.NEVER: Can.ALWAYS, Can.MAYBE: Can.MAYBE, Can.ALWAYS: Can.NEVER}


@dataclass(frozen=True, slots=True)
class Local:
    """What a host has of a controller's objects."""

    ports: frozenset[str] = frozenset()
    """Logical ports that are plugged in here, or are everywhere (patch and localnet ports)."""
    resident: frozenset[str] = frozenset()
    """Ports that are bound here."""
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Ports of port groups."""
    empty: frozenset[str] = frozenset()
    """Address sets without an address."""
    packet: Mapping[str, str] = field(default_factory=dict)
    """What is known of the packet: fields of Ethernet, IP and ports, as matches write them."""


def can_hold(match: str, pipeline: str, local: Local) -> Can:
    """Return whether a packet on this host can match.

    A port counts where OVN's controller drops flows for it: `inport` in the ``ingress`` pipeline
    and `outport` in ``egress`` (ovn:controller/lflow.c, add_matches_to_flow_table). Raises
    RemoteProtocolError for what is no match.
    """
    reader = _Reader(match, {"ingress": "inport", "egress": "outport"}.get(pipeline, ""), local)
    found = reader.any_of(0)
    reader.end()
    return found


class _Reader:
    """A recursive descent; each rule returns what is known of what it read."""

    def __init__(self, match: str, port: str, local: Local) -> None:
        self._match, self._port, self._local = match, port, local
        self._tokens = list(_tokens(match))
        self._at = 0

    def any_of(self, depth: int) -> Can:
        found = [self._all_of(depth)]
        while self._takes("||"):
            found.append(self._all_of(depth))
        return _best(found)

    def end(self) -> None:
        if self._at != len(self._tokens):
            raise self._odd()

    def _all_of(self, depth: int) -> Can:
        found = [self._one(depth)]
        while self._takes("&&"):
            found.append(self._one(depth))
        return _NOT[_best([_NOT[each] for each in found])]

    def _one(self, depth: int) -> Can:
        if depth > MOST_DEPTH:
            raise self._odd()
        if self._takes("!"):
            return _NOT[self._one(depth + 1)]
        if self._takes("("):
            found = self.any_of(depth + 1)
            self._expect(")")
            return found
        left = self._values()
        if left == ["is_chassis_resident"] and self._takes("("):
            port = self._take()
            self._expect(")")
            return Can.ALWAYS if _bare(port) in self._local.resident else Can.NEVER
        found = Can.ALWAYS
        if self._peek() not in _COMPARING:
            return {"1": Can.ALWAYS, "0": Can.NEVER}.get(left[0], Can.MAYBE)
        while self._peek() in _COMPARING:
            relation, right = self._take(), self._values()
            found = _worse(found, self._compared(left, relation, right))
            left = right
        return found

    def _compared(self, left: list[str], relation: str, right: list[str]) -> Can:
        what, values = (right, left) if _is_constant(left[0]) else (left, right)
        if relation not in {"==", "!="}:
            return Can.MAYBE
        if what == [self._port] and relation == "==":
            return Can.MAYBE if any(map(self._is_here, values)) else Can.NEVER
        if len(what) == 1 and what[0] in self._local.packet and relation == "==":
            known = self._local.packet[what[0]]
            maybe = any(v.startswith(("$", "@")) for v in values)
            return Can.MAYBE if maybe or any(_is_in(known, v) for v in values) else Can.NEVER
        if values and all(v.startswith("$") and v[1:] in self._local.empty for v in values):
            return Can.NEVER if relation == "==" else Can.MAYBE  # of IP packets alone
        return Can.MAYBE

    def _is_here(self, port: str) -> bool:
        if port.startswith("@"):
            return bool(self._local.groups.get(port[1:], frozenset()) & self._local.ports)
        return _bare(port) in self._local.ports

    def _values(self) -> list[str]:
        if not self._takes("{"):
            return [self._take()]
        found = []
        while not self._takes("}"):
            found.append(self._take())
            self._takes(",")
        return found or [""]

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        if self._at >= len(self._tokens):
            raise self._odd()
        self._at += 1
        return self._tokens[self._at - 1]

    def _takes(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._takes(token):
            raise self._odd()

    def _odd(self) -> RemoteProtocolError:
        return RemoteProtocolError(f"{self._match[:200]!r} is no match of a logical flow")


def _tokens(match: str) -> Iterator[str]:
    at, text = 0, match.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise RemoteProtocolError(f"{match[:200]!r} is no match of a logical flow")
        at = found.end()
        yield found["text"] or found["op"] or found["word"]


def _is_constant(token: str) -> bool:
    return token[:1] in {'"', "$", "@", ""} or token[:1].isdigit()


def _bare(token: str) -> str:
    return str(json.loads(token)) if token.startswith('"') else token


def _is_in(known: str, value: str) -> bool:
    """Return whether a value is, or a prefix or a mask holds, what is known."""
    if "/" not in value:
        return known.lower() == value.lower()
    network, _, length = value.partition("/")
    try:
        return ip_address(known) in ip_network(f"{network}/{length}", strict=False)
    except ValueError:
        return True  # a mask of something else: it may


def _best(found: list[Can]) -> Can:
    order = (Can.ALWAYS, Can.MAYBE, Can.NEVER)
    return next(each for each in order if each in found)


def _worse(one: Can, other: Can) -> Can:
    return _NOT[_best([_NOT[one], _NOT[other]])]
