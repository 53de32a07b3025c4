# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from netagent.model.ids import EndpointId
from netagent.model.window import Window
from netagent.probing.roaming import EXTRA_PORTS, SLACK_NS, Turns, ports_of

S, MS = 1_000_000_000, 1_000_000


def target(number):
    return EndpointId(f"t{number}", number % 8)


@given(st.integers(0, 10_000), st.integers(1, 64), st.booleans())
def test_a_pair_has_as_many_ports_as_flows_always_the_same_and_the_last_may_roam(n, flows, roams):
    ports = flows + EXTRA_PORTS
    drawn = ports_of(target(n), ports=ports, flows=flows, roams=roams)
    assert drawn == ports_of(target(n), ports=ports, flows=flows, roams=roams)
    assert len(drawn) == len(set(drawn)) == flows
    assert set(drawn) <= set(range(ports))
    assert (drawn[-1] == ports - 1) or not roams
    assert (ports - 1 not in drawn[:-1]) or not roams


def test_targets_take_different_ports_and_each_port_is_taken():
    drawn = [ports_of(target(n), ports=7, flows=4, roams=True) for n in range(400)]
    assert len(set(drawn)) == 20  # three of six
    taken = Counter(port for each in drawn for port in each)
    assert all(150 < taken[port] < 250 for port in range(6))


def test_a_transport_with_a_port_for_each_flow_uses_them_all():
    assert ports_of(target(1), ports=4, flows=4, roams=False) == (0, 1, 2, 3)


TURNS = st.builds(
    lambda rotate, window, timeout: (rotate, window, timeout),
    st.integers(10, 600), st.sampled_from([1, 5, 60]), st.integers(10, 4000),
)  # fmt: skip


@given(TURNS, st.integers(0, 2**32 - 1), st.integers(0, 10**9))
def test_each_phase_has_its_turn_once_in_so_many_windows(shape, phase, start_s):
    rotate_s, window_s, timeout_ms = shape
    shape = {"rotate_s": rotate_s, "window_s": window_s, "timeout_ms": timeout_ms}
    turns, others = (Turns(**shape, phase=each) for each in (phase, phase + 1))
    every = max(1, round(rotate_s / window_s))
    wall_ns, seen = start_s * S, []
    for _ in range(2 * every + 1):
        wall_ns += turns.wait_ns(wall_ns=wall_ns)
        if (window := turns.due(wall_ns=wall_ns)) is not None:
            seen.append((window, wall_ns))
    assert len(seen) in (2, 3)
    assert {b - a for (a, _), (b, _) in pairwise(seen)} == {every}
    for _, at_ns in seen:
        assert turns.due(wall_ns=at_ns + SLACK_NS - 1) is not None
        assert turns.due(wall_ns=at_ns + SLACK_NS) is None
        assert every == 1 or others.due(wall_ns=at_ns) is None


@given(st.integers(10, 4000), st.integers(0, 10**9), st.integers(0, SLACK_NS - 1))
def test_what_was_sent_before_a_turn_settles_in_the_same_window(timeout_ms, start_s, late_ns):
    turns = Turns(rotate_s=180, window_s=5, timeout_ms=timeout_ms)
    wall_ns = start_s * S
    wall_ns += turns.wait_ns(wall_ns=wall_ns) + late_ns
    window = Window.covering(wall_ns, width_ns=5 * S)
    assert window.start_ns <= wall_ns
    assert wall_ns + timeout_ms * MS < window.end_ns


def test_no_turns_where_ports_are_to_stay():
    turns = Turns(rotate_s=0, window_s=5, timeout_ms=500)
    assert all(turns.due(wall_ns=n * 100 * MS) is None for n in range(200))
