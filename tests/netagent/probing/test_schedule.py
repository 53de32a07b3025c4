# SPDX-License-Identifier: Apache-2.0
import math
from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from netagent.model.ids import EndpointId
from netagent.model.pinglist import Target
from netagent.probing.schedule import CONFIRM_NS, EARLY_NS, LATE_NS, Rates, Schedule, TokenBucket

SECOND = 1_000_000_000
SOURCE = EndpointId("s", 0)
RATES = Rates(probes_per_s=20, pings_per_visit=4, ports=4, sizes=3)


def targets(count):
    return [Target(SOURCE, EndpointId(f"t{i}", 0), f"10.0.0.{i}", "") for i in range(count)]


def run(schedule, *, seconds, start_ns=0, step_ns=5_000_000):
    pings = []
    for now_ns in range(start_ns, start_ns + int(seconds * SECOND), step_ns):
        pings += [(now_ns, ping) for ping in schedule.due(now_ns=now_ns)]
    return pings


def made(count, rates=RATES, seed=1):
    schedule = Schedule(rates, Random(seed), now_ns=0)
    schedule.replace(targets(count))
    return schedule


@given(st.integers(1, 12), st.integers(0, 50))
def test_the_rate_is_kept_and_every_target_port_and_size_gets_its_turn(count, seed):
    pings = run(made(count, seed=seed), seconds=count * 4)
    assert abs(len(pings) / (count * 4) - RATES.probes_per_s) <= 4
    seen = Counter((p.target.target, p.port_index) for _, p in pings)
    assert len(seen) == count * RATES.ports
    assert {p.size_class for _, p in pings} == {0, 1, 2}


def test_two_pings_in_a_row_use_one_port():
    pings = [p for _, p in run(made(3), seconds=2)]
    assert all(a.port_index == b.port_index for a, b in zip(pings[::2], pings[1::2], strict=True))


def test_a_stopped_process_skips_what_it_missed():
    schedule = made(3)
    run(schedule, seconds=1)
    late = schedule.due(now_ns=100 * SECOND)
    assert len(late) == RATES.pings_per_visit
    assert all(ping.late for ping in late)
    assert len(run(schedule, seconds=1, start_ns=100 * SECOND + LATE_NS)) <= 28


def test_a_visit_goes_out_early_with_what_goes_out_anyway_and_delays_no_other():
    schedule = made(3)
    planned_ns = schedule.next_ns()
    assert 0 < schedule.early_ns <= EARLY_NS
    assert schedule.due(now_ns=planned_ns - schedule.early_ns - 1) == []
    pings = schedule.due(now_ns=planned_ns - schedule.early_ns)
    assert len(pings) == RATES.pings_per_visit
    assert not any(ping.late for ping in pings)
    assert 0.8 * RATES.visit_ns <= schedule.next_ns() - planned_ns <= 1.2 * RATES.visit_ns


def test_at_a_high_rate_no_visit_is_skipped_for_being_early():
    fast = replace(RATES, probes_per_s=1000)
    pings = run(made(3, fast), seconds=2, step_ns=1_000_000)
    assert abs(len(pings) / 2 - 1000) < 20


def test_a_target_with_a_loss_is_visited_again_soon():
    schedule = made(40)
    schedule.lost(EndpointId("t7", 0), now_ns=0)
    pings = run(schedule, seconds=2, start_ns=CONFIRM_NS)
    assert any(p.target.target == EndpointId("t7", 0) for _, p in pings)
    assert len({p.target.target for _, p in pings}) > 3


def test_a_removed_target_is_never_probed_again_and_a_new_one_is_within_the_round():
    schedule = made(10)
    run(schedule, seconds=1)
    schedule.replace(targets(11)[1:])
    schedule.lost(EndpointId("t0", 0), now_ns=0)
    seen = {p.target.target for _, p in run(schedule, seconds=3, start_ns=SECOND)}
    assert EndpointId("t0", 0) not in seen
    assert EndpointId("t10", 0) in seen


def test_no_target_means_nothing_to_do():
    schedule = Schedule(RATES, Random(1), now_ns=0)
    assert schedule.next_ns() is None
    assert schedule.due(now_ns=SECOND) == []


@given(st.lists(st.tuples(st.integers(0, SECOND), st.integers(1, 5)), max_size=60))
def test_a_bucket_never_gives_more_than_its_burst_and_rate(steps):
    bucket, now_ns, given_out = TokenBucket(10, 20, now_ns=0), 0, 0
    for wait_ns, tokens in steps:
        now_ns += wait_ns
        given_out += tokens * bucket.take(tokens, now_ns=now_ns)
    assert given_out <= 20 + 10 * now_ns / 1e9 + 1e-6


def with_rare(often, rare, share, seed=1):
    schedule = Schedule(RATES, Random(seed), now_ns=0)
    each = targets(often + rare)
    schedule.replace([replace(t, rare=n >= often) for n, t in enumerate(each)], share)
    return schedule


@given(st.integers(1, 9), st.integers(1, 40), st.floats(0.05, 0.5), st.integers(0, 50))
def test_rare_targets_share_a_part_of_the_visits_and_none_is_left_out(often, rare, share, seed):
    schedule = with_rare(often, rare, share, seed)
    visits = math.ceil(rare / share) + 2
    seconds = math.ceil(1.3 * visits * RATES.visit_ns / SECOND)
    pings = [p for _, p in run(schedule, seconds=seconds)]
    got = Counter(p.target.rare for p in pings)
    assert abs(got[True] / len(pings) - share) < 0.02 + RATES.pings_per_visit / len(pings)
    assert len({p.target.target for p in pings if p.target.rare}) == rare


def test_a_target_that_is_no_longer_rare_is_visited_within_the_round_without_a_pause():
    schedule = with_rare(3, 60, 0.05)
    run(schedule, seconds=1)
    schedule.replace([replace(t, rare=n > 3) for n, t in enumerate(targets(63))], 0.05)
    seen = {p.target.target for _, p in run(schedule, seconds=1.5, start_ns=SECOND)}
    assert EndpointId("t3", 0) in seen


def test_rare_targets_can_be_left_out_for_a_while_but_not_where_there_are_no_others():
    schedule = with_rare(3, 60, 0.2)
    schedule.skips_rare = True
    assert not any(p.target.rare for _, p in run(schedule, seconds=20))
    schedule.skips_rare = False
    assert any(p.target.rare for _, p in run(schedule, seconds=20, start_ns=20 * SECOND))
    alone = with_rare(0, 5, 0.1)
    alone.skips_rare = True
    assert run(alone, seconds=4)


def test_where_all_targets_are_rare_they_have_all_visits():
    schedule = with_rare(0, 5, 0.1)
    pings = run(schedule, seconds=4)
    assert abs(len(pings) / 4 - RATES.probes_per_s) <= 4
