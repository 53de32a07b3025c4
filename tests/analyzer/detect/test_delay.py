# SPDX-License-Identifier: Apache-2.0
from collections import defaultdict
from dataclasses import replace
from random import Random
from statistics import mean, median_low

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.contract import Seen
from analyzer.detect.delay import LEAST_COUNT, LEAST_OTHERS, STARVED_NS, Delay, delays_of
from analyzer.detect.flows import Flows, FlowView
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.table import joined
from analyzer.intake.windows import WindowState
from netagent.collect.windows import WindowTally
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind
from netagent.model.window import Window
from netagent.probing.session import ProbeMeasured
from netagent.wire.messages import Health
from tests.analyzer.detect.seen import nothing

HOSTS = ("h0", "h1", "h2", "h3")
ENDS = {
    host: Endpoint(
        EndpointId(f"c-{host}", 0), "t", host, "10.0.0.1", "", "172.16.0.1", "r", "b", "p"
    )
    for host in HOSTS
}
KNOWN = {end.id: end for end in ENDS.values()}
WIDTH_NS = 5_000_000_000
HOST = Component(Kind.HOST, "h1")


def window(numbers, late=(), *, count=20, lies=(), late_ns=STARVED_NS):
    """Return rows by host; hosts in `late` take `late_ns`, and `lies` say that of all others."""
    made = {}
    for host in HOSTS:
        tally = WindowTally(large_class=0)
        for other in HOSTS:
            for seq in range(count if other != host else 0):
                own = late_ns if host in late else 2_000
                far = late_ns if other in late or host in lies else 3_000
                flow = FlowId(ENDS[host].id, ENDS[other].id, 1)
                tally.add(ProbeMeasured(flow, seq, 14_000, own, far))
        summary = tally.close(
            Window(0, WIDTH_NS), host=host, instance="i", findings=(), health=Health()
        )
        made[host] = numbers.decode(summary)
    return made


def seen(numbers, rows, flows=()):
    nobody = frozenset()
    state = WindowState(Window(0, WIDTH_NS), rows)
    return Seen(
        state, joined(state.window, rows, numbers), Flows.of(flows), KNOWN, nobody, nobody, nobody
    )


def delays(numbers, rows):
    return late(joined(Window(0, WIDTH_NS), rows, numbers))


def late(table, least_ns=0.0):
    owners = table.owners(lambda key: KNOWN[key].host if key in KNOWN else None)
    return delays_of(table, owners, least_ns)


def detect(delay, what):
    with pytest.raises(StopIteration) as done:
        next(delay.detect(what))
    return [each.subject for each in done.value.value]


def judged(*windows):
    """Return the detector, and what it said of each of these windows."""
    numbers, delay = FlowNumbers(), Delay()
    return delay, [detect(delay, seen(numbers, window(numbers, **each))) for each in windows]


def test_a_late_host_is_told_the_second_time_and_starved_at_once():
    delay, told = judged({"late": ("h1",)})
    assert (told, list(delay.starved)) == ([[]], ["h1"])
    delay, told = judged({"late": ("h1",)}, {"late": ("h1",)}, {})
    assert told == [[], [HOST], []]
    assert not delay.starved


@pytest.mark.parametrize(("late_ns", "lost", "proves_nothing"), [
    (8_000_000, 5, True),  # it began as the window ended
    (8_000_000, 10, False), (8_000_000, 100, False), (1_000_000, 0, False),
    (STARVED_NS, 100, True),
])  # fmt: skip
def test_losses_that_lateness_explains_prove_nothing(late_ns, lost, proves_nothing):
    numbers, delay = FlowNumbers(), Delay()
    flows = tuple(
        FlowView(FlowId(ENDS[a].id, ENDS[b].id, 1), 50, lost // 2, 0, 0, 0, 0, 0)
        for a, b in (("h1", "h2"), ("h3", "h1"))
    )
    detect(delay, seen(numbers, window(numbers, ("h1",), late_ns=late_ns), flows))
    assert ("h1" in delay.starved) is proves_nothing
    assert not {"h0", "h2", "h3"} & delay.starved.keys()


def test_one_host_alone_accuses_no_other():
    delay, told = judged({"lies": ("h3",)}, {"lies": ("h3",)})
    assert (told, list(delay.starved)) == ([[], []], [])


def test_what_most_hosts_share_is_nobody_s_own():
    delay, told = judged(*[{"late": HOSTS[:3]}] * 3)
    assert told == [[], [], []]
    assert list(delay.starved) == list(HOSTS[:3])  # yet what they lose proves nothing


def test_few_round_trips_say_nothing():
    numbers = FlowNumbers()
    assert delays(numbers, window(numbers, HOSTS, count=LEAST_COUNT // 4)) == {}


def test_it_is_over_when_the_host_was_measured_and_is_in_time():
    numbers, delay = FlowNumbers(), Delay()
    for late, over in ((("h1",), False), ((), True)):
        what = seen(numbers, window(numbers, late))
        detect(delay, what)
        assert delay.over([HOST], what) is over
    what = seen(numbers, {})
    detect(delay, what)
    assert not delay.over([HOST], what)
    gone = Seen(what.state, *nothing(what.state), {}, frozenset(), frozenset(), frozenset())
    assert delay.over([HOST], gone)


def test_of_two_that_measured_a_host_one_alone_does_not_accuse_it():
    numbers = FlowNumbers()
    rows = {
        host: each for host, each in window(numbers, lies=("h3",)).items() if host in ("h1", "h3")
    }
    late = delays(numbers, rows)
    assert max(late[host] for host in ("h0", "h2")) < STARVED_NS


def test_of_a_job_on_two_hosts_each_speaks_for_itself():
    numbers = FlowNumbers()
    rows = {
        host: each for host, each in window(numbers, lies=("h3",)).items() if host in ("h1", "h3")
    }
    every = joined(Window(0, WIDTH_NS), rows, numbers)
    pair = np.isin(every.ends, [numbers.end(ENDS[host].id) for host in ("h1", "h3")])
    assert max(late(every.only(pair.all(axis=0))).values()) < STARVED_NS


def naive(rows, numbers):
    """Return what `delays_of` does, row by row."""
    own, others = defaultdict(list), defaultdict(lambda: defaultdict(list))
    for host, each in rows.items():
        for n, number in enumerate(each.flow.tolist()):
            times = int(each.count[n])
            own[host] += [int(each.prober_ns[n])] * times
            if (end := KNOWN.get(numbers.flow(number).target)) is not None:
                others[end.host][host] += [int(each.responder_ns[n])] * times
    made = {host: mean(late) for host, late in own.items() if len(late) >= LEAST_COUNT}
    for host, by_whom in others.items():
        told = [
            mean(late)
            for whom, late in by_whom.items()
            if whom in made and len(late) >= LEAST_COUNT
        ]
        if len(told) >= LEAST_OTHERS:
            made[host] = max(made.get(host, 0.0), median_low(told))
    return made


@given(st.integers(0, 2**32))
def test_hosts_are_as_late_as_a_loop_over_their_rows_says(seed):
    numbers, random = FlowNumbers(), Random(seed)
    rows = {}
    for host, each in window(numbers, ()).items():
        size = len(each.flow)
        columns = {
            "count": np.array([random.choice((0, 5, 9, 12, 20)) for _ in range(size)], np.uint32),
            "prober_ns": np.array([random.randrange(10**7) for _ in range(size)], np.uint32),
            "responder_ns": np.array([random.randrange(10**8) for _ in range(size)], np.uint32),
        }
        rows[host] = replace(each, **columns)
    expected = naive(rows, numbers)
    assert delays(numbers, rows) == pytest.approx(expected)
    least_ns = random.choice([0.0, *expected.values()])
    found = late(joined(Window(0, WIDTH_NS), rows, numbers), least_ns)
    assert found.keys() <= expected.keys()
    for host, ns in expected.items():
        assert ns < least_ns or found[host] == pytest.approx(ns)
