# SPDX-License-Identifier: Apache-2.0
"""The process that the agent starts, spoken to as the agent does."""

import subprocess
import sys
from pathlib import Path

import pytest

from netagent.adapters.workers.privileges import DAC_OVERRIDE, DAC_READ_SEARCH
from netagent.model.errors import MISUSE, PROBLEM
from netagent.wire.codec import ContentType, decode
from netagent.wire.worker import READY, FlowsWork, Problem, question, read_head


@pytest.fixture
def process():
    command = [sys.executable, "-m", "netagent", "answer"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout.readline() == READY
        yield started
        started.stdin.close()
        assert started.wait(10) == 0


def ask(process, line):
    process.stdin.write(line)
    process.stdin.flush()
    code, length = read_head(process.stdout.readline())
    return code, process.stdout.read(length)


def test_a_line_that_is_no_question_has_no_answer_and_the_next_one_has(process, tmp_path):
    assert ask(process, b"[]\n") == (MISUSE, b"")
    assert ask(process, b'{"work":{"type":"frob"}}\n') == (MISUSE, b"")
    code, output = ask(process, question(FlowsWork(rundir=str(tmp_path), bridge="--help")))
    assert code == PROBLEM
    assert "Open vSwitch" in decode(output, Problem, ContentType.JSON).error


def test_it_may_read_files_of_others_and_no_more(process):
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    [effective] = (line.split()[1] for line in lines if line.startswith("CapEff"))
    assert int(effective, 16) & ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH) == 0
