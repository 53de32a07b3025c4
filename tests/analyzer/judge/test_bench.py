# SPDX-License-Identifier: Apache-2.0
"""A bench that is fed what a recording holds says what was said then."""

import asyncio
import io
from functools import cache

import pytest
from msgspec import to_builtins

from analyzer.config import Recording
from analyzer.diagnosis.engine import Diagnosis
from analyzer.history.figures import Told
from analyzer.judge import messages
from analyzer.judge.bench import MAX_WALKS, Bench
from analyzer.localize.topology import LearnedTopology
from analyzer.picture.asked import Totals
from analyzer.questions import Failed, Why
from analyzer.replay import fed, records
from analyzer.replay.player import play, read
from netagent.model.errors import RemoteProtocolError
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Service, SummaryHead
from tests.analyzer.diagnosis.world import HOSTS
from tests.analyzer.replay.worlds import eventful
from tests.waiting import until


@cache
def recorded():
    world = eventful()
    ends = sorted(world.fabric.endpoints)[:2]
    return list(read(io.BytesIO(world.recording()))), ends


def on(folder, work, *, one_by_one=True, **settings):
    """Run `work(bench, said)` on a bench that was fed a recording, one by one or all at once."""
    made, _ = recorded()
    header, roster, *rest = made

    async def inside():
        said = []
        opening = messages.Open(
            header=header, recording=Recording(**settings), database=str(folder / "db")
        )
        bench = Bench(opening, roster, lambda: 0, said.append)
        await bench.start()
        try:
            given = [each for each in rest if not isinstance(each, records.Told | records.End)]
            if one_by_one:
                for record in given:
                    bench.take(record)
            else:
                bench.take_all((each, encode(each)) for each in given)
            return await work(bench, said)
        finally:
            await bench.stop()

    return asyncio.run(inside())


async def all_said(_, said):
    return said


@pytest.mark.parametrize("one_by_one", [True, False])
def test_it_asks_and_says_what_was_asked_and_said_then(tmp_path, one_by_one):
    said = on(tmp_path, all_said, one_by_one=one_by_one)
    told = [each for each in said if isinstance(each, records.Told)]
    assert told
    assert told == [each for each in recorded()[0] if isinstance(each, records.Told)]
    asked = {each.question for each in said if isinstance(each, messages.Put)}
    assert {r.question for r in recorded()[0] if isinstance(r, records.Answered)} <= asked
    steps = sum(isinstance(each, records.Stepped) for each in recorded()[0])
    assert sum(isinstance(each, messages.Done) for each in said) == steps
    assert not any(isinstance(each, messages.Refused) for each in said)


@pytest.mark.parametrize("one_by_one", [True, False])
def test_what_it_was_fed_is_recorded_with_what_it_said(tmp_path, one_by_one):
    async def work(bench, said):
        bench.take(messages.Look(query=9, what="recording"))
        await until(lambda: isinstance(said[-1], messages.Result | messages.NoResult))
        return decode(said[-1].body, str)

    with open(on(tmp_path, work, one_by_one=one_by_one), "rb") as file:  # noqa: PTH123 - as text
        again = play(read(file))
    assert again.differences == []
    assert again.told == sum(isinstance(each, records.Told) for each in recorded()[0])


def test_who_sent_flows_that_make_no_sense_is_named(tmp_path):
    head = SummaryHead(host="h1", instance="i", start_ns=0, width_ns=5)
    body = encode(to_builtins(head, builtin_types=(bytes,)) | {"flows": "none"})

    async def work(bench, said):
        bench.take(records.Ingested(payload=body, now_ns=10**18))
        return said[-1]

    refused = on(tmp_path, work)
    assert (refused.host, refused.bug) == ("h1", False)
    assert "flows" in refused.error


def summaries():
    """Return the summaries of the recording's last window."""
    every = [each for each in recorded()[0] if isinstance(each, records.Ingested)]
    return [each for each in every if each.now_ns == every[-1].now_ns]


def test_who_makes_no_sense_is_named_among_others_that_are_taken(tmp_path, monkeypatch):
    async def work(bench, said):
        one, *others = summaries()
        odd = records.Ingested(payload=one.payload[:-9], now_ns=one.now_ns)
        heard = records.Heard(host="h1", start_ns=1, now_ns=one.now_ns)
        before, taken, ingest = len(said), [], Diagnosis.ingest

        def noted(self, summary, now_ns, read=None, **how):
            taken.append((summary.host, read is not None))
            return ingest(self, summary, now_ns, read, **how)

        monkeypatch.setattr(Diagnosis, "ingest", noted)
        bench.take_all((each, encode(each)) for each in (one, heard, odd, *others))
        hosts = [decode(each.payload, SummaryHead).host for each in (one, *others)]
        assert taken == [(host, True) for host in hosts]  # at once, though one makes no sense
        return said[before:]

    (refused,) = on(tmp_path, work)
    assert (type(refused), refused.bug) == (messages.Refused, False)


def test_no_more_are_read_at_once_than_may_be(tmp_path, monkeypatch):
    monkeypatch.setattr("analyzer.judge.bench.TOGETHER", 2)
    runs, read_ahead = [], fed.read_ahead

    def noted(diagnosis, tables, coming):
        runs.append(len(coming))
        return read_ahead(diagnosis, tables, coming)

    async def work(bench, _said):
        monkeypatch.setattr("analyzer.replay.fed.read_ahead", noted)
        given = summaries()[:3]
        bench.take_all((each, encode(each)) for each in given)
        monkeypatch.setattr("analyzer.judge.bench.TOGETHER_BYTES", 1)
        bench.take_all((each, encode(each)) for each in given)
        return [each for each in runs if each]

    assert on(tmp_path, work) == [2, 1, 1, 1, 1]


def test_a_bug_in_reading_ahead_costs_no_summary(tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("analyzer.replay.fed.read_ahead", broken)
    said = on(tmp_path, all_said, one_by_one=False)
    told = [each for each in said if isinstance(each, records.Told)]
    assert told == [each for each in recorded()[0] if isinstance(each, records.Told)]
    assert {each.event for each in said if isinstance(each, messages.Said) if each.error} == {
        "not_read_ahead"
    }


def test_a_bug_in_learning_is_told(tmp_path, monkeypatch):
    def broken(self):
        if self._to_learn:
            self._to_learn = {}
            raise ZeroDivisionError

    monkeypatch.setattr(Diagnosis, "learn_waiting", broken)
    monkeypatch.setattr(LearnedTopology, "shows_leaf", lambda *_: False)
    said = on(tmp_path, all_said, one_by_one=False)
    assert "not_learned" in {each.event for each in said if isinstance(each, messages.Said)}


def test_without_recordings_it_says_what_to_set(tmp_path):
    async def work(bench, said):
        bench.take(messages.Look(query=9, what="recording"))
        await until(lambda: isinstance(said[-1], messages.NoResult))
        return said[-1]

    told = on(tmp_path, work, enabled=False)
    assert (told.capability, told.bug) == ("recording", False)
    assert "[recording]" in told.error


def test_it_says_what_is_known_and_refuses_what_is_not(tmp_path):
    async def work(bench, said):
        for number, what in enumerate(("findings", "topology", "figures", "weather")):
            bench.take(messages.Look(query=number, what=what))
        return said[-4:]

    findings, topology, figures, weather = on(tmp_path, work)
    assert decode(findings.body, list[Finding]) == []
    assert decode(topology.body, dict[str, object])["links"]
    assert decode(figures.body, Told).history["minutes_lost"] == 0
    assert (weather.query, weather.bug) == (3, False)


def test_who_looks_waits_for_who_judges(tmp_path):
    async def work(bench, said):
        bench.take(messages.Draw(query=7, asked=Totals()))
        bench.take(messages.Look(query=8, what="findings"))
        await until(lambda: getattr(said[-1], "query", None) == 7)
        return said[-2].query

    assert on(tmp_path, work) == 8


def test_it_draws_the_newest_window_and_says_where_there_is_none(tmp_path):
    async def work(bench, said):
        async def drawn(query):
            bench.take(messages.Draw(query=query, asked=Totals()))
            await until(lambda: getattr(said[-1], "query", None) == query)
            return said[-1]

        shown = await drawn(7)
        bench.picture.expire(1 << 62)
        return shown, await drawn(8)

    shown, none = on(tmp_path, work)
    assert decode(shown.body, dict[str, object])["pairs"] > 0
    assert (none.query, none.capability, none.bug) == (8, "a window", False)


def test_who_looks_has_the_links_of_routes_found_out_and_a_mistake_there_is_told(tmp_path):
    async def work(bench, said):
        prepared = []
        whole = bench.picture.prepare
        bench.picture.prepare = lambda: (prepared.append(1), whole())[1]
        bench.take(messages.Draw(query=7, asked=Totals()))
        await until(lambda: prepared and not bench._preparing)
        bench.picture.prepare = lambda: iter([1 / 0 for _ in range(1)])
        bench.take(messages.Draw(query=8, asked=Totals()))
        await until(lambda: isinstance(said[-1], messages.Said) and not bench._preparing)
        return bench.picture._crossings._size, said[-1].event

    size, event = on(tmp_path, work)
    assert size > 0
    assert event == "not_prepared"


def test_a_walk_asks_both_hosts_and_is_told_in_the_end(tmp_path):
    source, target = recorded()[1]

    async def work(bench, said):
        bench.take(messages.Walk(query=5, pairs=((source, target),)))
        while isinstance(said[-1], messages.Asking):
            assert {each.host for each in said[-1].asks} <= set(HOSTS)
            failed = tuple(Failed(Why.TIMEOUT, "timeout") for _ in said[-1].asks)
            bench.take(messages.replies(5, failed))
        return said[-1]

    [walked] = decode(on(tmp_path, work).body, list[dict[str, object]])
    assert (walked["source"], walked["target"]) == (str(source), str(target))


def test_what_is_asked_for_is_walked(tmp_path):
    source, target = recorded()[1]

    async def work(bench, said):
        web = Service(protocol="tcp", port=443)
        bench.take(messages.Walk(query=5, pairs=((source, target),), services=(web,)))
        return said[-1].asks

    asked = [messages.request_of(each).questions for each in on(tmp_path, work)]
    assert {q.protocol for questions in asked for q in questions} == {"tcp"}


def test_of_several_pairs_each_host_is_asked_once_and_who_is_unknown_is_told(tmp_path):
    source, target = recorded()[1]
    stranger = EndpointId("nobody", 0)
    pairs = ((source, target), (source, stranger), (target, source))

    async def work(bench, said):
        bench.take(messages.Walk(query=5, pairs=pairs))
        asked = said[-1].asks
        assert sorted(each.host for each in asked) == sorted({each.host for each in asked})
        failed = tuple(Failed(Why.TIMEOUT, "timeout") for _ in asked)
        bench.take(messages.replies(5, failed))
        several = decode(said[-1].body, list[dict[str, object]])
        bench.take(messages.Walk(query=6, pairs=pairs[1:2]))
        return several, said[-1]

    several, alone = on(tmp_path, work)
    assert [(each["source"], each["target"]) for each in several] == [
        (str(one), str(other)) for one, other in pairs
    ]
    assert several[0].keys() == several[1].keys()
    assert (several[1]["outcome"], several[1]["observations"]) == ("cannot_tell", [])
    assert several[1]["text"] == alone.error == "no endpoint nobody/rail0 is registered"
    ways = [hop["way"] for hop in several[0]["observations"]]
    assert ways == sorted(ways, reverse=True)  # there, then back
    assert set(ways) == {"there", "back"}


def test_a_walk_whose_answer_is_odd_ends_and_the_judge_goes_on(tmp_path):
    source, target = recorded()[1]

    async def work(bench, said):
        bench.take(messages.Walk(query=5, pairs=((source, target),)))
        odd = records.Answered(question=0, kind="check", body=b"odd", now_ns=0)
        bench.take(messages.Replies(query=5, replies=(odd,)))
        return said[-1]

    told = on(tmp_path, work)
    assert (type(told), told.query, told.bug) == (messages.NoResult, 5, False)


def test_a_recording_that_breaks_holds_up_no_judging(tmp_path):
    async def work(bench, said):
        def broken(*_):
            raise ZeroDivisionError

        bench.recorder.write = broken
        bench.take(records.Stepped(now_ns=1))
        return said[-2:]

    told, done = on(tmp_path, work)
    assert (told.event, type(done)) == ("not_recorded", messages.Done)


def test_walks_that_nobody_answers_make_room_for_others(tmp_path):
    source, target = recorded()[1]

    async def work(bench, said):
        for number in range(MAX_WALKS + 1):
            bench.take(messages.Walk(query=number, pairs=((source, target),)))
        bench.take(messages.replies(0, ()))
        return said[-1]

    assert on(tmp_path, work).capability == "walks"


def test_an_odd_summary_is_told_with_its_host_and_the_rest_goes_on(tmp_path):
    async def work(bench, said):
        good = next(each for each in recorded()[0] if isinstance(each, records.Ingested))
        bench.fed.diagnosis.ingest = broken
        bench.take(good)
        bench.take(records.Ingested(payload=b"odd", now_ns=1))
        return said[-2:]

    def broken(*_, **__):
        raise ZeroDivisionError

    bug, odd = on(tmp_path, work)
    assert (bug.host in HOSTS, bug.bug, "ZeroDivisionError" in bug.error) == (True, True, True)
    assert (odd.host, odd.bug) == ("", False)


def test_a_step_that_breaks_ends_all_the_same(tmp_path):
    async def work(bench, said):
        def broken(_):
            raise ZeroDivisionError

        bench.fed.diagnosis.step = broken
        bench.take(records.Stepped(now_ns=1))
        return said[-2:]

    told, done = on(tmp_path, work)
    assert (told.event, "ZeroDivisionError" in told.error) == ("step_failed", True)
    assert isinstance(done, messages.Done)


def test_it_is_opened_once(tmp_path):
    async def work(bench, _):
        with pytest.raises(RemoteProtocolError):
            bench.take(messages.Open(header=recorded()[0][0], recording=Recording(), database="x"))

    on(tmp_path, work)
