# SPDX-License-Identifier: Apache-2.0
"""What the analyzer stores: windows, registry, tasks, incidents, letters to receivers.

Summaries' payloads are in files of their own (`segments`): in a table, each cost milliseconds. One
is on disk before the row that says where it is.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import structlog

from analyzer.review.words import Words
from analyzer.roster.registry import HostState
from analyzer.store import backup
from analyzer.store.aside import Unreadable, set_aside, sorted_out
from analyzer.store.manifest import SUMMARIES, Manifest
from analyzer.store.opening import open_
from analyzer.store.segments import Place, Segments
from analyzer.store.space import Freed, Room, oldest
from analyzer.store.windows import (
    BYTES_OF,
    BYTES_SINCE,
    COUNT_OF,
    HEARD,
    OF_HOSTS,
    RECEIVED,
    delete_of,
    delete_oldest,
    excess_ns,
    insert,
    newest_of,
    segments_of,
    slices,
)
from analyzer.store.writer import Body, Row, Statement, Writer
from analyzer.webhooks.outbox import Letter
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.model.task import Task
from netagent.model.verdict import Incident, IncidentState
from netagent.wire.codec import ContentType, encode
from netagent.wire.messages import SummaryKey

T = TypeVar("T")

log = structlog.get_logger()

REPLAY_BYTES = 16_000_000
"""Bytes of summaries read at once after a restart. Chosen: bounds memory, whatever was stored."""

READ_BYTES = 4_000_000
"""Bytes of summaries read at once for a question. Chosen: others of the store wait for some tens of
milliseconds."""

PUT_LETTERS = "INSERT OR REPLACE INTO letters SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[])"


class Store:
    """The database of one analyzer."""

    def __init__(
        self,
        path: str,
        clock: Callable[[], int] = time.time_ns,
        lost: Callable[[], None] = lambda: None,
        synced: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Open or create the file at `path`; `lost` is told of payloads that cannot be read.

        `synced` is told how many nanoseconds each sync of summaries took, in the thread that did.

        Raises ConfigError that says what to do.
        """
        self._path, self._clock, self._lost = Path(path), clock, lost
        self._files = asyncio.Lock()
        """Held while files of payloads are deleted, or linked."""
        self._segments = segments = Segments(Path(path + SUMMARIES), synced)
        self._writer = Writer(
            path, lambda path: open_(path, segments), lambda c, rows: insert(c, rows, segments)
        )

    # --- summaries ------------------------------------------------------------------------------

    async def put(self, key: SummaryKey, received_ns: int, payload: bytes) -> bool:
        """Store a summary; return False if one of this key is there already.

        Raises CapabilityMissing where the database cannot be written.
        """
        stored: bool = await self._writer.submit(Row(*key, received_ns, payload))
        return stored

    def syncing_ns(self) -> int:
        """Return for how long the disk has been syncing summaries; 0 where it does not."""
        return self._segments.syncing_ns()

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
                self._lost()
                found.append(None)
        return found

    async def trim(self, *, before_ns: int, max_bytes: int) -> int:
        """Delete summaries received before `before_ns`, and the oldest beyond `max_bytes`.

        Return the number deleted. A file of theirs is deleted once nothing in it is kept.
        """
        cutoff_ns = max(before_ns, await self._run(lambda c: excess_ns(c, max_bytes)))
        deleted = 0
        while step := await self._run(lambda c: delete_oldest(c, cutoff_ns)):
            deleted += step
        if deleted:
            async with self._files:
                await self._run(lambda c: c.execute("CHECKPOINT"), alone=True)
                await self._run(lambda c: self._segments.drop_all_but(segments_of(c)), alone=True)
        return deleted

    def room(self) -> Room:
        """Return what the disk has. Raises OSError."""
        return Room.of(self._path.parent)

    async def make_room(self, *, before_ns: int, least: int = 0) -> Freed:
        """Free what the disk is short of, and `least` bytes: backups, then the oldest summaries.

        They go by whole files, none of which has one received since `before_ns`. Raises OSError,
        CapabilityMissing.
        """
        dropped = 0
        for each in await asyncio.to_thread(backup.known, self._path):
            if not self.room().short:
                break
            await asyncio.to_thread(backup.drop, each)
            dropped += 1
        needed = max(self.room().short, least)
        async with self._files:
            deleted = await self._run(lambda c: self._free(c, needed, before_ns)) if needed else 0
        return Freed(deleted, dropped)

    # The files go first: on a full disk no row can be deleted before. Rows that a kill left behind
    # go with the next ones; they are older than any file.
    def _free(self, connection: duckdb.DuckDBPyConnection, needed: int, before_ns: int) -> int:
        freeable, newest_ns = self._segments.freeable(), newest_of(connection)
        chosen = oldest(freeable, newest_ns, needed=needed, before_ns=before_ns)
        for number in chosen:
            self._segments.drop(number)
        left = [number for number in newest_ns if number < min(freeable, default=0)]
        return delete_of(connection, [*left, *chosen])

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
        """Return every host's part of the registry; what cannot be read is set aside."""
        return await self._bodies("hosts", "SELECT host, body FROM hosts ORDER BY host", HostState)

    async def put_task(self, task: Task) -> None:
        """Store a declared task."""
        await self._writer.submit(Body("tasks", task.id, _text(task)))

    async def delete_task(self, task: str) -> None:
        """Drop a declared task."""
        await self._run(lambda c: c.execute("DELETE FROM tasks WHERE id = ?", [task]))

    async def tasks(self) -> list[Task]:
        """Return the declared tasks; what cannot be read is set aside."""
        return await self._bodies("tasks", "SELECT id, body FROM tasks ORDER BY id", Task)

    # --- incidents ------------------------------------------------------------------------------

    async def put_incidents(
        self, incidents: Iterable[Incident], letters: Sequence[Letter] = ()
    ) -> None:
        """Store incidents as they now are, and what receivers are told of them: both or none."""
        rows = [[i.id, i.state.value, i.updated_ns, _text(i)] for i in incidents]
        mail = _columns(letters)

        def work(connection: duckdb.DuckDBPyConnection) -> None:
            for row in rows:
                connection.execute("INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?)", row)
            if letters:
                connection.execute(PUT_LETTERS, mail)

        await self._run(work)

    async def incidents(self) -> list[Incident]:
        """Return every incident kept, by last update; what cannot be read is set aside."""
        select = "SELECT id, body FROM incidents ORDER BY updated_ns, id"
        return await self._bodies("incidents", select, Incident)

    async def trim_incidents(self, before_ns: int) -> None:
        """Drop incidents that recovered and were last touched before `before_ns`."""
        old = "FROM incidents WHERE state = ? AND updated_ns < ?"
        values = [IncidentState.RECOVERED.value, before_ns]

        def work(connection: duckdb.DuckDBPyConnection) -> None:
            mine = f"DELETE FROM words WHERE incident IN (SELECT id {old})"  # noqa: S608 - a constant
            connection.execute(mine, values)
            connection.execute(f"DELETE {old}", values)

        await self._run(work)

    async def put_words(self, words: Words) -> None:
        """Store what was said of an incident; it goes with that."""
        put, values = "INSERT OR REPLACE INTO words VALUES (?, ?)", [words.incident, _text(words)]
        await self._run(lambda c: c.execute(put, values))

    async def words(self) -> list[Words]:
        """Return what was said of incidents; what cannot be read is set aside."""
        return await self._bodies("words", "SELECT incident, body FROM words", Words)

    # --- what receivers are to be told ----------------------------------------------------------

    async def letters(self) -> list[Letter]:
        """Return the letters that wait; what cannot be read is set aside."""
        return await self._bodies("letters", "SELECT key, body FROM letters ORDER BY key", Letter)

    async def change_letters(self, put: Sequence[Letter], drop: Sequence[str]) -> None:
        """Store letters as they now are, and drop those of these keys: both or none."""
        mail = _columns(put)
        delete = "DELETE FROM letters WHERE key IN (SELECT unnest(?::VARCHAR[]))"

        def work(connection: duckdb.DuckDBPyConnection) -> None:
            if put:
                connection.execute(PUT_LETTERS, mail)
            if drop:
                connection.execute(delete, [list(drop)])

        await self._run(work)

    async def aside(self) -> int:
        """Return how many rows that could not be read are kept aside."""
        [(count,)] = await self._rows("SELECT count(*) FROM aside", [])
        return int(count)

    # --- backups --------------------------------------------------------------------------------

    async def back_up(self, name: str = "") -> tuple[Path, Manifest]:
        """Copy all that is stored into a folder of that name; return it, and what is in it.

        Without a name it is when that is. Raises CapabilityMissing that says what to do.
        """
        name = name or backup.named(self._clock())
        try:
            async with self._files:
                half = await asyncio.to_thread(backup.begin, self._path, name)
                try:
                    manifest = await self._copied(half)
                    return await asyncio.to_thread(backup.finish, half), manifest
                except BaseException:
                    await asyncio.to_thread(shutil.rmtree, half, ignore_errors=True)
                    raise
        except OSError as error:
            raise CapabilityMissing("a backup", f"{error}; see to that, and try again") from error

    async def _copied(self, half: Path) -> Manifest:
        frozen: backup.Frozen = await self._run(
            lambda c: backup.freeze(c, self._segments, self._clock()), alone=True
        )
        try:
            return await asyncio.to_thread(backup.write, self._path, half, frozen, backup.copied)
        finally:
            await self._run(lambda c: backup.thaw(c, frozen), alone=True)

    async def drop_old_backups(self) -> list[str]:
        """Delete all but the newest backups; return the names of those. Raises OSError."""
        old = (await asyncio.to_thread(backup.known, self._path))[: -backup.BACKUPS_KEPT]
        for each in old:
            await asyncio.to_thread(backup.drop, each)
        return [each.name for each in old]

    # --- the inside -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Finish the queued jobs, checkpoint and close the file."""
        await self._writer.close()

    async def _bodies(self, table: str, select: str, kind: type[T]) -> list[T]:
        found, unreadable = sorted_out(table, await self._rows(select, []), kind)
        if unreadable:
            await self._set_aside(unreadable)
        return found

    async def _set_aside(self, rows: list[Unreadable]) -> None:
        for row in rows:
            log.error("row_set_aside", table=row.table, key=row.key, error=row.why)
        now_ns = self._clock()
        try:
            await self._run(lambda c: set_aside(c, rows, now_ns))
        except CapabilityMissing as error:  # they stay where they are: the next start tries again
            log.warning("rows_not_moved", rows=len(rows), error=error.remedy)

    async def _rows(self, select: str, values: list[Any]) -> list[Any]:
        rows: list[Any] = await self._run(
            lambda c: c.execute(select, values).fetchall(), alone=True
        )
        return rows

    async def _run(self, statement: Statement, *, alone: bool = False) -> Any:
        return await self._writer.submit(statement, alone=alone)


def _text(value: object) -> str:
    return encode(value, ContentType.JSON).decode()


def _columns(letters: Sequence[Letter]) -> list[list[str]]:
    return [[each.key for each in letters], [_text(each) for each in letters]]
