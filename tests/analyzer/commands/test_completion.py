# SPDX-License-Identifier: Apache-2.0
import shutil
import subprocess
import sys

import httpx
import pytest

from analyzer.cli import VERBS, parser
from analyzer.commands.completion import BASH, following
from tests.analyzer.commands.running import ENVIRON, analyzer_with, ran
from tests.analyzer.server.test_routes import incident

HOSTILE = [
    "$(touch owned)",
    "`touch owned`",
    "a;touch owned",
    "*",
    "--url=http://x",
    "a'b",
    "~",
    "",
]
"""Names of tasks that hosts and containers may choose, and no shell must be given."""


def names(path, _):
    return {
        "/v1/incidents": ["i1", "i2"],
        "/v1/tasks": ["train-a", "odd\x1b[2J", *HOSTILE],
        "/v1/endpoints": ["train-a-0/rail0", "train-b-0/rail0"],
    }[path]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sh"], ["show"]),
        (["-v", "sho"], ["show"]),
        (["show", ""], ["i1", "i2"]),
        (["innocent", ""], ["train-a"]),
        (["diagnose", "train-a-0/rail0", "train-b"], ["train-b-0/rail0"]),
        (["history", "--since", "2h", "--endpoint", "train-a"], ["train-a-0/rail0"]),
        (["endpoints", "--task", ""], ["train-a"]),
        (["history", "--component", ""], []),
        (["history", "--since", ""], []),
        (["feedback", ""], ["i1", "i2"]),
        (["feedback", "i1", ""], ["right", "wrong"]),
        (["feedback", "i1", "wrong", "--component", ""], []),
        (["show", "--pa"], ["--pairs"]),
        (["tasks", ""], []),
        (["nothing", ""], []),
    ],
)
def test_what_could_follow_is_offered(words, expected):
    assert following(words, names, parser) == expected


def test_without_a_word_all_verbs_are():
    assert following([], names, parser) == list(VERBS)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash: apt-get install bash")
def test_a_shell_completes_by_it(tmp_path):
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    program = bin_ / "netagent-analyzer"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m analyzer.cli "$@"\n')
    program.chmod(0o755)
    with analyzer_with(tmp_path, incident("i1"), incident("i2")) as url:
        httpx.put(f"{url}/v1/tasks/train-a", json={"containers": ["a"], "rails": [0]})

        def completed(*words):
            typed = " ".join(f"'{word}'" for word in words)
            script = (
                "source <(netagent-analyzer completion bash)\n"
                f"COMP_WORDS=(netagent-analyzer {typed}); COMP_CWORD={len(words)}\n"
                '_netagent_analyzer; echo "${COMPREPLY[@]}"'
            )
            environ = ENVIRON | {
                "PATH": f"{bin_}:{ENVIRON['PATH']}", "NETAGENT_ANALYZER_URL": url,
            }  # fmt: skip
            done = subprocess.run(
                ["bash", "-c", script], env=environ, capture_output=True, text=True, check=True,
                timeout=120,
            )  # fmt: skip
            return done.stdout.split()

        assert completed("inn") == ["innocent"]
        assert completed("show", "i") == ["i1", "i2"]
        assert completed("innocent", "") == ["train-a"]
        assert "--watch" in completed("tasks", "--")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash: apt-get install bash")
def test_a_shell_runs_nothing_that_it_is_offered(tmp_path):
    """Whatever a program, or one that lies, prints: words stay words."""
    script = (
        "netagent-analyzer() { printf '%s\\n' 'a$(touch owned)' '`touch owned`' '*' plain; }\n"
        f"{BASH}COMP_WORDS=(netagent-analyzer innocent ''); COMP_CWORD=2\n"
        "_netagent_analyzer; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split("\n")[:-1] == ["a$(touch owned)", "`touch owned`", "*", "plain"]
    assert list(tmp_path.iterdir()) == []


def test_without_an_analyzer_no_name_is_offered():
    done = ran("completion", "words", "show", NETAGENT_ANALYZER_URL="http://127.0.0.1:1")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
