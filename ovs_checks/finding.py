# SPDX-License-Identifier: Apache-2.0
"""What a check of a host's tables found: values that quote the entries."""

from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["warning", "note"]


@dataclass(frozen=True, slots=True)
class TableFinding:
    """Something that a named check found."""

    check: str
    """Name of the check: `shadowed-flow`."""

    severity: Severity
    """A warning is likely to cost packets; a note costs none, or is meant so."""

    component: str
    """`flow HOST/BRIDGE/table=N`, `tunnel HOST/PORT` or `vswitch HOST`."""

    text: str
    """One sentence for humans."""

    quotes: tuple[tuple[str, str], ...] = ()
    """(what it is, the entry as dumped): `("flow", "cookie=0x1, table=0, ...")`."""

    def to_data(self) -> dict[str, Any]:
        """Return plain dicts, lists and strings, fit for JSON."""
        return {
            "check": self.check,
            "severity": self.severity,
            "component": self.component,
            "text": self.text,
            "quotes": [{"what": what, "entry": entry} for what, entry in self.quotes],
        }
