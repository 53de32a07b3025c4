# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.lab import demo
from tests.lab.catalogue import CATALOGUE
from tests.lab.shape import Transport

LINK = ("underlay", "link leaf-s0-r0 -- spine-0")


def found(fault: str, localized_s: float) -> demo.Found:
    return demo.Found(fault, LINK, (*LINK, 0.9), localized_s - 1, localized_s, recovered_s=9.0)


@pytest.mark.parametrize("transport", Transport)
def test_the_demo_of_each_transport_breaks_what_that_transport_has(transport: Transport) -> None:
    specs = [CATALOGUE[name] for name in demo.FAULTS[transport]]
    assert transport is Transport.RDMA or not any(spec.rdma for spec in specs)
    assert demo.OUTPUT[transport].startswith("build/")


def test_latency_has_more_time_to_be_found_than_loss() -> None:
    assert found("link-loss", 10.0).right
    assert not found("link-loss", 10.1).right
    assert found("link-delay", 20.0).right
    assert not found("link-delay", 20.1).right


def test_the_table_marks_what_was_found_too_late() -> None:
    lines = demo.table([found("link-loss", 9.0), found("link-delay", 21.0)])
    assert [line.endswith(" ok") for line in lines if "verdict" in line] == [True, False]
    assert max(map(len, lines)) <= 80
