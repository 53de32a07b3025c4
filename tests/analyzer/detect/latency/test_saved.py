# SPDX-License-Identifier: Apache-2.0
"""A detector that was saved goes on as if nothing had been, whatever its flows' numbers are now."""

from random import Random

import numpy as np
import pytest

from analyzer.detect.contract import Seen
from analyzer.detect.flows import Flows
from analyzer.detect.latency.drift import WIDTH_NS as HALF_HOUR_NS
from analyzer.detect.latency.slowness import MAX_SAVED, Slowness
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.table import joined
from analyzer.intake.windows import WindowState
from netagent.model.ids import FlowId
from netagent.model.window import Window
from tests.analyzer.detect.latency import trips
from tests.analyzer.detect.latency.trips import WIDTH_NS, A, B

NOBODY = frozenset()
FLOWS = [trips.flow(port) for port in range(1, 5)]


class Told:
    """A detector that is given windows in a row."""

    def __init__(self, numbers=None):
        self.numbers, self.slowness = numbers or FlowNumbers(), Slowness()

    def window(self, at_ns, rtts_ns):
        rows = trips.window(self.numbers, rtts_ns, at_ns)
        state = WindowState(Window(at_ns, WIDTH_NS), {"h": rows})
        table = joined(state.window, state.rows, self.numbers)
        self.slowness.learn(Seen(state, table, Flows.of(()), {}, NOBODY, NOBODY, NOBODY))
        return dict(self.slowness.slow)

    def again(self):
        """Return another one that was given what this one knows; None where it says nothing."""
        saved = self.slowness.save(self.numbers)
        if saved is None:
            return None
        other = Told()
        for port in range(100, 107):  # other flows came first: all numbers differ
            other.numbers.number(FlowId(B, A, port))
        flows = other.numbers.restore(saved.flows, seen_ns=saved.until_ns)
        other.slowness.restore(saved, flows)
        return other


def script(seed, windows):
    """Yield windows: some flows slow at once, some in their tails, some creeping."""
    random = Random(seed)
    for window in range(windows):
        slow_us = [15, 60 if window > 40 else 15, 15, 15 + window / 8]
        tails = [0, 0, 90 if window > 60 else 0, 0]
        yield (
            window * WIDTH_NS,
            {
                flow: [
                    1_000 * (random.lognormvariate(0, 0.05) * us + tail * (random.random() < 0.3))
                    for _ in range(6)
                ]
                for flow, us, tail in zip(FLOWS, slow_us, tails, strict=True)
            },
        )


@pytest.mark.parametrize("stop", [12, 42, 78, 90])
def test_a_detector_that_was_saved_goes_on_as_if_nothing_had_been(stop):
    told, other, seen = Told(), None, set()
    for n, (at_ns, rtts_ns) in enumerate(script(1, 110)):
        if n == stop:
            other = told.again()
            assert other is not None
        here = told.window(at_ns, rtts_ns)
        seen |= here.keys()
        if other is not None:
            assert other.window(at_ns, rtts_ns) == here
    assert seen >= {FLOWS[1], FLOWS[2]}


def test_within_a_half_minute_nothing_is_saved():
    told = Told()
    saved = [told.window(*each) is None or told.again() for each in script(2, 12)]
    assert [each is not None for each in saved] == [n % 6 == 5 for n in range(12)]


def test_what_a_path_was_half_an_hour_ago_is_kept():
    random = Random(3)

    def jitter(us):
        return {FLOWS[0]: [1_000 * us * random.lognormvariate(0, 0.05) for _ in range(6)]}

    per, told = HALF_HOUR_NS // WIDTH_NS, Told()
    for n in range(per):
        told.window(n * WIDTH_NS, jitter(15))
    told.window(per * WIDTH_NS, jitter(15))  # the reference is made when the next half hour begins
    for n in range(per + 1, per + 6):
        told.window(n * WIDTH_NS, jitter(15))
    other = told.again()
    kept, known = (
        each.slowness.columns(np.array([each.numbers.known(FLOWS[0])])) for each in (other, told)
    )
    assert kept["drift.reference"][0, 0] == known["drift.reference"][0, 0] >= 6 * per - 6
    assert kept["drift.since_ns"] == known["drift.since_ns"]


def test_what_is_saved_is_bounded():
    numbers = FlowNumbers()
    for n in range(MAX_SAVED + 5):
        numbers.number(FlowId(A, B, n) if n < 1 << 16 else FlowId(B, A, n & 0xFFFF))
    for n in range(10):
        numbers.number(FlowId(A, A, n))
    saved = Slowness().save(numbers)
    assert len(saved.flows) == MAX_SAVED
    assert {len(column) for column in saved.columns.values()} == {MAX_SAVED}
