# SPDX-License-Identifier: Apache-2.0
"""``python -m netagent``."""

import sys

from netagent.cli import main

if __name__ == "__main__":
    sys.exit(main())
