# SPDX-License-Identifier: Apache-2.0
import asyncio

from analyzer.server.page import page as module
from analyzer.server.page.now import now
from analyzer.server.page.page import COVERED_S, FRESH_S, Page
from analyzer.server.sight import Sight
from netagent.model.errors import CapabilityMissing
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component, Kind
from tests.analyzer.server.page.looking import on

DOWN = Finding(FindingKind.RNIC_DOWN, Component(Kind.RNIC, "h0/rnic0"), "no carrier", 5)


def test_findings_are_asked_for_again_after_a_while_and_a_judge_that_is_away_has_none(tmp_path):
    async def work(looked):
        at, asked = [0.0], []
        page = Page(looked.analyzer, clock_s=lambda: at[0])

        async def look(what, kind):
            asked.append(what)
            if len(asked) == 2:
                raise CapabilityMissing("the judge", "later")
            return [DOWN] * len(asked)

        looked.analyzer.judge.look = look
        assert await page.findings() == await page.findings() == [DOWN]
        at[0] = FRESH_S
        assert await page.findings() == []
        assert await page.findings() == [DOWN] * 3

    on(tmp_path, work)


def test_who_asks_while_endpoints_are_looked_for_has_the_look_before(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)

    async def work(looked):
        at, turn = [0.0], asyncio.Event()

        async def slowly(generator):
            await turn.wait()
            return await whole(generator)

        whole = module.in_pieces
        monkeypatch.setattr(module, "in_pieces", slowly)
        page = Page(looked.analyzer, clock_s=lambda: at[0])
        assert await page.uncovered() is None
        [item] = (await now(page, Sight()))["unwatched"]
        assert (item["what"], item["count"]) == ("ports not probed", None)
        turn.set()
        await page._looking
        assert await page.uncovered() == ()
        turn.clear()
        at[0] = COVERED_S
        assert await page.uncovered() == ()
        turn.set()
        await page._looking

    on(tmp_path, work)
