# SPDX-License-Identifier: Apache-2.0
from analyzer.server.page.page import FRESH_S, Page
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
