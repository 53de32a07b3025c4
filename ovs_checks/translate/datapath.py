# SPDX-License-Identifier: Apache-2.0
"""Datapath actions, in the words of `format_odp_actions()`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ovs_checks.openflow.describe import hex_text
from ovs_checks.openflow.notation import format_ipv4, format_ipv6, format_mac

Kind = Literal["output", "tunnel", "userspace", "recirc", "clone", "branch", "other"]


@dataclass(frozen=True, slots=True)
class Step:
    """An action of the datapath."""

    text: str
    size: int = 8
    """Bytes that it takes as a Netlink attribute."""

    kind: Kind = "other"
    port: int = -1
    """`output`: the datapath's number of the port."""

    inner: "tuple[Step, ...]" = ()


def text_of(steps: Sequence[Step]) -> str:
    """Return what follows `Datapath actions: `."""
    return ",".join(step.text for step in steps) or "drop"


def size_of(steps: Iterable[Step]) -> int:
    """Return how many bytes actions take as Netlink attributes."""
    return sum(step.size for step in steps)


def output(port: int | None, name: str, *, named: bool = False) -> Step:
    """Send to a port of the datapath, named where its number is not known or not asked for."""
    number = -1 if port is None else port
    return Step(name if named or port is None else str(port), kind="output", port=number)


def recirculate(number: int) -> Step:
    """Look the packet up again in the datapath, under a number."""
    return Step(f"recirc({number:#x})", kind="recirc")


def hash_step(algorithm: int, basis: int) -> Step:
    """Have the datapath hash the packet."""
    name = {0: "l4", 1: "sym_l4"}.get(algorithm)
    inner = f"{name}({basis})" if name else f"Unknown hash algorithm({algorithm})"
    return Step(f"hash({inner})", size=12)


def clone(inner: Sequence[Step]) -> Step:
    """Do something to a copy."""
    return Step(f"clone({text_of(inner)})", 4 + size_of(inner), "clone", inner=tuple(inner))


def always(inner: Sequence[Step]) -> Step:
    """Do something to a copy, for a datapath that can only sample."""
    text = f"sample(sample=100.0%,actions({text_of(inner)}))"
    return Step(text, 16 + size_of(inner), "clone", inner=tuple(inner))


def check_length(length: int, greater: Sequence[Step], other: Sequence[Step]) -> Step:
    """Do one thing with packets longer than `length` bytes and another with the others."""
    text = f"check_pkt_len(size={length},gt({text_of(greater)}),le({text_of(other)}))"
    size = 20 + size_of(greater) + size_of(other)
    return Step(text, size, "branch", inner=(*greater, *other))


# --- keys ----------------------------------------------------------------------------------------

Form = Literal["mac", "ipv4", "ipv6", "dec8", "hex8", "dec16", "op", "label", "frag"]
_WIDTHS = {"mac": 48, "ipv4": 32, "ipv6": 128, "dec8": 8, "hex8": 8, "dec16": 16, "op": 8,
           "label": 20,
           "frag": 8}  # fmt: skip
"""Notation of a member of a datapath key -> bits."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a datapath key and how it is written."""

    name: str
    form: Form

    @property
    def full(self) -> int:
        """The mask of all its bits."""
        return (1 << _WIDTHS[self.form]) - 1


def _value(form: Form, value: int) -> str:
    match form:
        case "mac":
            return format_mac(value)
        case "ipv4":
            return format_ipv4(value)
        case "ipv6":
            return format_ipv6(value)
        case "hex8" | "label":
            return hex_text(value)
        case "frag":
            return {0: "no", 1: "first", 2: "later"}.get(value, "<error>")
        case _:
            return str(value)


def _mask(form: Form, mask: int) -> str:
    return _value(form, mask) if form in {"mac", "ipv4", "ipv6"} else hex_text(mask)


def set_key(
    key: str, members: Sequence[Member], values: Sequence[int], masks: Sequence[int] | None
) -> Step:
    """Write a key; with `masks`, only the bits in them."""
    parts = []
    octets = sum(_WIDTHS[member.form] for member in members) // 8
    for n, member in enumerate(members):
        mask = member.full if masks is None else masks[n]
        if not mask:
            continue
        tail = "" if mask == member.full else f"/{_mask(member.form, mask)}"
        value = values[n] if masks is None else values[n] & mask
        parts.append(f"{member.name}={_value(member.form, value)}{tail}")
    size = 8 + (octets if masks is None else 2 * octets)
    return Step(f"set({key}({','.join(parts)}))", -(-size // 4) * 4)


def set_number(key: str, value: int, mask: int) -> Step:
    """Write a key that is one number of 32 bits."""
    tail = "" if mask == 0xFFFFFFFF else f"/{hex_text(mask)}"
    return Step(f"set({key}({hex_text(value & mask)}{tail}))", 12 if not tail else 16)
