# SPDX-License-Identifier: Apache-2.0
from collections import Counter

import pytest

from analyzer.simulate.operators.schedule import Pass, before, order

SIZES = [(1, 4, 1), (4, 8, 1), (4, 2, 1), (4, 8, 2), (2, 4, 3)]


def test_a_stage_is_ahead_by_the_stages_after_it():
    told = "".join("F" if each.forward else "B" for each in order(1, 4, 6))
    assert told == "FFFBFBFBFBBB"
    assert "".join("FB"[not each.forward] for each in order(3, 4, 3)) == "FBFBFB"


@pytest.mark.parametrize(("stages", "microbatches", "chunks"), SIZES)
def test_every_pass_is_made_once_and_forward_first(stages, microbatches, chunks):
    for stage in range(stages):
        own = list(order(stage, stages, microbatches, chunks))
        assert set(Counter(own).values()) == {1}
        assert len(own) == 2 * microbatches * chunks
        for each in own:
            if not each.forward:
                assert own.index(each) > own.index(each._replace(forward=True))


@pytest.mark.parametrize(("stages", "microbatches", "chunks"), SIZES)
def test_no_schedule_waits_for_itself(stages, microbatches, chunks):
    queues = [list(order(stage, stages, microbatches, chunks)) for stage in range(stages)]
    done: set[tuple[int, Pass]] = set()
    while any(queues):
        ready = [
            stage for stage, queue in enumerate(queues)
            if queue and before(queue[0], stage, stages, chunks) in {None, *done}
        ]  # fmt: skip
        assert ready
        for stage in ready:
            done.add((stage, queues[stage].pop(0)))


def test_a_pass_needs_the_stage_before_it_or_the_chunk_before_that():
    assert before(Pass(True, 0, 0), 0, 4, 2) is None
    assert before(Pass(True, 0, 1), 0, 4, 2) == (3, Pass(True, 0, 0))
    assert before(Pass(False, 0, 0), 3, 4, 2) == (0, Pass(False, 0, 1))
    assert before(Pass(False, 5, 0), 1, 4, 1) == (2, Pass(False, 5, 0))
