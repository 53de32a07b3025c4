# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.intake.reports import Report
from analyzer.server.page.hosts import endpoints, host, hosts
from analyzer.server.page.page import Page
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component, Kind, Layer
from netagent.wire.messages import Health
from tests.analyzer.server.page.looking import HEARD_NS, incident, on

DOWN = Finding(FindingKind.RNIC_DOWN, Component(Kind.RNIC, "h0/rnic0"), "no carrier", 5)
ELSEWHERE = Finding(FindingKind.RNIC_DOWN, Component(Kind.RNIC, "h00/rnic0"), "no carrier", 5)
SAID = Health(cpu_ms=50, rss_kb=2048, shed=2, sent=7)


def test_a_host_tells_what_its_agent_says_of_itself_and_of_its_parts(tmp_path):
    async def work(looked):
        analyzer, page = looked.analyzer, Page(looked.analyzer)

        async def look(_what, _kind):
            return [DOWN, ELSEWHERE]

        analyzer.judge.look = look
        now_ns = analyzer.clock()
        counters = {"mlx5_0": {"out_of_buffer": 10}}
        analyzer.reports.take("h0", Report(now_ns, SAID, counters, 0, {}), now_ns)
        await looked.tell(
            incident("i1", "t0"),
            incident("i2", component=Component(Kind.AGENT, "h0"), layer=Layer.AGENT),
            incident("i3", "t1"),
        )
        told = await host(page, Sight(), "h0")
        assert (told["state"], told["health"]["sent"]) == ("well", 7)
        assert told["cost"] == {"cpu_share": 0.01, "rss_bytes": 2 << 20}
        assert told["limits"] == {"level": 2, "left_out": "traces of paths, walks of flow tables"}
        assert told["rnics"] == [
            {"device": "mlx5_0", "state": None, "counters": {"out_of_buffer": [10, 2.0]}}
        ]
        assert [each["text"] for each in told["findings"]] == ["no carrier"]
        assert {each["id"] for each in told["incidents"]} == {"i1", "i2"}
        assert [each["id"] for each in told["endpoints"]] == ["c0/rail0", "c0/rail1"]

    on(tmp_path, work)


def test_a_host_has_the_incident_of_its_container_that_crashed_and_fails_no_pair(tmp_path):
    async def work(looked):
        crashed = incident("i1", component=Component(Kind.CONTAINER, "c0"), layer=Layer.CONTAINER)
        await looked.tell(crashed)
        for name, expected in (("h0", ["i1"]), ("h1", [])):
            told = await host(Page(looked.analyzer), Sight(), name)
            assert [each["id"] for each in told["incidents"]] == expected

    on(tmp_path, work)


def test_of_what_a_host_says_of_itself_tenants_are_told_nothing(tmp_path):
    async def work(looked):
        now_ns = looked.analyzer.clock()
        looked.analyzer.reports.take("h0", Report(now_ns, SAID, {"d": {"c": 1}}, 0, {}), now_ns)
        looked.analyzer.uniformity.version = lambda _: "1.2"
        assert (await host(Page(looked.analyzer), Sight(), "h0"))["version"] == "1.2"
        told = await host(Page(looked.analyzer), Sight(("t0",)), "h0")
        assert [told[n] for n in ("health", "limits", "cost", "version")] == [None] * 4
        assert told["rnics"] == told["findings"] == []
        assert len(told["endpoints"]) == 2
        for name in ("h2", "h9"):
            with pytest.raises(Problem):
                await host(Page(looked.analyzer), Sight(("t0",)), name)

    on(tmp_path, work)


def test_a_host_that_is_not_heard_is_silent(tmp_path):
    async def work(looked):
        later_ns = looked.analyzer.clock() + 2 * HEARD_NS
        looked.analyzer.clock = lambda: later_ns
        told = await host(Page(looked.analyzer), Sight(), "h0")
        assert (told["state"], told["health"]) == ("silent", None)
        assert told["silent_ms"] > 10**6

    on(tmp_path, work)


def test_names_are_found_by_how_they_begin(tmp_path):
    async def work(looked):
        page = Page(looked.analyzer)
        found = hosts(page, Sight(), "h", 4)
        assert ([e["id"] for e in found["hosts"]], found["omitted"]) == (
            ["h0", "h1", "h2", "h3"],
            2,
        )
        assert [e["id"] for e in hosts(page, Sight(("t1",)), "", 9)["hosts"]] == ["h2", "h3"]
        assert hosts(page, Sight(), "x", 9) == {"hosts": [], "omitted": 0}
        ends = endpoints(page, Sight(), "c1", 9)["endpoints"]
        assert ends == [{"id": f"c1/rail{n}", "task": "t0", "host": "h1"} for n in range(2)]
        assert [e["id"] for e in endpoints(page, Sight(), "c1/rail1", 9)["endpoints"]] == [
            "c1/rail1"
        ]
        assert endpoints(page, Sight(("t1",)), "c", 3)["omitted"] == 1
        assert endpoints(page, Sight(("t1",)), "c0", 3)["endpoints"] == []

    on(tmp_path, work)
