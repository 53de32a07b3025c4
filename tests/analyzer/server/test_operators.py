# SPDX-License-Identifier: Apache-2.0
"""How far a job's ranks came, as a running analyzer tells it."""

from netagent.wire.codec import encode
from netagent.wire.messages import Summary
from netagent.wire.operators import OperatorColumns
from tests.analyzer.cluster import SECOND, endpoint
from tests.analyzer.intake.test_operators import window
from tests.analyzer.server.test_routes import MSGPACK, on


async def say(lab, said):
    start_ns = lab.analyzer.clock() // (5 * SECOND) * 5 * SECOND
    message = Summary(
        host="h1", instance="one", start_ns=start_ns, width_ns=5 * SECOND, operators=said
    )
    return await lab.http.post("/v1/summaries", content=encode(message), headers=MSGPACK)


def test_a_job_is_told_by_rank(tmp_path):
    async def work(lab):
        await lab.register("h1", endpoint("h1", "a"))
        assert (await say(lab, window())).status_code == 200
        answer = await lab.http.get("/v1/operators/train-a")
        (rank,) = answer.json()["ranks"]
        assert (rank["rank"], rank["host"], rank["step"]) == (0, "h1", 3)
        assert rank["progress"] == [{"group": "0:world", "begun": 1, "ended": 1}]
        (row,) = [each for each in rank["operations"] if each["op"] == "all_reduce"]
        assert (row["kind"], row["sum_us"]) == ("collective", 4000)
        assert (await lab.http.get("/v1/operators/none")).status_code == 404

    on(tmp_path, work)


def test_what_makes_no_sense_costs_no_window(tmp_path):
    async def work(lab):
        await lab.register("h1", endpoint("h1", "a"))
        assert (await say(lab, OperatorColumns(ops=("a\n",)))).status_code == 200
        assert lab.analyzer.counters.bad_operators == 1
        assert lab.analyzer.counters.bad_summaries == 0

    on(tmp_path, work)


def test_who_is_of_no_container_of_the_task_is_not_believed(tmp_path):
    async def work(lab):
        await lab.register("h1", endpoint("h1", "b", task="train-b"))
        assert (await say(lab, window())).status_code == 200
        answer = await lab.http.get("/v1/operators/train-a")
        assert [each["believed"] for each in answer.json()["ranks"]] == [False]

    on(tmp_path, work)
