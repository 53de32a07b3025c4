# SPDX-License-Identifier: Apache-2.0
"""One thread that writes for all callers, and answers once the data is on disk.

Theory of operation. DuckDB takes one writer, so one thread owns the connection. Callers queue jobs.
The thread takes all queued jobs, runs them in one transaction, and answers each caller after the
commit, which DuckDB syncs to its write-ahead log. So many hosts share one sync, and after an answer
neither `kill -9` nor a power cut loses the data. Where a transaction fails, its jobs run again one
by one, so that one bad job fails alone.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import duckdb
import structlog

from netagent.model.errors import CapabilityMissing, ConfigError
from netagent.wire.messages import SummaryKey

log = structlog.get_logger()

MAX_GROUP = 1024
"""Most jobs in one transaction. Chosen: hosts share one sync, and the first caller does not wait
for an endless queue."""
GATHER_S = 0.02
"""Seconds that a summary waits for others of its transaction. Chosen: a transaction costs as much
as thirty rows, and an agent has seconds until its next one."""


@dataclass(frozen=True, slots=True)
class Row:
    """A summary to insert."""

    host: str
    start_ns: int
    life: int
    """CRC-32 of the instance; 0 of older ones that an earlier version stored."""
    received_ns: int
    payload: bytes

    @property
    def key(self) -> SummaryKey:
        """By what it is known: a second one of the same key is a duplicate."""
        return self.host, self.start_ns, self.life


@dataclass(frozen=True, slots=True)
class Body:
    """A row of a table of keys and bodies, to insert or replace."""

    table: str
    key: str
    body: str


Statement = Callable[[duckdb.DuckDBPyConnection], Any]
Open = Callable[[str], duckdb.DuckDBPyConnection]
"""Opens the file at a path. Raises ConfigError that says what to do."""
Insert = Callable[[duckdb.DuckDBPyConnection, list[Row]], set[SummaryKey]]
"""Inserts rows; returns the keys of those that are new. Raises OSError where the disk refuses."""


@dataclass(frozen=True, slots=True)
class _Job:
    work: Row | Body | Statement
    done: "Future[Any]"
    alone: bool = False
    """Whether the job runs outside a transaction, as a checkpoint must."""


class Writer:
    """The thread that owns the connection to one database."""

    def __init__(self, path: str, open_: Open, insert: Insert) -> None:
        """Open the file at `path`. Raises ConfigError that says what to do."""
        self._path, self._open, self._insert = path, open_, insert
        self._connection = open_(path)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Finish the queued jobs, checkpoint and close the file."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    async def submit(self, work: Row | Body | Statement, *, alone: bool = False) -> Any:
        """Run work in the thread, sharing a transaction unless `alone`; return its result.

        Raises CapabilityMissing where the database cannot be written.
        """
        if not self._thread.is_alive():
            raise CapabilityMissing("database", "the analyzer is stopping; try again")
        done: Future[Any] = Future()
        self._jobs.put(_Job(work, done, alone))
        try:
            return await asyncio.wrap_future(done)
        except (duckdb.Error, OSError) as error:
            remedy = f"{error}; free disk space under {self._path}, or restart the analyzer"
            raise CapabilityMissing("database", remedy) from error

    def _work(self) -> None:
        running = True
        while running:
            jobs, running = self._gather()
            try:
                self._each([job for job in jobs if job.alone])
                self._group([job for job in jobs if not job.alone])
            except Exception as error:  # noqa: BLE001 - without this thread everybody waits for ever
                for job in jobs:
                    if not job.done.done():
                        job.done.set_exception(error)
        with contextlib.suppress(duckdb.Error):  # the log holds what the checkpoint could not move
            self._connection.execute("CHECKPOINT")
        self._connection.close()
        del self._connection  # nanobind complains of those that are still referenced at exit

    # Returns all queued jobs that are not cancelled, and False where a stop was requested.
    def _gather(self) -> tuple[list[_Job], bool]:
        jobs: list[_Job] = []
        job, until_s = self._jobs.get(), time.monotonic() + GATHER_S
        while job is not None:
            if job.done.set_running_or_notify_cancel():
                jobs.append(job)
            left_s = until_s - time.monotonic() if isinstance(job.work, Row | Body) else 0.0
            if len(jobs) == MAX_GROUP:
                return jobs, True
            try:
                job = self._jobs.get(timeout=left_s) if left_s > 0 else self._jobs.get_nowait()
            except queue.Empty:
                return jobs, True
        return jobs, False

    def _group(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        try:
            self._connection.execute("BEGIN")
            answers = self._apply(self._connection, [job.work for job in jobs])
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, the callers must hear it
            self._roll_back(error)
            if len(jobs) == 1:
                jobs[0].done.set_exception(error)
            else:
                for job in jobs:
                    self._group([job])
            return
        for job, answer in zip(jobs, answers, strict=True):
            job.done.set_result(answer)

    def _each(self, jobs: list[_Job]) -> None:
        for job in jobs:
            try:
                job.done.set_result(self._apply(self._connection, [job.work])[0])
            except Exception as error:  # noqa: BLE001 - likewise
                job.done.set_exception(error)

    def _roll_back(self, error: Exception) -> None:
        log.warning("transaction_failed", error=str(error))
        try:
            self._connection.execute("ROLLBACK")
        except duckdb.TransactionException:
            return  # it had not begun, or ended by itself
        except duckdb.Error:
            self._reopen()

    # After a fatal error DuckDB refuses everything until the file is opened anew.
    def _reopen(self) -> None:
        with contextlib.suppress(duckdb.Error):
            self._connection.close()
        try:
            self._connection = self._open(self._path)
        except ConfigError:
            log.exception("database_lost", path=self._path)

    # Runs the work in order, the summaries first and as one statement, bodies that come one after
    # another as one each; returns an answer for each.
    def _apply(
        self, connection: duckdb.DuckDBPyConnection, work: list[Row | Body | Statement]
    ) -> list[Any]:
        new = self._insert(connection, [item for item in work if isinstance(item, Row)])
        answers: list[Any] = []
        bodies: list[Body] = []
        for item in work:
            if isinstance(item, Row):
                answers.append(item.key in new)
                new.discard(item.key)  # a second one in this group is a duplicate
            elif isinstance(item, Body):
                bodies.append(item)
                answers.append(None)
            else:
                _put(connection, bodies)
                bodies = []
                answers.append(item(connection))
        _put(connection, bodies)
        return answers


# One statement costs as much as twenty rows in it.
def _put(connection: duckdb.DuckDBPyConnection, bodies: list[Body]) -> None:
    for table in dict.fromkeys(each.table for each in bodies):
        rows = {each.key: each.body for each in bodies if each.table == table}
        connection.execute(
            f"INSERT OR REPLACE INTO {table} SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[])",
            [list(rows), list(rows.values())],
        )
