# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

from netagent.adapters.host.usage import cpu_s, rss_kb

BURN = """
import subprocess, sys, time
if len(sys.argv) > 1:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
    child.stdout.readline()
while time.process_time() < 0.3:
    pass
print("done", flush=True)
sys.stdin.read()
"""


def test_what_a_process_started_counts_while_it_lives_and_afterwards():
    before_s = cpu_s()
    command = [sys.executable, "-c", BURN, BURN]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "done\n"
        living_s = cpu_s() - before_s
        child.stdin.close()
    assert living_s > 0.5
    assert cpu_s() - before_s >= 0.3


def test_memory_is_this_process_s_own():
    before_kb = rss_kb()
    held = bytearray(b"x") * (64 << 20)
    assert 60 << 10 < rss_kb() - before_kb < 80 << 10
    assert len(held) == 64 << 20
