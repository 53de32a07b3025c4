# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace

import msgspec
import pytest

from netagent.cli import main
from netagent.commands.status import controller_line
from netagent.model.endpoint import Endpoint
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import rnic
from netagent.wire.controller import ControllerState, PluggedPort, Working
from netagent.wire.messages import Health, Status
from netagent.wire.unprobed import Unprobed, UnprobedPort, Why

ENDPOINT = Endpoint(
    EndpointId("c0", 0), "t", "h0", "10.0.0.10", "02::", "172.30.0.10", "rnic0", "br-int", "p"
)
STATUS = Status(
    host="h0",
    instance="abcdef",
    version="1.2",
    endpoints=(ENDPOINT, replace(ENDPOINT, id=EndpointId("c0", 1))),
    pinglist_version=7,
    targets=12,
    last_window_ns=0,
    health=Health(rss_kb=40_960, delayed=3, answered=9, queue_us=1500, pending=4),
)
DRIVEN = msgspec.structs.replace(
    STATUS,
    controller=ControllerState(
        source="ovn", working=Working.CUT_OFF, generation=12,
        ports=(PluggedPort(name="p", interface="veth0"),),
    ),
)  # fmt: skip
DOWN = Finding(FindingKind.RNIC_DOWN, rnic("h0", "rnic0"), "rnic0 has no carrier", 0)


@pytest.mark.parametrize("findings", [(), (DOWN,)])
def test_a_healthy_agent_is_exit_0_and_one_with_findings_1(answering, capsys, findings):
    status = msgspec.structs.replace(STATUS, findings=findings)
    assert main(["status", *answering(status)]) == len(findings)
    text = capsys.readouterr().out
    assert "h0: netagent 1.2" in text
    assert "probing 12 targets" in text
    assert "40.0 MB" in text
    assert "9, 1.5 ms in the responder at most" in text
    assert "4 probes: addresses are not resolved yet" in text
    assert "c0/rail1" in text
    assert ("rnic h0/rnic0: rnic0 has no carrier" in text) == bool(findings)
    assert all(len(line) < 80 for line in text.splitlines())


def test_status_as_json(answering, capsys):
    assert main(["status", *answering(DRIVEN), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pinglist_version"] == 7
    assert told["controller"]["working"] == "cut-off"
    assert told["controller"]["generation"] == 12


def test_ports_that_are_no_endpoint_are_counted(answering, capsys):
    said = Unprobed(ports=(UnprobedPort(port="v", why=Why.NO_TASK),), count=1)
    assert main(["status", *answering(msgspec.structs.replace(STATUS, unprobed=said))]) == 0
    assert "unprobed   ports that are no endpoint: 1 (1 no-task)" in capsys.readouterr().out
    main(["status", *answering(STATUS)])
    assert "unprobed" not in capsys.readouterr().out


def test_where_a_controller_drives_the_switch_a_line_says_how_it_is(answering, capsys):
    assert main(["status", *answering(DRIVEN)]) == 0
    text = capsys.readouterr().out
    assert "  controller ovn cut-off, generation 12, 1 ports\n" in text
    assert main(["status", *answering(STATUS)]) == 0
    assert "controller" not in capsys.readouterr().out
    never = ControllerState(source="ovn", working=Working.STOPPED)
    assert controller_line(never) == "ovn stopped, 0 ports"
