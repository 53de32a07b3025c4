# SPDX-License-Identifier: Apache-2.0
"""What hosts have, as the analyzer is told, tells others, and knows again after a restart."""

import json
import time
from dataclasses import replace

import pytest
import structlog

from netagent.model.path import Component, Kind, rnic
from netagent.model.verdict import IncidentState
from netagent.wire.codec import encode
from netagent.wire.inventory import Inventory, RnicInventory
from netagent.wire.messages import Summary
from tests.analyzer.certificates import Authority
from tests.analyzer.cluster import SECOND, endpoint
from tests.analyzer.server.process import Process
from tests.analyzer.server.test_routes import MSGPACK, incident, on, problem
from tests.waiting import until

OLD, NEW = "28.36.1010", "28.39.1002"
PATH = "/v1/uniformity"


def told(firmware=OLD):
    rnic0 = RnicInventory(netdev="rnic0", model="15b3:1021", firmware=firmware)
    return Inventory(rnics=(rnic0,), kernel="6.1.0")


def summary(host, inventory, start_ns):
    start_ns -= start_ns % (5 * SECOND)
    return Summary(
        host=host, instance="one", start_ns=start_ns, width_ns=5 * SECOND, inventory=inventory
    )


async def say(lab, host, inventory, ago=0):
    message = summary(host, inventory, lab.analyzer.clock() - ago * 5 * SECOND)
    answer = await lab.http.post("/v1/summaries", content=encode(message), headers=MSGPACK)
    assert answer.status_code == 200, answer.text


async def filled(lab, odd="h03"):
    for number in range(10):
        host = f"h{number:02d}"
        await say(lab, host, told(NEW if host == odd else OLD))


def firmware_in(answer):
    (found,) = (each for each in answer["properties"] if each["property"] == "firmware")
    return found


def test_who_differs_is_told_page_by_page(tmp_path):
    async def work(lab):
        await lab.register("h00", endpoint("h00", "a0"))
        await filled(lab)
        whole = (await lab.http.get(PATH)).json()
        assert (whole["hosts"], whole["agents"], whole["next"]) == (10, 1, None)
        assert firmware_in(whole) == {
            "kind": "rnic", "model": "15b3:1021", "property": "firmware", "state": "different",
            "hosts": 10, "parts": 10, "turned": 0, "more_values": 0, "more_odd": 0,
            "values": [
                {"value": OLD, "hosts": 9, "parts": 9, "usual": True},
                {"value": NEW, "hosts": 1, "parts": 1, "usual": False},
            ],
            "odd": [{"name": "h03/rnic0", "value": NEW}],
        }  # fmt: skip
        first = (await lab.http.get(PATH, params={"limit": 1})).json()
        second = (await lab.http.get(PATH, params={"limit": 1, "after": first["next"]})).json()
        assert first["properties"] + second["properties"] == whole["properties"]
        assert second["next"] is None

    on(tmp_path, work)


def test_a_remark_stands_beside_an_incident_of_its_component_until_that_is_over(tmp_path):
    async def work(lab):
        await filled(lab)
        before = (await lab.http.get("/v1/incidents/events")).json()["next"]

        def of(component, name, state=IncidentState.OPEN):
            made = incident(name, state, updated_ns=lab.analyzer.clock())
            return structured(made, component)

        lab.diagnosis.change(of(rnic("h03", "rnic0"), "odd"), of(rnic("h04", "rnic0"), "usual"))
        lab.diagnosis.change(of(Component(Kind.HOST, "h03"), "host"), of(None, "unknown"))
        await until(lambda: len(lab.analyzer.journal.incidents()) == 4)
        listed = (await lab.http.get("/v1/incidents")).json()["incidents"]
        said = {each["id"]: each["remarks"] for each in listed}
        (remark,) = said["odd"]
        assert remark.startswith(f"its firmware {NEW} differs from 9 of 10 RNICs")
        assert len(said["host"]) == 1
        assert said["usual"] == said["unknown"] == []
        shown = (await lab.http.get("/v1/incidents/odd")).json()
        assert (shown["remarks"], shown["confidence"]) == (said["odd"], 0.9)
        assert shown["evidence"] == []
        events = (await lab.http.get("/v1/incidents/events", params={"after": before})).json()
        assert {e["incident"]["id"]: e["incident"]["remarks"] for e in events["events"]} == said
        lab.diagnosis.change(of(rnic("h03", "rnic0"), "odd", IncidentState.RECOVERED))
        await until(lambda: lab.analyzer.journal.get("odd").state is IncidentState.RECOVERED)
        assert (await lab.http.get("/v1/incidents/odd")).json()["remarks"] == []

    on(tmp_path, work)


def structured(made, component):
    """Return an incident of `component`."""
    layer = component.layer if component else None
    return replace(made, verdict=replace(made.verdict, component=component, layer=layer))


def test_hosts_and_tenants_do_not_read_it(tmp_path):
    async def work(lab):
        await filled(lab)
        made = structured(incident("odd", tasks=("train-a",)), rnic("h03", "rnic0"))
        lab.diagnosis.change(made)
        await until(lab.analyzer.journal.incidents)
        for peer in ("h03", "tenant"):
            lab.peer = peer
            assert "names" in problem(await lab.http.get(PATH), 403)
        assert (await lab.http.get("/v1/incidents/odd")).json()["remarks"] == []
        for peer in ("ops", "grafana"):
            lab.peer = peer
            assert (await lab.http.get(PATH)).json()["hosts"] == 10
            assert len((await lab.http.get("/v1/incidents/odd")).json()["remarks"]) == 1

    on(
        tmp_path, work, admins=("ops",), readers=("grafana",), tenants={"tenant": ("train-a",)}
    )  # fmt: skip


def test_an_inventory_that_makes_no_sense_costs_nobody_a_window(tmp_path):
    async def work(lab):
        await filled(lab)
        with structlog.testing.capture_logs() as logs:
            await say(lab, "h11", Inventory(kernel="\x1b[2J"))
            await say(lab, "h03", told(OLD), ago=1)  # said later, of a window before
        await until(lambda: "h11" in {host for host, *_ in lab.diagnosis.seen})
        assert lab.analyzer.counters.bad_inventories == 1
        assert [each["host"] for each in logs if each["event"] == "inventory_unusable"] == ["h11"]
        answer = (await lab.http.get(PATH)).json()
        assert (answer["hosts"], firmware_in(answer)["state"]) == (10, "different")
        metrics = (await lab.http.get("/metrics")).text
        assert "netagent_bad_inventories_total 1.0" in metrics

    on(tmp_path, work)


def test_a_host_that_is_forgotten_is_gone(tmp_path):
    async def work(lab):
        await filled(lab)
        assert (await lab.http.delete("/v1/hosts/h03")).status_code == 200
        answer = (await lab.http.get(PATH)).json()
        assert (answer["hosts"], firmware_in(answer)["state"]) == (9, "alike")

    on(tmp_path, work)


def test_after_a_restart_it_is_known_again_from_what_is_stored(tmp_path):
    answers = []

    async def before(lab):
        await filled(lab)
        answers.append((await lab.http.get(PATH)).json())

    async def after(lab):
        answers.append((await lab.http.get(PATH)).json())

    on(tmp_path, before)
    on(tmp_path, after)
    assert answers[0] == answers[1]


def test_a_certificate_says_what_its_own_host_has_and_nothing_of_others(tmp_path):
    authority = Authority(tmp_path)
    more = 'admins = ["ops"]\n'
    with Process(tmp_path, authority, more=more) as serving:
        now_ns = time.time_ns()
        statuses = {}
        for name, host in (("h0", "h0"), ("h0", "h1")):
            with serving.client(authority.client(name)) as client:
                body = encode(summary(host, told(), now_ns))
                answer = client.post("/v1/summaries", content=body, headers=MSGPACK)
                statuses[host] = answer.status_code
                assert client.get(PATH).status_code == 403
        assert statuses == {"h0": 200, "h1": 403}
        with serving.client(authority.client("ops")) as client:
            answer = client.get(PATH).json()
        assert answer["hosts"] == 1
        assert json.dumps(answer["properties"]).count("h1/") == 0


@pytest.mark.parametrize("field", [{}, {"inventory": None}])
def test_an_older_agent_says_nothing_and_is_taken(tmp_path, field):
    async def work(lab):
        start_ns = lab.analyzer.clock() // (5 * SECOND) * 5 * SECOND
        message = {"host": "h0", "instance": "i", "start_ns": start_ns, "width_ns": 5 * SECOND}
        body = encode(message | field)
        answer = await lab.http.post("/v1/summaries", content=body, headers=MSGPACK)
        assert answer.status_code == 200
        assert (await lab.http.get(PATH)).json()["hosts"] == 0

    on(tmp_path, work)
