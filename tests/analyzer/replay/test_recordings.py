# SPDX-License-Identifier: Apache-2.0
"""Recordings of the lab's faults, one each: this netagent says of them what was the truth.

Made by `python -m tests.lab demo --faults NAME --healthy-s 0 --output build/NAME.json`, which
leaves build/NAME.recording. What is told of an incident may change from version to version; who is
at fault may not.
"""

from pathlib import Path

import msgspec
import pytest

from analyzer.replay.player import play, read
from netagent.model.verdict import IncidentState

FOLDER = Path(__file__).parent / "recordings"
TRUTH = {
    "link-loss": "link leaf-s0-r0 -- spine-0",
    "spine-down": "switch spine-0",
    "rnic-down": "rnic h1/rnic0",
    "flow-deleted": "flow h0/br-int/table=40",
    "flow-loop": "flow h0/br-int/table=40",
    "wrong-tunnel-remote": "flow h0/br-int/table=40",
    "container-crash": "container train-a-1",
    "agent-killed": "agent h2",
}


def played(fault):
    with (FOLDER / f"{fault}.recording").open("rb") as file:
        return play(read(file)).incidents.values()


@pytest.mark.parametrize("fault", TRUTH)
def test_a_recorded_fault_is_named_alone_over_when_healed_and_the_same_twice(fault):
    (incident,) = once = played(fault)
    assert str(incident.verdict.component) == TRUTH[fault]
    assert incident.state is IncidentState.RECOVERED
    again = [msgspec.json.encode(each) for each in played(fault)]
    assert again == [msgspec.json.encode(each) for each in once]
