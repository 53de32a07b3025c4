# SPDX-License-Identifier: Apache-2.0
"""Controllers of one host each: their databases are asked for, again and again, through agents.

What a host says is of that host alone, so there is an intent for each, and none of all of them: it
could not tell whose word it is. One whose agent does not answer is away by itself.
"""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import cast

import msgspec
import structlog

from analyzer.controllers import messages
from analyzer.controllers.messages import (
    HEAD,
    MAX_FRAME_BYTES,
    AskDifference,
    Asked,
    AskFlows,
    AskMeaning,
    AskOfRows,
    Differences,
    Flows,
    Meanings,
    NoFlows,
    Source,
)
from analyzer.intent.model import Intent
from analyzer.intent.zones import Zone
from netagent.model.errors import CapabilityMissing, NetAgentError, RemoteProtocolError, TooSoon
from netagent.wire.zone import NORTHBOUND, SOUTHBOUND, ZoneReply, ZoneRequest

EVERY_S, MOST_S = 10.0, 60.0
"""Least and most seconds from one look at a zone to the next. Chosen: what differs has to last for
a minute and more."""
PER_S = 20.0
"""Looks a second, of which the interval follows between these. Chosen: a few milliseconds each."""
JITTER = 0.2
"""Share of the interval by which it varies. Chosen: agents that began together are spread within
minutes."""
AT_ONCE = 16
"""Most questions under way. Chosen: answers of a few MiB each are in memory then."""
STEP_S = 0.5
"""Seconds between two looks at who is due. Chosen: little beside the interval."""
AGAIN_S = 2.0
"""Seconds after which an agent is asked again that was just asked by somebody. Chosen: it says so
for one second."""
KEPT_S = 3.0
"""Seconds for which rows are kept that explain. Chosen, as of `controllers.meaning`: several walks
of a host are explained in one window."""
ANSWER_S = 15.0
"""Seconds that making sense of rows may take. Chosen: longer than the CPU that it may take."""
EXPLAINED_AT_ONCE = 2
"""Questions that are made sense of at once. Chosen: each takes a core for a second."""

log = structlog.get_logger()

Ask = Callable[[str, ZoneRequest], Awaitable[ZoneReply]]
"""Asks a host; raises Unreachable and the like."""
_ANSWERS: dict[type, type] = {AskFlows: Flows, AskMeaning: Meanings, AskDifference: Differences}
Explain = Callable[[AskOfRows], Awaitable[messages.Up]]


@dataclass(slots=True)
class Counts:
    """What looking took."""

    looks: int = 0
    unchanged: int = 0
    """Looks that found nothing new."""
    failed: int = 0
    row_bytes: int = 0
    """Bytes of rows that came."""


@dataclass(slots=True)
class _Followed:
    zone: Zone
    due_s: float
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Rows:
    read_s: float
    reply: "asyncio.Task[ZoneReply]" = field(repr=False)


class Zones:
    """What the controllers of many hosts say should be, each of its own."""

    pid = None
    """No process of its own reads them."""

    def __init__(
        self,
        hosts: Callable[[], Collection[str]],
        is_known: Callable[[str], bool],
        ask: Ask,
        clock: Callable[[], int],
        *,
        on_intent: Callable[[], None] = lambda: None,
        explain: Explain | None = None,
        random: Random | None = None,
    ) -> None:
        """Follow the zones of `hosts()`: those that say now that they have databases.

        One that says nothing any more is away, until `is_known` says that nobody knows the host.
        `on_intent` is called whenever what is known changed.
        """
        self._hosts, self._is_known, self._ask, self._clock = hosts, is_known, ask, clock
        self._on_intent, self._explain = on_intent, explain or _explained
        self._random = random or Random()
        self._followed: dict[str, _Followed] = {}
        self._rows: dict[str, _Rows] = {}
        self._explaining = asyncio.Semaphore(EXPLAINED_AT_ONCE)
        self.counts = Counts()
        self.starts = 0

    # --- what is known --------------------------------------------------------------------------

    @property
    def intents(self) -> tuple[Intent, ...]:
        """Return what each zone says, by its host's name."""
        return tuple(self._followed[host].zone.intent for host in sorted(self._followed))

    def intent_of(self, host: str) -> Intent:
        """Return what a host's zone says; raises CapabilityMissing where it has none."""
        found = self._followed.get(host)
        if found is None:
            remedy = "its agent says of no databases there; see ovs.ovn_databases"
            raise CapabilityMissing(f"the intent of {host}", remedy)
        return found.zone.intent

    @property
    def away(self) -> dict[str, str]:
        """Return which zones cannot be read now, and why."""
        return {
            each.zone: "; ".join(f"{name}: {why}" for name, why in sorted(each.away.items()))
            for each in self.intents
            if each.away
        }

    @property
    def sources(self) -> list[Source]:
        """Return what databases lack, of each zone where one lacks something."""
        return [
            Source(database=f"{name} of {host}", remote=f"agent of {host}", lacks=lacks)
            for host, each in sorted(self._followed.items())
            for name, lacks in sorted(each.zone.lacks.items())
            if lacks
        ]

    def together(self, hosts: Iterable[str]) -> list[list[str]]:
        """Return hosts in groups, of which each has one controller."""
        return [[host] for host in sorted(hosts)]

    # --- following ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            while True:
                self._begin()
                await asyncio.sleep(STEP_S)
        finally:
            tasks = [each.task for each in self._followed.values() if each.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        """Begin to look where it is time."""
        now_s = asyncio.get_running_loop().time()
        here = set(self._hosts())
        for host in here - self._followed.keys():
            self._followed[host] = _Followed(Zone(host), now_s)
            self._on_intent()
        for host in [each for each in self._followed if each not in here]:
            if not self._is_known(host):
                task = self._followed.pop(host).task
                if task is not None:
                    task.cancel()
                self._on_intent()
        room = AT_ONCE - sum(each.task is not None for each in self._followed.values())
        waiting = [each for each in self._followed.items() if each[1].task is None]
        due = sorted((each for each in waiting if each[1].due_s <= now_s), key=lambda e: e[1].due_s)
        for host, each in due[: max(0, room)]:
            each.task = asyncio.create_task(self._look(host, each))

    async def _look(self, host: str, followed: _Followed) -> None:
        pause_s = min(MOST_S, max(EVERY_S, len(self._followed) / PER_S))
        pause_s *= self._random.uniform(1 - JITTER, 1 + JITTER)
        try:
            await self._read(host, followed.zone)
        except TooSoon:
            pause_s = AGAIN_S
        except Exception:  # whatever one host's rows do must not end the others' reading
            self.counts.failed += 1
            log.exception("zone_failed", host=host)
            followed.zone = Zone(host)
            self._on_intent()
        finally:
            followed.due_s = asyncio.get_running_loop().time() + pause_s
            followed.task = None

    async def _read(self, host: str, zone: Zone) -> None:
        before = zone.intent
        self.counts.looks += 1
        try:
            reply = await self._ask(host, ZoneRequest(known=dict(zone.digests)))
        except TooSoon:
            raise
        except NetAgentError as error:
            self.counts.failed += 1
            zone.lose(f"its agent: {error}", self._clock())
        else:
            size = sum(len(each.rows) for each in reply.databases.values())
            self.counts.row_bytes += size
            self.counts.unchanged += not size
            await asyncio.to_thread(zone.take, reply.databases, self._clock())
        if before.away != zone.intent.away:
            log.info("zone_database", host=host, away=dict(zone.intent.away))
        if replace(before, wall_ns=0) != replace(zone.intent, wall_ns=0):
            self._on_intent()

    # --- questions ------------------------------------------------------------------------------

    async def flows(
        self, prefixes: Collection[str] = (), *, datapath: int | None = None, host: str = ""
    ) -> Flows:
        """Return a host's logical flows by the first digits of their uuids.

        Raises CapabilityMissing, RemoteProtocolError, Unreachable.
        """
        asked = AskFlows(query=0, prefixes=tuple(prefixes), datapath=datapath)
        return cast("Flows", await self._answer(host, asked))

    async def meaning(self, asked: AskMeaning, *, host: str = "") -> Meanings:
        """Return what ends of walks on a host mean, by its own databases; raises as `flows`."""
        return cast("Meanings", await self._answer(host, asked))

    async def difference(self, asked: AskDifference, *, host: str = "") -> Differences:
        """Return what of a host's flows is not as its own databases want; raises as `flows`."""
        return cast("Differences", await self._answer(host, asked))

    async def _answer(self, host: str, asked: Asked) -> messages.Up:
        self.intent_of(host)
        reply = await self._explaining_rows(host)
        for name in (NORTHBOUND, SOUTHBOUND):
            if name not in reply.databases or reply.databases[name].away:
                raise CapabilityMissing(f"the intent of {host}", f"{name} is away: ask later")
        question = AskOfRows(
            asked=msgspec.structs.replace(asked, query=1),
            northbound=reply.databases[NORTHBOUND].rows,
            southbound=reply.databases[SOUTHBOUND].rows,
        )
        async with self._explaining:
            said = await self._explain(question)
        if isinstance(said, NoFlows):
            raise RemoteProtocolError(f"{host}: {said.error}")
        if not isinstance(said, _ANSWERS[type(asked)]):
            raise RemoteProtocolError(f"{host}: no answer")
        return said

    async def _explaining_rows(self, host: str) -> ZoneReply:
        now_s = asyncio.get_running_loop().time()
        for old in [each for each, rows in self._rows.items() if now_s - rows.read_s >= KEPT_S]:
            del self._rows[old]
        if host not in self._rows:
            asking = asyncio.ensure_future(self._ask(host, ZoneRequest(explaining=True)))
            self._rows[host] = _Rows(now_s, asking)
        return await asyncio.shield(self._rows[host].reply)


async def _explained(asked: AskOfRows) -> messages.Up:
    """Return the answer of a process of its own; raises CapabilityMissing where it gives none."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "analyzer.controllers.once",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(ANSWER_S):
            said, _ = await process.communicate(messages.framed(asked))
    except TimeoutError:
        said = b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if len(said) < HEAD.size or len(said) > MAX_FRAME_BYTES + HEAD.size:
        raise CapabilityMissing("logical flows", "its rows take too long, or make no sense")
    return messages.up(said[HEAD.size :])
