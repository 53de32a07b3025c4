# SPDX-License-Identifier: Apache-2.0
"""Take an interface down and up again and again, for a bounded time.

Run by the lab as a background process: ``python -m tests.lab.flapper --help``.
"""

import argparse
import time

from tests.lab.namespaces import set_link
from tests.lab.processes import AT_WORK


def main() -> None:
    """Flap until the limit, then leave the interface up."""
    parser = argparse.ArgumentParser(description="Take an interface down and up periodically.")
    parser.add_argument("--lab", required=True, metavar="DIR", help="the lab this belongs to")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--interface", required=True)
    parser.add_argument("--period-s", type=float, default=2, help="down for half of it")
    parser.add_argument("--limit-s", type=float, default=600, help="stop after this long")
    options = parser.parse_args()
    end = time.monotonic() + options.limit_s
    print(AT_WORK, flush=True)
    while time.monotonic() < end:
        for state in ("down", "up"):
            set_link(options.namespace, options.interface, state)
            time.sleep(options.period_s / 2)


if __name__ == "__main__":
    main()
