# SPDX-License-Identifier: Apache-2.0

from dataclasses import replace

import numpy as np
import pytest

from analyzer.history import figures
from analyzer.history.figures import FORGET_NS, LE_S, MAX_GROUPS, OTHERS, Figures
from analyzer.intake.flows import FlowNumbers
from analyzer.localize.topology import LearnedTopology
from netagent.wire.histogram import bucket_of
from tests.analyzer.history.tables import ENDPOINTS, NAMES, WIDTH_NS, table_of

START_NS = 1_000_000 * WIDTH_NS


class Seen:
    def __init__(self):
        self.figures, self.numbers = Figures(START_NS), FlowNumbers()
        self.topology = LearnedTopology()

    def window(self, rows, n=0, endpoints=ENDPOINTS):
        _, table = table_of(rows, START_NS + n * WIDTH_NS, self.numbers)
        buckets = [[bucket_of(rtt) for rtt in rtts] for _, _, rtts in rows.values()]
        every = np.array([each for of in buckets for each in of], np.uint16)
        told = {"hist_len": np.array(list(map(len, buckets)), np.uint16), "hist_bucket": every}
        filled = replace(table.rows, **told, hist_count=np.ones(len(every), np.uint32))
        self.figures.saw(replace(table, rows=filled), endpoints, self.topology)

    def told(self):
        return self.figures.told(findings={}, history={})


def test_probes_and_round_trips_add_up_by_task_and_rails():
    seen = Seen()
    seen.window({(0, 1, 1): (9, 1, [15_000, 40_000]), (1, 2, 1): (5, 0, [])})
    seen.window({(0, 1, 1): (4, 6, [3_000_000_000])}, 1)
    told = seen.told()
    [group] = told.groups
    assert (group.task, group.source, group.target) == ("t", "0", "0")
    assert (group.sent, group.lost) == (25, 7)
    at = {LE_S[place]: n for place, n in enumerate(group.buckets[:-1]) if n}
    assert (at, group.buckets[-1]) == ({0.00002: 1, 0.00005: 1}, 1)
    assert group.sum_s == pytest.approx(3.000055, rel=0.011)
    assert (told.windows, told.newest_end_ns) == (2, START_NS + 2 * WIDTH_NS)
    assert group.round_s == 0.5  # ten probes of one flow in five seconds
    assert (told.flows, told.unknown_paths) == (1, 1)  # nothing was traced


def test_what_ended_before_the_start_was_counted_then():
    seen = Seen()
    seen.window({(0, 1, 1): (9, 1, [])}, -1)
    assert (seen.told().groups, seen.told().windows) == ((), 0)


def test_what_comes_late_of_a_window_is_added_and_makes_no_window():
    seen = Seen()
    for port in (1, 2):
        seen.window({(0, 1, port): (3, 0, [])})
    told = seen.told()
    assert (told.windows, told.groups[0].sent, told.flows) == (1, 6, 1)


def test_an_endpoint_of_which_nothing_was_known_counts_for_its_task_once_it_is():
    seen = Seen()
    seen.window({(0, 1, 1): (3, 0, [])}, 0, {})
    assert [(group.task, group.sent) for group in seen.told().groups] == [(OTHERS, 3)]
    seen.window({(0, 1, 1): (2, 0, [])}, 1)
    sent = {group.task: group.sent for group in seen.told().groups}
    assert sent == {OTHERS: 3, "t": 2}


def test_a_task_that_is_declared_later_is_looked_for_again():
    seen = Seen()
    seen.window({(0, 1, 1): (3, 0, [])})
    moved = {name: replace(each, task="u") for name, each in ENDPOINTS.items()}
    again = figures.AGAIN_NS // WIDTH_NS
    for n in (1, again):
        seen.window({(0, 1, 1): (3, 0, [])}, n, moved)
    assert {group.task: group.sent for group in seen.told().groups} == {"t": 6, "u": 3}


def test_groups_are_few_whoever_comes_and_those_that_are_taken_only_grow():
    """Hundreds of tasks, one after the other; afterwards the first one again."""
    seen = Seen()
    count = MAX_GROUPS + 50
    for n in range(count):
        of = {name: replace(each, task=f"t{n}") for name, each in ENDPOINTS.items()}
        seen.numbers = FlowNumbers()  # nothing is remembered of the one before
        seen.window({(0, 1, 1): (1, 0, [])}, n, of)
    groups = seen.told().groups
    assert len(groups) == MAX_GROUPS
    assert {g.task: g.sent for g in groups}[OTHERS] == count - (MAX_GROUPS - 1)
    assert sum(group.sent for group in groups) == count


def test_a_group_that_is_not_probed_any_more_leaves_its_place():
    seen = Seen()
    seen.window({(0, 1, 1): (3, 0, [20_000])})
    seen.window({}, FORGET_NS // WIDTH_NS + 2)
    assert seen.told().groups == ()
    seen.window({(0, 1, 1): (1, 0, [])}, FORGET_NS // WIDTH_NS + 3)
    [group] = seen.told().groups
    assert (group.sent, sum(group.buckets)) == (1, 0)


def test_rails_beyond_the_last_one_that_is_told_apart_are_one():
    far = {replace(name, rail=figures.MAX_RAIL + n + 1): n for n, name in enumerate(NAMES)}
    seen = Seen()
    known = {name: replace(ENDPOINTS[NAMES[n]], id=name) for name, n in far.items()}
    before = NAMES[:]
    try:
        NAMES[:] = list(far)
        seen.window({(0, 1, 1): (3, 1, [])}, 0, known)
    finally:
        NAMES[:] = before
    assert [(g.source, g.target, g.lost) for g in seen.told().groups] == [(OTHERS, OTHERS, 1)]


def test_each_bucket_of_a_summary_lies_below_the_bound_it_is_counted_under():
    values = figures._VALUES_S
    bounds = np.array([*LE_S, np.inf])
    assert (values <= bounds[figures._PLACES]).all()
    assert list(LE_S) == sorted(set(LE_S))
