# SPDX-License-Identifier: Apache-2.0
"""Diagnoses of many pairs, whose walks the test lets go on."""

import asyncio
from contextlib import ExitStack
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.server import diagnosing
from analyzer.server.diagnosing import (
    BATCH,
    EVERY_S,
    MAX_AT_ONCE,
    MAX_KEPT,
    MAX_OF_CALLER,
    MAX_REST_S,
    MAX_UNDER_WAY,
    Diagnoses,
    Phase,
    spread,
)
from analyzer.server.problems import Problem
from netagent.model.errors import CapabilityMissing
from netagent.model.ids import EndpointId
from tests.waiting import leaping, until


def pairs(count):
    return [(EndpointId("a", n), EndpointId("b", n)) for n in range(count)]


def asked(some):
    """Return what it takes to ask for pairs: they, and whose they are."""
    return some, [frozenset({"train-a"})] * len(some)


class Walks:
    """Answers batches as soon as `let` says so."""

    def __init__(self):
        self.asked, self.under_way, self.most = [], 0, 0
        self._may = asyncio.Semaphore(0)
        self.fail = None

    def let(self, count=1):
        for _ in range(count):
            self._may.release()

    async def walk(self, batch, _services):
        self.asked.append(list(batch))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self._may.acquire()
        finally:
            self.under_way -= 1
        if self.fail:
            raise self.fail
        return [{"source": str(a), "target": str(b)} for a, b in batch]


def paused():
    """Return a clock by which any rest is over as it begins."""
    ticks = count(0, 100)
    return lambda: next(ticks)


def on(work):
    async def inside():
        walks, told = Walks(), []
        diagnoses = Diagnoses(walks.walk, told.append, clock=paused())
        try:
            async with asyncio.timeout(100):
                await work(diagnoses, walks, told)
        finally:
            await diagnoses.stop()

    asyncio.run(inside())


def test_pairs_are_walked_in_batches_and_results_come_in_their_order():
    async def work(diagnoses, walks, told):
        mine = diagnoses.begin("ops", *asked(pairs(2 * BATCH + 1)), budget_s=60)
        assert diagnoses.get(mine.id) is mine
        walks.let()
        await until(lambda: len(walks.asked) == 2)
        assert (mine.phase, len(mine.results)) == (Phase.RUNNING, BATCH)
        walks.let(2)
        await until(lambda: mine.phase is not Phase.RUNNING)
        assert (mine.phase, mine.error) == (Phase.SUCCEEDED, "")
        assert [each["source"] for each in mine.results] == [str(a) for a, _ in mine.pairs]
        assert list(map(len, walks.asked)) == [BATCH, BATCH, 1]
        assert told == [mine.id] * 4  # each batch, and the end

    on(work)


def test_one_is_under_way_at_a_time():
    async def work(diagnoses, walks, _):
        made = [diagnoses.begin(str(n), *asked(pairs(1)), budget_s=60) for n in range(3)]
        for n in range(3):
            await until(lambda n=n: len(walks.asked) == n + 1)
            walks.let()
        await until(lambda: all(each.phase is Phase.SUCCEEDED for each in made))
        assert walks.most == 1

    on(work)


@pytest.mark.parametrize(("took_s", "rest_s"), [
    (0.5, EVERY_S - 0.5), (4.0, 4.0), (EVERY_S + MAX_REST_S + 1, MAX_REST_S),
])  # fmt: skip
def test_hosts_rest_as_long_as_a_batch_took_and_until_the_next_is_due(monkeypatch, took_s, rest_s):
    async def work():
        now, rests = 1000.0, []

        async def rest(seconds):
            nonlocal now
            rests.append(seconds)
            now += seconds

        async def walk(batch, _services):
            nonlocal now
            now += took_s
            return [{} for _ in batch]

        monkeypatch.setattr(diagnosing.asyncio, "sleep", rest)
        diagnoses = Diagnoses(walk, clock=lambda: now)
        made = [diagnoses.begin("ops", *asked(pairs(BATCH + 1)), budget_s=60) for _ in range(2)]
        await until(lambda: all(each.phase is Phase.SUCCEEDED for each in made))
        assert rests == pytest.approx([0.0, rest_s, rest_s, rest_s])  # the second job's first, too

    asyncio.run(work())


def test_some_single_pairs_are_looked_at_at_once():
    async def work(diagnoses, *_):
        with ExitStack() as held:
            for _ in range(MAX_AT_ONCE):
                held.enter_context(diagnoses.one())
            with pytest.raises(Problem, match="of one pair"), diagnoses.one():
                pass
        with diagnoses.one():
            pass

    on(work)


def test_a_caller_has_few_under_way_and_all_callers_some():
    async def work(diagnoses, walks, _):
        for n in range(MAX_UNDER_WAY):
            diagnoses.begin(f"caller {n // MAX_OF_CALLER}", *asked(pairs(1)), budget_s=60)
        for caller, words in (("caller 0", "of yours"), ("another", f"{MAX_UNDER_WAY} diagnoses")):
            with pytest.raises(Problem, match=words) as refused:
                diagnoses.begin(caller, *asked(pairs(1)), budget_s=60)
            assert refused.value.status_code == 429
        walks.let()
        await until(lambda: len(walks.asked) == 2)
        diagnoses.begin("caller 0", *asked(pairs(1)), budget_s=60)

    on(work)


def test_those_that_are_over_are_forgotten_one_after_the_other():
    async def work(diagnoses, walks, _):
        walks.let(MAX_KEPT + 5)
        made = []
        for _ in range(MAX_KEPT + 5):
            made.append(diagnoses.begin("ops", *asked(pairs(1)), budget_s=60))
            await until(lambda: made[-1].phase is Phase.SUCCEEDED)
        known = [diagnoses.get(each.id) is not None for each in made]
        assert known == [False] * 4 + [True] * (MAX_KEPT + 1)

    on(work)


@pytest.mark.parametrize("is_its_turn", [True, False])
def test_when_its_budget_is_over_it_ends_with_what_it_has(is_its_turn):
    async def work(diagnoses, walks, told):
        if not is_its_turn:
            first = diagnoses.begin("other", *asked(pairs(1)), budget_s=60)
            await until(lambda: walks.asked)
        leap = leaping(asyncio.get_running_loop())
        mine = diagnoses.begin("ops", *asked(pairs(2 * BATCH)), budget_s=30)
        if is_its_turn:
            walks.let()
            await until(lambda: len(walks.asked) == 2)
        await asyncio.sleep(0)  # it has begun, or begins to wait
        assert mine.phase is Phase.RUNNING
        leap(30)
        await until(lambda: mine.phase is Phase.FAILED)
        assert mine.error == "its 30 s are over"
        assert len(mine.results) == (BATCH if is_its_turn else 0)
        assert told[-1] == mine.id
        assert walks.under_way == (0 if is_its_turn else 1)
        if not is_its_turn:
            assert first.phase is Phase.RUNNING

    on(work)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CapabilityMissing("the judge", "ask again"), "the judge unavailable: ask again"),
        (ZeroDivisionError(), "internal error"),
    ],
)
def test_what_goes_wrong_is_told_and_the_next_one_has_its_turn(error, said):
    async def work(diagnoses, walks, _):
        walks.fail = error
        mine = diagnoses.begin("ops", *asked(pairs(1)), budget_s=60)
        walks.let()
        await until(lambda: mine.phase is Phase.FAILED)
        assert mine.error == said
        walks.fail = None
        walks.let()
        after = diagnoses.begin("ops", *asked(pairs(1)), budget_s=60)
        await until(lambda: after.phase is Phase.SUCCEEDED)

    on(work)


@given(st.integers(0, 60), st.integers(1, 20))
def test_what_is_spread_is_of_all_parts_in_order_and_once(count, most):
    mine = pairs(count)
    some = spread(mine, most)
    assert len(some) == min(count, most)
    places = [mine.index(each) for each in some]
    assert places == sorted(set(places))
    gaps = [b - a for a, b in pairwise(places)]
    assert not gaps or max(gaps) - min(gaps) <= 1
