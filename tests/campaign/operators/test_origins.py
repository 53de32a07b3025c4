# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.campaign.operators.origins import KINDS, SOURCES, found, table


@pytest.mark.parametrize("kind", KINDS)
def test_whose_fault_it_is_is_found_in_a_trace(kind):
    some = [found(seed, (kind,), ("trace",)) for seed in (3, 4)]
    assert [each.origin.kind for each in some] == [kind, kind]
    assert all(each.right and not each.extra for each in some)
    assert "right    2/2" in next(table(some))


def test_of_a_pipelines_collectives_alone_nobody_is_named_wrongly():
    some = [found(seed, ("worker",), ("collectives",)) for seed in (3, 4, 5)]
    assert not any(each.extra for each in some)
    assert set(SOURCES) > {"collectives"}
