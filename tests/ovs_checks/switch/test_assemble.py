# SPDX-License-Identifier: Apache-2.0
"""What Open vSwitch printed, version by version (`record`), is read, and its traces are ours."""

import re
from pathlib import Path

import pytest

from ovs_checks.openflow.actions import Unknown
from ovs_checks.openflow.parse import parse_header
from ovs_checks.sources.answers import open_answers
from ovs_checks.switch.assemble import assemble
from ovs_checks.translate.text import trace
from tests.ovs_checks.record import FLOWS, PACKETS

DUMPS = Path(__file__).parents[1] / "dumps"


def datapath_actions(text):
    """Return all that a trace says packets are to have done, but for numbers of recirculations."""
    told = re.findall(r"^Datapath actions: (.*)$", text, re.MULTILINE)
    return [re.sub(r"recirc(_id=|\()[0-9a-fx]+", r"recirc\1N", one) for one in told]


@pytest.mark.parametrize("version", ["2.15", "3.5", "4.0"])
def test_tables_of_every_version_are_read_and_traced_as_it_did(version):
    recorded = open_answers(DUMPS / f"ovs-{version}.tar.gz")
    snapshot = assemble(recorded, "h0")
    assert snapshot.version.startswith(version)
    assert not snapshot.problems
    flows = [flow for bridge in snapshot.bridges for flow in bridge.flows]
    assert len(flows) == 2 * len(FLOWS.read_text().splitlines())
    assert not [flow.text for flow in flows if flow.match.unknown]
    assert not [flow.text for flow in flows for one in flow.actions if isinstance(one, Unknown)]
    for packet in PACKETS:
        theirs = recorded.told(f"ovs-appctl ofproto/trace br0 {packet}")
        ours = trace(snapshot, "br0", parse_header(packet)).text
        assert datapath_actions(ours) == datapath_actions(theirs), f"{ours}\n{theirs}"
