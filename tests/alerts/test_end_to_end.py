# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus on a small lab: one fault, its alert at a receiver, and its end."""

import pytest

from tests.conftest import OVS, PROMETHEUS, require
from tests.lab import Lab, alerting
from tests.lab.shape import Shape

pytestmark = pytest.mark.prometheus


def test_a_fault_is_alerted_of_and_resolved_and_health_is_quiet():
    require(OVS)
    require(PROMETHEUS)
    said = []
    shape = Shape(hosts=2, rails=1, segments=2, spines=2)
    report = alerting.run(Lab(), said.append, faults=["rnic-down"], healthy_s=10, shape=shape)
    assert report.good, report.lines()
    [fault] = report.faults
    assert fault.severity == "critical"
    assert report.series > 100
