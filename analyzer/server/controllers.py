# SPDX-License-Identifier: Apache-2.0
"""The analyzer's side of the process that reads a controller: what it says is put together here.

Where that process dies, another one is started. What was read last stays meanwhile, and is said to
be away: nobody is blamed for what cannot be read.
"""

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Protocol, cast

import msgspec
import structlog

from analyzer.config import Ovn
from analyzer.controllers import messages
from analyzer.controllers.messages import (
    HEAD,
    MAX_FRAME_BYTES,
    Answered,
    AskDifference,
    AskMeaning,
    Differences,
    Flows,
    Meanings,
    NoFlows,
    Source,
    Up,
)
from analyzer.intent.changes import Changes, Known
from analyzer.intent.model import Intent
from analyzer.intent.ovn import NORTHBOUND, SOURCE, SOUTHBOUND
from netagent.model.errors import CapabilityMissing, RemoteProtocolError

AGAIN_MIN_S, AGAIN_MAX_S = 0.5, 30.0
"""Least and most seconds from the end of a reader to the next; they double. Chosen, as of judges:
one that died is soon replaced, and one that cannot live costs little CPU."""
END_S = 1.5
"""Seconds that a reader may take to end. Chosen: the analyzer stops within three."""
ANSWER_S = 15.0
"""Seconds that an answer may take; the reader drops what waited as long. Chosen: longer than the
reader waits for its server."""

log = structlog.get_logger()

Clock = Callable[[], int]


class LinkClosed(Exception):
    """The reader is gone."""


class Link(Protocol):
    """One reader, from its start to its end."""

    pid: int

    def send(self, frame: bytes) -> None:
        """Give it a framed message; what is sent to one that is gone is lost."""

    async def receive(self) -> Up:
        """Return its next message; raises LinkClosed, RemoteProtocolError."""

    async def close(self) -> None:
        """Let it end, and wait until it has."""


class ProcessLink:
    """A reader in a process of its own."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self.pid = process.pid

    @classmethod
    async def open(cls) -> "ProcessLink":
        """Start a process. Raises OSError."""
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs):
            verbose = ["-v"] if logging.getLogger().isEnabledFor(logging.INFO) else []
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "analyzer.controllers", "--socket", str(theirs.fileno()),
                *verbose, stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        return cls(process, *await asyncio.open_connection(sock=ours))

    def send(self, frame: bytes) -> None:
        """Give it a framed message; what is sent to one that is gone is lost."""
        self._writer.write(frame)

    async def receive(self) -> Up:
        """Return its next message; raises LinkClosed, RemoteProtocolError."""
        try:
            (length,) = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            if length > MAX_FRAME_BYTES:
                raise RemoteProtocolError(f"a message of {length} bytes")
            return messages.up(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise LinkClosed from error

    async def close(self) -> None:
        """Let it end, and wait until it has; one that does not is killed."""
        self._writer.close()
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


class Controller:
    """What OVN says should be, as far as it can be read."""

    def __init__(
        self,
        config: Ovn,
        clock: Clock,
        *,
        on_intent: Callable[[Intent], None] = lambda _intent: None,
        on_changes: Callable[[Changes], None] = lambda _changes: None,
        open_link: Callable[[], Awaitable[Link]] = ProcessLink.open,
    ) -> None:
        """Call `on_intent` with all that is known, whenever that changed and makes sense.

        `on_changes` is called before, with every part of what changed, for who puts it together by
        itself (`Known`), as another process does.
        """
        self._config, self._clock, self._open_link = config, clock, open_link
        self._on_intent, self._on_changes = on_intent, on_changes
        self._known = Known(SOURCE, _nowhere("it was not read so far"))
        self.intent = self._known.intent()
        """The newest one."""
        self.sources: dict[str, Source] = {}
        """Where each database is read from."""
        self.starts = 0
        """How often a reader was started."""
        self._link: Link | None = None
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._query = 0

    @property
    def intents(self) -> tuple[Intent, ...]:
        """Return what is known: one intent, of all hosts."""
        return (self.intent,)

    def intent_of(self, host: str) -> Intent:  # noqa: ARG002 - as of zones
        """Return what is known of a host."""
        return self.intent

    @property
    def away(self) -> Mapping[str, str]:
        """Return which database cannot be read now, and why."""
        return self.intent.away

    def together(self, hosts: Iterable[str]) -> list[list[str]]:
        """Return hosts in groups, of which each has one controller: all of them."""
        return [found] if (found := sorted(hosts)) else []

    @property
    def pid(self) -> int | None:
        """Return the reader's process; None where there is none now."""
        return self._link.pid if self._link is not None else None

    async def run(self) -> None:
        """Read what the reader says; start another one where it dies."""
        loop, pause_s = asyncio.get_running_loop(), AGAIN_MIN_S
        while True:
            began_s = loop.time()
            try:
                await self._read()
            except (OSError, LinkClosed, RemoteProtocolError) as error:
                why = str(error) or "it ended"
                log.warning("controller_reader_gone", pid=self.pid, error=why)
            finally:
                await self._drop()
            self._lose()
            if loop.time() - began_s > AGAIN_MAX_S:
                pause_s = AGAIN_MIN_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_MAX_S)

    async def _read(self) -> None:
        self._link = link = await self._open_link()
        self.starts += 1
        config = self._config
        opening = messages.Open(
            northbound=config.northbound,
            southbound=config.southbound,
            ca=config.ca,
            cert=config.cert,
            key=config.key,
        )
        link.send(messages.framed(opening))
        while True:
            self._take(await link.receive())

    async def _drop(self) -> None:
        link, self._link = self._link, None
        self.sources.clear()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(_gone())
        if link is not None:
            await link.close()

    def _lose(self) -> None:
        away = _nowhere("the process that reads it ended")
        ladder = self.intent.ladder
        self._change(Changes(SOURCE, self._clock(), ladder=ladder, away=away, begins=True))

    def _change(self, changes: Changes) -> None:
        self._on_changes(changes)
        if self._known.take(changes):
            self.intent = self._known.intent()
            self._on_intent(self.intent)

    def _take(self, message: Up) -> None:
        match message:
            case messages.Told():
                self._change(message.changes)
            case Source():
                self.sources[message.database] = message
            case Flows() | Meanings() | Differences() | NoFlows():
                self._settle(message)
            case messages.Ready():
                pass

    async def flows(
        self,
        prefixes: Collection[str] = (),
        *,
        datapath: int | None = None,
        host: str = "",  # noqa: ARG002 - as of zones
    ) -> Flows:
        """Return logical flows by the first digits of their uuids, of one datapath or of any.

        Some hundred milliseconds without a datapath, where there are many flows. Raises
        CapabilityMissing, RemoteProtocolError.
        """
        asked = messages.AskFlows(query=0, prefixes=tuple(prefixes), datapath=datapath)
        return cast("Flows", await self._ask(asked))

    async def meaning(self, asked: AskMeaning, *, host: str = "") -> Meanings:  # noqa: ARG002
        """Return what ends of walks mean; `asked.query` is set here.

        A second, where a host has many networks. Raises CapabilityMissing, RemoteProtocolError.
        """
        return cast("Meanings", await self._ask(asked))

    async def difference(self, asked: AskDifference, *, host: str = "") -> Differences:  # noqa: ARG002 - as of zones
        """Return what of a host's flows is not as it should be; else as `meaning`."""
        return cast("Differences", await self._ask(asked))

    async def _ask(self, asked: messages.Asked) -> Answered:
        if self._link is None:
            raise _gone()
        self._query += 1
        query, waiting = self._query, asyncio.get_running_loop().create_future()
        frame = messages.framed(msgspec.structs.replace(asked, query=query))
        if len(frame) > MAX_FRAME_BYTES:
            # What a host says is in it; a reader ends at what it cannot take, and reads all anew.
            raise RemoteProtocolError(f"a question of {len(frame)} bytes")
        self._waiting[query] = waiting
        self._link.send(frame)
        try:
            async with asyncio.timeout(ANSWER_S):
                answer: Answered = await waiting
        except TimeoutError:
            raise CapabilityMissing("logical flows", "the database is busy: ask again") from None
        finally:
            del self._waiting[query]
        return answer

    def _settle(self, message: Answered | NoFlows) -> None:
        waiting = self._waiting.get(message.query)
        if waiting is None or waiting.done():
            return
        if not isinstance(message, NoFlows):
            waiting.set_result(message)
        else:
            waiting.set_exception(RemoteProtocolError(message.error))


def _nowhere(why: str) -> dict[str, str]:
    return dict.fromkeys((NORTHBOUND, SOUTHBOUND), why)


def _gone() -> CapabilityMissing:
    return CapabilityMissing("reading the controller", "its reader is started again: ask later")
