# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

from analyzer.intake.reports import Report
from analyzer.roster.coverage import SILENT_NS
from analyzer.roster.newest import Said
from analyzer.server.page.now import now
from analyzer.server.page.page import COVERED_S, Page
from analyzer.server.page.unwatched import hosts_of, silent_hosts
from analyzer.server.sight import Sight
from netagent.model.task import Task
from netagent.wire.messages import Health, Registration
from netagent.wire.unprobed import Unprobed, UnprobedPort, Why
from tests.analyzer.picture.scenes import ENDPOINTS, PORTS, Flow
from tests.analyzer.server.page.looking import HEARD_NS, on

MINE = Sight(("t0",))


async def unwatched(looked, sees, **page):
    told = await now(Page(looked.analyzer, **page), sees)
    return {each["what"]: each for each in told["unwatched"]}


def test_where_all_is_watched_nothing_is_told(tmp_path):
    async def work(looked):
        assert await unwatched(looked, Sight()) == {}
        assert await unwatched(looked, MINE) == {}

    on(tmp_path, work)


def test_hosts_that_are_not_heard_are_named_to_who_has_endpoints_there(tmp_path):
    async def work(looked):
        analyzer = looked.analyzer
        later_ns = analyzer.clock() + HEARD_NS + SILENT_NS
        for host in ("h1", "h2", "h3", "h4", "h5"):
            analyzer.registry.heard(host, later_ns, later_ns)
        analyzer.clock = lambda: later_ns
        assert silent_hosts(analyzer, Sight()) == ["h0"]
        found = await unwatched(looked, MINE)
        assert (found["hosts silent"]["count"], found["hosts silent"]["of"]) == (1, 2)
        assert found["hosts silent"]["examples"] == ["h0"]
        assert "hosts silent" not in await unwatched(looked, Sight(("t1",)))
        assert any("c0/rail0" in each for each in found["ports not probed"]["examples"])

    on(tmp_path, work)


def test_a_tenant_knows_the_hosts_of_its_endpoints(tmp_path):
    async def work(looked):
        assert hosts_of(looked.analyzer, MINE) == {"h0", "h1"}
        assert hosts_of(looked.analyzer, Sight()) == {f"h{n}" for n in range(6)}

    on(tmp_path, work)


def test_flows_whose_way_no_trace_has_shown_are_counted(tmp_path):
    async def work(looked):
        looked.show([
            Flow(0, 2, PORTS[0], 0, (1_000,), (0, 0)), Flow(2, 0, PORTS[0], 0, (1_000,), (0, None)),
            Flow(4, 6, PORTS[0], 0, (1_000,), (None, None)),
        ])  # fmt: skip
        found = (await unwatched(looked, Sight()))["paths unknown"]
        assert (found["count"], found["of"]) == (2, 3)
        mine = (await unwatched(looked, MINE))["paths unknown"]
        assert (mine["count"], mine["of"], mine["examples"]) == (1, 2, ["c1/rail0 to c0/rail0"])

    on(tmp_path, work)


def test_declared_containers_that_never_came_are_missing(tmp_path):
    async def work(looked):
        await looked.analyzer.service.put_task(
            Task("t0", ("c0", "c1", "cx"), 2, (0, 1), declared=True), 0
        )
        await looked.analyzer.service.put_task(
            Task("t1", ("c2", "c3", "cy"), 2, (0, 1), declared=True), 0
        )
        later_ns = looked.analyzer.clock() + 5 * 10**9
        looked.analyzer.clock = lambda: later_ns
        found = (await unwatched(looked, MINE))["endpoints missing"]
        assert (found["count"], found["examples"]) == (1, ["cx of t0"])
        assert (await unwatched(looked, Sight()))["endpoints missing"]["count"] == 2

    on(tmp_path, work)


def test_what_hosts_leave_undone_and_do_not_say_is_told_to_who_may_see_hosts(tmp_path):
    async def work(looked):
        analyzer, now_ns = looked.analyzer, looked.analyzer.clock()
        for host, shed in (("h0", 1), ("h1", 2)):
            analyzer.reports.take(host, Report(now_ns, Health(shed=shed), {}, 0, {}), now_ns)
        port = UnprobedPort(port="veth9", why=Why.NO_TASK, text="nobody says whose it is")
        analyzer.unprobed._said["h0"] = Said(Unprobed(ports=(port,), count=3), now_ns, now_ns)
        found = await unwatched(looked, Sight())
        assert found["paths not traced"]["examples"] == ["h0", "h1"]
        assert found["tables unread"]["examples"] == ["h1"]
        assert found["ports not probed"]["count"] == 3
        assert found["ports not probed"]["examples"] == ["veth9 on h0: nobody says whose it is"]
        assert found["ports untold"]["count"] == 5
        assert await unwatched(looked, MINE) == {}

    on(tmp_path, work)


def test_a_controller_that_is_not_read_is_named(tmp_path):
    async def work(looked):
        looked.analyzer.controller = SimpleNamespace(away={"southbound": "no route"}, pid=1)
        looked.analyzer.pushed = {
            "sdn": SimpleNamespace(intent=SimpleNamespace(away={"intent": "old"}))
        }
        try:
            found = (await unwatched(looked, Sight()))["controller unread"]
            assert found["examples"] == ["sdn: intent: old", "southbound: no route"]
            assert "controller unread" not in await unwatched(looked, MINE)
        finally:
            looked.analyzer.controller, looked.analyzer.pushed = None, {}

    on(tmp_path, work)


def test_who_probes_whom_is_looked_at_again_after_a_while(tmp_path):
    async def work(looked):
        at = [0.0]
        page = Page(looked.analyzer, clock_s=lambda: at[0])
        assert await page.uncovered() == ()
        message = Registration(
            host="h1", instance="1", generation=2, rpc_url="https://127.0.0.1:1",
            endpoints=(ENDPOINTS[2],),
        )  # fmt: skip
        await looked.analyzer.service.register(message, looked.analyzer.clock())
        at[0] = COVERED_S - 0.1
        assert await page.uncovered() == ()
        at[0] = COVERED_S
        found = await page.uncovered()
        assert [str(each.record.endpoint.id) for each in found] == ["c0/rail1"]

    on(tmp_path, work)
