# SPDX-License-Identifier: Apache-2.0
"""What OVSDB says of an interface, however its rows are read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Interface:
    """A row of OVSDB's Interface table."""

    name: str
    type: str = ""
    """"" is a device of the host; else ``internal``, ``vxlan``, ``patch``, ..."""
    ofport: int | None = None
    """OpenFlow port; -1 where ovs-vswitchd could not open the device, None before it tried."""
    options: Mapping[str, str] = field(default_factory=dict)
    external_ids: Mapping[str, str] = field(default_factory=dict)
    mac_in_use: str | None = None
    admin_state: str | None = None
    link_state: str | None = None
    error: str | None = None
    """Why ovs-vswitchd could not use it."""
    mtu: int | None = None
    """Bytes; None where the reader does not ask for it, too."""


GENERATION, _ZONE = "ovn-nb-cfg", "ct-zone-"
"""What ovn-controller writes into the external_ids of its integration bridge
(ovn-controller(8))."""


def drives(external_ids: Iterable[str]) -> bool:
    """Return whether ovn-controller says that a bridge with these external_ids is its own."""
    return any(k == GENERATION or k.startswith(_ZONE) for k in external_ids)


class Columns(Protocol):
    """The columns of one row."""

    def atom(self, name: str) -> object:
        """Return the value of a column that holds one at most; None where it holds none.

        Also None where this column is not read.
        """

    def pairs(self, name: str) -> Mapping[str, str]:
        """Return a column that maps text to text."""


def interface_of(columns: Columns) -> Interface:
    """Return what a row of the Interface table says; TypeError or ValueError for an odd one."""
    return Interface(
        name=str(columns.atom("name")),
        type=str(columns.atom("type")),
        ofport=_number(columns.atom("ofport")),
        options=columns.pairs("options"),
        external_ids=columns.pairs("external_ids"),
        mac_in_use=_text(columns.atom("mac_in_use")),
        admin_state=_text(columns.atom("admin_state")),
        link_state=_text(columns.atom("link_state")),
        error=_text(columns.atom("error")),
        mtu=_number(columns.atom("mtu")),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: object) -> int | None:
    if value is None or isinstance(value, int):
        return value
    raise TypeError(f"integer expected, not {value!r}"[:80])
