# SPDX-License-Identifier: Apache-2.0
from random import Random

import pytest

from analyzer.detect.contract import Seen
from analyzer.detect.flows import Flows, FlowView
from analyzer.detect.latency.slowness import Slowness
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.table import joined
from analyzer.intake.windows import WindowState
from netagent.model.ids import FlowId
from netagent.model.window import Window
from tests.analyzer.detect.latency import trips
from tests.analyzer.detect.latency.trips import WIDTH_NS, A, B
from tests.analyzer.detect.seen import nothing

NOBODY = frozenset()
FLOW = trips.flow()


class Told:
    """A detector that is given windows in a row."""

    def __init__(self):
        self.numbers, self.slowness, self.at_ns = FlowNumbers(), Slowness(), 0

    def window(self, rtts_ns):
        rows = trips.window(self.numbers, {FLOW: rtts_ns}, self.at_ns)
        state = WindowState(Window(self.at_ns, WIDTH_NS), {"h": rows})
        seen = Seen(
            state,
            joined(state.window, state.rows, self.numbers),
            Flows.of(()),
            {},
            NOBODY,
            NOBODY,
            NOBODY,
        )
        self.at_ns += WIDTH_NS
        with pytest.raises(StopIteration) as done:
            next(self.slowness.detect(seen))
        return [str(each.subject[0]) for each in done.value.value]


def jitter(random, us, count=4):
    return [1_000 * random.lognormvariate(0, 0.05) * us for _ in range(count)]


def test_a_queue_that_stands_a_quarter_of_the_time_is_seen_by_two_half_minutes_in_a_row():
    random, told = Random(3), Told()

    def window(late):
        rtts_ns = jitter(random, 15, 6)
        return [each + 60_000 * (late and n % 3 == 1) for n, each in enumerate(rtts_ns)]

    assert not any(told.window(window(False)) for _ in range(72))
    for _ in range(12):
        told.window(window(True))
    ((before_ns, now_ns),) = told.slowness._odd.values()
    assert before_ns == pytest.approx(15_000, rel=0.1)
    assert now_ns > 1.3 * before_ns
    # What half minutes say holds until the next one is over, whatever a window shows.
    assert told.window([15_000] * 6) == ["a/rail0"]
    assert not any([told.window(window(False)) for _ in range(11)][5:])


@pytest.mark.parametrize(("well", "lasts"), [(0, True), (1, True), (2, False), (3, False)])
def test_half_a_minute_that_ends_well_tells_nothing(well, lasts):
    """A link that was slow for most of it had been mended, and was named again."""
    random, told = Random(6), Told()
    for us in [15] * 72 + [82] * (12 - well) + [15] * well:
        told.window(jitter(random, us))
    assert bool(told.slowness._odd) is lasts


def test_the_published_case_of_13_to_82_microseconds_alarms_by_the_second_half_minute():
    """SkeletonHunter, Figure 18: from second 86 on, the median is 82 us instead of 13."""
    random, told = Random(1), Told()
    assert not any(told.window(jitter(random, 13)) for _ in range(17))
    seen = [bool(told.window(jitter(random, 82))) for _ in range(12)]
    assert any(seen[:3])


@pytest.mark.parametrize("many", [1, 2])
def test_one_spike_is_none(many):
    random, told = Random(2), Told()
    assert not any(told.window(jitter(random, 15)) for _ in range(66))
    assert not told.window([*jitter(random, 15, 4 - many), *jitter(random, 400, many)])
    assert not any(told.window(jitter(random, 15)) for _ in range(30))


def test_ten_microseconds_more_are_seen_within_a_minute():
    random, told = Random(4), Told()
    assert not any(told.window(jitter(random, 15)) for _ in range(66))
    assert any(told.window(jitter(random, 25)) for _ in range(12))


def test_where_nothing_comes_nothing_is_said():
    random, told = Random(5), Told()
    for _ in range(30):
        told.window(jitter(random, 15))
    assert told.window([]) == []


@pytest.mark.parametrize(("there", "probed", "over"), [
    ((A, B), (), False), ((A, B), ((B, A),), True), ((A,), (), True),
])  # fmt: skip
def test_slowness_is_over_when_its_pairs_were_probed_and_are_not_slow(there, probed, over):
    nobody = frozenset()
    flows = Flows.of(FlowView(FlowId(*pair, 1), 5, 0, 0, 0, 0, 0, 0) for pair in probed)
    state = WindowState(Window(0, 5))
    seen = Seen(state, nothing(state)[0], flows, dict.fromkeys(there), nobody, nobody, nobody)
    assert Slowness().over([(A, B)], seen) is over
