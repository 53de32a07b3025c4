# SPDX-License-Identifier: Apache-2.0

import asyncio
import threading

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from analyzer.history.figures import Told
from analyzer.server.metrics import scrape
from analyzer.server.metrics.scrape import Scrapes
from netagent.model.errors import CapabilityMissing
from tests.analyzer.server.metrics.large import running, told
from tests.waiting import until

PROMETHEUS = (  # what Prometheus 2.42 asks for
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def on(folder, work):
    async def inside():
        async with asyncio.timeout(90), running(folder) as analyzer:
            return await work(analyzer, Scrapes(analyzer))

    return asyncio.run(inside())


def value(text, name):
    [line] = [line for line in text.decode().splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


@pytest.mark.parametrize(
    ("accept", "form", "parse"),
    [
        ("", "text/plain; version=0.0.4", parser.text_string_to_metric_families),
        ("*/*", "text/plain; version=0.0.4", parser.text_string_to_metric_families),
        (PROMETHEUS, "application/openmetrics-text; version=1.0.0", text_string_to_metric_families),
    ],
)
def test_the_form_is_the_one_that_is_asked_for(tmp_path, accept, form, parse):
    async def work(_, scrapes):
        return await scrapes.answer(accept)

    text, given = on(tmp_path, work)
    assert given.startswith(form)
    names = {family.name for family in parse(text.decode())}
    assert names >= {"netagent_summaries", "netagent_agents", "netagent_build"} or names >= {
        "netagent_summaries", "netagent_agents", "netagent_build_info",
    }  # fmt: skip


def test_what_the_judge_says_is_shown_with_its_age_also_while_there_is_no_judge(
    tmp_path, monkeypatch
):
    async def work(analyzer, scrapes):
        async def look(what, kind):
            assert (what, kind) == ("figures", Told)
            return told(analyzer.clock())

        async def away(*_):
            raise CapabilityMissing("the judge", "ask later")

        monkeypatch.setattr(analyzer.judge, "look", look)
        now_ns = 0
        monkeypatch.setattr(analyzer, "monotonic", lambda: now_ns)
        first, _ = await scrapes.answer("")
        monkeypatch.setattr(analyzer.judge, "look", away)
        now_ns = 7 * 10**9
        second, _ = await scrapes.answer("")
        for text in (first, second):
            assert value(text, "netagent_windows_judged_total") == 1_000
        ages = [value(text, "netagent_figures_age_seconds") for text in (first, second)]
        assert ages == [0, 7]

    on(tmp_path, work)


def test_a_judge_that_does_not_answer_delays_a_scrape_and_does_not_stop_it(tmp_path, monkeypatch):
    async def work(analyzer, scrapes):
        asked = []

        async def never(*_):
            asked.append(1)
            await asyncio.Event().wait()

        monkeypatch.setattr(analyzer.judge, "look", never)
        monkeypatch.setattr(scrape, "PATIENCE_S", 0.01)
        for _ in range(3):
            text, _ = await scrapes.answer("")
            assert b"netagent_windows_judged_total" not in text
            assert b"netagent_summaries_total 0.0" in text
        scrapes._asking.cancel()
        return asked

    assert on(tmp_path, work) == [1]  # one question is under way, however many scrapes there are


def test_the_loop_goes_on_while_a_text_is_written_and_who_comes_meanwhile_gets_the_same(
    tmp_path, monkeypatch
):
    go_on, writers = threading.Event(), []

    def slowly(registry):
        writers.append(threading.current_thread())
        assert go_on.wait(20)
        return b"text"

    monkeypatch.setattr(scrape.exposition, "choose_encoder", lambda _: (slowly, "text/plain"))

    async def work(_, scrapes):
        answers = [asyncio.create_task(scrapes.answer("")) for _ in range(5)]
        await until(lambda: writers)
        answers[0].cancel()  # who goes away takes it from nobody
        go_on.set()
        return await asyncio.gather(*answers[1:])

    assert on(tmp_path, work) == [(b"text", "text/plain")] * 4
    assert len(writers) == 1
    assert writers[0] is not threading.main_thread()
