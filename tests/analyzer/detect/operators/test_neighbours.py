# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators.neighbours import with_peers
from analyzer.operators.log import Kind
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import Source
from tests.analyzer.detect.operators.jobs import NAMELESS, logged


@pytest.mark.parametrize("job", [Job(data=2, stages=4, steps=5), Job(data=2, chunks=2, steps=5)])
def test_peers_that_a_log_leaves_out_are_those_that_it_had(job):
    log = logged(job, source=Source(cells=True))
    bare = replace(log, peer=np.full_like(log.peer, -1))
    assert np.array_equal(with_peers(bare).peer, log.peer)


def test_a_log_that_names_peers_or_no_places_stays_as_it_is():
    log = logged(Job(steps=5))
    assert with_peers(log) is log
    nameless = logged(Job(steps=5), source=NAMELESS)
    assert with_peers(nameless) is nameless


def test_what_has_no_direction_has_no_peer():
    log = logged(Job(steps=5), source=Source(cells=True))
    plain = replace(log, ops=("x",) * len(log.ops), peer=np.full_like(log.peer, -1))
    moves = (plain.kind == Kind.SEND) | (plain.kind == Kind.RECV)
    assert (with_peers(plain).peer[moves] == -1).all()
