# SPDX-License-Identifier: Apache-2.0
"""The background work on skeletons: judges tasks in a thread, and requests fine ticks of agents."""

import asyncio
import time
from collections.abc import Callable, Collection

import structlog

from analyzer.fleet import Fleet
from analyzer.intake.traffic import TrafficBook
from analyzer.roster.service import AnalyzerService
from analyzer.skeleton.judging import FINE_NS, Case, Judgement, judge
from analyzer.skeleton.plans import Plan, Skeletons
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, Unreachable
from netagent.wire.messages import SampleRequest

log = structlog.get_logger()

STEP_S = 1.0
"""Seconds between two steps of each worker. Chosen: a task that changes is back on its basic list
within two seconds."""
AT_ONCE = 64
"""Most agents that are asked for fine ticks at the same time. Chosen: bounds open connections."""


class Planner:
    """Keeps every task's plan up to date. One task's trouble is no other's."""

    def __init__(
        self,
        skeletons: Skeletons,
        book: TrafficBook,
        service: AnalyzerService,
        fleet: Fleet,
        clock: Callable[[], int],
    ) -> None:
        self._skeletons, self._book, self._service = skeletons, book, service
        self._fleet, self._clock = fleet, clock
        self._told: dict[str, Plan] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for work in (self._follow, self._think, self._sample):
                group.create_task(work())

    async def _follow(self) -> None:
        while True:
            self._use(self._skeletons.refresh(self._clock()))
            await asyncio.sleep(STEP_S)

    async def _think(self) -> None:
        while True:
            for case in self._skeletons.cases(self._clock()):
                began_ns = time.monotonic_ns()
                judgement = await self._judge(case)
                took_ns = time.monotonic_ns() - began_ns
                now_ns = self._clock()
                self._use(self._skeletons.settle(case, judgement, now_ns=now_ns, took_ns=took_ns))
            await asyncio.sleep(STEP_S)

    async def _judge(self, case: Case) -> Judgement:
        try:
            return await asyncio.to_thread(judge, case, self._book)
        except Exception as error:
            log.exception("skeleton_not_judged", task=case.task.id)
            why = f"its traffic could not be judged: {type(error).__name__}"
            return Judgement(None, why, broke=case.used is not None)

    async def _sample(self) -> None:
        while True:
            asked_ns = self._clock()
            failed = await _sampled(self._fleet, self._skeletons.to_sample(asked_ns))
            self._skeletons.not_sampled(failed, asked_ns)
            await asyncio.sleep(STEP_S)

    def _use(self, touched: Collection[str]) -> None:
        if touched:
            self._service.replan(touched)
        before, self._told = self._told, self._skeletons.plans()
        _tell(before, self._told)


def _tell(before: dict[str, Plan], after: dict[str, Plan]) -> None:
    for task, now in after.items():
        was = before.get(task)
        if was is not None and was.version == now.version:
            continue
        if now.used is not None:
            found = now.used.skeleton
            degrees = {"dp": found.dp, "pp": found.pp, "tp": found.tp, "ep": found.ep}
            log.info("skeleton_in_use", task=task, pairs=len(found.edges), **degrees)
        elif was is not None:
            log.info("basic_list_in_use", task=task, reason=now.reason)


async def _sampled(fleet: Fleet, hosts: dict[str, float]) -> set[str]:
    """Ask hosts for fine ticks; return those that did not agree."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def ask(host: str, seconds: float) -> tuple[str, str] | None:
        request = SampleRequest(tick_ms=FINE_NS // 1_000_000, seconds=seconds)
        try:
            async with limit:
                await fleet.sample(host, request)
        except (Unreachable, RemoteProtocolError, CapabilityMissing) as error:
            return host, str(error)
        return None

    asked = await asyncio.gather(*(ask(host, seconds) for host, seconds in hosts.items()))
    failed = dict(why for why in asked if why is not None)
    if failed:
        log.warning("not_sampled_finely", hosts=len(failed), first=next(iter(failed.values())))
    return set(failed)
