# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys

import pytest

from netagent_torch import form
from tests.bpf.kernel.test_uprobes import definitions, library
from tests.waiting import wait_until

__all__ = ["library"]

JOB = """
import ctypes, sys
function = ctypes.CDLL(sys.argv[1]).ncclAllReduce
sys.stdout.write("loaded\\n"); sys.stdout.flush()
for line in sys.stdin:
    function(None, None, ctypes.c_long(10), 7, 0, ctypes.c_void_p(0xC0), None)
"""


def test_a_request_that_makes_no_sense_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "bpf.operators"], input=b"[]\n", capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "folder" in json.loads(done.stdout)["remedy"]


@pytest.mark.netns  # needs root
def test_a_process_is_recorded_without_a_change_to_it(library, tmp_path):
    given = {"RANK": "3", "WORLD_SIZE": "8", "NETAGENT_JOB": "train-a"}
    with (
        subprocess.Popen(
            [sys.executable, "-c", JOB, str(library)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=given,
        ) as job,
        subprocess.Popen(
            [sys.executable, "-m", "bpf.operators"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as worker,
    ):  # fmt: skip
        assert job.stdout.readline() == b"loaded\n"
        worker.stdin.write(json.dumps({"folder": str(tmp_path)}).encode() + b"\n")
        worker.stdin.flush()
        attached = json.loads(worker.stdout.readline())
        assert any("libnccl.so.2" in path for path in attached["libraries"])

        def seen():
            job.stdin.write(b"\n")
            job.stdin.flush()
            found = list(tmp_path.glob("*.ring"))
            return found and form.read_head(found[0].read_bytes()).written >= 3

        wait_until(seen, "calls to be recorded", 30)
        job.stdin.close()
        worker.stdin.close()
        assert worker.wait(timeout=30) == 0
    data = next(tmp_path.glob("*.ring")).read_bytes()
    head = form.read_head(data)
    lines = form.read_lines(data[form.HEAD_BYTES : form.HEAD_BYTES + head.lines_used])
    assert {"job": "train-a", "rank": 3, "world": 8}.items() <= lines[0].items()
    at = head.offset(1)
    first, second = form.read_records(data[at : at + 2 * form.RECORD_BYTES])
    assert (first.bytes, first.sequence, second.sequence) == (40, 1, 2)
    assert first.ended_ns > first.begun_ns
    assert definitions() == []
