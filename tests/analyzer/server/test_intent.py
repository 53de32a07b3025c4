# SPDX-License-Identifier: Apache-2.0
"""What should be, as the analyzer tells it; and the analyzer with a controller that it reads."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

from analyzer.config import Controllers, Ovn
from analyzer.controllers.messages import Differences, Source, StaleFlows, Told
from analyzer.intent.changes import Changes
from analyzer.intent.model import Allowed, Chassis, Encapsulation, Ladder, Placement, Port
from analyzer.server.comparing import Compared
from analyzer.server.controllers import Controller
from analyzer.server.zones import Zones
from netagent.model.path import flow_table
from netagent.wire.controller import ControllerState
from netagent.wire.zone import ZoneReply
from tests.analyzer.cluster import endpoint
from tests.analyzer.controllers.central import OVSDB, Central, fill
from tests.analyzer.intent.rows import both, northbound, southbound
from tests.analyzer.server.test_routes import incident, on, problem
from tests.conftest import require
from tests.waiting import until

PATH = "/v1/intent"
NOWHERE = Ovn(northbound=("unix:/nowhere",), southbound=("unix:/nowhere",))
PORT = Port("a", "net", "ns/pod", "", ("02:",), ("10.0.0.1",), ("h1",),
            allowed=(Allowed("02:"),), owner="Logical_Switch_Port 1")  # fmt: skip


def controller():
    made = Controller(NOWHERE, lambda: 5)
    changes = Changes(
        "ovn", 7, {"a": PORT, "c": Port("c", is_enabled=False)},
        {"a": Placement("a", "h1", True, "10.1.0.1", 3, 2), "b": Placement("b")},
        {"h1": Chassis("h1", "node-1", (Encapsulation("geneve", "10.1.0.1"),), installed=4)},
        Ladder(5, 4, 6), {"southbound": "refused"},
    )  # fmt: skip
    made._take(Told(changes=changes))
    made._take(Source(database="northbound", remote="unix:/nb", lacks=("A.b",)))
    return made


def test_what_should_be_is_told_page_by_page(tmp_path):
    async def work(lab):
        assert "no controller" in problem(await lab.http.get(PATH), 404)
        lab.analyzer.controller = controller()
        whole = (await lab.http.get(PATH)).json()
        assert (whole["source"], whole["wall_ns"], whole["next"]) == ("ovn", 7, None)
        assert whole["away"] == {"southbound": "refused"}
        assert whole["ladder"] == {"asked": 5, "translated": 4, "asked_ns": 6}
        assert whole["databases"] == [
            {"name": "northbound", "remote": "unix:/nb", "lacks": ["A.b"]},
            {"name": "southbound", "remote": "", "lacks": []},
        ]
        assert whole["chassis"] == [
            {
                "name": "h1", "hostname": "node-1", "is_registered": True, "installed": 4,
                "encapsulations": [{"kind": "geneve", "address": "10.1.0.1"}], "installed_ns": 0,
            },
        ]  # fmt: skip
        first, unasked, unplaced = whole["ports"]
        assert (first["port"]["addresses"], first["port"]["allowed"]) == (
            ["10.0.0.1"], [{"mac": "02:", "addresses": []}],
        )  # fmt: skip
        assert first["placement"] == {
            "port": "a", "chassis": "h1", "is_up": True, "encapsulation": "10.1.0.1",
            "since_ns": 3, "moves": 2,
        }  # fmt: skip
        assert (unasked["name"], unasked["port"]) == ("b", None)
        assert (unplaced["name"], unplaced["placement"]) == ("c", None)
        page = (await lab.http.get(PATH, params={"limit": 2})).json()
        rest = (await lab.http.get(PATH, params={"limit": 2, "after": page["next"]})).json()
        assert page["ports"] + rest["ports"] == whole["ports"]
        assert ("chassis" in page, "chassis" in rest, rest["next"]) == (True, False, None)

    on(tmp_path, work)


def test_hosts_and_tenants_do_not_read_it(tmp_path):
    async def work(lab):
        lab.analyzer.controller = controller()
        for peer in ("h03", "tenant"):
            lab.peer = peer
            assert "names" in problem(await lab.http.get(PATH), 403)
        for peer in ("ops", "grafana"):
            lab.peer = peer
            assert len((await lab.http.get(PATH)).json()["ports"]) == 3

    on(
        tmp_path, work, admins=("ops",), readers=("grafana",), tenants={"tenant": ("train-a",)}
    )  # fmt: skip


DIFF = "/v1/intent/{}/difference"
STALE = StaleFlows(cookie=9, tables=(1,), flows=1)


def on_table(name, host):
    found = incident(name)
    part = flow_table(host, "br-int", 33)
    return replace(found, verdict=replace(found.verdict, component=part))


def test_how_a_host_differs_is_told_with_the_first_layer_that_does(tmp_path):
    differing = Compared(host="h0", wall_ns=1, found=Differences(query=1, stale=(STALE,)))
    answers = {"": Compared(host="h0", wall_ns=1), "differs": differing}
    answers["cannot"] = Compared(host="h0", wall_ns=1, cannot="unreachable")

    async def work(lab):
        assert "no controller" in problem(await lab.http.get(DIFF.format("h0")), 404)
        told = []

        async def read(_host):
            return answers[told[-1]]

        lab.analyzer.comparisons = SimpleNamespace(read=read)
        assert "no host" in problem(await lab.http.get(DIFF.format("h0")), 404)
        await lab.register("h0", endpoint("h0", "a0"))
        lab.analyzer.journal.note(on_table("i0", "h0"))
        lab.analyzer.journal.note(on_table("i1", "h1"))
        for key, state, first in (
            ("", "agrees", None),
            ("differs", "differs", "intent, OpenFlow"),
            ("cannot", "cannot tell", None),
        ):
            told.append(key)
            answer = (await lab.http.get(DIFF.format("h0"))).json()
            above, below = answer["layers"]
            assert (above["state"], answer["first"]) == (state, first)
            assert below["see"] == "on h0: netagent flows layers"
            assert [each["component"] for each in below["incidents"]] == ["flow h0/br-int/table=33"]
        assert answer["compared"]["cannot"] == "unreachable"

    on(tmp_path, work)


def test_hosts_and_tenants_compare_nothing(tmp_path):
    async def work(lab):
        for peer in ("h03", "tenant"):
            lab.peer = peer
            assert "names" in problem(await lab.http.get(DIFF.format("h0")), 403)

    on(
        tmp_path, work, admins=("ops",), readers=("grafana",), tenants={"tenant": ("train-a",)}
    )  # fmt: skip


def test_an_analyzer_reads_the_controller_of_its_configuration(tmp_path):
    require(OVSDB)
    central = Central(tmp_path / "central")
    central.start()
    fill(central, ports=4, chassis=2, switches=1)
    ovn = Ovn(northbound=(central.remote,), southbound=(central.remote,))

    async def work(lab):
        await until(lambda: not lab.analyzer.controller.intent.away, within_s=60.0)
        told = (await lab.http.get(PATH)).json()
        assert [each["name"] for each in told["ports"]] == [f"ns0_pod-{n}" for n in range(4)]
        status = (await lab.http.get("/v1/status")).json()["controller"]
        assert (status["starts"], status["away"]) == (1, {})
        assert status["compared"] == {"asked": 0, "refused": 0, "failed": 0}
        assert status["pid"] == lab.analyzer.controller.pid

    try:
        on(tmp_path, work, controllers=Controllers(ovn=ovn))
    finally:
        central.kill()


def test_without_a_controller_there_is_none_in_the_status(tmp_path):
    async def work(lab):
        assert (await lab.http.get("/v1/status")).json()["controller"] is None

    on(tmp_path, work)


def test_of_zones_each_word_has_the_host_that_says_it(tmp_path):
    """Two may say the same name: both are told."""

    async def work(lab):
        agents = {
            "h1": both(northbound("a", "b"), southbound("c1", "a", remote={"c2": "::2"})),
            "h2": both(northbound("a"), southbound("c2", "a")),
        }

        async def ask(host, _request):
            return ZoneReply(host=host, databases=agents[host])

        lab.analyzer.controller = zones = Zones(lambda: agents, agents.get, ask, lambda: 5)
        task = asyncio.create_task(zones.run())
        await until(lambda: len(zones.intents) == 2 and not zones.away)
        task.cancel()
        zones._followed["h2"].zone.lose("its agent: refused", 6)
        whole = (await lab.http.get(PATH)).json()
        ports = [(each["name"], each["zone"]) for each in whole["ports"]]
        assert ports == [("a", "h1"), ("a", "h2"), ("b", "h1")]
        assert [(each["name"], each["zone"]) for each in whole["chassis"]] == [
            ("c1", "h1"), ("c2", "h2"),
        ]  # fmt: skip
        assert [each["zone"] for each in whole["zones"]] == ["h1", "h2"]
        assert whole["zones"][0]["ladder"]["asked"] == 1
        assert list(whole["away"]) == ["h2"]
        page = (await lab.http.get(PATH, params={"limit": 1})).json()
        rest = (await lab.http.get(PATH, params={"after": page["next"]})).json()
        assert page["ports"] + rest["ports"] == whole["ports"]
        status = (await lab.http.get("/v1/status")).json()["controller"]
        assert (status["away"], status["zones"]["looks"]) == (whole["away"], 2)

    on(tmp_path, work)


def test_an_analyzer_follows_the_zones_of_hosts_that_say_they_have_them(tmp_path):
    async def work(lab):
        asked = []

        async def ask(host, _request):
            asked.append(host)
            return ZoneReply(
                host=host, databases=both(northbound("a"), southbound(f"c-{host}", "a"))
            )

        analyzer = lab.analyzer
        analyzer.controller._ask = ask
        now = analyzer.clock()
        for host, has in (("h1", True), ("h2", False)):
            state = ControllerState(source="ovn", chassis=f"c-{host}", databases=has)
            analyzer.driven.take(host, now, state, now)
        await until(lambda: len(analyzer.controller.intents) == 1 and not analyzer.controller.away)
        assert set(asked) == {"h1"}
        assert analyzer.intended.intents() == analyzer.controller.intents

    on(tmp_path, work, controllers=Controllers(ovn=Ovn(zones="agents")))
