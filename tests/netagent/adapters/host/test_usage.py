# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

from netagent.adapters.host.usage import cpu_s

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
    """Asked in a process of its own, of which nothing else is freed meanwhile."""
    code = """
from netagent.adapters.host.usage import rss_kb
before_kb = rss_kb()
held = bytearray(b"x") * (64 << 20)
print(rss_kb() - before_kb, len(held))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown_kb, held_bytes = map(int, said.stdout.split())
    assert held_bytes == 64 << 20
    assert 60 << 10 < grown_kb < 80 << 10
