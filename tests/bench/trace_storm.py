# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench.trace_storm`: traces attached and detached while packets flood past.

Two hosts' switches in one kernel, a ping flood each way, and traces begun again and again, at once
as many as asked. Prints one JSON line; a kernel that does not survive prints its own. Needs root,
kprobes and openvswitch.ko, better those of a guest.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from subprocess import PIPE

from tests.conftest import KERNEL
from tests.kernel.overlay import ADDRESSES, Overlay

TRACE = {"kind": "drops", "flow": "icmp", "duration_s": 0.3}


def storm(seconds: float, at_once: int) -> dict[str, object]:
    """Return how many traces ended well, and what the others said."""
    counted, said = [0] * at_once, list[str]()

    def trace_on(number: int, netns: int) -> None:
        line = json.dumps({**TRACE, "netns": netns}) + "\n"
        while time.monotonic() < end_s:
            command = [sys.executable, "-m", "bpf.worker"]
            with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as done:
                assert done.stdin is not None
                assert done.stdout is not None
                done.stdin.write(line)
                done.stdin.flush()
                first = done.stdout.readline()
                # Its stdin ends now, so it ends as soon as all is attached.
                rest, errors = done.communicate()
            counted[number] += done.returncode == 0
            if done.returncode:
                said.append((first + rest + errors)[-200:])

    with ExitStack() as stack:
        overlay = Overlay()
        stack.callback(overlay.close)
        for here, there in ((0, 1), (1, 0)):
            inside = overlay.hosts[here].inside("a")
            words = ("ip", "netns", "exec", inside, "ping", "-f", "-q", ADDRESSES[4][there])
            flood = stack.enter_context(subprocess.Popen(words, stdout=subprocess.DEVNULL))
            stack.callback(flood.terminate)
        end_s = time.monotonic() + seconds
        threads = [
            threading.Thread(target=trace_on, args=(n, overlay.hosts[n].netns))
            for n in range(at_once)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {"seconds": seconds, "at_once": at_once, "traces": sum(counted), "failed": said}


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trace_storm")
    parser.add_argument("--seconds", type=float, default=300.0, help="(default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=2, choices=(1, 2), help="traces")
    arguments = parser.parse_args()
    if not KERNEL.present():
        print(f"kernel: {KERNEL.remedy}", file=sys.stderr)
        return 1
    found = storm(arguments.seconds, arguments.at_once)
    print(json.dumps(found), flush=True)
    return int(bool(found["failed"]))


if __name__ == "__main__":
    sys.exit(main())
