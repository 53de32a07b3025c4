# SPDX-License-Identifier: Apache-2.0
import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest

from netagent.adapters import vswitch_worker
from netagent.adapters.vswitch_worker import VswitchWorker
from netagent.config import AgentConfig, AnalyzerConfig
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, Unreachable
from netagent.model.ids import EndpointId
from netagent.wire.messages import CheckReply, CheckRequest, EgressQuestion, FlowsReply

CONFIG = AgentConfig(host="h0", analyzer=AnalyzerConfig(url="http://127.0.0.1:1"))
QUESTION = CheckRequest(
    questions=(
        EgressQuestion(source=EndpointId("c0", 0), target_address="10.0.0.1", target_mac="02::"),
    )
)


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Return a function that puts a shell script in the place of the worker's Python."""

    def make(script: str, *, deadline_s: float = 10) -> VswitchWorker:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(path))
        return VswitchWorker(CONFIG, deadline_s=deadline_s)

    return make


def test_a_question_goes_in_as_json_and_its_answer_comes_out(worker, tmp_path):
    script = f'cat >{tmp_path}/in; echo "$@" >{tmp_path}/argv; echo \'{{"walks":[],"wall_ns":3}}\''
    reply = asyncio.run(worker(script).check(QUESTION))
    assert reply == CheckReply(walks=(), wall_ns=3)
    assert '"container":"c0"' in (tmp_path / "in").read_text()
    argv = (tmp_path / "argv").read_text().split()
    assert argv[:4] == ["-m", "netagent", "check", "--questions"]
    assert "--json" in argv


def test_flows_name_their_bridge_and_table(worker, tmp_path):
    answer = '{"bridge":"b","wall_ns":1,"flows":["f"]}'
    made = worker(f"echo \"$@\" >{tmp_path}/argv; echo '{answer}'")
    assert asyncio.run(made.flows("--help", 4)) == FlowsReply(bridge="b", wall_ns=1, flows=("f",))
    assert "flows --bridge=--help --table 4" in (tmp_path / "argv").read_text()


@pytest.mark.parametrize(
    ("script", "error", "text"),
    [
        ('echo \'{"error":"no OVS","remedy":"start it"}\'; exit 1', CapabilityMissing, "no OVS"),
        ('echo \'{"error":"no MAC","remedy":""}\'; exit 2', RemoteProtocolError, "no MAC"),
        ("exit 3", Unreachable, "ended with code 3"),
        ("echo nonsense", RemoteProtocolError, "no FlowsReply"),
        ("cat /dev/zero", CapabilityMissing, "an answer of over"),
    ],
)
def test_what_goes_wrong_is_a_typed_error(worker, script, error, text):
    with pytest.raises(error, match=text):
        asyncio.run(worker(script).flows("br-int", None))


def test_a_worker_that_hangs_is_killed(worker, tmp_path):
    made = worker(f"echo $$ >{tmp_path}/pid; exec sleep 600", deadline_s=0.3)
    with pytest.raises(Unreachable, match="timeout"):
        asyncio.run(made.flows("br-int", None))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_one_works_a_few_wait_and_more_are_refused(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(vswitch_worker, "QUEUE", 1)
    lock = tmp_path / "lock"
    answer = '{"bridge":"b","wall_ns":1,"flows":[]}'
    made = worker(f"mkdir {lock} || exit 9; sleep 0.05; rmdir {lock}; echo '{answer}'")

    async def main() -> list[object]:
        asked = (made.flows("b", None) for _ in range(4))
        return await asyncio.gather(*asked, return_exceptions=True)

    said = asyncio.run(main())
    assert [type(each) for each in said] == [FlowsReply, FlowsReply, Unreachable, Unreachable]
    assert "busy" in str(said[3])


def test_the_real_worker_says_what_is_missing(tmp_path):
    import msgspec  # noqa: PLC0415

    ovs = msgspec.structs.replace(CONFIG.ovs, rundir=str(tmp_path))
    made = VswitchWorker(msgspec.structs.replace(CONFIG, ovs=ovs))
    with pytest.raises(CapabilityMissing, match="Open vSwitch"):
        asyncio.run(made.flows("br-int", None))
    assert Path(sys.executable).exists()
