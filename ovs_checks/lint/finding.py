# SPDX-License-Identifier: Apache-2.0
"""What a check of a host's tables found: values that quote the entries."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from netagent.model.path import Component

Severity = Literal["warning", "note"]

Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class TableFinding:
    """Something that a named check found."""

    check: str
    """Name of the check: `shadowed-flow`."""

    severity: Severity
    """A warning is likely to cost packets; a note costs none, or is meant so."""

    component: Component
    """A flow table, a tunnel or a virtual switch."""

    text: str
    """A sentence for humans."""

    quotes: tuple[tuple[str, str], ...] = ()
    """(what it is, the entry as dumped): `("flow", "cookie=0x1, table=0, ...")`."""

    def to_data(self) -> dict[str, Any]:
        """Return plain dicts, lists and strings, fit for JSON."""
        return {
            "check": self.check,
            "severity": self.severity,
            "component": str(self.component),
            "text": self.text,
            "quotes": [{"what": what, "entry": entry} for what, entry in self.quotes],
        }


def run_checks(
    checks: Mapping[str, Callable[[Subject], Iterable[TableFinding]]],
    subject: Subject,
    names: Iterable[str] = (),
    *,
    at_most: int,
) -> list[TableFinding]:
    """Run the checks called `names`, or all; return `at_most` findings of each, warnings first.

    Raises
    ------
    KeyError
        If one of `names` is not a check's.
    """
    found = []
    for name in names or checks:
        mine = sorted(checks[name](subject), key=lambda one: one.severity != "warning")
        found += mine[:at_most]
        if mine[at_most:]:
            text = f"{len(mine) - at_most} more are left out"
            found.append(TableFinding(name, mine[at_most].severity, mine[at_most].component, text))
    return found
