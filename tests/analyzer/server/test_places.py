# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.commands.show import report
from analyzer.server.page.hosts import host
from analyzer.server.page.incident import incident as view
from analyzer.server.page.now import now
from analyzer.server.page.page import Page
from analyzer.server.page.tasks import task, tasks
from analyzer.server.places import hit, places_of
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from netagent.model.path import Component, Kind, Layer, switch
from netagent.model.verdict import Symptom
from tests.analyzer.server.page.looking import OTHER, TENANT, incident, on


@pytest.mark.parametrize(
    ("component", "places"),
    [
        (switch("spine-0"), {"spine-0"}),
        (Component(Kind.HOST, "h1"), {"h1"}),
        (Component(Kind.FLOW, "h1/br-int/table=4"), {"h1"}),
        (Component(Kind.CONTAINER, "c1"), {"h1"}),
        (Component(Kind.ENDPOINT, "c0/rail0"), {"h0"}),
        (Component(Kind.CONTAINER, "c9"), set()),
        (Component(Kind.CONTROLLER, "flows h3"), {"h3"}),
        (Component(Kind.CONTROLLER, "port a-1"), set()),
    ],
)
def test_a_component_is_at_a_switch_or_on_hosts(tmp_path, component, places):
    async def work(looked):
        known = incident("i1", "t0", component=component, layer=Layer.HOST)
        assert set(places_of(looked.analyzer, component, known)) == places

    on(tmp_path, work)


def test_who_is_hit_by_a_host_that_no_pair_accuses_is_found_by_its_endpoints(tmp_path):
    async def work(looked):
        agent = Component(Kind.AGENT, "h1")
        known = incident("i1", component=agent, layer=Layer.AGENT)
        await looked.tell(known, incident("i2", "t0", component=None, layer=None))
        assert known.tasks == ()
        found = hit(looked.analyzer, Sight(), known)
        assert found == [{"task": "t0", "endpoints": 2}]
        assert hit(looked.analyzer, Sight(("t1",)), known) == []
        assert hit(looked.analyzer, Sight(), looked.analyzer.journal.get("i2")) == []
        assert view(Page(looked.analyzer), Sight(), "i1")["hit"] == found
        async with looked.browser("admin", app="api") as asking:
            told = (await asking.get("/v1/incidents/i1")).json()
        assert told["hit"] == found
        assert "  hit        t0 (2 endpoints)" in list(report(told, pairs=1))

    on(tmp_path, work)


def test_each_view_tells_a_tenant_that_its_host_is_not_watched_and_others_nothing(tmp_path):
    """Those of the page, its events, and the API's; h1 has endpoints of t0 alone."""

    async def work(looked):
        known = incident("i1", component=Component(Kind.AGENT, "h1"), layer=Layer.AGENT,
                         summary="the agent of h1 is not running, says h1")  # fmt: skip
        known = replace(known, verdict=replace(known.verdict, symptom=Symptom.SILENCE))
        await looked.tell(known)
        page = Page(looked.analyzer)
        mine, other = Sight(("t0",)), Sight(("t1",))
        told = await now(page, mine)
        assert [each["summary"] for each in told["incidents"]] == ["h1 is not watched"]
        assert told["line"] == "1 active: h1 is not watched"
        assert (await now(page, other))["incidents"] == []
        whole = view(page, mine, "i1")
        assert (whole["tasks"], whole["evidence"]) == (("t0",), [])
        assert whole["hit"] == [{"task": "t0", "endpoints": 2}]
        assert "not running" not in repr(whole)
        with pytest.raises(Problem):
            view(page, other, "i1")
        assert [each["id"] for each in (await host(page, mine, "h1"))["incidents"]] == ["i1"]
        assert [each["id"] for each in (await task(page, mine, "t0"))["incidents"]] == ["i1"]
        [listed] = tasks(page, mine)["tasks"]
        assert listed["incidents"] == ["i1"]
        assert [each["incidents"] for each in tasks(page, other)["tasks"]] == [[]]

    on(tmp_path, work)


def test_the_api_tells_tenants_the_same(tmp_path):
    async def work(looked):
        known = incident("i1", component=Component(Kind.AGENT, "h1"), layer=Layer.AGENT)
        known = replace(known, verdict=replace(known.verdict, symptom=Symptom.SILENCE))
        await looked.tell(known)
        for peer, ids in ((TENANT, ["i1"]), (OTHER, [])):
            async with looked.browser(peer, app="api") as asking:
                told = (await asking.get("/v1/incidents")).json()["incidents"]
            assert [each["id"] for each in told] == ids
            assert all(each["summary"] == "h1 is not watched" for each in told)

    on(tmp_path, work)
