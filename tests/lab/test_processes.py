# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.errors import LabError
from tests.lab.processes import AT_WORK, Processes, children, family


def program(text: str, directory: Path) -> tuple[str, ...]:
    # The directory in its command line is what makes a process the lab's.
    return (sys.executable, "-c", text, str(directory))


def test_a_process_is_at_work_once_it_has_said_so(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.log_file("worker").write_text(f"{AT_WORK}, in an earlier run\n")
    text = f"import time; print({AT_WORK!r}, flush=True); time.sleep(60)"
    processes.start_working("worker", *program(text, tmp_path))
    assert processes.log_file("worker").read_text() == f"{AT_WORK}\n"
    assert processes.alive() == ["worker"]
    processes.kill("worker")
    assert processes.alive() == []


def test_a_process_that_ends_at_once_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    with pytest.raises(LabError, match="ended at once: no such luck"):
        processes.start_working("worker", *program("raise SystemExit('no such luck')", tmp_path))


def test_a_family_is_a_process_and_all_that_descend_from_it() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
        found: list[int] = []
        while len(found) < 2:
            assert process.poll() is None
            found = list(family(process.pid, children()))
        assert found[0] == process.pid
        process.communicate(b"\n")
