# SPDX-License-Identifier: Apache-2.0
"""What the tests of the VM lab share."""

from pathlib import Path

import pytest

from tests.conftest import VM, require
from vagrant.vm import Image, distribution, ensure


@pytest.fixture
def image() -> Image:
    """Return an image that exists in words only."""
    return Image("debian-12", Path("/cache/debian-12-abc"), "6.1.0-1-amd64", False, 0.0, 60.0)


@pytest.fixture(scope="session")
def debian_12() -> Image:
    """Return the image of Debian 12, built if need be."""
    require(VM)
    return ensure(distribution("debian-12"), print)
