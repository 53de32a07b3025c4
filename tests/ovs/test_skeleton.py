# SPDX-License-Identifier: Apache-2.0
"""A real training job on the lab's overlay: its skeleton, a fault on it, another shape."""

import pytest

from tests.conftest import OVS, ROOT, require
from tests.lab import Lab, learning
from tests.lab.demo import PATIENT_S
from tests.lab.unhurried import Unhurried

pytestmark = [pytest.mark.lab, pytest.mark.again]
LOST_PERCENT = 20
"""Agents without CPU probe less: of a few in a hundred, nothing would be seen for minutes."""


def test_a_real_job_is_learned_probed_along_and_its_change_of_shape_noticed():
    require(ROOT)
    require(OVS)
    pytest.importorskip("torch", reason="needs Debian's python3-torch")
    lab = Lab()
    said: list[str] = []
    report = learning.run(
        lab, said.append, watching=Unhurried, later_s=PATIENT_S, percent=LOST_PERCENT
    )
    assert report.good, "\n".join([*said, *report.lines()])
    assert lab.leftovers() == []
