# SPDX-License-Identifier: Apache-2.0
"""A lab for each module that asks for one, of the shape that its SHAPE says."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import OVN, OVS, PODMAN, ROOT, require
from tests.lab import Lab, Shape
from tests.lab.demo import SETTLE_S, Observer
from tests.lab.shape import Controller, Runtime, Transport
from tests.lab.unhurried import Unhurried


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    require(ROOT)
    require(OVS)
    shape = getattr(request.module, "SHAPE", Shape())
    if shape.controller is Controller.OVN:
        require(OVN)
    if shape.containers is Runtime.PODMAN:
        require(PODMAN)
    made = Lab()
    try:
        made.up(shape)
        yield made
    finally:  # a lab that came up by half would fail all modules after it
        assert made.down() == []


@pytest.fixture(scope="module")
def observer(lab: Lab) -> Iterator[Observer]:
    """Return who watches its incidents, once it has settled and named nobody.

    A virtual switch without CPU loses packets, truly: an incident that names nobody may be.
    """
    with lab.services().client() as client:
        found = Unhurried(client)

        def named() -> list[dict[str, Any]]:
            return [each for each in found.new() if each["component"] is not None]

        seen = found.wait(named, timeout_s=SETTLE_S[Transport.UDP])
        assert [(each["symptom"], each["summary"], each["evidence"]) for each in seen] == []
        found.remember()
        yield found
