# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.judge import messages
from analyzer.picture.asked import Between, Fabric, Matrix, Totals
from netagent.model.ids import EndpointId

ENDS = {"source": EndpointId("a", 0), "target": EndpointId("b", 1)}


@pytest.mark.parametrize(
    "asked",
    [Totals(tasks=("t*",)), Fabric(apart=("h0",)), Matrix(by="host", row="a"), Between(**ENDS)],
)
def test_a_question_comes_to_the_judge_as_it_was_asked_and_can_be_remembered(asked):
    frame = messages.framed(messages.Draw(query=1, asked=asked))
    assert messages.down(frame[messages.HEAD.size :]) == messages.Draw(query=1, asked=asked)
    assert {asked: 1}[asked] == 1
