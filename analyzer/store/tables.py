# SPDX-License-Identifier: Apache-2.0
"""The tables, and all SQL: windows, registry, tasks, incidents.

Summaries' payloads are in files of their own (`segments`): in a table, each cost milliseconds. One
is on disk before the row that says where it is.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import structlog

from analyzer.roster.registry import HostState
from analyzer.store.segments import Place, Segments
from analyzer.store.writer import Body, Row, Statement, Writer
from netagent.model.errors import ConfigError, RemoteProtocolError
from netagent.model.task import Task
from netagent.model.verdict import Incident, IncidentState
from netagent.wire.codec import ContentType, decode, encode

T = TypeVar("T")

log = structlog.get_logger()

SCHEMA = 2
"""Version of the tables. Files of version 1 are moved on; those of another version are refused."""

TRIM_ROWS = 5000
"""Most summaries deleted in one transaction. Chosen: agents wait behind it only briefly."""

REPLAY_BYTES = 16_000_000
"""Bytes of summaries read at once after a restart. Chosen: bounds memory, whatever was stored."""

READ_BYTES = 4_000_000
"""Bytes of summaries read at once for a question. Chosen: others of the store wait for some tens of
milliseconds."""

MEMORY_LIMIT = "512MB"
"""Most memory for DuckDB's buffers, which by default take most of the machine's. Chosen: the
analyzer's own data needs the rest."""

SUMMARIES = ".summaries"
"""Suffix of the folder with the payloads, beside the database."""

TABLES = """
CREATE TABLE IF NOT EXISTS meta (schema INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS windows (
    host VARCHAR NOT NULL, start_ns BIGINT NOT NULL, received_ns BIGINT NOT NULL,
    segment BIGINT NOT NULL, place BIGINT NOT NULL, bytes BIGINT NOT NULL,
    PRIMARY KEY (host, start_ns));
CREATE TABLE IF NOT EXISTS hosts (host VARCHAR PRIMARY KEY, body VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (id VARCHAR PRIMARY KEY, body VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS incidents (
    id VARCHAR PRIMARY KEY, state VARCHAR NOT NULL, updated_ns BIGINT NOT NULL,
    body VARCHAR NOT NULL);
DROP TABLE IF EXISTS versions;
"""

COUNT_OF = """
SELECT count(*) FROM windows
WHERE host IN (SELECT unnest(?::VARCHAR[])) AND start_ns >= ? AND start_ns <= ?
"""
# Payloads are sorted some at a time: all that came in two minutes do not fit into memory.
BYTES_OF = """
SELECT start_ns, sum(bytes) FROM windows
WHERE host IN (SELECT unnest(?::VARCHAR[])) AND start_ns >= ? AND start_ns <= ?
GROUP BY start_ns ORDER BY start_ns
"""
OF_HOSTS = """
SELECT segment, place, bytes FROM windows
WHERE host IN (SELECT unnest(?::VARCHAR[])) AND start_ns >= ? AND start_ns <= ?
ORDER BY start_ns, host
"""
BYTES_SINCE = """
SELECT received_ns, sum(bytes) FROM windows WHERE received_ns >= ?
GROUP BY received_ns ORDER BY received_ns
"""
HEARD = """
SELECT host, max(start_ns), max(received_ns) FROM windows WHERE received_ns >= ? GROUP BY host
"""
RECEIVED = """
SELECT received_ns, segment, place, bytes FROM windows WHERE received_ns >= ? AND received_ns <= ?
ORDER BY received_ns
"""

OLD_BYTES = (
    "SELECT received_ns, sum(bytes) FROM summaries GROUP BY received_ns ORDER BY received_ns"
)
OLD = """
SELECT host, start_ns, received_ns, payload FROM summaries
WHERE received_ns >= ? AND received_ns <= ? ORDER BY received_ns
"""

INSERT = """
INSERT INTO windows
SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]),
       unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[])
ON CONFLICT DO NOTHING RETURNING host, start_ns
"""


class Store:
    """The database of one analyzer."""

    def __init__(self, path: str) -> None:
        """Open or create the file at `path`. Raises ConfigError that says what to do."""
        self._path = path
        self._segments = segments = Segments(Path(path + SUMMARIES))
        self._writer = Writer(
            path, lambda path: _open(path, segments), lambda c, rows: _insert(c, rows, segments)
        )

    # --- summaries ------------------------------------------------------------------------------

    async def put(self, host: str, start_ns: int, received_ns: int, payload: bytes) -> bool:
        """Store a summary; return False if (host, start_ns) is there already.

        Raises CapabilityMissing where the database cannot be written.
        """
        stored: bool = await self._writer.submit(Row(host, start_ns, received_ns, payload))
        return stored

    async def bytes_since(self, since_ns: int) -> int:
        """Return the bytes of the summaries received at or after `since_ns`."""
        return sum(size for _, size in await self._rows(BYTES_SINCE, [since_ns]))

    async def heard(self, since_ns: int) -> list[tuple[str, int, int]]:
        """Return each host of which a window was received at or after `since_ns`.

        With it, the start of its newest window, and when its last one was received.
        """
        return await self._rows(HEARD, [since_ns])

    async def replay(self, since_ns: int) -> AsyncIterator[tuple[int, bytes]]:
        """Yield (received_ns, payload) of the summaries received at or after `since_ns`."""
        sizes = await self._rows(BYTES_SINCE, [since_ns])
        for first, last in slices(sizes, REPLAY_BYTES):
            rows = await self._rows(RECEIVED, [first, last])
            payloads = await asyncio.to_thread(self._payloads, [row[1:] for row in rows])
            for (received_ns, *_), payload in zip(rows, payloads, strict=True):
                if payload is not None:
                    yield received_ns, payload

    async def count_of(self, hosts: Sequence[str], since_ns: int, until_ns: int) -> int:
        """Return how many windows of these hosts begin from `since_ns` to `until_ns`."""
        values = [list(hosts), since_ns, until_ns]
        row: tuple[int] = await self._run(lambda c: c.execute(COUNT_OF, values).fetchone())
        return row[0]

    async def of_hosts(
        self, hosts: Sequence[str], since_ns: int, until_ns: int
    ) -> AsyncIterator[list[bytes]]:
        """Yield their payloads, some at a time, oldest first."""
        mine = list(hosts)
        sizes = await self._rows(BYTES_OF, [mine, since_ns, until_ns])
        for first, last in slices(sizes, READ_BYTES):
            rows = await self._rows(OF_HOSTS, [mine, first, last])
            found = await asyncio.to_thread(self._payloads, rows)
            yield [payload for payload in found if payload is not None]

    def _payloads(self, places: Iterable[tuple[int, int, int]]) -> list[bytes | None]:
        """Return what is at these places; None, and a line in the log, where it is damaged."""
        found: list[bytes | None] = []
        for each in places:
            try:
                found.append(self._segments.read(Place(*each)))
            except (OSError, RemoteProtocolError) as error:
                log.warning("summary_lost", error=str(error))
                found.append(None)
        return found

    async def trim(self, *, before_ns: int, max_bytes: int) -> int:
        """Delete summaries received before `before_ns`, and the oldest beyond `max_bytes`.

        Return the number deleted. A file of theirs is deleted once nothing in it is kept.
        """
        excess_ns = await self._run(lambda c: _excess_ns(c, max_bytes))
        cutoff_ns = max(before_ns, excess_ns)
        deleted = 0
        while step := await self._run(lambda c: _delete_oldest(c, cutoff_ns)):
            deleted += step
        if deleted:
            await self._run(lambda c: c.execute("CHECKPOINT"), alone=True)
            await self._run(lambda c: self._segments.drop_all_but(_segments(c)), alone=True)
        return deleted

    async def usage(self) -> tuple[int, int]:
        """Return the number of stored summaries, and their bytes."""
        row: tuple[int, int] = await self._run(
            lambda c: c.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM windows").fetchone()
        )
        return row[0], int(row[1])

    # --- registry -------------------------------------------------------------------------------

    async def put_host(self, state: HostState) -> None:
        """Store one host's part of the registry."""
        await self._writer.submit(Body("hosts", state.agent.host, _text(state)))

    async def forget_host(self, host: str) -> None:
        """Drop one host's part of the registry."""
        await self._run(lambda c: c.execute("DELETE FROM hosts WHERE host = ?", [host]))

    async def hosts(self) -> list[HostState]:
        """Return every host's part of the registry."""
        return await self._bodies("SELECT body FROM hosts ORDER BY host", HostState)

    async def put_task(self, task: Task) -> None:
        """Store a declared task."""
        await self._writer.submit(Body("tasks", task.id, _text(task)))

    async def delete_task(self, task: str) -> None:
        """Drop a declared task."""
        await self._run(lambda c: c.execute("DELETE FROM tasks WHERE id = ?", [task]))

    async def tasks(self) -> list[Task]:
        """Return the declared tasks."""
        return await self._bodies("SELECT body FROM tasks ORDER BY id", Task)

    # --- incidents ------------------------------------------------------------------------------

    async def put_incidents(self, incidents: Iterable[Incident]) -> None:
        """Store incidents as they now are."""
        rows = [[i.id, i.state.value, i.updated_ns, _text(i)] for i in incidents]

        def work(connection: duckdb.DuckDBPyConnection) -> None:
            for row in rows:
                connection.execute("INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?)", row)

        await self._run(work)

    async def incidents(self) -> list[Incident]:
        """Return every incident kept, by last update."""
        return await self._bodies("SELECT body FROM incidents ORDER BY updated_ns, id", Incident)

    async def trim_incidents(self, before_ns: int) -> None:
        """Drop incidents that recovered and were last touched before `before_ns`."""
        delete = "DELETE FROM incidents WHERE state = ? AND updated_ns < ?"
        values = [IncidentState.RECOVERED.value, before_ns]
        await self._run(lambda c: c.execute(delete, values))

    # --- the inside -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Finish the queued jobs, checkpoint and close the file."""
        await self._writer.close()

    async def _bodies(self, select: str, kind: type[T]) -> list[T]:
        rows = await self._run(lambda c: c.execute(select).fetchall())
        try:
            return [decode(row[0].encode(), kind, ContentType.JSON) for row in rows]
        except RemoteProtocolError as error:
            raise ConfigError(
                self._path, f"holds what this version cannot read ({error}); {RESTORE}"
            ) from error

    async def _rows(self, select: str, values: list[Any]) -> list[Any]:
        rows: list[Any] = await self._run(
            lambda c: c.execute(select, values).fetchall(), alone=True
        )
        return rows

    async def _run(self, statement: Statement, *, alone: bool = False) -> Any:
        return await self._writer.submit(statement, alone=alone)


def slices(sizes: Iterable[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Yield first and last instants of slices in order, each of `most` bytes or of one instant.

    `sizes` are instants in order, with their bytes.
    """
    first, last, total = 0, 0, 0
    for instant, size in sizes:
        if total and total + size > most:
            yield first, last
            total = 0
        first = first if total else instant
        last, total = instant, total + size
    if total:
        yield first, last


RESTORE = "move it away to start empty, or restore a copy"


def _open(path: str, segments: Segments) -> duckdb.DuckDBPyConnection:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        connection = duckdb.connect(
            path,
            config={"memory_limit": MEMORY_LIMIT, "threads": 2, "autoload_known_extensions": 0},
        )
    except OSError as error:
        raise ConfigError(path, f"cannot be created: {error.strerror}") from None
    except duckdb.Error as error:
        raise ConfigError(path, _diagnosis(str(error))) from error
    try:
        connection.execute(TABLES)
        connection.execute(
            "INSERT INTO meta SELECT ? WHERE NOT EXISTS (SELECT * FROM meta)", [SCHEMA]
        )
        row = connection.execute("SELECT max(schema) FROM meta").fetchone()
    except duckdb.Error as error:
        connection.close()
        raise ConfigError(path, _diagnosis(str(error))) from error
    found = row[0] if row else "no"
    if found == 1:
        found = _moved_on(connection, path, segments)
    if found != SCHEMA:
        connection.close()
        raise ConfigError(path, f"has schema {found}, this version speaks {SCHEMA}; {RESTORE}")
    return connection


def _moved_on(connection: duckdb.DuckDBPyConnection, path: str, segments: Segments) -> int:
    """Move the payloads of version 1 out of the database; return the version that it then has."""
    log.info("database_moves_on", database=path, schema=SCHEMA)
    try:
        sizes = connection.execute(OLD_BYTES).fetchall()
        connection.execute("BEGIN")
        for first, last in slices(sizes, REPLAY_BYTES):
            rows = connection.execute(OLD, [first, last]).fetchall()
            _insert(connection, [Row(*row) for row in rows], segments)
        connection.execute("DROP TABLE summaries")
        connection.execute("UPDATE meta SET schema = ?", [SCHEMA])
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")
    except (duckdb.Error, OSError) as error:
        connection.close()
        why = f"cannot be moved to schema {SCHEMA} ({error}); free disk space, or {RESTORE}"
        raise ConfigError(path, why) from error
    return SCHEMA


def _segments(connection: duckdb.DuckDBPyConnection) -> set[int]:
    rows = connection.execute("SELECT DISTINCT segment FROM windows").fetchall()
    return {number for (number,) in rows}


def _diagnosis(complaint: str) -> str:
    first = complaint.splitlines()[0]
    if "lock" in first:
        _, _, holder = first.partition("Conflicting lock is held in ")
        who = holder.partition(". See")[0] or "another process"
        return f"is in use by {who}; stop that one, or set another database file"
    if "No such file" in first or "Permission denied" in first:
        return f"cannot be opened: {first}; check the folder and its permissions"
    return f"is damaged or no DuckDB file ({first}); {RESTORE}"


def _insert(
    connection: duckdb.DuckDBPyConnection, rows: list[Row], segments: Segments
) -> set[tuple[str, int]]:
    if not rows:
        return set()
    unique = list({(row.host, row.start_ns): row for row in reversed(rows)}.values())
    places = segments.places(len(row.payload) for row in unique)
    columns = [
        [row.host for row in unique],
        [row.start_ns for row in unique],
        [row.received_ns for row in unique],
        [place.segment for place in places],
        [place.offset for place in places],
        [place.length for place in places],
    ]
    new = set(connection.execute(INSERT, columns).fetchall())
    segments.write(
        [
            (place, row.payload)
            for place, row in zip(places, unique, strict=True)
            if (row.host, row.start_ns) in new
        ]
    )
    return new


# Returns the instant before which rows must be deleted for the rest to fit `max_bytes`.
def _excess_ns(connection: duckdb.DuckDBPyConnection, max_bytes: int) -> int:
    row = connection.execute(
        """
        SELECT max(received_ns) FROM (
            SELECT received_ns, sum(bytes) OVER (ORDER BY received_ns DESC, host, start_ns
                ROWS UNBOUNDED PRECEDING) AS kept FROM windows)
        WHERE kept > ?
        """,
        [max_bytes],
    ).fetchone()
    return row[0] + 1 if row is not None and row[0] is not None else 0


def _delete_oldest(connection: duckdb.DuckDBPyConnection, before_ns: int) -> int:
    row = connection.execute(
        """
        SELECT max(received_ns) FROM (
            SELECT received_ns FROM windows WHERE received_ns < ? ORDER BY received_ns LIMIT ?)
        """,
        [before_ns, TRIM_ROWS],
    ).fetchone()
    if row is None or row[0] is None:
        return 0
    deleted = connection.execute("DELETE FROM windows WHERE received_ns <= ?", [row[0]])
    count = deleted.fetchone()
    return int(count[0]) if count else 0


def _text(value: object) -> str:
    return encode(value, ContentType.JSON).decode()
