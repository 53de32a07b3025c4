# SPDX-License-Identifier: Apache-2.0
"""The work on skeletons: judges tasks in a thread, and decides whom to ask for fine ticks."""

import asyncio
import time
from collections.abc import Callable, Collection

import structlog

from analyzer.intake.traffic import TrafficBook
from analyzer.roster.service import AnalyzerService
from analyzer.skeleton.judging import Case, Judgement, judge
from analyzer.skeleton.plans import Plan, Skeletons
from analyzer.skeleton.sampling import Sampling

log = structlog.get_logger()

STEP_S = 1.0
"""Seconds between two steps of each worker. Chosen: a task that changes is back on its basic list
within two seconds."""


class Planner:
    """Keeps every task's plan up to date. One task's trouble is no other's."""

    def __init__(
        self,
        skeletons: Skeletons,
        book: TrafficBook,
        service: AnalyzerService,
        sampling: Sampling,
        clock: Callable[[], int],
    ) -> None:
        self._skeletons, self._book, self._service = skeletons, book, service
        self._sampling, self._clock = sampling, clock
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
            now_ns = self._clock()
            self._sampling.ask(self._skeletons.to_sample(now_ns), now_ns)
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
