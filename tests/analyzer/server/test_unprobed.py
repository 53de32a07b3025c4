# SPDX-License-Identifier: Apache-2.0
"""What is not probed, as a running analyzer tells it."""

import time

import msgspec
import structlog

from analyzer.intent.model import Chassis, Intent, Placement, Port
from analyzer.roster.coverage import STARTING_NS
from netagent.wire.codec import encode
from netagent.wire.controller import ControllerState, PluggedPort
from netagent.wire.inventory import Inventory
from netagent.wire.messages import Health, Summary
from netagent.wire.unprobed import Unprobed, UnprobedPort, Why
from tests.analyzer.cluster import SECOND, endpoint
from tests.analyzer.server.test_routes import MSGPACK, on

PATH = "/v1/endpoints/unprobed"
RAIL = UnprobedPort(
    port="v0", why=Why.NO_RAIL, text="it has none", bridge="br-int", name="ml_w-0", container="s0",
    task="train-a",
)  # fmt: skip
OTHER = UnprobedPort(port="v1", why=Why.NO_TASK, text="nobody's", bridge="br-int")
SAID = Unprobed(ports=(RAIL, OTHER), count=5)


async def say(lab, host, said, **more):
    start_ns = lab.analyzer.clock() // (5 * SECOND) * 5 * SECOND
    message = Summary(
        host=host, instance="one", start_ns=start_ns, width_ns=5 * SECOND, unprobed=said, **more
    )
    answer = await lab.http.post("/v1/summaries", content=encode(message), headers=MSGPACK)
    assert answer.status_code == 200, answer.text


async def ask(lab, **query):
    answer = await lab.http.get(PATH, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def named(answer):
    return [(each["what"], each["host"], each["name"], each["why"]) for each in answer["unprobed"]]


async def cluster(lab):
    """Have two hosts, of which one says nothing of its ports."""
    await lab.register("h1", endpoint("h1", "a"), endpoint("h1", "b", 1))
    await lab.register("h2", endpoint("h2", "c"))
    await say(lab, "h1", SAID)
    await say(lab, "h2", None, inventory=Inventory(netagent="0.9"))


def test_endpoints_and_ports_are_told_with_who_says_nothing(tmp_path):
    async def work(lab):
        await cluster(lab)
        lab.analyzer.clock = lambda: time.time_ns() + STARTING_NS
        answer = await ask(lab)
        assert named(answer) == [
            ("endpoint", "h1", "b/rail1", "alone"),
            ("port", "h1", "v0", "no-rail"), ("port", "h1", "v1", "no-task"),
        ]  # fmt: skip
        assert answer["unsaid"] == [{"host": "h2", "version": "0.9"}]
        assert answer["unnamed"] == [{"host": "h1", "count": 3}]
        assert answer["unprobed"][1] == {
            "what": "port", "name": "v0", "host": "h1", "task": "train-a", "why": "no-rail",
            "text": "it has none", "bridge": "br-int", "logical_port": "ml_w-0", "container": "s0",
            "pod": "",
        }  # fmt: skip
        first = await ask(lab, limit=2)
        rest = await ask(lab, limit=2, after=first["next"])
        assert first["unprobed"] + rest["unprobed"] == answer["unprobed"]
        assert (rest["next"], "unsaid" in rest) == (None, False)
        assert named(await ask(lab, task="train-a", host="h1")) == named(answer)[:2]
        assert named(await ask(lab, host="h2")) == []
        assert (await ask(lab, host="h1"))["unsaid"] == []
        assert (await lab.http.delete("/v1/hosts/h1")).status_code == 200
        assert "port" not in {what for what, *_ in named(await ask(lab))}

    on(tmp_path, work)


def test_tenants_see_their_own_and_no_hosts(tmp_path):
    async def work(lab):
        lab.peer = "h1"
        await lab.register("h1", endpoint("h1", "b", 1))
        forged = msgspec.structs.replace(RAIL, port="v7", container="x", task="theirs")
        await say(lab, "h1", Unprobed(ports=(*SAID.ports, forged), count=3))
        lab.peer = "ops"
        body = {"containers": ["y"], "rnics_per_container": 1}
        assert (await lab.http.put("/v1/tasks/theirs", json=body)).status_code == 200
        lab.peer = "tenant"
        mine = await ask(lab)
        assert named(mine) == [
            ("endpoint", "h1", "b/rail1", "alone"),
            ("port", "h1", "v0", "no-rail"),
        ]
        assert (mine["unsaid"], mine["unnamed"]) == ([], [])
        lab.peer = "other"
        assert named(await ask(lab)) == []
        lab.peer = "h1"
        assert (await lab.http.get(PATH)).status_code == 403

    tenants = {"tenant": ("train-a",), "other": ("theirs",)}
    on(tmp_path, work, admins=("ops",), tenants=tenants)


def test_ports_of_the_controllers_intent_that_no_host_has(tmp_path):
    async def work(lab):
        await lab.register("h1")
        state = ControllerState(
            source="ovn", chassis="one", ports=(PluggedPort(name="p0", interface="v"),)
        )
        await say(lab, "h1", Unprobed(), controller=state)
        chassis = {name: Chassis(name, host) for name, host in (("one", "x"), ("two", "h1"))}
        places = {"p0": "one", "p1": "one", "p2": "two", "p3": "three"}
        intent = Intent(
            "ovn", 1, chassis=chassis,
            ports={name: Port(name, pod=f"ns/{name}") for name in places},
            placements={name: Placement(name, at) for name, at in places.items()},
        )  # fmt: skip
        lab.analyzer.intended.intents = lambda: (intent,)
        answer = await ask(lab)
        assert named(answer) == [
            ("intent", "h1", "p1", "not-plugged"), ("intent", "h1", "p2", "not-said"),
            ("intent", "three", "p3", "no-agent"),
        ]  # fmt: skip
        assert answer["unprobed"][0]["pod"] == "ns/p1"

    on(tmp_path, work)


def test_an_agent_near_its_limits_leaves_rare_pairs_out(tmp_path):
    async def work(lab):
        await cluster(lab)
        lab.analyzer.clock = lambda: time.time_ns() + STARTING_NS
        lab.analyzer.skeletons.used = lambda _task, _source: ()
        assert named(await ask(lab, host="h2")) == []
        await say(lab, "h1", SAID, health=Health(shed=3))
        assert named(await ask(lab, host="h2")) == [("endpoint", "h2", "c/rail0", "shed")]

    on(tmp_path, work)


def test_what_makes_no_sense_costs_nobody_a_window(tmp_path):
    async def work(lab):
        with structlog.testing.capture_logs() as logs:
            await say(lab, "h1", Unprobed(count=-1))
        assert lab.analyzer.counters.bad_unprobed == 1
        assert lab.analyzer.counters.bad_summaries == 0
        assert [each["host"] for each in logs if each["event"] == "unprobed_unusable"] == ["h1"]
        assert "netagent_bad_unprobed_total 1.0" in (await lab.http.get("/metrics")).text
        assert not lab.analyzer.unprobed.said

    on(tmp_path, work)
