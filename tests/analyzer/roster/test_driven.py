# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.windows import AHEAD_NS
from analyzer.roster.driven import FORGET_NS, DrivenHosts, Said
from netagent.wire.controller import ControllerState

NOW_NS = 1_800_000_000 * 10**9
S = 10**9


def state(generation=1, chassis="h1"):
    return ControllerState(source="ovn", chassis=chassis, generation=generation)


def test_the_newest_of_each_host_is_kept_with_its_time():
    hosts = DrivenHosts()
    hosts.take("h1", NOW_NS, state(7), NOW_NS + S)
    hosts.take("h1", NOW_NS - 5 * S, state(6), NOW_NS + 2 * S)  # delivered late
    hosts.take("h2", NOW_NS, state(chassis="h1"), NOW_NS + S)  # as of a key that was stolen
    assert hosts.said == {
        "h1": Said(state(7), NOW_NS, NOW_NS + S),
        "h2": Said(state(chassis="h1"), NOW_NS, NOW_NS + S),
    }
    hosts.take("h1", NOW_NS, state(8), NOW_NS + S)  # an agent that began anew in the same window
    assert hosts.said["h1"].state.generation == 8


def test_a_host_that_is_dropped_or_says_it_no_more_is_forgotten():
    hosts = DrivenHosts()
    for number in range(3):
        hosts.take(f"h{number}", NOW_NS, state(), NOW_NS + number)
    hosts.drop("h0")
    hosts.drop("h0")
    hosts.expire(NOW_NS + FORGET_NS + 1)
    assert set(hosts.said) == {"h2"}


def test_what_is_long_ago_or_far_ahead_is_passed_over():
    hosts = DrivenHosts()
    for start_ns in (NOW_NS - FORGET_NS, NOW_NS + AHEAD_NS + 1):
        hosts.take("h1", start_ns, state(), NOW_NS)
    assert not hosts.said


def test_a_clock_that_was_ahead_and_went_back_is_followed():
    hosts = DrivenHosts()
    hosts.take("h1", NOW_NS + AHEAD_NS, state(1), NOW_NS)
    hosts.take("h1", NOW_NS, state(2), NOW_NS)
    assert hosts.said["h1"].state.generation == 2


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-240, 0)), max_size=12))
def test_whatever_order_it_comes_in_the_newest_is_kept(told):
    hosts = DrivenHosts()
    for host, at_s in told:
        hosts.take(host, NOW_NS + at_s * S, state(at_s + 240), NOW_NS)
    newest = {host: at_s for host, at_s in sorted(told) if at_s * S > -FORGET_NS}
    assert {host: said.state.generation - 240 for host, said in hosts.said.items()} == newest
