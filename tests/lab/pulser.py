# SPDX-License-Identifier: Apache-2.0
"""Do something bad for a part of each period, again and again, for a bounded time.

Run by the lab as a background process: ``python -m tests.lab.pulser --help``.
"""

import argparse
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.lab.commands import run
from tests.lab.errors import LabError
from tests.lab.processes import AT_WORK, Processes

BURST_BYTES = 1600
"""One full packet: less would drop it, more would let bursts pass untouched."""
LATENCY_MS = 500
FREE = "10gbit"

Act = tuple[Callable[[], None], Callable[[], None]]
"""What begins something bad, and what ends it."""


def queue(namespace: str, interface: str, *, kbit: float) -> Act:
    """Return what makes a queue stand at an interface; the packets in it are kept at its end."""

    def at(rate: str) -> None:
        bucket = ("tbf", "rate", rate, "burst", str(BURST_BYTES), "latency", f"{LATENCY_MS}ms")
        run(*("tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root"), *bucket)

    return (lambda: at(f"{round(kbit)}kbit")), (lambda: at(FREE))


def starve(processes: Processes, name: str) -> Act:
    """Return what keeps a process from its processor."""

    def tell(number: signal.Signals) -> None:
        with suppress(LabError):  # it is restarting
            processes.signal(name, number)

    return (lambda: tell(signal.SIGSTOP)), (lambda: tell(signal.SIGCONT))


def pulse(acts: list[Act], *, period_s: float, duty: float, limit_s: float) -> None:
    """Act at each whole period of the clock until the limit; in the end all is well.

    The traffic bursts by the same clock: what queues does so whenever there is something to queue.
    """
    end_s = time.monotonic() + limit_s
    try:
        while time.monotonic() < end_s:
            time.sleep(-time.monotonic() % period_s)
            for begin, _ in acts:
                begin()
            time.sleep(period_s * duty)
            for _, end in acts:
                end()
    finally:
        for _, end in acts:
            end()


def main() -> None:
    """Parse the arguments and pulse."""
    parser = argparse.ArgumentParser(description="Do something bad for a part of each period.")
    parser.add_argument("--lab", required=True, type=Path, metavar="DIR", help="the lab")
    parser.add_argument("--queue", nargs=2, action="append", default=[],
                        metavar=("NAMESPACE", "INTERFACE"))  # fmt: skip
    parser.add_argument("--kbit", type=float, default=1000, help="rate of a queue")
    parser.add_argument("--starve", metavar="PROCESS", help="one of the lab's, as h1/agent")
    parser.add_argument("--period-s", type=float, default=4)
    parser.add_argument("--duty", type=float, default=0.25, help="share of the period")
    parser.add_argument("--limit-s", type=float, default=600, help="stop after this long")
    options = parser.parse_args()
    acts = [queue(where, interface, kbit=options.kbit) for where, interface in options.queue]
    acts += [starve(Processes(options.lab), options.starve)] if options.starve else []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(AT_WORK, flush=True)
    with suppress(KeyboardInterrupt):
        pulse(acts, period_s=options.period_s, duty=options.duty, limit_s=options.limit_s)


if __name__ == "__main__":
    main()
