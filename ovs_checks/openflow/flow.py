# SPDX-License-Identifier: Apache-2.0
"""An entry of a flow table: a value, but for what a later dump says of the same flow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .actions import Action, Unknown
from .fields import FIELDS, spread


@dataclass(frozen=True, slots=True)
class Term:
    """A condition of a match: the bits of `field` in `mask` must equal `value`."""

    field: str
    """The field's name as dumped; a key of `fields.FIELDS`."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Match:
    """A conjunction of terms; none at all matches everything."""

    terms: tuple[Term, ...] = ()
    unknown: tuple[Unknown, ...] = ()

    @property
    def tests(self) -> tuple[tuple[int, int, int], ...]:
        """The terms as (slot of the header, value, mask), one per slot, in the order of slots."""
        merged: dict[int, tuple[int, int]] = {}
        for term in self.terms:
            field = FIELDS[term.field]
            for slot, value, mask in spread(field, term.value, term.mask):
                old_value, old_mask = merged.get(slot, (0, 0))
                merged[slot] = (old_value | value, old_mask | mask)
            if field.present:
                value, mask = merged.get(_PRESENT, (0, 0))
                merged[_PRESENT] = (value | field.present, mask | field.present)
        return tuple((slot, *merged[slot]) for slot in sorted(merged))


_PRESENT = FIELDS["tun_metadata0"].parts[0].slot - 1


class Flow:
    """An entry of a flow table.

    Its actions are read when they are first asked for: a host has flows by the hundred thousand,
    and a packet meets a dozen.
    """

    __slots__ = (
        "_actions",
        "_reader",
        "cookie",
        "line",
        "match",
        "n_bytes",
        "n_packets",
        "priority",
        "table",
        "text",
    )

    def __init__(
        self,
        table: int,
        priority: int,
        match: Match,
        actions: "tuple[Action, ...] | Callable[[str], tuple[Action, ...]]",
        text: str,
        *,
        cookie: int = 0,
        n_packets: int | None = None,
        n_bytes: int | None = None,
        line: int = 0,
    ) -> None:
        self.table = table
        self.priority = priority
        self.match = match
        self.text = text
        """The line as dumped, stripped."""
        self.cookie = cookie
        self.n_packets = n_packets
        self.n_bytes = n_bytes
        """None where the dump carried no counters."""
        self.line = line
        """1-based line of the dump; 0 where there was none."""
        self._reader: Callable[[str], tuple[Action, ...]] | None = None
        self._actions: tuple[Action, ...] | None = None
        if callable(actions):
            self._reader = actions
        else:
            self._actions = actions

    @property
    def actions(self) -> tuple[Action, ...]:
        """What it does, in order."""
        if self._actions is None and self._reader is not None:
            self._actions = self._reader(self.text)
        return self._actions or ()

    def recount(self, text: str, line: int, counters: Mapping[str, str]) -> None:
        """Take over what a later dump says of the same flow: `packets` and `bytes`."""
        if self._reader is not None:
            self._actions = None  # what is not understood in them names its column
        self.text, self.line = text, line
        self.n_packets, self.n_bytes = (
            int(counters[name]) if name in counters else None for name in ("packets", "bytes")
        )

    def doing(self, other: "Flow") -> "Flow":
        """Return this flow with the actions of another."""
        return Flow(
            self.table,
            self.priority,
            self.match,
            other.actions,
            self.text,
            cookie=self.cookie,
            n_packets=self.n_packets,
            n_bytes=self.n_bytes,
            line=self.line,
        )

    def _key(self) -> tuple[object, ...]:
        counters = (self.n_packets, self.n_bytes)
        return (self.table, self.priority, self.match, self.actions, self.cookie, *counters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flow) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.table, self.priority, self.match, self.cookie))

    def __repr__(self) -> str:
        return f"Flow({self.text!r})"
