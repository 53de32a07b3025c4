# SPDX-License-Identifier: Apache-2.0
"""Run the lab's command line: ``python -m tests.lab``."""

import sys

from tests.lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
