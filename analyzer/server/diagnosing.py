# SPDX-License-Identifier: Apache-2.0
"""Diagnoses of many pairs: who may have one, how far each has come, what it found.

Theory of operation. Each asks agents for walks, and agents have other work. So one is under way at
a time, and the others wait for their turn. Its pairs go to the judge in batches: one batch asks a
host twice at most, whatever the number of its pairs. Each time that a host is asked it dumps its
flow tables, so the next batch waits: hosts are asked no more often than the analyzer itself asks
them while something fails, and rest for half of the time. Whoever asks gives a budget of time,
after which it ends with what it has.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from analyzer.server.problems import Problem
from netagent.model.errors import NetAgentError
from netagent.model.ids import EndpointId
from netagent.model.strenum import StrEnum
from netagent.wire.messages import Service

Pair = tuple[EndpointId, EndpointId]
Plain = dict[str, object]

MAX_PAIRS = 256
"""Most pairs of one diagnosis. Chosen: all of a task of sixteen hosts with eight rails each."""
BATCH = 32
"""Pairs that are walked at once. Chosen: as many as the analyzer walks for one window that fails
(`localize.overlay.MAX_PAIRS`)."""
EVERY_S = 5.0
"""Seconds from one batch to the next at least, be it of another diagnosis. Chosen: a default
window, as for those walks."""
MAX_REST_S = 5.0
"""Longest rest after a batch that took long. Chosen: as long as an agent may take to answer."""
MAX_UNDER_WAY = 8
"""Most diagnoses that are not over, all callers'. Chosen: bounds memory, and what waits."""
MAX_OF_CALLER = 2
"""Most of them of one caller. Chosen: the next one may be asked for while one is under way."""
MAX_KEPT = 16
"""Most that are over and still known; the oldest are forgotten. Chosen: bounds memory: 256 pairs
are some megabytes."""
MAX_AT_ONCE = 8
"""Most diagnoses of a single pair under way. Chosen: people ask for one, and an agent answers one
question after the other."""
BUDGET_S, MAX_BUDGET_S = 120.0, 600.0
"""Seconds that a diagnosis may take, where nobody says so, and at most. Chosen: the eight batches
of 256 pairs take 40 s, and 120 s where no host answers."""

log = structlog.get_logger()


class Phase(StrEnum):
    """How far a diagnosis is."""

    RUNNING = "running"
    """It is under way, or waits for its turn."""
    SUCCEEDED = "succeeded"
    """Every pair was looked at, whatever that showed."""
    FAILED = "failed"
    """It ended before."""


@dataclass(slots=True)
class Diagnosis:
    """One diagnosis of many pairs."""

    id: str
    caller: str | None
    pairs: Sequence[Pair]
    tasks: Sequence[frozenset[str]]
    """Of each pair, the tasks that its ends were of as it was asked for: who may read of it. Empty:
    only who reads everything."""
    left_out: int
    """Pairs of the task that it does not look at, since they are too many."""
    budget_s: float
    services: Sequence[Service | None] = ()
    """What each source asks its target for; None, or nothing at all: for a probe."""
    phase: Phase = Phase.RUNNING
    error: str = ""
    """Why it failed."""
    results: list[Plain] = field(default_factory=list)
    """What was found of the first of `pairs`, in their order."""


class Diagnoses:
    """All diagnoses of many pairs."""

    def __init__(
        self,
        walk: Callable[[Sequence[Pair], Sequence[Service | None]], Awaitable[list[Plain]]],
        changed: Callable[[str], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`walk` looks at pairs; `changed` is told the id of what came a step further."""
        self._walk, self._changed, self._clock = walk, changed, clock
        self._known: dict[str, Diagnosis] = {}
        self._turn = asyncio.Lock()
        self._work: set[asyncio.Task[None]] = set()
        self._due_s = 0.0
        """When the next batch may begin."""
        self._alone = 0

    def get(self, name: str) -> Diagnosis | None:
        """Return a diagnosis; None where it is unknown, or forgotten."""
        return self._known.get(name)

    def begin(
        self,
        caller: str | None,
        pairs: Sequence[Pair],
        tasks: Sequence[frozenset[str]],
        *,
        services: Sequence[Service | None] = (),
        left_out: int = 0,
        budget_s: float,
    ) -> Diagnosis:
        """Begin to look at `pairs`; raises Problem where there are too many diagnoses."""
        under_way = [each for each in self._known.values() if each.phase is Phase.RUNNING]
        if sum(each.caller == caller for each in under_way) >= MAX_OF_CALLER:
            raise _busy(f"{MAX_OF_CALLER} diagnoses of yours are under way")
        if len(under_way) >= MAX_UNDER_WAY:
            raise _busy(f"{MAX_UNDER_WAY} diagnoses are under way")
        name = secrets.token_hex(8)
        made = Diagnosis(
            name, caller, tuple(pairs), tuple(tasks), left_out, budget_s, tuple(services)
        )
        self._known[made.id] = made
        self._forget()
        work = asyncio.create_task(self._run(made))
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        return made

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold while a single pair is looked at; raises Problem where too many are."""
        if self._alone >= MAX_AT_ONCE:
            raise _busy(f"{self._alone} diagnoses of one pair are under way")
        self._alone += 1
        try:
            yield
        finally:
            self._alone -= 1

    async def stop(self) -> None:
        """End all."""
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    async def _run(self, mine: Diagnosis) -> None:
        try:
            async with asyncio.timeout(mine.budget_s), self._turn:
                await self._look(mine)
            mine.phase = Phase.SUCCEEDED
        except TimeoutError:
            mine.error = f"its {mine.budget_s:g} s are over"
        except NetAgentError as error:
            mine.error = str(error)
        except Exception:  # supervision: whoever waits for it is told, whatever it was
            log.exception("diagnosis_failed", diagnosis=mine.id)
            mine.error = "internal error"
        if mine.error:
            mine.phase = Phase.FAILED
        self._changed(mine.id)

    async def _look(self, mine: Diagnosis) -> None:
        for first in range(0, len(mine.pairs), BATCH):
            await asyncio.sleep(max(0.0, self._due_s - self._clock()))
            began_s = self._clock()
            try:
                part = slice(first, first + BATCH)
                mine.results += await self._walk(mine.pairs[part], mine.services[part])
            finally:
                took_s = self._clock() - began_s
                self._due_s = began_s + max(EVERY_S, took_s + min(took_s, MAX_REST_S))
            self._changed(mine.id)

    def _forget(self) -> None:
        over = [each.id for each in self._known.values() if each.phase is not Phase.RUNNING]
        for name in over[: max(0, len(over) - MAX_KEPT)]:
            del self._known[name]


def waiting_for(name: str) -> str:
    """Return the key of those who wait for a diagnosis; no host's name begins with a blank."""
    return f" diagnosis {name}"


def _busy(what: str) -> Problem:
    return Problem(429, what, "ask again once one of them is over")


def spread(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """Return at most so many of the pairs, from all parts of the list."""
    if len(pairs) <= most:
        return list(pairs)
    return [pairs[len(pairs) * n // most] for n in range(most)]
