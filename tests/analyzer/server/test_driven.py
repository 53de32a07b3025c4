# SPDX-License-Identifier: Apache-2.0
"""What hosts say of their part of a controller, as a running analyzer takes it."""

import msgspec
import structlog

from netagent.wire.codec import encode
from netagent.wire.controller import ControllerState, PluggedPort
from netagent.wire.messages import Summary
from tests.analyzer.cluster import SECOND
from tests.analyzer.server.test_routes import MSGPACK, on
from tests.waiting import until

STATE = ControllerState(
    source="ovn", chassis="h1", generation=7, ports=(PluggedPort(name="p", interface="veth0"),)
)


async def say(lab, host, state, ago=0):
    start_ns = lab.analyzer.clock() // (5 * SECOND) * 5 * SECOND - ago * 5 * SECOND
    message = Summary(
        host=host, instance="one", start_ns=start_ns, width_ns=5 * SECOND, controller=state
    )
    answer = await lab.http.post("/v1/summaries", content=encode(message), headers=MSGPACK)
    assert answer.status_code == 200, answer.text


def generations(lab):
    return {host: said.state.generation for host, said in lab.analyzer.driven.said.items()}


def test_what_a_host_says_is_kept_until_it_is_forgotten(tmp_path):
    async def work(lab):
        await say(lab, "h1", STATE)
        await say(lab, "h2", STATE)
        await say(lab, "h1", msgspec.structs.replace(STATE, generation=6), ago=1)
        await say(lab, "h3", None)
        assert generations(lab) == {"h1": 7, "h2": 7}
        assert (await lab.http.delete("/v1/hosts/h2")).status_code == 200
        assert generations(lab) == {"h1": 7}

    on(tmp_path, work)


def test_one_that_makes_no_sense_costs_nobody_a_window(tmp_path):
    async def work(lab):
        await say(lab, "h1", STATE, ago=1)
        with structlog.testing.capture_logs() as logs:
            await say(lab, "h1", msgspec.structs.replace(STATE, chassis="\x1b[2J"))
        await until(lambda: "h1" in {host for host, *_ in lab.diagnosis.seen})
        assert lab.analyzer.counters.bad_controllers == 1
        assert lab.analyzer.counters.bad_summaries == 0
        assert [each["host"] for each in logs if each["event"] == "controller_unusable"] == ["h1"]
        assert generations(lab) == {"h1": 7}
        metrics = (await lab.http.get("/metrics")).text
        assert "netagent_bad_controllers_total 1.0" in metrics

    on(tmp_path, work)


def test_after_a_restart_it_is_known_again_from_what_is_stored(tmp_path):
    async def before(lab):
        await say(lab, "h1", STATE)

    async def after(lab):
        assert lab.analyzer.driven.said["h1"].state == STATE

    on(tmp_path, before)
    on(tmp_path, after)
