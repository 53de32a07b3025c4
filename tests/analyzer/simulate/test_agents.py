# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from analyzer.intake.few import filled
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.take import take
from analyzer.questions import Failed, StatusRequest, Why
from analyzer.simulate.agents import WIDTH_NS, Agents, Noise
from analyzer.simulate.churn import Churn
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import Effect, Failure, Family
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, link
from netagent.wire.codec import decode, encode
from netagent.wire.histogram import value_of
from netagent.wire.messages import PathRequest, Status, Summary
from netagent.wire.validate import ValidateRequest
from tests.oracles.rows import items

SHAPE = Shape(hosts=16, hosts_per_segment=4, spines=3, replicas=4, stages=2)

OF_H3 = {e.id for e in Clos(SHAPE, seed=1).endpoints if e.host == "h3"}


def agents(**options):
    return Agents(Clos(SHAPE, seed=1), seed=1, **options)


def rows_of(summaries, numbers):
    """Return flow -> (sent, lost, run, count, min, mean of ln) as an analyzer reads it."""
    found = {}
    for summary in summaries:
        read = decode(encode(summary), Summary)
        rows = filled(take(read, numbers, width_ns=WIDTH_NS).rows)
        columns = (rows.sent, rows.lost, rows.run, rows.count, rows.min_ns, rows.mean_ln)
        for number, *values in zip(rows.flow.tolist(), *(c.tolist() for c in columns), strict=True):
            found[numbers.flow(number)] = values
    return found


def fail(made, *effects, start_ns=0):
    at = effects[0].at
    truth = at if isinstance(at, Component) else link(*at)
    failure = Failure(1, truth, Family.LINK, effects, start_ns=start_ns)
    made.fail([failure], now_ns=made.start_ns + made.window_number * WIDTH_NS)


def test_each_endpoint_sends_twenty_probes_a_second_and_health_loses_none():
    made, numbers = agents(), FlowNumbers()
    for _ in range(3):
        found = rows_of(made.window(), numbers)
        assert sum(values[0] for values in found.values()) == SHAPE.rnics * 100
        assert sum(values[1] for values in found.values()) == 0
    assert len(numbers) == made.clos.flows


def test_each_rnic_exchanges_one_port_once_in_a_while():
    made, numbers = agents(rotate=6), FlowNumbers()
    ports, every = made.clos.port.copy(), np.arange(made.clos.flows)
    exchanged = []
    for _ in range(7):
        before = made.clos.port.copy()
        found = rows_of(made.window(), numbers)
        assert found.keys() <= {made.clos.flow(n) for n in every.tolist()}
        exchanged.append(np.count_nonzero(made.clos.port != before))
    assert ((made.clos.port != ports) == (every % 4 == 3)).all()
    assert exchanged[0] == 0  # of the first window nobody has another one
    assert max(exchanged) < len(every) // 8  # not all in one window


def test_round_trips_are_as_the_noise_says():
    noise = Noise(rtt_ns=20_000, between=0.01, within=0.02, tail=0.0)
    found = rows_of(agents(noise=noise).window(), FlowNumbers())
    means = np.exp([values[5] for values in found.values()])
    assert abs(np.median(means) / 20_000 - 1) < 0.02
    assert all(values[4] <= np.exp(values[5]) * 1.01 for values in found.values())


def test_histograms_hold_the_round_trips_that_were_measured():
    made, numbers = agents(noise=Noise(loss=0.1)), FlowNumbers()
    for summary in made.window():
        rows = filled(take(summary, numbers, width_ns=WIDTH_NS).rows)
        owner = np.repeat(np.arange(len(rows.flow)), rows.hist_len)
        assert np.bincount(owner, rows.hist_count, len(rows.flow)).tolist() == rows.count.tolist()
        value = np.array([value_of(bucket) for bucket in rows.hist_bucket.tolist()])
        mean = np.bincount(owner, rows.hist_count * np.log(value)) / np.maximum(rows.count, 1)
        assert np.allclose(mean, rows.mean_ln, atol=0.011)


def test_a_dead_rnic_loses_all_of_its_flows_and_no_other():
    made, numbers = agents(), FlowNumbers()
    fail(made, Effect(made.clos.rnic(5), 1.0))
    own = made.clos.endpoints[5].id
    for flow, (sent, lost, run, *_) in rows_of(made.window(), numbers).items():
        mine = own in (flow.source, flow.target)
        assert lost == (sent if mine else 0)
        assert run == lost


def test_losses_in_a_row_are_counted_across_windows():
    made, numbers = agents(), FlowNumbers()
    fail(made, Effect(made.clos.rnic(5), 1.0))
    own, runs = made.clos.endpoints[5].id, {}
    for _ in range(3):
        for flow, (_, lost, run, *_) in rows_of(made.window(), numbers).items():
            if own in (flow.source, flow.target):
                runs[flow] = runs.get(flow, 0) + lost
                assert run == runs[flow]
    made.fail([], now_ns=0)
    assert not any(values[2] for values in rows_of(made.window(), numbers).values())


def test_a_link_that_loses_one_way_loses_its_share():
    made, numbers = agents(), FlowNumbers()
    ends = made.clos.links[0]
    fail(made, Effect(ends, 0.3))
    times = made.clos.crossings(ends)
    crossed = times[made.clos.there] + times[made.clos.back]
    hit = {made.clos.flow(n) for n in np.flatnonzero(crossed).tolist()}
    sent = lost = 0
    for _ in range(20):
        for flow, values in rows_of(made.window(), numbers).items():
            assert flow in hit or not values[1]
            sent += values[0] * (flow in hit)
            lost += values[1]
    assert abs(lost / sent - 0.3) < 0.05


def test_a_slow_rnic_slows_its_flows_by_what_it_adds():
    made, numbers = agents(noise=Noise(tail=0.0)), FlowNumbers()
    fail(made, Effect(made.clos.rnic(5), delay_ns=80_000, spread=0.01))
    own = made.clos.endpoints[5].id
    for flow, values in rows_of(made.window(), numbers).items():
        slow = own in (flow.source, flow.target)
        assert (values[4] > 85_000) is slow


def test_what_flaps_is_there_for_its_share_of_the_time():
    made, numbers = agents(), FlowNumbers()
    fail(made, Effect(made.clos.rnic(5), 1.0, period_ns=1_000_000_000, duty=0.25))
    found = rows_of(made.window(), numbers)
    own = made.clos.endpoints[5].id
    mine = [v for flow, v in found.items() if own in (flow.source, flow.target)]
    assert 0.15 < sum(v[1] for v in mine) / sum(v[0] for v in mine) < 0.35


def test_a_starved_host_is_late_and_loses_what_comes_after_the_time_out():
    made, numbers = agents(), FlowNumbers()
    fail(made, Effect(Component(Kind.HOST, "h3"), kept_ns=300_000_000, spread=0.8))
    for summary in made.window():
        rows = filled(take(summary, numbers, width_ns=WIDTH_NS).rows)
        far = np.array([numbers.flow(n).target in OF_H3 for n in rows.flow.tolist()])
        hit = far | (summary.host == "h3")
        assert not rows.lost[~hit].any()
        if hit.any():
            assert 0.1 < rows.lost[hit].sum() / rows.sent[hit].sum() < 0.5
        late = rows.responder_ns if summary.host != "h3" else rows.prober_ns
        assert (late[hit & (rows.count > 2)] > 50_000_000).all()
        assert (rows.responder_ns[~far & (rows.count > 0)] < 20_000).all()


def test_an_agent_that_is_killed_is_refused_and_says_nothing():
    made, numbers = agents(), FlowNumbers()
    failure = Failure(21, Component(Kind.AGENT, "h3"), Family.AGENT, (), kills="h3")
    made.fail([failure], now_ns=made.start_ns)
    summaries = made.window()
    assert "h3" not in {each.host for each in summaries}
    for summary in summaries:
        rows = filled(take(summary, numbers, width_ns=WIDTH_NS).rows)
        far = np.array([numbers.flow(n).target in OF_H3 for n in rows.flow.tolist()])
        assert (rows.refused == np.where(far, rows.sent, 0)).all()
        assert not rows.lost.any()
    assert isinstance(made.reply("h3", StatusRequest()), Failed)


def test_a_crashed_agent_sends_and_answers_nothing():
    made = agents(crashed=frozenset({"h3"}))
    assert {summary.host for summary in made.window()} == {f"h{n}" for n in range(16)} - {"h3"}
    assert isinstance(made.reply("h3", StatusRequest()), Failed)
    assert isinstance(made.reply("h2", StatusRequest()), Status)


def test_without_outer_headers_no_path_is_traced():
    made = agents(traced=False)
    assert not any(summary.paths.routes for summary in made.window())
    named = made.clos.flow(0)
    request = PathRequest(
        source=named.source, target=named.target, source_port=named.source_port, count=100
    )
    assert isinstance(made.reply(made.clos.endpoints[0].host, request), Failed)


def test_a_simulated_host_has_no_tables_to_compare_and_says_so():
    request = ValidateRequest(local=EndpointId("c", 0), remote_address="", remote_mac="")
    assert agents().reply("h0", request).why is Why.CANNOT


def test_the_same_seed_gives_the_same_messages():
    one, other = ([encode(each) for each in agents().window()] for _ in "12")
    assert one == other
    assert one != [encode(each) for each in Agents(Clos(SHAPE, seed=1), seed=2).window()]


def test_a_host_effect_hits_all_of_its_rnics():
    made, numbers = agents(), FlowNumbers()
    fail(made, Effect(Component(Kind.HOST, "h2"), 1.0))
    for flow, values in rows_of(made.window(), numbers).items():
        mine = any(end.container.endswith("-c2") for end in (flow.source, flow.target))
        assert bool(values[1]) is mine


def stepped(*steps, start_ns=0):
    made = agents()
    truth = Component(Kind.HOST, "h3")
    failure = Failure(22, truth, Family.HOST, (), start_ns=start_ns, steps=steps, harmless=True)
    made.fail([failure], now_ns=made.start_ns)
    return made


def starts(made, windows):
    found = [each for _ in range(windows) for each in made.window() if each.host == "h3"]
    return [((e.start_ns - made.start_ns) // SECOND, e.health.clock_steps) for e in found]


SECOND = 1_000_000_000


def test_a_host_whose_clock_is_set_ahead_skips_windows_and_counts_it():
    assert starts(stepped((7 * SECOND, 20 * SECOND)), 4) == [
        (0, 0), (5, 1), (25, 1), (30, 1), (35, 1),
    ]  # fmt: skip


def test_a_host_whose_clock_is_set_back_sends_all_at_once_when_it_has_caught_up():
    made, numbers = stepped((7 * SECOND, -20 * SECOND)), FlowNumbers()
    sent = []
    for _ in range(8):
        mine = [each for each in made.window() if each.host == "h3"]
        sent.append(sum(values[0] for values in rows_of(mine, numbers).values()))
    whole = 100 * SHAPE.rails
    # The last pings of a visit may be sent when the window is over.
    assert sent[0] == pytest.approx(whole, abs=16)
    assert sent[1:5] == [0] * 4
    assert sent[5] == pytest.approx(5 * whole, abs=16)
    assert sum(sent) == pytest.approx(8 * whole, abs=16)


def test_an_agent_that_begins_anew_registers_and_tells_only_what_it_saw_itself():
    made, numbers = agents(), FlowNumbers()
    truth = Component(Kind.AGENT, "h3")
    made.fail(
        [Failure(23, truth, Family.AGENT, (), kills="h3", start_ns=SECOND, back_ns=2 * SECOND)],
        now_ns=made.start_ns,
    )
    first = made.window()
    ((at_ns, message),) = made.news()
    assert (at_ns - made.start_ns, message.host) == (3 * SECOND, "h3")
    assert {e.instance for e in first if e.host == "h3"} == {message.instance} != {"i"}
    mine = rows_of([e for e in first if e.host == "h3"], numbers)
    assert sum(values[0] for values in mine.values()) == pytest.approx(40 * SHAPE.rails, abs=64)
    refused = sum(sum(items(e.flows, "refused")) for e in first)
    assert refused > 0
    assert not any(any(items(e.flows, "refused")) for e in made.window())


def test_under_churn_only_containers_that_are_there_are_probed():
    made, there = agents(churn=Churn(16, 1, 20_000)), {}
    for message in made.registrations():
        there[message.host] = {end.id for end in message.endpoints}
    numbers, seen, lost, lately = FlowNumbers(), set(), 0, set()
    for _ in range(60):
        summaries, before = made.window(), set().union(*there.values())
        ever = set(before)
        for _, message in made.news():
            there[message.host] = {end.id for end in message.endpoints}
            ever |= there[message.host]
        after = set().union(*there.values())
        for flow, values in rows_of(summaries, numbers).items():
            # Who went is probed until others heard of it.
            assert flow.source in ever
            assert flow.target in ever | lately
            if {flow.source, flow.target} <= before & after:
                assert not values[1]
            lost += values[1]
            seen.add(flow.source.container)
        lately = ever
    assert len(seen) > 20
    assert lost
