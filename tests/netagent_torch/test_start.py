# SPDX-License-Identifier: Apache-2.0
import fcntl
import subprocess
import sys

import pytest

import netagent_torch
from netagent_torch import form
from tests.netagent_torch.test_recorder import ProcessGroup, c10d

__all__ = ["c10d"]


@pytest.fixture(autouse=True)
def stopped():
    yield
    netagent_torch.stop()


def test_it_records_into_the_folder_that_it_is_told(c10d, tmp_path):
    given = {"NETAGENT_OPERATORS": str(tmp_path), "NETAGENT_TORCH_RECORDS": "64"}
    assert netagent_torch.start(given)
    assert netagent_torch.start(given)  # it does already
    netagent_torch.step(3)
    group = ProcessGroup()
    c10d._pg_group_ranks[group] = {0: 0}
    group.barrier().wait()
    with netagent_torch.span("forward-compute", compute=True):
        pass
    netagent_torch.describe(group, "tp")
    (ring,) = tmp_path.glob("*.ring")
    assert b"forward-compute" in ring.read_bytes()


@pytest.mark.parametrize(
    ("given", "step"),
    [(2**31 + 5, 5), (-1, -1), (True, 1), (1.5, -1), ("last", -1), (None, -1)],
)
def test_whatever_a_job_calls_its_step_it_goes_on(c10d, tmp_path, given, step):
    """Some count tokens."""
    assert netagent_torch.start({"NETAGENT_OPERATORS": str(tmp_path)})
    netagent_torch.step(given)
    group = ProcessGroup()
    c10d._pg_group_ranks[group] = {0: 0}
    group.barrier().wait()
    (ring,) = tmp_path.glob("*.ring")
    data = ring.read_bytes()
    at = form.read_head(data).offset(1)
    assert form.read_records(data[at : at + form.RECORD_BYTES])[0].step == step


def test_a_folder_that_is_not_there_costs_a_line_and_no_job(c10d, tmp_path, capsys):
    assert not netagent_torch.start({"NETAGENT_OPERATORS": str(tmp_path / "none")})
    assert "records nothing" in capsys.readouterr().err


def test_without_the_variable_nothing_begins(monkeypatch, c10d, tmp_path):
    monkeypatch.setenv("NETAGENT_OPERATORS", str(tmp_path))
    monkeypatch.delenv("NETAGENT_TORCH", raising=False)
    netagent_torch.autoload()
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("NETAGENT_TORCH", "1")
    netagent_torch.autoload()
    assert list(tmp_path.iterdir())


FORKS = """
import os, sys
import netagent_torch
from netagent_torch.recorder import Recorder
Recorder.install = lambda _recorder: None
assert netagent_torch.start({"NETAGENT_OPERATORS": sys.argv[1]})
if not os.fork():
    sys.stdin.read()
    os._exit(0)
"""


def test_a_fork_that_outlives_the_process_holds_no_ring_for_it(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, str(tmp_path)], stdin=subprocess.PIPE, text=True
    ) as process:
        assert process.wait(timeout=60) == 0
        (ring,) = tmp_path.glob("*.ring")
        with ring.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # raises where it is held
        process.stdin.close()


def test_before_it_began_a_step_and_a_span_are_nothing():
    netagent_torch.step(1)
    netagent_torch.describe(object(), "dp")
    with netagent_torch.span("x"):
        pass


def test_a_job_is_run_as_it_is_with_its_own_arguments(tmp_path):
    script = tmp_path / "job.py"
    script.write_text("import sys; print(sys.argv, __name__); sys.exit(4)\n")
    done = subprocess.run(
        [sys.executable, "-m", "netagent_torch", str(script), "--rank", "0"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 4
    assert done.stdout.strip() == f"['{script}', '--rank', '0'] __main__"


def test_without_a_job_it_says_how():
    done = subprocess.run(
        [sys.executable, "-m", "netagent_torch"], capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "SCRIPT" in done.stderr
