# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import subprocess
import sys
import threading

from bpf.kernel import memory
from bpf.kernel.memory import Memory


def word(read, address):
    return read(address, 4)


def test_a_process_is_read_and_where_it_has_nothing_nothing_is():
    held = ctypes.create_string_buffer(b"here")
    reading = Memory(word)
    assert reading.at(os.getpid(), ctypes.addressof(held)) == b"here"
    assert [reading.at(os.getpid(), each) for each in (8, -8, 1 << 70)] == [b""] * 3


def test_a_process_that_is_gone_has_nothing():
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    assert Memory(word).at(gone.pid, 8) is None


def test_who_is_not_read_in_time_is_left_alone_and_in_the_end_all_are(monkeypatch):
    monkeypatch.setattr(memory, "LONGEST_S", 0.01)
    held, asked = threading.Event(), []

    def look(_read, address):
        asked.append(address)
        held.wait()

    reading, me = Memory(look), os.getpid()
    try:
        assert [reading.at(me, each) for each in (1, 2)] == [None, None]
        assert asked == [1]
        monkeypatch.setattr(memory, "MOST_STUCK", 1)
        assert reading.at(os.getppid(), 3) is None
        assert asked == [1]
    finally:
        held.set()


def test_a_process_may_be_slow_now_and_then_and_not_all_the_time():
    now_s = [0.0]

    def look(_read, took_s):
        now_s[0] += took_s
        return "read"

    reading, me = Memory(look, clock=lambda: now_s[0]), os.getpid()
    for _ in range(1000):
        assert reading.at(me, 0.009) == "read"  # slow for a busy machine's reason
    found = [reading.at(me, 0.1) for _ in range(8)]
    assert found == ["read"] * 6 + [None] * 2
    assert not reading.reads(me)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert reading.at(other.pid, 0.1) == "read"  # each has its own time
        other.communicate(b"\n")
    now_s[0] += 60.0
    assert [reading.at(me, 0.1) for _ in range(3)] == ["read", None, None]
    reading.forget(me)
    assert reading.at(me, 0.1) == "read"
