# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from analyzer.picture.scene import Ends, Scene
from analyzer.picture.sums import mean_ns, quantiles, summed
from tests.analyzer.picture import scenes
from tests.analyzer.picture.scenes import PORTS, Flow, flows, known, quantile, scene_of

SHARES = (0.5, 0.95, 0.99)


def test_sums_are_by_place():
    place, columns = np.array([2, 0, 2]), np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0]])
    assert summed(place, columns, 4).tolist() == [[2, 0, 4, 0], [1, 0, 1, 0]]


def test_of_nothing_there_is_no_mean():
    assert mean_ns(0, 0) is None
    assert mean_ns(2, 2 * np.log(1_000)) == 1_000


@given(flows)
def test_quantiles_are_those_of_all_round_trips_within_a_percent(window):
    scene = scene_of(window)
    mask = np.ones(len(window), np.bool_)
    place = np.array([f.source % 3 for f in window], np.int64)
    for share, found in zip(SHARES, quantiles(scene, mask, place, 3, SHARES), strict=True):
        for n, ns in enumerate(found):
            trips = [t for f in window if f.source % 3 == n for t in f.trips]
            expected = quantile(trips, share)
            assert ns is expected is None or ns == pytest.approx(expected, rel=0.011)


def test_of_who_says_not_how_round_trips_are_spread_no_quantile_is_known():
    whole = scene_of([Flow(0, 2, PORTS[0], 0, (1_000, 9_000), (None, None))])
    nothing, few = np.zeros(0, np.uint16), np.zeros(1, np.uint16)
    for lengths in (nothing, few):
        rows = replace(whole.table.rows, hist_len=lengths, hist_bucket=nothing, hist_count=nothing)
        table = replace(whole.table, rows=rows)
        scene = Scene(table, Ends(known(), table.numbers), whole.topology)
        every = np.ones(1, np.bool_), np.zeros(1, np.int64)
        assert quantiles(scene, *every, 1, (0.5,)) == [[None]]


def test_where_half_of_the_round_trips_are_not_spread_none_is_told():
    window = [
        Flow(0, 2, PORTS[0], 0, (1_000,), (None, None)),
        Flow(0, 2, PORTS[1], 0, (9_000,), (None, None)),
    ]
    table = scenes.scene_of(window).table
    rows = replace(
        table.rows, hist_len=np.array([1, 0], np.uint16),
        hist_bucket=table.rows.hist_bucket[:1], hist_count=table.rows.hist_count[:1],
    )  # fmt: skip
    scene = scene_of(window)
    scene = Scene(replace(scene.table, rows=rows), scene.known, scene.topology)
    found = quantiles(scene, np.ones(2, np.bool_), np.zeros(2, np.int64), 1, (0.5,))
    assert found == [[None]]
