# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from analyzer.picture.asked import Matrix, Totals
from analyzer.server.page.looks import FRESH_S, MAX_KEPT, Looks
from netagent.model.errors import CapabilityMissing


class Judge:
    """Answers when it is let."""

    def __init__(self):
        self.asked, self.at_once, self.most = [], 0, 0
        self.may, self.fails = asyncio.Event(), False
        self.may.set()

    async def draw(self, asked):
        self.asked.append(asked)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await self.may.wait()
        self.at_once -= 1
        if self.fails:
            raise CapabilityMissing("the judge", "later")
        return {"n": len(self.asked)}


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def running(work):
    async def inside():
        judge, clock = Judge(), Clock()
        async with asyncio.timeout(60):
            await work(Looks(judge, clock), judge, clock)

    asyncio.run(inside())


def test_the_same_question_is_put_once_however_many_ask():
    async def work(looks, judge, clock):
        judge.may.clear()
        asking = [asyncio.create_task(looks.at(Totals())) for _ in range(5)]
        await asyncio.sleep(0)
        judge.may.set()
        assert [await each for each in asking] == [{"n": 1}] * 5
        clock.now_s = FRESH_S - 0.1
        assert await looks.at(Totals()) == {"n": 1}
        clock.now_s = FRESH_S
        assert await looks.at(Totals()) == {"n": 2}

    running(work)


def test_one_question_at_a_time_so_that_the_judge_decides_meanwhile():
    async def work(looks, judge, clock):
        await asyncio.gather(*(looks.at(Totals(tasks=(f"t{n}",))) for n in range(5)))
        assert (len(judge.asked), judge.most) == (5, 1)

    running(work)


def test_who_hangs_up_takes_the_answer_from_nobody():
    async def work(looks, judge, clock):
        judge.may.clear()
        one, other = (asyncio.create_task(looks.at(Totals())) for _ in range(2))
        await asyncio.sleep(0)
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        judge.may.set()
        assert await other == {"n": 1}

    running(work)


def test_a_judge_that_is_away_is_asked_again_soon():
    async def work(looks, judge, clock):
        judge.fails = True
        with pytest.raises(CapabilityMissing):
            await looks.at(Totals())
        judge.fails, clock.now_s = False, FRESH_S
        assert await looks.at(Totals()) == {"n": 2}

    running(work)


def test_answers_are_bounded():
    async def work(looks, judge, clock):
        for n in range(2 * MAX_KEPT):
            await looks.at(Matrix(row=f"leaf-{n}"))
        assert len(looks._known) == MAX_KEPT

    running(work)
