# SPDX-License-Identifier: Apache-2.0
"""Run the lab's command line: ``.venv/bin/python -m tests.lab``.

Another Python lacks what `make setup` installs, pyroute2 first of all; it gets the right command
instead of a traceback, and exit code 1.
"""

import shlex
import sys
from pathlib import Path

_OURS = {"analyzer", "bpf", "netagent", "ovs_checks", "tests"}
_PYTHON = Path(__file__).parents[2] / ".venv" / "bin" / "python"


def _main() -> int:
    try:
        from tests.lab.cli import main  # noqa: PLC0415 - its imports may be missing
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _OURS:
            raise
        print(f"error: {sys.executable} has no module {missing}", file=sys.stderr)
        print(f"remedy: {_remedy()}", file=sys.stderr)
        return 1
    return main()


def _remedy() -> str:
    setup = "" if _PYTHON.exists() else "run make setup once, then "
    return f"{setup}run {shlex.join(['.venv/bin/python', '-m', 'tests.lab', *sys.argv[1:]])}"


if __name__ == "__main__":
    sys.exit(_main())
