# SPDX-License-Identifier: Apache-2.0
"""`python -m netagent_torch SCRIPT ARG...`, or `-m MODULE ARG...`: a job, recorded.

The job itself needs no change. Exit statuses are the job's own; 2 without a job.
"""

import runpy
import sys
from pathlib import Path

from netagent_torch import start


def main() -> None:
    """Run what is named after beginning to record."""
    given = sys.argv[1:]
    is_module = given[:1] == ["-m"]
    given = given[is_module:]
    if not given:
        print(__doc__, file=sys.stderr)  # noqa: T201 - whoever forgot the job reads it
        sys.exit(2)
    start()
    sys.argv = given
    if is_module:
        runpy.run_module(given[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(given[0]).resolve().parent)  # as Python itself does
        runpy.run_path(given[0], run_name="__main__")


if __name__ == "__main__":
    main()
