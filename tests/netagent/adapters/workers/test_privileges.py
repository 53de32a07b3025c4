# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

from netagent.adapters.workers.privileges import DAC_OVERRIDE, DAC_READ_SEARCH
from tests.conftest import ROOT, require

_NET_ADMIN = 12
_SHOWN = "print(open('/proc/self/status').read(), flush=True)"


def capabilities(program: str) -> list[dict[str, str]]:
    """Return each status that a Python program printed."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    statuses = done.stdout.strip().split("Name:")[1:]
    return [dict(line.split(":\t", 1) for line in each.splitlines()[1:] if ":\t" in line)
            for each in statuses]  # fmt: skip


@pytest.mark.parametrize("kept", [[], [DAC_READ_SEARCH], [DAC_OVERRIDE, _NET_ADMIN], [39]])
def test_what_is_given_up_is_gone_also_for_programs_that_it_starts(kept):
    require(ROOT)
    mask = sum(1 << number for number in kept)
    had, own, started = capabilities(
        "import subprocess, sys\n"
        "from netagent.adapters.workers.privileges import keep_only\n"
        f"{_SHOWN}\n"
        f"keep_only({kept})\n"
        f"{_SHOWN}\n"
        f'subprocess.run([sys.executable, "-c", {_SHOWN!r}], check=True)\n'
    )
    for which in ("CapPrm", "CapEff"):
        assert int(had[which], 16) & ~mask, "nothing is there to be given up"
        wanted = int(had[which], 16) & mask
        assert int(own[which], 16) == int(started[which], 16) == wanted
    assert own["NoNewPrivs"] == started["NoNewPrivs"] == "1"
