# SPDX-License-Identifier: Apache-2.0
import pytest

from netagent.model.task import Parallelism


@pytest.mark.parametrize(
    ("parallelism", "ranks", "text"),
    [
        (Parallelism(8, 8, 8), 512, "DP8 PP8 TP8"),
        (Parallelism(2), 16, "DP2 PP1 TP8"),
        (Parallelism(2, 1, 1, 4), 8, "DP2 PP1 TP1 EP4"),
    ],
)
def test_a_job_takes_as_many_ranks_as_its_degrees_make(parallelism, ranks, text):
    assert (parallelism.ranks, str(parallelism)) == (ranks, text)
