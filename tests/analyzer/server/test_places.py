# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.commands.show import report
from analyzer.server.page.incident import incident as view
from analyzer.server.page.page import Page
from analyzer.server.places import hit, places_of
from analyzer.server.sight import Sight
from netagent.model.path import Component, Kind, Layer, switch
from tests.analyzer.server.page.looking import incident, on


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
