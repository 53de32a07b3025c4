# SPDX-License-Identifier: Apache-2.0
import ctypes
import subprocess
import sys

import pytest

from analyzer.judge import memory

FAULTS = """
import resource, sys
import numpy as np
from analyzer.judge.memory import keep_freed

if sys.argv[1] == "kept":
    assert keep_freed()
for _ in range(2):  # the second time it may be there already
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        np.ones(3 << 20, np.uint8)  # less than what numpy asks to have in large pages
    np.ones(100 << 20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how, script=FAULTS):
    ran = subprocess.run(
        [sys.executable, "-c", script, how], check=True, capture_output=True, text=True, timeout=60
    )
    return int(ran.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="no glibc here")
def test_what_was_freed_is_used_again():
    assert faults("kept") < 10 < faults("given back")


def test_another_c_library_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    assert not memory.keep_freed()


SHARED = """
import resource, sys, threading
from analyzer.judge.memory import keep_freed

if sys.argv[1] == "kept":
    assert keep_freed()
blocks = [bytearray(b"x" * 50_000) for _ in range(400)]
del blocks
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=lambda: [bytearray(b"x" * 50_000) for _ in range(400)])
thread.start()
thread.join()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="no glibc here")
def test_a_thread_uses_what_another_one_freed():
    assert 10 * faults("kept", SHARED) < faults("given back", SHARED)
