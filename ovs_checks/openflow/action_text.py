# SPDX-License-Identifier: Apache-2.0
"""How Open vSwitch prints actions, read into values; see ovs-actions(7)."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from .actions import (
    Action,
    CheckPacketLarger,
    Clone,
    Conjunction,
    Ct,
    DecTtl,
    DeleteField,
    Enqueue,
    Goto,
    Learn,
    LearnSpec,
    Members,
    Meter,
    Move,
    Multipath,
    Nat,
    Plain,
    Pop,
    PopMpls,
    Push,
    PushMpls,
    PushVlan,
    Resubmit,
    Sample,
    SetQueue,
    SetTunnel,
    Subfield,
    ToController,
    ToField,
    ToGroup,
    ToPort,
    ToPortTruncated,
    Unknown,
    Verb,
    Write,
    WriteActions,
    WriteMetadata,
    WriteMpls,
    WritePort,
    WriteTag,
)
from .fields import FIELDS, Field
from .notation import SPECIAL_PORTS, bounded, decode, integer, ipv4, ipv6

Ports = Mapping[str, int]
"""OpenFlow numbers of a bridge's ports by name, for dumps that name ports."""


class NotUnderstoodError(Exception):
    """Apparently well-formed, but not known here; never leaves this package."""


def port_number(text: str, ports: Ports) -> int:
    """Return the number of a port that is given by number, by reserved name or by its own name."""
    if text.isascii() and text.isdigit():
        return _port16(integer(text))
    if text[:2] in {"0x", "0X"}:
        return _port16(integer(text))
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        name = re.sub(r"\\(.)", r"\1", text[1:-1])
    elif text.lower() in SPECIAL_PORTS:
        return SPECIAL_PORTS[text.lower()]
    else:
        name = text
    if name not in ports:
        raise NotUnderstoodError
    return ports[name]


def _port16(number: int) -> int:
    """Return OpenFlow 1.0's number of a port; 1.1 has the reserved ones in 32 bits."""
    if number >= 0xFFFFFF00:
        return bounded(str(number), 32) & 0xFFFF
    if number >> 16:
        raise ValueError(f"no port: {number}")
    return number


# --- splitting -----------------------------------------------------------------------------------

_BREAKS = re.compile(r'[(),]|"(?:[^"\\]|\\.)*"|"')


class StrayError(ValueError):
    """A parenthesis or a quote without its partner, at `index`."""

    def __init__(self, what: str, index: int) -> None:
        super().__init__(what)
        self.index = index


def split(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield where each part begins and ends: at commas outside parentheses and quotes.

    Raises
    ------
    StrayError
        If parentheses or quotes do not match.
    """
    depth, begin = 0, start
    for found in _BREAKS.finditer(text, start):
        symbol = found[0]
        depth += (symbol == "(") - (symbol == ")")
        if depth < 0 or symbol == '"':
            raise StrayError(f"stray {symbol}", found.start())
        if symbol == "," and not depth:
            yield from _trimmed(text, begin, found.start())
            begin = found.end()
    if depth:
        raise StrayError("parenthesis left open", len(text))
    yield from _trimmed(text, begin, len(text))


def _trimmed(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    word = text[begin:end].strip()
    if word:
        begin = text.index(word, begin, end)
        yield begin, begin + len(word)


def parse_actions(text: str, ports: Ports, start: int = 0) -> tuple[Action, ...]:
    """Read what follows `actions=`; `start` is where in `text` that is.

    What is not understood becomes `Unknown`, with its column.
    """
    actions: list[Action] = []
    for begin, end in split(text, start):
        word = text[begin:end]
        try:
            actions += _parse_action(word, ports, begin)
        except (NotUnderstoodError, ValueError):
            actions.append(Unknown(text=word, column=begin + 1))
    return tuple(actions)


_WORD = re.compile(r"([A-Za-z_0-9]+)(?:([:(=])(.*))?", re.DOTALL)


def _parse_action(text: str, ports: Ports, start: int) -> list[Action]:
    """Read one action; a ValueError says as much as that it is not understood."""
    found = _WORD.fullmatch(text)
    verb = found[1].lower() if found else ""
    if found and verb == "controller" and found[2] != "(":
        port = SPECIAL_PORTS["controller"]
        return [ToPort(port, bounded(found[3], 16) if found[3] else 0xFFFF, text=text)]
    if found is None or (verb not in _READERS and not found[2]):
        return [ToPort(port_number(text, ports), text=text)]
    if verb not in _READERS:
        raise NotUnderstoodError
    argument, offset = found[3] or "", start + (found.start(3) if found[2] else len(text))
    if found[2] == "(":
        depth = _closing(argument)
        argument, tail = argument[:depth], argument[depth + 1 :]
        if verb == "check_pkt_larger":
            argument += tail
        elif tail:
            raise ValueError(f"text after the parenthesis: {text[:80]!r}")
    return [
        replace(action, text=text) for action in _READERS[verb](_Argument(argument, offset, ports))
    ]


def _closing(text: str) -> int:
    """Return where the parenthesis that `text` is within closes."""
    depth = 1
    for found in _BREAKS.finditer(text):
        depth += (found[0] == "(") - (found[0] == ")")
        if not depth:
            return found.start()
    raise ValueError("parenthesis left open")


class _Argument:
    """What an action is given, and where that stands in the dumped line."""

    __slots__ = ("offset", "ports", "text")

    def __init__(self, text: str, offset: int, ports: Ports) -> None:
        self.text, self.offset, self.ports = text, offset, ports

    def port(self, text: str | None = None) -> int:
        return port_number(self.text if text is None else text, self.ports)

    def parts(self) -> list[str]:
        return [self.text[begin:end] for begin, end in split(self.text)]

    def options(self) -> list[tuple[str, str]]:
        """Return the parts as (key, value): `a=b`, `a:b`, `a(b)` or `a`."""
        found = []
        for part in self.parts():
            word = re.fullmatch(r"([^=:(]+)(?:[=:](.*)|\((.*)\))?", part, re.DOTALL)
            if word is None:
                raise ValueError(f"odd argument: {part[:40]!r}")
            found.append((word[1], word[2] if word[2] is not None else word[3] or ""))
        return found

    def inner(self, text: str) -> tuple[Action, ...]:
        """Read actions that are given as the argument, or as a part of it."""
        at = self.offset + self.text.index(text)
        return tuple(
            replace(action, column=action.column + at) if isinstance(action, Unknown) else action
            for action in parse_actions(text, self.ports)
        )


# --- fields --------------------------------------------------------------------------------------


def parse_subfield(text: str) -> Subfield:
    """Read `reg0[3..8]`, `reg0[3]`, `reg0[]` or `reg0`."""
    found = re.fullmatch(r"(\w+)(?:\[(?:(\d+)(?:\.\.(\d+))?)?\])?", text, re.ASCII)
    if found is None or found[1] not in FIELDS:
        raise NotUnderstoodError
    field = FIELDS[found[1]]
    start = integer(found[2] or "0")
    stop = integer(found[3] or found[2] or str(field.width - 1))
    if not start <= stop < field.width:
        raise ValueError(f"no such bits: {text!r}")
    return Subfield(field.name, start, stop - start + 1)


def _target(text: str) -> Subfield:
    subfield = parse_subfield(text)
    if not FIELDS[subfield.field].writable:
        raise NotUnderstoodError
    return subfield


def _output(given: _Argument) -> list[Action]:
    parts = given.parts()
    if len(parts) > 1 or "=" in given.text:
        options = dict(given.options())
        port, length = (options.get(key, "") for key in ("port", "max_len"))
        return [ToPortTruncated(given.port(port), integer(length))]
    try:
        return [ToPort(given.port())]
    except NotUnderstoodError:
        return [ToField(parse_subfield(given.text))]


def _set_field(given: _Argument) -> list[Action]:
    value_text, arrow, name = given.text.rpartition("->")
    field = FIELDS.get(name)
    if not arrow or field is None or not field.writable:
        raise NotUnderstoodError
    if field.kind == "port":
        return [Write(field.name, given.port(value_text), field.bits)]
    value, mask = decode(field, value_text)
    if field.name == "vlan_vid" and value & ~0x1FFF:
        raise ValueError(f"no VLAN: {value_text!r}")
    return [Write(field.name, value, mask)]


def _load(given: _Argument) -> list[Action]:
    value_text, _arrow, target_text = given.text.rpartition("->")
    target, value = _target(target_text), integer(value_text)
    if value >> target.width:
        raise ValueError(f"too wide a value: {given.text!r}")
    mask = (1 << target.width) - 1
    return [Write(target.field, value << target.start, mask << target.start)]


def _move(given: _Argument) -> list[Action]:
    source_text, _arrow, target_text = given.text.rpartition("->")
    source, target = parse_subfield(source_text), _target(target_text)
    if source.width != target.width:
        raise ValueError(f"widths differ: {given.text!r}")
    return [Move(source, target)]


def _writer(name: str) -> "Reader":
    field = FIELDS[name]
    return lambda given: [Write(name, *decode(field, given.text))]


def _ethertype(given: _Argument) -> int:
    return bounded(given.text, 16)


def _tag(part: str, bits: int, *, make: bool) -> "Reader":
    def reader(given: _Argument) -> list[Action]:
        value = bounded(given.text, bits)
        return [WriteTag("vid" if part == "vid" else "pcp", value, make)]

    return reader


# --- where to ------------------------------------------------------------------------------------


def _resubmit(given: _Argument) -> list[Action]:
    parts = given.text.split(",")
    port_text, table_text = parts[0], parts[1] if len(parts) > 1 else ""
    if not port_text and not table_text:
        raise ValueError("resubmits nowhere")
    port = given.port(port_text) if port_text else None
    if port == SPECIAL_PORTS["in_port"]:
        port = None
    if parts[2:] not in ([], ["ct"]):
        raise NotUnderstoodError
    table = bounded(table_text, 8) if table_text else None
    return [Resubmit(port, None if table == 0xFF else table, conntrack=bool(parts[2:]))]


_REASONS = {"no_match": 0, "action": 1, "invalid_ttl": 2, "action_set": 3, "group": 4,
            "packet_out": 5}  # fmt: skip
"""Names of `enum ofp_packet_in_reason` (OpenFlow 1.5.1) -> number."""


def _controller(given: _Argument) -> list[Action]:
    action = ToController()
    for key, value in given.options():
        match key:
            case "max_len":
                action = replace(action, max_len=bounded(value, 16))
            case "reason":
                number = _REASONS.get(value, 0) if not value.isdigit() else integer(value)
                action = replace(action, reason=number)
            case "id":
                action = replace(action, controller_id=bounded(value, 16))
            case "userdata":
                action = replace(action, userdata=bytes.fromhex(value.replace(".", " ")))
            case "pause":
                action = replace(action, pause=True)
            case "meter_id":
                action = replace(action, meter_id=integer(value))
            case _:
                raise NotUnderstoodError
    return [action]


def _enqueue(given: _Argument) -> list[Action]:
    port, _, queue = given.text.replace(":", ",").rpartition(",")
    return [Enqueue(given.port(port), integer(queue))]


# --- what decides --------------------------------------------------------------------------------


def _multipath(given: _Argument) -> list[Action]:
    fields, basis, algorithm, links, argument, target = given.parts()
    if fields not in HASH_FIELDS or algorithm not in _ALGORITHMS:
        raise NotUnderstoodError
    numbers = integer(basis), integer(links), integer(argument)
    return [Multipath(fields, numbers[0], algorithm, *numbers[1:], _target(target))]


HASH_FIELDS = ("eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp", "nw_src",
               "nw_dst", "symmetric_l3")  # fmt: skip
_ALGORITHMS = ("modulo_n", "hash_threshold", "hrw", "iter_hash")


def _bundle(given: _Argument) -> list[Action]:
    head, _, members = re.sub(r"\b(?:slaves|members):", "\0", given.text).partition("\0")
    fields, basis, algorithm, *more = [part.strip() for part in head.split(",") if part.strip()]
    if fields not in HASH_FIELDS or algorithm not in {"hrw", "active_backup"}:
        raise NotUnderstoodError
    target = _target(more[1]) if len(more) > 1 else None
    ports = tuple(given.port(port.strip()) for port in members.split(",") if port.strip())
    return [Members(fields, integer(basis), algorithm, ports, target)]


def _learn(given: _Argument) -> list[Action]:
    specs, result = [], None
    for part in given.parts():
        key, assigned, value = part.partition("=")
        if key == "result_dst":
            result = _target(value)
        elif key in _LEARN_SETTINGS:
            continue
        elif part.startswith("load:"):
            source, _, target = part.removeprefix("load:").rpartition("->")
            specs.append(_learnt(source, parse_subfield(target), "load"))
        elif part.startswith("output:"):
            specs.append(LearnSpec(parse_subfield(part.removeprefix("output:")), 0, "output", None))
        else:
            target_field = parse_subfield(key)
            specs.append(_learnt(value if assigned else key, target_field, "match"))
    return [Learn(tuple(specs), result)]


_LEARN_SETTINGS = frozenset(
    {"table", "idle_timeout", "hard_timeout", "fin_idle_timeout", "fin_hard_timeout", "priority",
     "cookie", "send_flow_rem", "delete_learned", "limit"}
)  # fmt: skip


def _learnt(source: str, target: Subfield, kind: str) -> LearnSpec:
    load = "load" if kind == "load" else "match"
    try:
        return LearnSpec(parse_subfield(source), 0, load, target)  # type: ignore[arg-type]
    except NotUnderstoodError:
        number = source.lower().startswith("0x")  # also of a field that is written otherwise
        value = integer(source) if number else decode(FIELDS[target.field], source)[0]
        return LearnSpec(None, value, load, target)  # type: ignore[arg-type]


def _conjunction(given: _Argument) -> list[Action]:
    number, clause = given.text.split(",")
    k, n = clause.split("/")
    return [Conjunction(integer(number), integer(k) - 1, integer(n))]


def _check_larger(given: _Argument) -> list[Action]:
    length, arrow, target = given.text.partition("->")
    if not arrow:
        raise NotUnderstoodError
    return [CheckPacketLarger(integer(length), _target(target))]


def _sample(given: _Argument) -> list[Action]:
    action = Sample(0)
    for key, value in given.options():
        if key in {"ingress", "egress"}:
            action = replace(action, direction="ingress" if key == "ingress" else "egress")
        elif key == "sampling_port":
            action = replace(action, sampling_port=given.port(value))
        elif key in {"probability", "collector_set_id", "obs_domain_id", "obs_point_id"}:
            action = replace(action, **{key: integer(value)})  # type: ignore[arg-type]
        else:
            raise NotUnderstoodError
    return [action]


# --- connection tracking -------------------------------------------------------------------------


def _ct(given: _Argument) -> list[Action]:
    action = Ct()
    for key, value in given.options():
        match key:
            case "commit":
                action = replace(action, commit=True)
            case "force":
                action = replace(action, force=True)
            case "zone":
                zone = bounded(value, 16) if value[:1].isdigit() else parse_subfield(value)
                action = replace(action, zone=zone)
            case "table":
                action = replace(action, table=bounded(value, 8))
            case "alg":
                action = replace(action, alg=value)
            case "exec":
                action = replace(action, inner=action.inner + given.inner(value))
            case "nat":
                action = replace(action, inner=(*action.inner, parse_nat(value)))
            case _:
                raise NotUnderstoodError
    unknown = [inner for inner in action.inner if isinstance(inner, Unknown)]
    if unknown:
        raise NotUnderstoodError
    return [action]


_RANGE = re.compile(
    r"(?:\[([0-9a-fA-F:.]+)\]|([0-9a-fA-F:.]+?))(?:-(?:\[([0-9a-fA-F:.]+)\]|([0-9a-fA-F:.]+?)))?"
    r"(?::(\d+)(?:-(\d+))?)?"
)


def parse_nat(text: str) -> Nat:
    """Read what `nat(...)` is given: `src=10.0.0.1-10.0.0.9:80-90,random`."""
    nat = Nat()
    for begin, end in split(text):
        key, _, value = text[begin:end].partition("=")
        if key in {"persistent", "hash", "random"}:
            nat = replace(nat, flags=(*nat.flags, key))
        elif key in {"src", "dst"}:
            nat = replace(nat, kind="src" if key == "src" else "dst")
            nat = _nat_range(nat, value) if value else nat
        else:
            raise NotUnderstoodError
    return nat


def _nat_range(nat: Nat, text: str) -> Nat:
    plain6 = text.count(":") > 1 and "[" not in text
    found = None if plain6 else _RANGE.fullmatch(text)
    if plain6:
        low, _, high = text.partition("-")
        groups: tuple[str | None, ...] = (None, low, None, high or None, None, None)
    elif found is None:
        raise ValueError(f"not a range: {text[:60]!r}")
    else:
        groups = found.groups()
    low_text, high_text = groups[0] or groups[1] or "", groups[2] or groups[3]
    v6 = ":" in low_text
    read = ipv6 if v6 else ipv4
    return replace(
        nat,
        low=read(low_text),
        high=read(high_text) if high_text else None,
        v6=v6,
        port_low=integer(groups[4] or "0"),
        port_high=integer(groups[5] or "0"),
    )


# --- the table -----------------------------------------------------------------------------------

Reader = Callable[[_Argument], list[Action]]


def _plain(verb: Verb) -> Reader:
    """Read an action whose arguments, if any, change nothing about the way taken."""
    return lambda _: [Plain(verb)]


def _bare(verb: Verb) -> Reader:
    """Read an action that takes no arguments."""

    def reader(given: _Argument) -> list[Action]:
        if given.text:
            raise NotUnderstoodError
        return [Plain(verb)]

    return reader


def _dec_ttl(given: _Argument) -> list[Action]:
    if not given.text:
        return [DecTtl()]
    return [DecTtl(tuple(integer(part) for part in given.parts()))]


def _metadata(given: _Argument) -> list[Action]:
    value, mask = decode(FIELDS["metadata"], given.text)
    return [WriteMetadata(value, mask)]


def _legacy_tos(given: _Argument) -> list[Action]:
    return [Write("nw_tos", bounded(given.text, 8) & 0xFC, 0xFC)]


def _delete_field(given: _Argument) -> list[Action]:
    field: Field | None = FIELDS.get(given.text)
    if field is None or not field.present:
        raise NotUnderstoodError
    return [DeleteField(field.name)]


_READERS: Mapping[str, Reader] = {
    "drop": _bare("drop"),
    "output": _output,
    "controller": _controller,
    "enqueue": _enqueue,
    "group": lambda given: [ToGroup(integer(given.text))],
    "resubmit": _resubmit,
    "goto_table": lambda given: [Goto(bounded(given.text, 8))],
    "set_field": _set_field,
    "load": _load,
    "move": _move,
    "push": lambda given: [Push(parse_subfield(given.text))],
    "pop": lambda given: [Pop(_target(given.text))],
    "write_metadata": _metadata,
    "set_tunnel": lambda given: [SetTunnel(integer(given.text))],
    "set_tunnel64": lambda given: [SetTunnel(integer(given.text))],
    "mod_dl_src": _writer("eth_src"),
    "mod_dl_dst": _writer("eth_dst"),
    "mod_nw_src": _writer("ip_src"),
    "mod_nw_dst": _writer("ip_dst"),
    "mod_nw_tos": _legacy_tos,
    "mod_nw_ecn": _writer("nw_ecn"),
    "mod_nw_ttl": _writer("nw_ttl"),
    "mod_tp_src": lambda given: [WritePort("tp_src", bounded(given.text, 16))],
    "mod_tp_dst": lambda given: [WritePort("tp_dst", bounded(given.text, 16))],
    "mod_vlan_vid": _tag("vid", 12, make=True),
    "mod_vlan_pcp": _tag("pcp", 3, make=True),
    "set_vlan_vid": _tag("vid", 12, make=False),
    "set_vlan_pcp": _tag("pcp", 3, make=False),
    "push_vlan": lambda given: [PushVlan(_ethertype(given))],
    "pop_vlan": _bare("pop_vlan"),
    "strip_vlan": _bare("pop_vlan"),
    "push_mpls": lambda given: [PushMpls(_ethertype(given))],
    "pop_mpls": lambda given: [PopMpls(_ethertype(given))],
    "set_mpls_label": lambda given: [WriteMpls("label", bounded(given.text, 20))],
    "set_mpls_tc": lambda given: [WriteMpls("tc", bounded(given.text, 3))],
    "set_mpls_ttl": lambda given: [WriteMpls("ttl", bounded(given.text, 8))],
    "dec_mpls_ttl": _bare("dec_mpls_ttl"),
    "dec_ttl": _dec_ttl,
    "set_queue": lambda given: [SetQueue(integer(given.text))],
    "pop_queue": _bare("pop_queue"),
    "multipath": _multipath,
    "bundle": _bundle,
    "bundle_load": _bundle,
    "learn": _learn,
    "conjunction": _conjunction,
    "ct": _ct,
    "ct_clear": _bare("ct_clear"),
    "nat": lambda given: [parse_nat(given.text)],
    "clone": lambda given: [Clone(given.inner(given.text) if given.text else ())],
    "write_actions": lambda given: [WriteActions(given.inner(given.text) if given.text else ())],
    "clear_actions": _bare("clear_actions"),
    "check_pkt_larger": _check_larger,
    "meter": lambda given: [Meter(integer(given.text))],
    "sample": _sample,
    "note": _plain("note"),
    "fin_timeout": _plain("fin_timeout"),
    "delete_field": _delete_field,
    "exit": _bare("exit"),
    "debug_recirc": _bare("debug_recirc"),
    "debug_slow": _bare("debug_slow"),
}
