# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest

from netagent.cli import main
from netagent.commands.flows import dump
from netagent.wire.messages import FlowsReply
from ovs_checks.openflow.parse import Dump, parse_dump

TEXT = """\
 cookie=0x1, table=0, n_packets=3, priority=1 actions=drop
 cookie=0x2, table=4, n_packets=0, priority=1 actions=drop
"""


@pytest.fixture(autouse=True)
def _a_vswitch_of_values(monkeypatch):
    class Vswitchd:
        def __init__(self, rundir: Path) -> None:
            assert rundir == Path("/nowhere")

        def dump_flows(self, bridge: str) -> Dump:
            assert bridge == "br-int"
            return parse_dump(TEXT)

    monkeypatch.setattr("ovs_checks.sources.vswitchd.Vswitchd", Vswitchd)
    monkeypatch.setattr("os.nice", lambda _: 0)


def test_a_running_agent_is_asked_over_its_rpc(agent, answering, capsys):
    reply = FlowsReply(bridge="br-int", wall_ns=1, flows=("table=4, actions=drop",))
    assert main(["flows", "--table", "4", *answering(reply)]) == 0
    assert capsys.readouterr().out == "table=4, actions=drop\n"
    assert agent.asked[0][0] == "/v1/flows?bridge=br-int&table=4"
    assert main(["flows", *answering(reply), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bridge"] == "br-int"


def test_this_host_s_vswitch_is_asked_directly(capsys):
    assert main(["flows", "--rundir", "/nowhere"]) == 0
    assert capsys.readouterr().out.count("cookie=") == 2
    assert main(["flows", "--rundir", "/nowhere", "--table", "4", "--json"]) == 0
    (flow,) = json.loads(capsys.readouterr().out)["flows"]
    assert "cookie=0x2" in flow


def test_a_dump_that_is_too_large_asks_for_a_table(capsys, monkeypatch):
    monkeypatch.setattr(dump, "MAX_OUTPUT_BYTES", 100)
    assert main(["flows", "--rundir", "/nowhere", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["remedy"] == "name a table"
