# SPDX-License-Identifier: Apache-2.0
import asyncio
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analyzer.simulate.agents import WIDTH_NS
from tests.bench.fleet import __main__ as command
from tests.bench.fleet import hosts
from tests.bench.fleet.hosts import NS, Fleet, Load
from tests.bench.fleet.run import Kills, _Live


class Serve:
    """One of which no judge ever begins."""

    starts = killed = 0

    def judge(self) -> int | None:
        return None

    def kill(self) -> None:
        self.killed += 1

    def start(self) -> None:
        self.starts += 1


def live(kills: Kills, serve: Any) -> tuple[_Live, list[str]]:
    others: Any = SimpleNamespace()
    said = list[str]()
    return _Live(Load(), serve, others, others, kills, said.append, others), said


def test_health_lasts_as_long_as_the_kills_that_are_asked_for() -> None:
    kills = Kills(("serve", "judge"), 5.0, 100)
    waited_s = sum(islice(kills.waits_s(1), 100))
    assert 400 < waited_s < 600
    assert kills.windows(1) * WIDTH_NS / NS >= waited_s + 30
    assert Kills(("serve",), 5.0).windows(1) == Kills().windows(1) == 0


def test_who_is_not_there_is_not_counted_as_killed_and_the_kills_end() -> None:
    serve = Serve()
    running, said = live(Kills(("judge", "serve"), 0.0, 3), serve)
    asyncio.run(asyncio.wait_for(running._kill(), 60))
    assert running.killed == serve.killed == serve.starts == len(said) == 3


def test_a_fleet_ends_when_nothing_is_taken_any_more_and_says_how_much_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "PATIENCE_S", 0.01)
    fleet = Fleet(Load(rnics=16, healthy=2, failing=1), tmp_path)
    fleet.delivered.acknowledged += [("h0", 0), ("h1", 0)]

    async def waited() -> None:
        queue = asyncio.Queue[tuple[int, bytes]]()
        queue.put_nowait((0, b""))
        await asyncio.wait_for(fleet._taken([queue]), 60)

    asyncio.run(waited())
    assert fleet.delivered.waiting == 2 * 3 - 2


@pytest.mark.parametrize(
    "change",
    [{"others": {"host h1": "x"}}, {"named_s": {"link": None}}, {"lost": 1}, {"undelivered": 1},
     {"killed": 2}],
)  # fmt: skip
def test_a_run_that_shows_what_it_must_not_is_amiss(change: dict[str, Any]) -> None:
    well: dict[str, Any] = {
        "others": {}, "named_s": {"link": 2.0}, "lost": 0, "undelivered": 0, "killed": 3,
    }  # fmt: skip
    assert not command._is_amiss(well, 3)
    assert command._is_amiss(well | change, 3)
