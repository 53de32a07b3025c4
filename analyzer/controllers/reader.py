# SPDX-License-Identifier: Apache-2.0
"""Reads OVN's two databases and says what changed: a loop around `Follower`.

Whoever listens slowly is told less often, and nothing is lost by it: what is to be told is kept by
its key, so that no more waits than there is.
"""

import contextlib
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable

import ovs.poller
import ovs.timeval
import structlog

from analyzer.controllers import messages
from analyzer.controllers.flows import read_flows
from analyzer.controllers.messages import (
    HEAD,
    MOST_TOLD,
    AskDifference,
    AskFlows,
    AskMeaning,
    NoFlows,
    Open,
    Source,
    Told,
    Up,
)
from analyzer.controllers.ovsdb import Database
from analyzer.controllers.rows import Rows
from analyzer.intent.ovn import NORTHBOUND, SOUTHBOUND, Follower
from netagent.model.errors import NetAgentError, Unreachable

log = structlog.get_logger()

TOGETHER_MS = 100
"""Milliseconds of changes that are told together. Chosen: nobody notices, and a thousand changes a
second are ten messages."""
STEP_MS = 1000
"""Milliseconds between two looks at whether moves count no more."""
WAIT_S = 15.0
"""Seconds after which nobody waits for an answer any more (`analyzer.server.controllers`)."""
_CHUNK = 1 << 16


class Reader:
    """Reads until the analyzer closes the connection."""

    def __init__(
        self,
        connection: socket.socket,
        opening: Open,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        connection.setblocking(False)
        self._connection, self._wall_ns = connection, wall_ns
        self._follower = Follower()
        self._databases = (
            Database(NORTHBOUND, opening.northbound),
            Database(SOUTHBOUND, opening.southbound),
        )
        self._northbound, self._southbound = opening.northbound, opening.southbound
        self._rows = Rows(opening.northbound, opening.southbound)
        self._sources: dict[str, Source] = {}
        self._in, self._out = bytearray(), bytearray()
        self._is_open = True
        self._told_ms = self._stepped_ms = 0
        self._questions: queue.SimpleQueue[tuple[float, messages.Asked]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Up] = queue.SimpleQueue()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        threading.Thread(target=self._answer, name="flows", daemon=True).start()

    def run(self) -> None:
        """Read and tell until nobody listens any more."""
        while self._is_open:
            for database in self._databases:
                self._follow(database)
            now_ms = ovs.timeval.msec()
            if now_ms - self._stepped_ms >= STEP_MS:
                self._follower.step(self._wall_ns())
                self._stepped_ms = now_ms
            self._listen()
            self._tell(now_ms)
            self._wait()
        for database in self._databases:
            database.close()

    def _follow(self, database: Database) -> None:
        follower, was = self._follower, database.why
        for batch in database.run(follower.uuids):
            follower.take(batch, self._wall_ns())
        if database.why is None:
            follower.here(database.name)
        else:
            follower.lose(database.name, database.why)
        if database.why != was:
            log.info("controller_database", name=database.name, away=database.why)
        source = Source(database=database.name, remote=database.remote, lacks=database.lacks)
        if self._sources.get(database.name) != source:
            self._sources[database.name] = source
            if source.lacks:
                log.warning("controller_columns_missing", name=source.database, lacks=source.lacks)
            self._say(source)

    # --- up -------------------------------------------------------------------------------------

    def _tell(self, now_ms: int) -> None:
        while not self._answers.empty():
            self._say(self._answers.get())
        # A part of what makes sense together is followed by the next one at once.
        while self._follower.has_news and not self._out and now_ms - self._told_ms >= TOGETHER_MS:
            changes = self._follower.changes(self._wall_ns(), MOST_TOLD)
            self._say(Told(changes=changes))
            if changes.is_whole:
                self._told_ms = now_ms
        self._flush()

    def _say(self, message: Up) -> None:
        self._out += messages.framed(message)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._connection.send(self._out[:_CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self._is_open = False

    # --- down -----------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            while chunk := self._connection.recv(_CHUNK):
                self._in += chunk
            self._is_open = False
        except BlockingIOError:
            pass
        except OSError:
            self._is_open = False
        while len(self._in) >= HEAD.size:
            (length,) = HEAD.unpack_from(self._in)
            if len(self._in) < HEAD.size + length:
                return
            message = messages.down(bytes(self._in[HEAD.size : HEAD.size + length]))
            del self._in[: HEAD.size + length]
            if isinstance(message, AskFlows | AskMeaning | AskDifference):
                self._questions.put((time.monotonic(), message))

    def _answer(self) -> None:
        """Answer one question after the other, in a thread: a server may take its time."""
        while True:
            came_s, asked = self._questions.get()
            try:
                said = self._answered(asked, came_s)
            except NetAgentError as error:
                said = NoFlows(query=asked.query, error=str(error))
            except Exception as error:  # a bug, or rows that are none: it must not end the thread
                log.exception("flows_failed")
                said = NoFlows(query=asked.query, error=repr(error))
            self._answers.put(said)
            os.write(self._wake, b"1")

    def _answered(self, asked: messages.Asked, came_s: float) -> Up:
        if time.monotonic() > came_s + WAIT_S:
            # Who asks much would else keep it from all others.
            raise Unreachable(SOUTHBOUND, "too much was asked before")
        match asked:
            case AskFlows():
                return read_flows(self._southbound, asked, self._northbound)
            case AskMeaning():
                return self._rows.meanings(asked)
            case AskDifference():
                return self._rows.differences(asked)

    def _wait(self) -> None:
        poller = ovs.poller.Poller()
        for database in self._databases:
            database.wait(poller)
        poller.fd_wait(self._connection.fileno(), select.POLLIN)
        poller.fd_wait(self._woken, select.POLLIN)
        if self._out:
            poller.fd_wait(self._connection.fileno(), select.POLLOUT)
        elif self._follower.has_news:
            poller.timer_wait_until(self._told_ms + TOGETHER_MS)
        poller.timer_wait_until(self._stepped_ms + STEP_MS)
        if self._is_open:
            poller.block()
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, _CHUNK)
