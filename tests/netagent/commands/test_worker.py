# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from netagent.commands.worker import print_answer
from netagent.model.errors import CapabilityMissing, ConfigError, Unreachable


def fail(error: Exception):
    def answer() -> object:
        raise error

    return answer


def test_an_answer_is_one_json_document_or_shown(capsys):
    assert print_answer(lambda: {"a": 1}, as_json=True, show=print) == 0
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    assert print_answer(lambda: "text", as_json=False, show=print) == 0
    assert capsys.readouterr().out == "text\n"


@pytest.mark.parametrize(
    ("error", "code", "remedy"),
    [
        (CapabilityMissing("OVSDB", "start it"), 1, "start it"),
        (Unreachable("x", "timeout"), 1, "see the agent's host"),
        (ConfigError("question", "no MAC"), 2, "see the agent's host"),
    ],
)
def test_an_error_is_a_json_document_too(capsys, error, code, remedy):
    assert print_answer(fail(error), as_json=True, show=print) == code
    assert json.loads(capsys.readouterr().out) == {"error": str(error), "remedy": remedy}


def test_for_humans_an_error_is_the_command_line_s_affair():
    with pytest.raises(Unreachable):
        print_answer(fail(Unreachable("x", "timeout")), as_json=False, show=print)
