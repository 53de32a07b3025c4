# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.server.page import archive as module
from analyzer.server.page.archive import Wanted, archive
from analyzer.server.page.page import Page
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from netagent.model.path import Component, Kind, Layer
from netagent.model.verdict import IncidentState
from tests.analyzer.server.page.looking import TENANT, incident, on

RNIC = {"component": Component(Kind.RNIC, "h2/rnic0"), "layer": Layer.RNIC}
ALL, WHOLE = Wanted(), Sight()


def kept():
    """Return incidents, of which the ones noted later are older."""
    given = [
        incident("switch", "t0", state=IncidentState.CONFIRMED),
        incident("both", "t0", "t1"),
        incident("rnic", "t1", **RNIC),
        incident("over", "t0", state=IncidentState.RECOVERED, recovered_ns=1),
        incident("nobody", "t0", component=None, layer=None),
    ]
    return [replace(each, detected_ns=1_000 - n // 2) for n, each in enumerate(given)]


def listed(page, wanted=ALL, sees=WHOLE, after="", limit=50):
    told = archive(page, sees, wanted, after, limit)
    return [each["id"] for each in told["incidents"]], told["next"]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("looked_at", [1, 2, 50])
def test_page_by_page_one_reads_each_once_newest_first(tmp_path, monkeypatch, limit, looked_at):
    monkeypatch.setattr(module, "MAX_LOOKED", looked_at)

    async def work(looked):
        await looked.tell(*kept())
        page, found, after, pages = Page(looked.analyzer), [], "", 0
        while after is not None:
            ids, after = listed(page, after=after, limit=limit)
            assert len(ids) <= limit
            found, pages = found + ids, pages + 1
        assert found == ["both", "switch", "over", "rnic", "nobody"]
        assert pages == -(-5 // min(limit, looked_at))

    on(tmp_path, work)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted("active"), ["both", "switch", "rnic", "nobody"]),
        (Wanted("recovered"), ["over"]),
        (Wanted("confirmed"), ["switch"]),
        (Wanted(layer="rnic"), ["rnic"]),
        (Wanted(component="SPINE"), ["both", "switch", "over"]),
        (Wanted("open", "underlay", "spine-0"), ["both"]),
        (Wanted(component="h9"), []),
    ],
)
def test_they_are_chosen_by_state_layer_and_what_is_at_fault(tmp_path, wanted, expected):
    async def work(looked):
        await looked.tell(*kept())
        assert listed(Page(looked.analyzer), wanted) == (expected, None)

    on(tmp_path, work)


def test_a_tenant_reads_of_its_own_and_finds_by_what_it_may_see_alone(tmp_path):
    async def work(looked):
        other = incident("other", "t0", component=Component(Kind.CONTAINER, "c5"))
        await looked.tell(*kept(), other)
        page, mine = Page(looked.analyzer), Sight(("t0",))
        assert listed(page, sees=mine)[0] == ["other", "both", "switch", "over", "nobody"]
        assert listed(page, Wanted(component="c5"))[0] == ["other"]
        assert listed(page, Wanted(component="c5"), mine)[0] == []
        browser = looked.browser(TENANT)
        told = (await browser.get("/v1/views/incidents?layer=underlay&limit=2")).json()
        assert [each["id"] for each in told["incidents"]] == ["other", "both"]
        assert "t1" not in str(told["incidents"])
        asked = f"/v1/views/incidents?layer=underlay&state=recovered&after={told['next']}"
        told = (await browser.get(asked)).json()
        assert [each["id"] for each in told["incidents"]] == ["over"]

    on(tmp_path, work)


def test_where_the_place_of_a_page_was_forgotten_the_next_one_goes_on_behind_it(tmp_path):
    async def work(looked):
        await looked.tell(*kept())
        page = Page(looked.analyzer)
        ids, after = listed(page, limit=3)
        assert ids[-1] == "over"
        looked.analyzer.journal.forget(1 << 62)
        assert listed(page, after=after) == (["rnic", "nobody"], None)

    on(tmp_path, work)


def test_what_makes_no_sense_is_refused(tmp_path):
    async def work(looked):
        browser = looked.browser("reader")
        for asked in ("state=gone", "layer=sky", "after=x", "after=-1.a", "limit=0", "limit=201"):
            answer = await browser.get(f"/v1/views/incidents?{asked}")
            assert answer.status_code == 400, asked
        with pytest.raises(Problem):
            Wanted(state="gone")

    on(tmp_path, work)
