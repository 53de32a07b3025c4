# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections import Counter

import msgspec
import pytest

from analyzer.controllers.messages import AskMeaning, AskOfRows, Flows, Meanings, NoFlows
from analyzer.server import zones as room
from analyzer.server.zones import AT_ONCE, Zones
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, TooSoon, Unreachable
from netagent.wire.zone import ZoneReply, ZoneRows
from tests.analyzer.intent.rows import both, northbound, southbound
from tests.waiting import until

NOW = 10**18


class Agents:
    """Agents by host, and what each reads."""

    def __init__(self, *hosts):
        self.rows = {
            host: both(northbound(f"p-{host}"), southbound(f"c-{host}", f"p-{host}"))
            for host in hosts
        }
        self.broken, self.asked, self.busy, self.most = {}, [], 0, 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def zone(self, host, request):
        self.asked.append((host, request))
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await self.hold.wait()
            if (error := self.broken.get(host)) is not None:
                raise error
            known = request.known
            return ZoneReply(host=host, databases={
                name: (ZoneRows(digest=each.digest) if known.get(name) == each.digest else each)
                for name, each in self.rows[host].items()
            })  # fmt: skip
        finally:
            self.busy -= 1


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    for name in ("EVERY_S", "MOST_S", "STEP_S", "AGAIN_S"):
        monkeypatch.setattr(room, name, 0.01)


def follow(agents, work, *, hosts=None, known=lambda _host: True, **options):
    """Run what `work(zones)` returns beside zones that are followed."""
    news = []

    async def run():
        made = Zones(
            hosts or (lambda: list(agents.rows)), known, agents.zone, lambda: NOW,
            on_intent=lambda: news.append(1), **options,
        )  # fmt: skip
        task = asyncio.create_task(made.run())
        try:
            return await work(made)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return asyncio.run(run()), news


def read(zones, count):
    return len(zones.intents) == count and not zones.away


def test_each_host_s_zone_is_an_intent_of_its_own():
    agents = Agents("h1", "h2")

    async def work(zones):
        await until(lambda: read(zones, 2))
        return zones.intents

    intents, news = follow(agents, work)
    assert [(each.zone, list(each.ports)) for each in intents] == [
        ("h1", ["p-h1"]), ("h2", ["p-h2"]),
    ]  # fmt: skip
    assert news


def test_what_did_not_change_is_not_asked_for_again_and_is_no_news():
    agents = Agents("h1")

    async def work(zones):
        await until(lambda: read(zones, 1))
        size = zones.counts.row_bytes
        await until(lambda: zones.counts.unchanged >= 3)
        return size, zones.counts

    (size, counts), news = follow(agents, work)
    assert counts.row_bytes == size > 0
    assert len(news) == 2  # that it is there, and what it says
    assert all(request.known for _, request in agents.asked[1:])


def test_one_that_does_not_answer_is_away_alone_and_comes_back():
    agents = Agents("h1", "h2")

    async def work(zones):
        await until(lambda: read(zones, 2))
        agents.broken["h1"] = Unreachable("h1", "refused")
        await until(lambda: bool(zones.away))
        away = dict(zones.away)
        intents = zones.intents
        agents.broken.clear()
        await until(lambda: read(zones, 2))
        return away, intents

    (away, intents), _ = follow(agents, work)
    assert list(away) == ["h1"]
    assert "refused" in away["h1"]
    assert [list(each.ports) for each in intents] == [["p-h1"], ["p-h2"]]
    assert intents[1].away == {}


def test_one_that_was_just_asked_by_somebody_is_not_away():
    agents = Agents("h1")

    async def work(zones):
        await until(lambda: read(zones, 1))
        agents.broken["h1"] = TooSoon("h1", "just now")
        asked = len(agents.asked)
        await until(lambda: len(agents.asked) > asked + 2)
        return dict(zones.away)

    assert follow(agents, work)[0] == {}


def test_rows_that_break_the_reading_end_nobody_else_s(monkeypatch):
    agents = Agents("h1", "h2")
    whole = room.Zone.take

    def take(self, said, wall_ns):
        if self.intent.zone == "h1":
            raise ZeroDivisionError
        whole(self, said, wall_ns)

    monkeypatch.setattr(room.Zone, "take", take)

    async def work(zones):
        await until(lambda: zones.counts.failed >= 2)
        await until(lambda: list(zones.away) == ["h1"])
        return zones.intent_of("h2").ports

    assert list(follow(agents, work)[0]) == ["p-h2"]


def test_few_are_asked_at_once():
    agents = Agents(*(f"h{number}" for number in range(3 * AT_ONCE)))

    async def work(zones):
        agents.hold.clear()
        await until(lambda: agents.busy == AT_ONCE)
        await asyncio.sleep(0)
        agents.hold.set()
        await until(lambda: read(zones, 3 * AT_ONCE))

    follow(agents, work)
    assert agents.most == AT_ONCE


def test_intervals_follow_from_how_many_there_are(monkeypatch):
    asked = []
    monkeypatch.setattr(room, "EVERY_S", 10.0)
    monkeypatch.setattr(room, "MOST_S", 60.0)

    class Even:
        def uniform(self, low, high):
            asked.append((low, high))
            return 1.0

    async def due(count):
        zones = Zones(list, lambda _host: True, Agents("h0").zone, lambda: NOW, random=Even())
        followed = {f"h{n}": room._Followed(room.Zone(f"h{n}"), 0.0) for n in range(count)}
        zones._followed = followed
        now_s = asyncio.get_running_loop().time()
        await zones._look("h0", followed["h0"])
        return followed["h0"].due_s - now_s

    found = [asyncio.run(due(count)) for count in (1, 400, 5000)]
    assert found == pytest.approx([10, 20, 60], abs=2)
    assert asked == [(0.8, 1.2)] * 3


def test_one_that_says_nothing_more_stays_until_nobody_knows_it():
    agents, here, known = Agents("h1", "h2"), {"h1", "h2"}, {"h1", "h2"}

    async def work(zones):
        await until(lambda: read(zones, 2))
        here.discard("h1")
        agents.broken["h1"] = Unreachable("h1", "timeout")
        await until(lambda: list(zones.away) == ["h1"])
        known.discard("h1")
        await until(lambda: len(zones.intents) == 1)
        with pytest.raises(CapabilityMissing, match="ovn_databases"):
            zones.intent_of("h1")

    follow(agents, work, hosts=lambda: here, known=known.__contains__)


# --- questions ------------------------------------------------------------------------------------

ASKED = AskMeaning(query=0, chassis="c-h1", installed=(), ends=())


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (Meanings(query=1, meant=()), None),
        (NoFlows(query=1, error="rows that are not OVN's"), RemoteProtocolError),
        (Flows(query=1, flows=()), RemoteProtocolError),
    ],
)
def test_ends_are_explained_by_the_rows_of_the_host_s_own_databases(said, error):
    agents, given = Agents("h1", "h2"), []

    async def explain(asked):
        given.append(asked)
        return said

    async def work(zones):
        await until(lambda: read(zones, 2))
        if error is not None:
            with pytest.raises(error):
                await zones.meaning(ASKED, host="h1")
            return
        assert await zones.meaning(ASKED, host="h1") == said
        await zones.meaning(ASKED, host="h1")

    follow(agents, work, explain=explain)
    explaining = Counter(host for host, request in agents.asked if request.explaining)
    assert explaining == {"h1": 1}  # rows are kept for seconds
    assert isinstance(given[0], AskOfRows)
    assert given[0].southbound == agents.rows["h1"]["southbound"].rows


@pytest.mark.parametrize("broken", [Unreachable("h1", "refused"), TooSoon("h1", "just now")])
def test_where_the_agent_does_not_answer_there_is_no_explanation(broken):
    agents = Agents("h1")

    async def work(zones):
        await until(lambda: read(zones, 1))
        agents.broken["h1"] = broken
        with pytest.raises(type(broken)):
            await zones.meaning(ASKED, host="h1")
        with pytest.raises(CapabilityMissing):
            await zones.meaning(ASKED, host="h9")

    follow(agents, work)


def test_a_database_that_is_away_explains_nothing():
    agents = Agents("h1")

    async def work(zones):
        await until(lambda: read(zones, 1))
        agents.rows["h1"] = {**agents.rows["h1"], "southbound": ZoneRows(away="gone")}
        with pytest.raises(CapabilityMissing, match="southbound is away"):
            await zones.meaning(ASKED, host="h1")

    follow(agents, work)


def test_hosts_have_controllers_of_their_own():
    zones = Zones(list, lambda _host: True, Agents().zone, lambda: NOW)
    assert zones.together(["h2", "h1"]) == [["h1"], ["h2"]]


def test_a_process_of_its_own_answers(monkeypatch):
    asked = AskOfRows(asked=ASKED, northbound=b"{}", southbound=b"{}")
    said = asyncio.run(room._explained(asked))
    assert isinstance(said, NoFlows | Meanings)
    monkeypatch.setattr(room, "ANSWER_S", 0.001)
    with pytest.raises(CapabilityMissing, match="too long"):
        asyncio.run(room._explained(msgspec.structs.replace(asked)))
