# SPDX-License-Identifier: Apache-2.0
"""Rows that cannot be read go to a table of their own, so that a start goes on with the others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import duckdb

from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import ContentType, decode

T = TypeVar("T")

ASIDE_ROWS = 10_000
"""Most rows kept aside; the oldest go first. Chosen: more than the hosts, tasks and incidents of
the largest cluster known, so that a version that can read none of them loses none."""

DELETES = {
    "hosts": "DELETE FROM hosts WHERE host = ?",
    "tasks": "DELETE FROM tasks WHERE id = ?",
    "incidents": "DELETE FROM incidents WHERE id = ?",
    "words": "DELETE FROM words WHERE incident = ?",
    "letters": "DELETE FROM letters WHERE key = ?",
}
"""Table of bodies -> what deletes the row of a key."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row whose body cannot be decoded."""

    table: str
    key: str
    body: str
    why: str


def sorted_out(
    table: str, rows: Iterable[tuple[str, str]], kind: type[T]
) -> tuple[list[T], list[Unreadable]]:
    """Return what the bodies of rows (key, body) hold, and the rows that hold no `kind`."""
    found, unreadable = list[T](), list[Unreadable]()
    for key, body in rows:
        try:
            found.append(decode(body.encode(), kind, ContentType.JSON))
        except RemoteProtocolError as error:
            unreadable.append(Unreadable(table, key, body, str(error)))
    return found, unreadable


def set_aside(
    connection: duckdb.DuckDBPyConnection, rows: Sequence[Unreadable], now_ns: int
) -> None:
    """Move rows to the table `aside`, whose oldest ones beyond ASIDE_ROWS are dropped."""
    for row in rows:
        values = [row.table, row.key, row.body, row.why, now_ns]
        connection.execute("INSERT INTO aside VALUES (?, ?, ?, ?, ?)", values)
        connection.execute(DELETES[row.table], [row.key])
    connection.execute(
        """
        DELETE FROM aside WHERE rowid NOT IN (
            SELECT rowid FROM aside ORDER BY set_aside_ns DESC, rowid DESC LIMIT ?)
        """,
        [ASIDE_ROWS],
    )
