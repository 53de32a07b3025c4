# SPDX-License-Identifier: Apache-2.0
"""The command, as a process, against an analyzer."""

import json

from tests.analyzer.commands.running import analyzer_with, ran
from tests.analyzer.server.test_routes import incident


def test_a_word_is_said_shown_and_counted(tmp_path):
    with analyzer_with(tmp_path, incident("i1")) as url:
        said = ran("feedback", "i1", "wrong", "--component", "link a -- b", "--url", url)
        assert (said.returncode, said.stdout) == (0, "i1: wrong, kept\n")
        shown = ran("show", "i1", "--url", url).stdout
        assert "what people say of it\n  - wrong, somebody said 20" in shown
        assert "at fault was link a -- b" in shown
        assert "docs/runbooks/switch-loses.md" in shown.replace("\n", "").replace(" ", "")
        again = ran("feedback", "i1", "right", "--note", "so it was", "--json", "--url", url)
        [word] = json.loads(again.stdout)["feedback"]
        assert (word["right"], word["note"]) == (True, "so it was")


def test_what_makes_no_sense_is_told_apart(tmp_path):
    with analyzer_with(tmp_path) as url:
        assert ran("feedback", "i1", "right", "--url", url).returncode == 1
        assert ran("feedback", "i1", "maybe", "--url", url).returncode == 2
        odd = ran("feedback", "i1", "wrong", "--component", "cable", "--url", url, "--json")
        assert odd.returncode == 2
        assert "KIND NAME" in json.loads(odd.stdout)["error"]
