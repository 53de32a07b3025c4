# SPDX-License-Identifier: Apache-2.0
"""Bonds: which of their members send and receive, from `bond/show`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ovs_checks.openflow.hashing import hash_u64
from ovs_checks.openflow.notation import integer, or_zero

BUCKETS = 256
"""Values of the hash among which a bond shares out its traffic (`BOND_MASK` + 1)."""

Lacp = Literal["off", "configured", "negotiated"]


@dataclass(frozen=True, slots=True)
class Member:
    """An interface of a bond."""

    name: str
    enabled: bool = True
    may_enable: bool = True
    hashes: frozenset[int] = frozenset()
    """Values of the hash that it is known to carry: those that had traffic."""


@dataclass(frozen=True, slots=True)
class Bond:
    """Several interfaces that are one port (`struct bond`)."""

    mode: str
    """`active-backup`, `balance-slb` or `balance-tcp`."""

    members: tuple[Member, ...] = ()
    active: str = ""
    """Name of the active member; empty where there is none."""

    lacp: Lacp = "off"
    lacp_fallback: bool = False
    """Whether it works as active-backup while LACP has not agreed."""

    all_active: bool = False
    """Whether every member takes multicast (`balance-slb`)."""

    basis: int = 0
    recirculation: int | None = None
    """Recirculation id with which the datapath looks packets up again once it has hashed them."""

    lb_output: int | None = None
    """The bond's number in a datapath that chooses the member by itself."""

    @property
    def enabled(self) -> tuple[str, ...]:
        """Names of the members that may send."""
        return tuple(member.name for member in self.members if member.enabled)

    def member(self, name: str) -> Member | None:
        """Return the member called `name`, or None."""
        return next((member for member in self.members if member.name == name), None)


def receives(bond: Bond, name: str, *, group: bool) -> Literal["yes", "no", "unless moved"]:
    """Return whether a member takes in a packet (`bond_check_admissibility`).

    `group` says that it is for a group address; `unless moved`: not if its sender was learned at
    another port.
    """
    member = bond.member(name)
    if member is None:
        return "no"
    if bond.lacp == "negotiated":
        return "yes" if member.enabled or member.may_enable else "no"
    unsettled = bond.lacp == "configured" and not bond.lacp_fallback
    refused = unsettled or (bond.lacp == "off" and bond.mode == "balance-tcp")
    if refused or (group and bond.active != name and not bond.all_active):
        return "no"
    if bond.mode == "balance-slb":
        return "unless moved"
    return "yes" if bond.active == name else "no"


def senders(bond: Bond, hashed: Callable[[], int | None]) -> tuple[str, ...]:
    """Return the members that a packet may be sent by: one, or those that its hash may select.

    `hashed` gives the packet's hash, None where it is not known (`choose_output_member`).
    """
    mode = bond.mode
    if bond.lacp == "configured":
        if not bond.lacp_fallback:
            return ()
        mode = "active-backup"
    if mode == "active-backup":
        return (bond.active,) if bond.active else ()
    if mode == "balance-tcp" and bond.lacp != "negotiated":
        return ()
    enabled = bond.enabled
    if len(enabled) > 1 and (value := hashed()) is not None:
        carrier = [m.name for m in bond.members if m.enabled and value % BUCKETS in m.hashes]
        return tuple(carrier) or enabled
    return enabled


def source_hash(address: int, vlan: int, basis: int) -> int:
    """Return the hash by which `balance-slb` shares traffic out (`hash_mac`)."""
    return hash_u64(vlan << 48 | address, basis)


# --- bond/show -----------------------------------------------------------------------------------

_HEAD = re.compile(r"^---- (.*) ----$")
_MEMBER = re.compile(r"^(?:member|slave) (.*): (enabled|disabled)$")
_ACTIVE = re.compile(r"^active (?:member|slave) mac: \S+?\((.*)\)$")
_HASH = re.compile(r"^hash (\d+): ")
_NUMBER = re.compile(r"^(yes|enabled|no|disabled), [\w -]+: ?(-?\d+)$")


def parse_bonds(text: str) -> dict[str, Bond]:
    """Read the output of `bond/show`: bonds by the names of their ports."""
    found: dict[str, Bond] = {}
    name = ""
    for line in map(str.strip, text.splitlines()):
        head, member = _HEAD.match(line), _MEMBER.match(line)
        if head:
            name = head[1]
            found[name] = Bond("active-backup")
        elif name and member:
            new = Member(member[1], member[2] == "enabled", member[2] == "enabled")
            found[name] = replace(found[name], members=(*found[name].members, new))
        elif name:
            found[name] = _line(found[name], line)
    return found


def _numbered(value: str) -> int | None:
    """Return the number in `yes, Recirc-ID : 1`; None where it says no."""
    found = _NUMBER.match(value)
    return int(found[2]) if found and found[1] in {"yes", "enabled"} else None


_SETTINGS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "bond_mode": ("mode", str),
    "bond may use recirculation": ("recirculation", _numbered),
    "lb_output action": ("lb_output", _numbered),
    "bond-hash-basis": ("basis", lambda value: or_zero(integer, value)),
    "all members active": ("all_active", lambda value: value == "true"),
    "lacp_fallback_ab": ("lacp_fallback", lambda value: value == "true"),
    "lacp_status": ("lacp", lambda value: value if value in get_args(Lacp) else "off"),
}


def _line(bond: Bond, line: str) -> Bond:
    """Return the bond with what one line says of it, or of its last member."""
    word, _, value = line.partition(":")
    value = value.strip()
    if active := _ACTIVE.match(line):
        return replace(bond, active="" if active[1] == "none" else active[1])
    if setting := _SETTINGS.get(word):
        name, read = setting
        return replace(bond, **{name: read(value)})  # type: ignore[arg-type]
    if not bond.members:
        return bond
    last = bond.members[-1]
    if line in {"active member", "active slave"}:  # surer than an address that may have changed
        return replace(bond, active=last.name)
    if hashed := _HASH.match(line):
        last = replace(last, hashes=last.hashes | {int(hashed[1]) % BUCKETS})
    elif word == "may_enable":
        last = replace(last, may_enable=value == "true")
    return replace(bond, members=(*bond.members[:-1], last))
