# SPDX-License-Identifier: Apache-2.0
import asyncio
import zlib
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.simulate.agents import WIDTH_NS
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import rnic
from netagent.wire.codec import decode, inflated
from netagent.wire.messages import PathColumns, Summary
from tests.bench.fleet import __main__ as command
from tests.bench.fleet import hosts
from tests.bench.fleet.again import Again
from tests.bench.fleet.hosts import NS, Fleet, Load
from tests.bench.fleet.run import Kills, _Live, missing
from tests.bench.fleet.trouble import Trouble


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
    others: Any = SimpleNamespace(judged=asyncio.sleep)
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


def test_what_may_go_for_room_is_not_lost_and_all_else_is() -> None:
    full_ns = 1_000 * NS
    acknowledged = [("h0", seconds * NS) for seconds in (815, 820, 995)] + [("h1", 815 * NS)]
    kept = {("h1", 815 * NS)}
    assert missing(acknowledged, kept, full_ns) == (2, 1)  # three minutes are kept
    assert missing(acknowledged, kept, 0) == (3, 0)
    assert missing(acknowledged, acknowledged, full_ns) == (0, 0)


@given(
    st.binary(max_size=400),
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=400)), max_size=3),
)
def test_a_body_that_is_sent_again_inflates_to_one_with_other_numbers(
    head: bytes, rest: list[tuple[int, bytes]]
) -> None:
    body, places = head, list[int]()
    for _, part in rest:
        places.append(len(body))
        body += bytes(8) + part
    sent = Again.of(body, places).sent([number for number, _ in rest])
    assert zlib.decompress(sent) == head + b"".join(n.to_bytes(8, "big") + p for n, p in rest)


def test_a_window_comes_again_as_of_another_time(tmp_path: Path) -> None:
    fleet = Fleet(Load(rnics=256, healthy=3, made=2, failing=1), tmp_path)
    fleet.make()
    start_ns, whole_ns = 10**18, 0
    for window in range(4):
        for host, body in fleet._bodies(window, start_ns):
            sent = decode(inflated(body), Summary)
            assert sent.start_ns == start_ns + window * WIDTH_NS
            if host == "h0":
                whole_ns = whole_ns if sent.paths.whole_ns else sent.start_ns
                assert sent.paths.whole_ns in {0, whole_ns}


def test_a_host_with_findings_says_them_as_of_another_time() -> None:
    finding = Finding(FindingKind.RNIC_DOWN, rnic("h1", "rnic0"), "down", wall_ns=7)
    paths = PathColumns(whole_ns=3)
    summary = Summary(
        host="h1", instance="i", start_ns=5, width_ns=WIDTH_NS, findings=(finding,), paths=paths
    )
    whole_ns, body = hosts._as_of(hosts._again(summary), 10**18, 100, 10**17)
    sent = decode(inflated(body), Summary)
    assert (whole_ns, sent.paths.whole_ns, sent.start_ns) == (10**17, 10**17, 10**18)
    assert sent.findings == (replace(finding, wall_ns=107),)


def test_a_disk_of_its_own_is_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "root" in (Trouble(full_s=1).remedy or "")
    assert Trouble().remedy is None
