# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from netagent.probing.paths import (
    ANSWER_NS,
    EXPLORE_EVERY,
    PLACED,
    HopCount,
    OuterFlow,
    PathTracer,
)

SECOND = 1_000_000_000
FLOW = OuterFlow("172.30.0.10", "172.30.0.12", 51000)
PATH = ("leaf-0", "spine-1", "leaf-1")


def tracer(rate=1000.0, refresh_ns=SECOND):
    return PathTracer(packets_per_s=rate, refresh_ns=refresh_ns, max_hops=6, now_ns=0)


def answer(paths, probes, route=PATH):
    for probe in probes:
        if probe.ttl <= len(route) and route[probe.ttl - 1]:
            paths.answered(probe.ident, route[probe.ttl - 1])


def trace_once(paths, now_ns, route=PATH):
    probes = paths.due(now_ns=now_ns)
    answer(paths, probes, route)
    paths.due(now_ns=now_ns + ANSWER_NS)
    return probes


def test_routers_are_told_nearest_first():
    paths = tracer()
    paths.follow({FLOW})
    assert paths.hops(FLOW) is None
    assert [p.ttl for p in trace_once(paths, 0)] == [1, 2, 3, 4, 5, 6]
    assert paths.hops(FLOW) == PATH


def test_a_silent_router_is_a_gap():
    paths = tracer()
    paths.follow({FLOW})
    trace_once(paths, 0, ("leaf-0", "", "leaf-1"))
    assert paths.hops(FLOW) == ("leaf-0", "", "leaf-1")


def test_a_known_path_costs_one_packet_beyond_it_and_now_and_then_is_explored():
    paths = tracer()
    paths.follow({FLOW})
    lengths = [len(trace_once(paths, n * 2 * SECOND)) for n in range(EXPLORE_EVERY + 2)]
    assert lengths[0] == 6
    assert set(lengths[1:]) == {4, 6}


def test_a_path_that_changed_is_seen_at_the_next_trace():
    paths = tracer()
    paths.follow({FLOW})
    trace_once(paths, 0)
    trace_once(paths, 2 * SECOND, ("leaf-0", "spine-0", "leaf-1"))
    assert paths.hops(FLOW) == ("leaf-0", "spine-0", "leaf-1")


def test_nothing_is_kept_of_packets_that_nobody_answers():
    """The target never does: one of each trace."""
    paths = tracer()
    other = OuterFlow("172.30.0.10", "172.30.0.13", 51000)
    paths.follow({FLOW, other})
    for n in range(50):
        trace_once(paths, n * 2 * SECOND)
    assert paths._idents == {}
    paths.due(now_ns=200 * SECOND)
    assert len(paths._idents) > 4
    paths.follow({FLOW})
    assert {flow for flow, _, _ in paths._idents.values()} == {FLOW}


def test_answers_to_an_older_trace_count_for_nothing():
    paths = tracer()
    paths.follow({FLOW})
    old = paths.due(now_ns=0)
    paths.due(now_ns=ANSWER_NS)
    paths.due(now_ns=2 * SECOND)
    answer(paths, old)
    paths.due(now_ns=2 * SECOND + ANSWER_NS)
    assert paths.hops(FLOW) == ()


def test_a_flow_no_longer_followed_is_forgotten():
    paths = tracer()
    paths.follow({FLOW})
    probes = paths.due(now_ns=0)
    paths.follow(set())
    answer(paths, probes)
    assert paths.due(now_ns=SECOND) == []
    assert paths.hops(FLOW) is None


@given(st.integers(1, 60), st.integers(10, 200))
def test_packets_never_exceed_the_rate(flows, rate):
    paths = tracer(rate=float(rate), refresh_ns=0)
    paths.follow({OuterFlow("a", "b", port) for port in range(flows)})
    sent = sum(len(paths.due(now_ns=n * SECOND // 20)) for n in range(100))
    assert sent <= max(rate / 4, 6) + rate * 5
    assert sent > 0


def test_a_count_tells_how_many_reached_each_router_and_how_late_they_answered():
    count = HopCount(FLOW, hops=2, count=3)
    probes = count.take(range(1, 5)) + count.take(range(5, 9))
    assert [p.ttl for p in probes] == [1, 2, 1, 2, 1, 2]
    for n, probe in enumerate(probes):  # a burst: each waits for those before it
        count.sent(probe, wall_ns=n * 1000)
    for n, probe in enumerate(probes[1:], start=1):
        count.answered(probe.ident, PATH[probe.ttl - 1], wall_ns=n * 1000 + probe.ttl * 100)
    assert not count.finished(wall_ns=6000)
    assert count.finished(wall_ns=6000 + ANSWER_NS)
    # Nobody answered the first packet, but farther routers answered three.
    assert count.totals() == (3, (3, 3), (100, 200))
    assert count.routers == PATH[:2]


def test_a_router_without_a_route_answers_packets_that_were_to_go_farther():
    """Not all of them: it polices such answers."""
    count = HopCount(FLOW, hops=3, count=2)
    probes = count.take(range(1, 7))
    for n, probe in enumerate(probes):
        count.sent(probe, wall_ns=n * 1000)
        router = PATH[min(probe.ttl, 2) - 1]
        if n != 4:
            count.answered(probe.ident, router, wall_ns=n * 1000 + probe.ttl * 100)
    assert count.totals() == (2, (2, 2, 0), (100, 200, 0))
    assert count.routers == ("leaf-0", "spine-1", "spine-1")


@given(
    st.lists(
        st.lists(st.none() | st.integers(1, 3), min_size=3, max_size=3), min_size=1, max_size=6
    )
)
def test_no_router_is_reached_by_more_than_were_sent_nor_by_more_than_one_before_it(rounds):
    """Each packet ends at some router at most as far as it was to go, or is lost."""
    count = HopCount(FLOW, hops=3, count=len(rounds))
    ended = Counter()
    """Packets by the router that answered, and by how far they were to go."""
    for n, probe in enumerate(count.take(range(1, 3 * len(rounds) + 1))):
        count.sent(probe, wall_ns=n)
        end = rounds[n // 3][probe.ttl - 1]
        if end is not None:
            at = min(end, probe.ttl)
            count.answered(probe.ident, PATH[at - 1], wall_ns=n + 1)
            ended[at, probe.ttl] += 1
    sent, reached, _ = count.totals()
    assert sent == len(rounds)
    assert len(rounds) >= reached[0] >= reached[1] >= reached[2] >= 0
    if all(ended[at, at] >= ended[at, ttl] * PLACED for at, ttl in list(ended)):
        assert (reached[2] > 0) == (ended[3, 3] > 0)


def convicted(dead, silent, strays):
    """Return before which router packets vanish, and who is where, as a count of 100 tells it.

    Behind `dead` routers there is a dead link, of which the last one says that it knows no route,
    or nobody says anything. `strays` are packets of a TTL that another router answered.
    """
    count = HopCount(FLOW, hops=3, count=100)
    for n, probe in enumerate(count.take(range(1, 301))):
        count.sent(probe, wall_ns=n)
        end = dead if probe.ttl > dead and not silent else probe.ttl
        router = strays.get((probe.ttl, n // 3), end if end <= dead else 0)
        if router:
            count.answered(probe.ident, PATH[router - 1], wall_ns=n + 1)
    sent, reached, _ = count.totals()
    steps = zip((sent, *reached), reached, strict=False)
    losing = [n for n, (before, here) in enumerate(steps) if here < before / 2]
    return losing[:1], count.routers[:dead]


@given(
    st.integers(0, 3),
    st.booleans(),
    st.dictionaries(
        st.tuples(st.integers(1, 3), st.integers(0, 99)), st.integers(1, 3), max_size=4
    ),
)
@example(3, True, {(1, 40): 2})
@example(3, True, {(1, 99): 2})
@example(1, False, {(1, 40): 2, (2, 41): 3})
def test_stray_answers_do_not_change_who_is_convicted(dead, silent, strays):
    """A route changes while packets are counted, or they loop for a moment."""
    assert convicted(dead, silent, strays) == convicted(dead, silent, {})


def test_a_clock_that_goes_back_keeps_no_count_open():
    count = HopCount(FLOW, hops=1, count=1)
    (probe,) = count.take([1])
    count.sent(probe, wall_ns=1000 * ANSWER_NS)
    assert not count.finished(wall_ns=1000 * ANSWER_NS)
    assert count.finished(wall_ns=500 * ANSWER_NS)
