# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators.iterations import iterations
from analyzer.operators.aggregate import (
    IDLE,
    MOST_LABELS,
    REST,
    aggregate,
    together,
)
from analyzer.operators.log import Kind, log_of
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.job import Job
from tests.analyzer.detect.operators.jobs import SOURCES, logged

STEPS = np.array([0])
OPS = ("fwd", "forward-send", "forward-recv", "sum")


def _log(rows, **rest):
    """Each row: rank, kind, operation, start and end in us, group, peer."""
    names = ("rank", "kind", "op", "started_ns", "ended_ns", "group", "peer")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    for name in ("started_ns", "ended_ns"):
        columns[name] = [1000 * value for value in columns[name]]
    return log_of(columns | {"step": [0] * len(rows)}, ops=OPS, **rest)


def _sum(log):
    return aggregate(log, log.step, STEPS)


def test_own_time_is_what_was_computed_and_what_nothing_was_logged_of():
    made = _sum(_log([
        (0, Kind.COMPUTE, 0, 0, 10, -1, -1),
        (0, Kind.COLLECTIVE, 3, 12, 30, -1, -1),
        (0, Kind.COMPUTE, 0, 25, 32, -1, -1),
        (0, Kind.COLLECTIVE, 3, 40, 41, -1, -1),
    ]))  # fmt: skip
    assert made.labels == ("fwd", IDLE)
    assert made.own_us[0, 0].tolist() == [17.0, 10.0]
    assert made.length_us[0, 0] == 41.0


def test_what_ranks_do_together_is_nobodys_own_whatever_a_source_calls_it():
    rows = [(0, Kind.OTHER, 0, 0, 10, -1, -1), (0, Kind.COMPUTE, 1, 10, 15, -1, -1)]
    log = replace(_log(rows), ops=("optimizer-clip-main-grad", "optimizer"))
    made = _sum(log)
    assert (made.labels, made.own_us[0, 0].tolist()) == (("optimizer", IDLE), [5.0, 0.0])


@pytest.mark.parametrize("source", SOURCES)
def test_parts_together_are_the_whole(source):
    log = logged(
        Job(data=4, stages=2, tensor=2, steps=6), Injected(Fault.NIC, 3, 9.0),
        source=SOURCES[source],
    )  # fmt: skip
    found = iterations(log)
    whole = aggregate(log, found.step, found.steps)
    parts = [
        aggregate(log.take(some), found.step[some], found.steps)
        for some in (log.rank % 3 == n for n in range(3))
    ]
    joined = together(parts)
    assert joined.labels == whole.labels
    assert np.array_equal(joined.ranks, whole.ranks)
    assert np.allclose(joined.own_us, whole.own_us, atol=0.001)
    for name in ("number", "count", "sum_us", "least_us", "sent_us", "ends", "bytes"):
        assert np.allclose(getattr(joined.units, name), getattr(whole.units, name))


def test_parts_of_the_same_rank_or_of_other_steps_do_not_go_together():
    log = logged(Job(data=2, stages=1, steps=5))
    one = aggregate(log, log.step, np.unique(log.step))
    with pytest.raises(ValueError, match="same rank"):
        together([one, one])
    with pytest.raises(ValueError, match="different steps"):
        together([one, aggregate(log, log.step, np.unique(log.step)[:2])])


def test_aggregates_take_a_small_part_of_the_logs_bytes():
    log = logged(Job(data=8, stages=4, steps=20, microbatches=32), source=SOURCES["trace"])
    made = aggregate(log, log.step, np.unique(log.step))
    names = ("rank", "started_ns", "ended_ns", "op", "bytes", "microbatch", "step", "kind")
    assert made.nbytes < 0.05 * sum(getattr(log, name).nbytes for name in names)


def test_a_log_with_too_many_ranks_is_refused():
    log = log_of({"rank": [0]}, world=1 << 22)
    with pytest.raises(ValueError, match="two million"):
        aggregate(log, log.step, STEPS)


def test_of_thousands_of_kernels_those_that_took_most_are_told_apart():
    count = 5000
    log = log_of(
        {"rank": [0] * count, "step": [0] * count, "kind": [Kind.COMPUTE] * count,
         "op": list(range(count)), "started_ns": [0] * count,
         "ended_ns": [1000 * (1 + n) for n in range(count)]},
        ops=tuple(f"kernel{n}" for n in range(count)),
    )  # fmt: skip
    made = _sum(log)
    assert len(made.labels) == MOST_LABELS + 1
    assert made.labels[0] == f"kernel{count - MOST_LABELS + 1}"
    assert made.labels[-2:] == (REST, IDLE)
    assert made.own_us[0, 0].sum() == count * (count + 1) / 2
