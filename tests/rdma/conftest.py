# SPDX-License-Identifier: Apache-2.0
"""What the tests of RDMA share."""

from collections.abc import Iterator

import pytest

from tests.conftest import RDMA, require
from tests.rdma.pair import Side, cabled


@pytest.fixture
def unshared() -> Iterator[tuple[Side, Side]]:
    """Make a cable for one test, which can count what is left: nobody else opens the devices."""
    require(RDMA)
    with cabled(4) as made:
        yield made
