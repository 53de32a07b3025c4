# SPDX-License-Identifier: Apache-2.0
import asyncio
from itertools import count

import pytest

from tests.waiting import leaping, until, wait_until


def third():
    numbers = count(1)
    return lambda: next(numbers) == 3


def test_looks_come_less_and_less_often():
    looks, rests = count(), []
    wait_until(lambda: next(looks) == 20, rest=rests.append)
    assert len(rests) == 20
    assert rests == sorted(rests)
    assert rests[0] < rests[1]
    assert rests[-1] == rests[-2]  # no longer than that


def test_what_holds_at_once_costs_no_rest():
    assert wait_until(lambda: True, within_s=0, rest=pytest.fail) < 1
    asyncio.run(until(lambda: True, rest=pytest.fail))


def test_a_loop_goes_on_until_it_holds():
    rests = []

    async def rest(pause_s):
        rests.append(pause_s)

    asyncio.run(until(third(), rest=rest))
    assert len(rests) == 2


def test_what_never_holds_is_named():
    with pytest.raises(AssertionError, match=r"rain: not within 0\.01 s"):
        wait_until(lambda: False, "rain", 0.01)
    with pytest.raises(AssertionError, match=r"rain: not within 0\.01 s"):
        asyncio.run(until(lambda: False, "rain", 0.01))


def test_a_loop_whose_clock_leaps_finds_due_what_is_later_and_nothing_before():
    async def main():
        leap, told = leaping(asyncio.get_running_loop()), []
        for seconds in (3600, 7200):
            asyncio.get_running_loop().call_later(seconds, told.append, seconds)
        leap(3601)
        await until(lambda: told)
        return told

    assert asyncio.run(main()) == [3600]
