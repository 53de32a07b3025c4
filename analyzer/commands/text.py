# SPDX-License-Identifier: Apache-2.0
"""Text for terminals of 80 columns."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

COLUMNS = 79
"""Longest line of a table, in characters. Chosen: a terminal of 80 columns."""


class _Wrapper(textwrap.TextWrapper):
    wordsep_simple_re = re.compile(r"(\s+|(?<=,)(?=\S))")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield aligned lines; the last column is cut where it does not fit."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield cut(line.rstrip())


def cut(line: str) -> str:
    """Return `line`, shortened to the screen."""
    return line if len(line) <= COLUMNS else line[: COLUMNS - 3] + "..."


def paragraph(text: str, indent: str = "", hang: str | None = None) -> list[str]:
    """Return `text` wrapped, flows after their commas; what still runs over is broken."""
    wrapper = _Wrapper(
        COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent if hang is None else hang,
        break_on_hyphens=False,
    )
    return wrapper.wrap(text)


def clock(instant_ns: int | None) -> str:
    """Return the time of day, UTC; `-` for none."""
    if instant_ns is None:
        return "-"
    return datetime.fromtimestamp(instant_ns / 1e9, UTC).strftime("%H:%M:%S")


def since(instant_ns: int | None, *, now_ns: int) -> str:
    """Return the time of day, UTC, or day and time where that is another day; `-` for none."""
    if instant_ns is None:
        return "-"
    at, now = (datetime.fromtimestamp(ns / 1e9, UTC) for ns in (instant_ns, now_ns))
    if at.date() == now.date():
        return at.strftime("%H:%M:%S")
    return at.strftime("%m-%d %H:%M" if at.year == now.year else "%Y-%m-%d")


def instant(instant_ns: int | None) -> str:
    """Return date and time with milliseconds, UTC; `-` for none."""
    if instant_ns is None:
        return "-"
    moment = datetime.fromtimestamp(instant_ns / 1e9, UTC)
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
