# SPDX-License-Identifier: Apache-2.0
import json

from bpf.lines import refuse, say


def test_a_document_is_a_line_of_its_own(capsys):
    say({"attached": ["lookup"]})
    say({"text": "two\nlines"})
    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(first) == {"attached": ["lookup"]}
    assert json.loads(second) == {"text": "two\nlines"}


def test_a_refusal_says_what_would_help_and_is_the_exit_code(capsys):
    assert refuse(3, "busy", "try again later") == 3
    said = json.loads(capsys.readouterr().out)
    assert said == {"error": "busy", "remedy": "try again later", "code": 3}
