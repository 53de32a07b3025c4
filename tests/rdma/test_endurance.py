# SPDX-License-Identifier: Apache-2.0
"""The endurance run for as long as a test may take; `tests.bench.rdma_endurance` is whole."""

import pytest

from tests.bench.rdma_endurance import LIMIT_KB, measure
from tests.conftest import RDMA, require

pytestmark = pytest.mark.rdma

PROBES = 6_000


def test_thousands_of_probes_cost_no_memory_and_leave_nothing_in_the_kernel():
    require(RDMA)
    found = measure(PROBES, warm_up=PROBES)
    print(found)
    assert found["answered"] == PROBES
    growth = found["growth_kb"]
    assert isinstance(growth, dict)
    assert max(growth.values()) < LIMIT_KB
