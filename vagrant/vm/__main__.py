# SPDX-License-Identifier: Apache-2.0
"""Run the VM lab's command line: ``python -m vagrant.vm``."""

import signal
import sys
from types import FrameType

from vagrant.vm.cli import main


def _leave(number: int, _frame: FrameType | None) -> None:
    # An exception, so that every `finally` on the way out ends what it started.
    sys.exit(128 + number)


if __name__ == "__main__":
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _leave)
    sys.exit(main())
