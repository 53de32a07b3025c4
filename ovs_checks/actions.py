# SPDX-License-Identifier: Apache-2.0
"""How Open vSwitch prints actions, read into values; see ovs-actions(7)."""

import re
from collections.abc import Callable, Mapping

from .flow import Action, Move, Plain, Resubmit, Subfield, ToField, ToPort, Write
from .notation import SPECIAL_PORTS, bounded, decode, integer
from .packet import FIELDS, TAG_PRESENT

Ports = Mapping[str, int]
"""OpenFlow numbers of a bridge's ports by name, for dumps that name ports."""


class NotUnderstoodError(Exception):
    """Well-formed, as far as one can tell, but not known here; never leaves this package."""


def port_number(text: str, ports: Ports) -> int:
    """Return the number of a port that is given by number, by reserved name or by its own name."""
    if text.isascii() and text.isdigit():
        return bounded(text, 16)
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        name = re.sub(r"\\(.)", r"\1", text[1:-1])
    elif text.lower() in SPECIAL_PORTS:
        return SPECIAL_PORTS[text.lower()]
    else:
        name = text
    if name not in ports:
        raise NotUnderstoodError
    return ports[name]


_WORD = re.compile(r"([A-Za-z_0-9]+)(?:([:(=])(.*))?", re.DOTALL)


def parse_action(text: str, ports: Ports) -> list[Action]:
    """Read one action; a ValueError says as much as that it is not understood."""
    found = _WORD.fullmatch(text)
    verb = found[1].lower() if found else ""
    if found is None or (verb not in _READERS and not found[2]):
        return [ToPort(port_number(text, ports))]
    if verb not in _READERS:
        raise NotUnderstoodError
    argument = found[3] or ""
    if found[2] == "(":
        if not argument.endswith(")"):
            raise ValueError(f"text after the parenthesis: {text[:80]!r}")
        argument = argument[:-1]
    return _READERS[verb](argument, ports)


def _subfield(text: str) -> Subfield:
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
    subfield = _subfield(text)
    if not FIELDS[subfield.field].writable:
        raise NotUnderstoodError
    return subfield


def _output(text: str, ports: Ports) -> list[Action]:
    try:
        return [ToPort(port_number(text, ports))]
    except NotUnderstoodError:
        return [ToField(_subfield(text))]


def _set_field(text: str, ports: Ports) -> list[Action]:
    value_text, arrow, name = text.rpartition("->")
    field = FIELDS.get(name)
    if not arrow or field is None or not field.writable:
        raise NotUnderstoodError
    if field.kind == "port":
        return [Write(field.name, port_number(value_text, ports), field.bits)]
    return [Write(field.name, *decode(field, value_text))]


def _load(text: str, _: Ports) -> list[Action]:
    value_text, _arrow, target_text = text.rpartition("->")
    target, value = _target(target_text), integer(value_text)
    if value >> target.width:
        raise ValueError(f"too wide a value: {text!r}")
    mask = (1 << target.width) - 1
    return [Write(target.field, value << target.start, mask << target.start)]


def _move(text: str, _: Ports) -> list[Action]:
    source_text, _arrow, target_text = text.rpartition("->")
    source, target = _subfield(source_text), _target(target_text)
    if source.width != target.width:
        raise ValueError(f"widths differ: {text!r}")
    return [Move(source, target)]


def _resubmit(text: str, ports: Ports) -> list[Action]:
    port_text, comma, table_text = text.partition(",")
    if not port_text and not table_text:
        raise ValueError("resubmits nowhere")
    port = port_number(port_text, ports) if port_text else None
    if port == SPECIAL_PORTS["in_port"]:
        port = None
    table = bounded(table_text, 8) if comma and table_text else None
    return [Resubmit(port, None if table == 0xFF else table)]


def _tag(shift: int, mask: int, field: str) -> Callable[[str, Ports], list[Action]]:
    def reader(text: str, _: Ports) -> list[Action]:
        value = integer(text)
        if value & ~mask:
            raise ValueError(f"not a VLAN number or priority: {text!r}")
        return [Write(field, value << shift | TAG_PRESENT, mask << shift | TAG_PRESENT)]

    return reader


def _writer(name: str) -> Callable[[str, Ports], list[Action]]:
    field = FIELDS[name]
    return lambda text, _: [Write(name, *decode(field, text))]


def _plain(action: Plain) -> Callable[[str, Ports], list[Action]]:
    """Read an action whose arguments, if any, change nothing about the way taken."""
    return lambda _, _ports: [action]


def _bare(action: Plain) -> Callable[[str, Ports], list[Action]]:
    """Read an action that takes no arguments."""

    def reader(text: str, _: Ports) -> list[Action]:
        if text:
            raise NotUnderstoodError
        return [action]

    return reader


def _dec_ttl(text: str, _: Ports) -> list[Action]:
    if text:  # controller identifiers: whom to tell when the packet dies; they change no way taken
        for part in text.split(","):
            integer(part)
    return [Plain("dec_ttl")]


_READERS: Mapping[str, Callable[[str, Ports], list[Action]]] = {
    "drop": _bare(Plain("drop")),
    "output": _output,
    "controller": _plain(Plain("controller")),
    "resubmit": _resubmit,
    "goto_table": lambda text, _: [Resubmit(None, bounded(text, 8))],
    "set_field": _set_field,
    "load": _load,
    "move": _move,
    "write_metadata": _writer("metadata"),
    "set_tunnel": _writer("tun_id"),
    "set_tunnel64": _writer("tun_id"),
    "mod_dl_src": _writer("eth_src"),
    "mod_dl_dst": _writer("eth_dst"),
    "mod_nw_src": _writer("nw_src"),
    "mod_nw_dst": _writer("nw_dst"),
    "mod_nw_tos": _writer("nw_tos"),
    "mod_nw_ecn": _writer("nw_ecn"),
    "mod_nw_ttl": _writer("nw_ttl"),
    "mod_tp_src": _writer("tp_src"),
    "mod_tp_dst": _writer("tp_dst"),
    "mod_vlan_vid": _tag(0, 0xFFF, "vlan_tci"),
    "mod_vlan_pcp": _tag(13, 7, "vlan_tci"),
    "set_vlan_vid": _tag(0, 0xFFF, "vlan_vid"),
    "push_vlan": _plain(Plain("push_vlan")),
    "pop_vlan": _bare(Plain("pop_vlan")),
    "strip_vlan": _bare(Plain("pop_vlan")),
    "dec_ttl": _dec_ttl,
    "ct_clear": _bare(Plain("ct_clear")),
    "exit": _bare(Plain("exit")),
    "note": _plain(Plain("none")),
    "set_queue": _plain(Plain("none")),
    "pop_queue": _bare(Plain("none")),
    "fin_timeout": _plain(Plain("none")),
    "sample": _plain(Plain("none")),
    "clear_actions": _bare(Plain("none")),
}
