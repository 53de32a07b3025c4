# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from netagent.commands.worker import answered
from netagent.model.errors import CapabilityMissing, ConfigError, Unreachable


def test_an_answer_is_one_json_document():
    code, output = answered(lambda: {"a": 1})
    assert (code, json.loads(output)) == (0, {"a": 1})


@pytest.mark.parametrize(
    ("error", "code", "remedy"),
    [
        (CapabilityMissing("OVSDB", "start it"), 1, "start it"),
        (Unreachable("x", "timeout"), 1, "see the agent's host"),
        (ConfigError("question", "no MAC"), 2, "see the agent's host"),
    ],
)
def test_an_error_is_a_json_document_too(error, code, remedy):
    def answer() -> object:
        raise error

    found, output = answered(answer)
    assert found == code
    assert json.loads(output) == {"error": str(error), "remedy": remedy}
