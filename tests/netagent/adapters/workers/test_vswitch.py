# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os
import stat
import sys

import msgspec
import pytest

from netagent.adapters.workers import vswitch
from netagent.adapters.workers.vswitch import VswitchWorker
from netagent.config import AgentConfig, AnalyzerConfig
from netagent.model.endpoint import Endpoint
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, Unreachable
from netagent.model.ids import EndpointId
from netagent.wire.messages import CheckReply, CheckRequest, EgressQuestion, FlowsReply
from netagent.wire.validate import ValidateReply, ValidateRequest
from tests.waiting import until

CONFIG = AgentConfig(host="h0", analyzer=AnalyzerConfig(url="http://127.0.0.1:1"))
QUESTION = CheckRequest(
    questions=(
        EgressQuestion(source=EndpointId("c0", 0), target_address="10.0.0.1", target_mac="02::"),
    )
)
FLOWS = '{"bridge":"b","wall_ns":1,"flows":["f"]}'


def say(text, code=0):
    """Return the shell command that answers a question."""
    return f"printf -- '{code} {len(text)}\\n%s' '{text}'"


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Return a function that puts a shell script in the place of the worker's Python."""

    def make(script, *, deadline_s=10, first="echo ready"):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{first}\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(path))
        return VswitchWorker(CONFIG, deadline_s=deadline_s)

    return make


def ask(made, *questions):
    """Return what each question gives, or how it fails, one after the other."""

    async def main():
        said = []
        for question in questions:
            try:
                said.append(await question())
            except Exception as error:  # noqa: BLE001 - it is what is looked at
                said.append(error)
        await made.close()
        return said

    return asyncio.run(main())


def test_questions_go_in_as_json_to_one_process_and_answers_come_out(worker, tmp_path):
    answer = '{"walks":[],"wall_ns":3}'
    loop = f'while read -r line; do echo "$line" >>{tmp_path}/in; {say(answer)}; done'
    made = worker(f'echo "$@" >>{tmp_path}/argv; {loop}')
    said = ask(made, *[lambda: made.check(QUESTION)] * 2)
    assert said == [CheckReply(walks=(), wall_ns=3)] * 2
    assert (tmp_path / "argv").read_text().split() == ["-m", "netagent", "answer"]
    first, second = map(json.loads, (tmp_path / "in").read_text().splitlines())
    assert first == second
    assert first["work"]["type"] == "check"
    assert first["work"]["request"]["questions"][0]["source"]["container"] == "c0"


def test_questions_about_tables_come_with_the_hosts_endpoints(worker, tmp_path):
    """The external_ids alone need not say whose a port is."""
    answer = say('{"walks":[],"wall_ns":3}')
    made = worker(f'read -r line; echo "$line" >{tmp_path}/in; {answer}; read -r line')
    end = Endpoint(EndpointId("c0", 0), "t", "h0", "10.0.0.1", "", "", "", "br-int", "p")
    made.endpoints = lambda: (end,)
    ask(made, lambda: made.check(QUESTION))
    (sent,) = json.loads((tmp_path / "in").read_text())["work"]["endpoints"]
    assert (sent["id"], sent["port"]) == ({"container": "c0", "rail": 0}, "p")


def test_flows_name_their_bridge_and_table(worker, tmp_path):
    made = worker(f'read -r line; echo "$line" >{tmp_path}/in; {say(FLOWS)}; read -r line')
    assert ask(made, lambda: made.flows("--help", 4)) == [
        FlowsReply(bridge="b", wall_ns=1, flows=("f",))
    ]
    work = json.loads((tmp_path / "in").read_text())["work"]
    assert (work["type"], work["bridge"], work["table"]) == ("flows", "--help", 4)


def test_a_comparison_of_tables_has_a_deadline_of_its_own(worker, tmp_path):
    reply = ValidateReply(host="h0", wall_ns=1, looks=3, flows=2, judged=2, in_hardware=0)
    request = ValidateRequest(
        local=EndpointId("c0", 0), remote_address="10.0.0.1", remote_mac="02::"
    )
    answer = say(msgspec.json.encode(reply).decode())
    made = worker(f'read -r line; echo "$line" >{tmp_path}/in; {answer}; read -r x', deadline_s=0)
    assert ask(made, lambda: made.validate(request)) == [reply]
    work = json.loads((tmp_path / "in").read_text())["work"]
    assert (work["type"], work["host"], work["bridge"]) == ("validate", "h0", "br-int")
    assert work["request"]["remote_address"] == "10.0.0.1"


@pytest.mark.parametrize(
    ("script", "error", "text"),
    [
        (say('{"error":"no OVS","remedy":"start it"}', 1), CapabilityMissing, "no OVS"),
        (say('{"error":"no MAC","remedy":""}', 2), RemoteProtocolError, "no MAC"),
        (say("", -9), Unreachable, "ended with code -9"),
        ("exit 3", Unreachable, "ended with code 3"),
        ("echo what is this", Unreachable, "nonsense"),
        ("echo what not", Unreachable, "nonsense"),
        (say("nonsense"), RemoteProtocolError, "no FlowsReply"),
        ("echo 0 99999999; cat /dev/zero", CapabilityMissing, "an answer of over"),
    ],
)
def test_what_goes_wrong_is_a_typed_error_and_the_next_question_is_heard(
    worker, tmp_path, script, error, text
):
    made = worker(
        f"mkdir {tmp_path}/once && {{ read -r line; {script}; exec sleep 600; }}\n"
        f"while read -r line; do {say(FLOWS)}; done"
    )
    failed, *_ = ask(made, lambda: made.flows("b", None))
    assert isinstance(failed, error)
    assert text in str(failed)
    assert ask(made, lambda: made.flows("b", None)) == [
        FlowsReply(bridge="b", wall_ns=1, flows=("f",))
    ]


@pytest.mark.parametrize(("first", "said"), [("echo ready", "timeout"), ("", "not ready in time")])
def test_a_worker_that_hangs_is_killed(worker, monkeypatch, first, said):
    started, start = [], asyncio.create_subprocess_exec

    async def noted(*words, **fields):
        started.append(await start(*words, **fields))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    monkeypatch.setattr(vswitch, "START_S", 60 if first else 0.1)
    made = worker("exec sleep 600", deadline_s=0.1, first=first)
    with pytest.raises(Unreachable, match=said):
        asyncio.run(made.flows("br-int", None))
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


def test_who_stops_waiting_leaves_a_worker_to_the_next(worker, tmp_path):
    os.mkfifo(tmp_path / "go")
    made = worker(
        f"echo $$ >>{tmp_path}/pid; read -r go <{tmp_path}/go; read -r line; {say(FLOWS)}\n"
        f"read -r line; {say(FLOWS)}; read -r line"
    )

    async def main():
        first = asyncio.create_task(made.flows("b", None))
        await until((tmp_path / "pid").exists)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        next_one = asyncio.create_task(made.flows("b", None))
        await asyncio.to_thread((tmp_path / "go").write_text, "go\n")
        reply = await next_one
        await made.close()
        return reply

    assert asyncio.run(main()).bridge == "b"
    assert len((tmp_path / "pid").read_text().split()) == 1


def test_a_warm_worker_waits_for_the_first_question(worker, tmp_path):
    made = worker(f"echo $$ >>{tmp_path}/pid; while read -r line; do {say(FLOWS)}; done")

    async def main():
        made.warm()
        await made._warming
        made.warm()
        reply = await made.flows("b", None)
        await made.close()
        return reply

    assert asyncio.run(main()).bridge == "b"
    assert len((tmp_path / "pid").read_text().split()) == 1


def test_one_that_cannot_start_is_not_tried_at_every_loss(worker, tmp_path):
    made = worker("", first=f"echo begun >>{tmp_path}/starts; exit 1")

    async def main():
        for _ in range(3):
            made.warm()
            await made._warming
        await made.close()

    asyncio.run(main())
    assert (tmp_path / "starts").read_text() == "begun\n"


def test_an_idle_worker_ends(worker, monkeypatch):
    monkeypatch.setattr(vswitch, "IDLE_S", 0.01)
    made = worker(f"while read -r line; do {say(FLOWS)}; done")

    async def main():
        await made.flows("b", None)
        pid = made._process.pid
        await until(lambda: made._process is None)
        await made._warming
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(main())


def test_one_works_a_few_wait_and_more_are_refused(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(vswitch, "QUEUE", 1)
    lock = tmp_path / "lock"
    made = worker(
        f"while read -r line; do mkdir {lock} || exit 9; sleep 0.05; rmdir {lock}\n"
        f"{say(FLOWS)}; done"
    )

    async def main():
        asked = (made.flows("b", None) for _ in range(4))
        said = await asyncio.gather(*asked, return_exceptions=True)
        await made.close()
        return said

    said = asyncio.run(main())
    assert [type(each) for each in said] == [FlowsReply, FlowsReply, Unreachable, Unreachable]
    assert "busy" in str(said[3])


def test_the_real_worker_says_what_is_missing_and_what_makes_no_sense(tmp_path):
    ovs = msgspec.structs.replace(CONFIG.ovs, rundir=str(tmp_path))
    made = VswitchWorker(msgspec.structs.replace(CONFIG, ovs=ovs))
    said = ask(
        made,
        lambda: made.flows("br-int", None),
        lambda: made.check(QUESTION),
        lambda: made._ask(CheckRequest(questions=()), FlowsReply),
    )
    assert [type(each) for each in said] == [CapabilityMissing, CapabilityMissing, Unreachable]
    assert "Open vSwitch" in str(said[0])
    assert "Open vSwitch" in str(said[1])
