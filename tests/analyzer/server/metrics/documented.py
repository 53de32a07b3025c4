# SPDX-License-Identifier: Apache-2.0
"""The table of metrics in docs/metrics.md; as a module, it writes it anew (`make generated`)."""

import re
from pathlib import Path

from analyzer.alerts.rules import ALERTS
from analyzer.server.metrics.families import FAMILIES, most_series
from tests.analyzer.alerts.expressions import names

DOCUMENT = Path(__file__).parents[4] / "docs" / "metrics.md"
HEAD = "| metric | type | labels | most series | alert | what it is |"
BOUND = re.compile(r"at most \*\*[\d,]+ series\*\*")


def rows() -> list[str]:
    """Return the table's lines, the head left out."""
    lines = []
    for family in FAMILIES:
        ends = ("_bucket", "_count", "_sum") if family.kind == "histogram" else ("",)
        mine = {family.name + end for end in ends}
        alerts = [alert.name for alert in ALERTS if names(alert.expr) & mine]
        labels = ", ".join(f"`{label}`" for label in family.labels)
        most = f"{family.most:,}" + (f" per {family.per}" if family.per else "")
        cells = (f"`{family.name}`", family.kind, labels, most, ", ".join(alerts), family.text)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def bound() -> str:
    """Return what the document says of all together."""
    return f"at most **{most_series():,} series**"


def table_of(text: str) -> list[str]:
    """Return the lines of the document's table, the head left out."""
    lines = text.splitlines()
    return lines[slice(*_place(lines))]


def main() -> None:
    """Write the table and the bound anew."""
    lines = DOCUMENT.read_text().splitlines()
    lines[slice(*_place(lines))] = rows()
    DOCUMENT.write_text(BOUND.sub(bound(), "\n".join(lines) + "\n"))


def _place(lines: list[str]) -> tuple[int, int]:
    first = lines.index(HEAD) + 2
    rest = (n for n, line in enumerate(lines[first:]) if not line.startswith("|"))
    return first, first + next(rest, len(lines) - first)


if __name__ == "__main__":
    main()
