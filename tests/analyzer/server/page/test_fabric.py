# SPDX-License-Identifier: Apache-2.0

from analyzer.server.page.fabric import fabric, matrix
from analyzer.server.page.page import Page
from analyzer.server.page.unwatched import silent_hosts
from analyzer.server.sight import Sight
from netagent.model.path import Component, Kind, link, switch
from tests.analyzer.picture.scenes import PORTS, Flow
from tests.analyzer.server.page.looking import HEARD_NS, incident, on

CROSSING = [
    Flow(a, b, PORTS[0], 0, (1_000,), (0, 0))
    for a in range(12)
    for b in range(12)
    if a != b and a % 2 == b % 2
]


def at(component):
    return {"component": component, "layer": component.layer}


def test_what_is_at_fault_is_marked_where_it_is(tmp_path):
    async def work(looked):
        looked.show(CROSSING)
        await looked.tell(
            incident("of-switch", "t0", **at(switch("spine-0"))),
            incident("of-link", "t0", **at(link("leaf-s0-r0", "spine-0"))),
            incident("of-rnic", "t1", **at(Component(Kind.RNIC, "h2/rnic0"))),
            incident("of-container", "t1", **at(Component(Kind.CONTAINER, "c3"))),
            incident("of-nobody", "t0", component=None, layer=None),
        )
        drawn = await fabric(Page(looked.analyzer), Sight())
        nodes = {each["id"]: each["suspects"] for each in drawn["nodes"] if each["suspects"]}
        assert nodes == {"spine-0": ["of-switch"], "h2": ["of-rnic"], "h3": ["of-container"]}
        links = {(e["a"], e["b"]): e["suspects"] for e in drawn["links"] if e["suspects"]}
        assert links == {("leaf-s0-r0", "spine-0"): ["of-link"]}
        states = {each["id"]: each["state"] for each in drawn["nodes"]}
        assert set(states.values()) == {"well"}
        mine = await fabric(Page(looked.analyzer), Sight(("t0",)))
        assert all(each["suspects"] != ["of-rnic"] for each in mine["nodes"])

    on(tmp_path, work)


def test_a_host_that_is_not_heard_is_silent_whoever_suspects_it(tmp_path):
    async def work(looked):
        later_ns = looked.analyzer.clock() + 2 * HEARD_NS
        for host in ("h0", "h1", "h2", "h3", "h4"):
            looked.analyzer.registry.heard(host, later_ns, later_ns)
        looked.analyzer.clock = lambda: later_ns
        rnic = Component(Kind.RNIC, "h5/rnic0")
        await looked.tell(incident("of-rnic", "t1", **at(rnic)))
        assert silent_hosts(looked.analyzer, Sight()) == ["h5"]
        drawn = await fabric(Page(looked.analyzer), Sight())
        assert {e["id"] for e in drawn["nodes"] if e["state"] == "silent"} == {"h5"}
        assert [e["suspects"] for e in drawn["nodes"] if e["id"] == "h5"] == [["of-rnic"]]

    on(tmp_path, work)


def test_a_matrix_is_of_what_the_caller_may_see(tmp_path):
    async def work(looked):
        page = Page(looked.analyzer)
        assert (await matrix(page, Sight(), "task"))["rows"] == ["t0", "t1", "t2"]
        assert (await matrix(page, Sight(("t1",)), "task"))["rows"] == ["t1"]
        assert (await matrix(page, Sight(("t1",)), "host", "h0", "h1"))["cells"] == []

    on(tmp_path, work)
