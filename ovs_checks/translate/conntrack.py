# SPDX-License-Identifier: Apache-2.0
"""Connection tracking (`compose_conntrack_action`)."""

from ovs_checks.openflow.actions import Ct, Nat, Subfield
from ovs_checks.openflow.describe import hex_text
from ovs_checks.openflow.fields import FIELDS, look, read
from ovs_checks.openflow.notation import format_ipv4, format_ipv6
from ovs_checks.openflow.packet import SLOTS
from ovs_checks.translate.output.ports import clear_conntrack

from . import datapath
from .commit import commit
from .context import Context, Recirculation
from .freezing import recirculate

_MARK, _LABEL = SLOTS["ct_mark"], SLOTS["ct_label"]
_FROZEN_FIELDS = frozenset(
    {"metadata", "in_port"} | {f"{prefix}reg{n}" for prefix in ("", "x", "xx") for n in range(16)}
)


def track(x: Context, action: Ct, *, last: bool) -> None:
    """Hand the packet to connection tracking; a copy of it may go on in another table."""
    zone = _zone(x, action.zone)
    marks = x.looked[_MARK], x.looked[_LABEL]
    commit(x)
    x.nat, x.looked[_MARK], x.looked[_LABEL] = None, 0, 0
    x.go.execute(x, action.inner, last)
    x.steps.append(datapath.Step(_spell(x, action, zone), 40))
    x.looked[_MARK], x.looked[_LABEL] = marks
    if action.table is not None:
        x.conntracked = True
        state = x.state(action.table)
        x.freezing = True
        number = recirculate(x)
        again = Recirculation(number, "conntrack", x.header, state, zone=zone, nat=x.nat)
        x.recirculations.append(again)
        x.tell("detail", "A clone of the packet is forked to recirculate. The forked pipeline "
                         f"will be resumed at table {action.table}.")  # fmt: skip
    x.nat = None
    clear_conntrack(x.flow)
    x.tell("detail", "Sets the packet to an untracked state, and clears all the conntrack fields.")
    x.conntracked = False


def _zone(x: Context, zone: int | Subfield) -> int:
    if isinstance(zone, int):
        return zone
    field = FIELDS[zone.field]
    mask = (1 << zone.width) - 1
    if not (x.thawed and zone.field in _FROZEN_FIELDS):
        look(field, x.looked, mask << zone.start)
    return read(field, x.flow) >> zone.start & mask


def _spell(x: Context, action: Ct, zone: int) -> str:
    parts = []
    if action.commit:
        parts.append("force_commit" if action.force else "commit")
    if zone:
        parts.append(f"zone={zone}")
    mark, label = x.looked[_MARK], x.looked[_LABEL]
    if mark:
        value = x.flow[_MARK] & mark
        parts.append(f"mark={hex_text(value)}/{hex_text(mark)}")
    if label:
        tail = "" if label == (1 << 128) - 1 else f"/{hex_text(label)}"
        parts.append(f"label={hex_text(x.flow[_LABEL] & label)}{tail}")
    alg = {"21": "ftp", "69": "tftp"}.get(action.alg, action.alg)
    if alg:
        parts.append(f"helper={alg}")
    policy = x.snapshot.zones.get(str(zone), "") if action.commit else ""
    if policy:
        parts.append(f"timeout={policy}")
    if x.nat is not None:
        parts.append(spell_nat(x.nat))
    return f"ct({','.join(parts)})" if parts else "ct"


def spell_nat(nat: Nat) -> str:
    """Return address translation in the datapath's words."""
    if not nat.kind:
        return "nat"
    return f"nat({','.join([nat.kind + _range(nat), *nat.flags])})"


def _range(nat: Nat) -> str:
    if nat.low is None:
        return ""
    text = f"={_address(nat, nat.low)}"
    if nat.high is not None and nat.high > nat.low:
        text += f"-{_address(nat, nat.high)}"
    if nat.port_low:
        text += f":{nat.port_low}"
        if nat.port_high > nat.port_low:
            text += f"-{nat.port_high}"
    return text


def _address(nat: Nat, value: int) -> str:
    if not nat.v6:
        return format_ipv4(value)
    text = format_ipv6(value)
    return f"[{text}]" if nat.port_low else text
