# SPDX-License-Identifier: Apache-2.0
"""A real job over the real overlay that records nothing itself: probes alone tell who is slow."""

import importlib.util
from pathlib import Path

import pytest

from tests.conftest import OVS, ROOT, UPROBES, require
from tests.lab import Lab, operators

pytestmark = [pytest.mark.lab, pytest.mark.again]


def test_probes_alone_name_the_slow_rank_and_nobody_of_a_job_that_is_well(tmp_path: Path) -> None:
    for each in (ROOT, OVS, UPROBES):
        require(each)
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs Debian's python3-torch")
    said: list[str] = []
    faults = ("healthy", "slow-rank", "stopped")
    told = operators.run(Lab(), said.append, faults=faults, output=tmp_path / "operators")
    assert [(each.fault, each.right_alone) for each in told] == [(name, True) for name in faults], [
        each.told_alone for each in told
    ]
    for each in told:
        seen, of = each.probed
        assert seen == of > 0
