# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

import numpy as np
import pytest
from msgspec import structs

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.take import take
from analyzer.questions import Failed, StatusRequest, Why
from analyzer.simulate.agents import DEAD, WIDTH_NS, Agents, Noise
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import Effect, Failure, Family
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, link, switch
from netagent.wire.codec import decode, encode
from netagent.wire.histogram import value_of
from netagent.wire.messages import PathRequest, Status, Summary
from netagent.wire.validate import ValidateRequest

SHAPE = Shape(hosts=16, hosts_per_segment=4, spines=3, replicas=4, stages=2)


OF_H3 = {e.id for e in Clos(SHAPE, seed=1).endpoints if e.host == "h3"}


def agents(**options):
    return Agents(Clos(SHAPE, seed=1), seed=1, **options)


def rows_of(summaries, numbers):
    """Return flow -> (sent, lost, run, count, min, mean of ln) as an analyzer reads it."""
    found = {}
    for summary in summaries:
        read = decode(encode(summary), Summary)
        rows = take(read, numbers, width_ns=WIDTH_NS, with_paths=True).rows
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


def test_round_trips_are_as_the_noise_says():
    noise = Noise(rtt_ns=20_000, between=0.01, within=0.02, tail=0.0)
    found = rows_of(agents(noise=noise).window(), FlowNumbers())
    means = np.exp([values[5] for values in found.values()])
    assert abs(np.median(means) / 20_000 - 1) < 0.02
    assert all(values[4] <= np.exp(values[5]) * 1.001 for values in found.values())


def test_histograms_hold_the_round_trips_that_were_measured():
    made, numbers = agents(noise=Noise(loss=0.1)), FlowNumbers()
    for summary in made.window():
        rows = take(summary, numbers, width_ns=WIDTH_NS, with_paths=False).rows
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
    there, back = made.clos.crossings(ends)
    hit = {made.clos.flow(n) for n in np.flatnonzero(there + back).tolist()}
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


def test_routers_turn_away_from_a_dead_spine_and_traces_show_it():
    made, numbers = agents(), FlowNumbers()
    spine = next(each for each in made.clos.switches if each.startswith("spine"))
    fail(made, Effect(switch(spine), 1.0, reroute_ns=2_000_000_000))
    lost = [sum(v[1] for v in rows_of(made.window(), numbers).values()) for _ in range(3)]
    assert lost[0] > 0
    assert lost[1:] == [0, 0]
    shown = {hop for summary in made.window() for route in summary.paths.routes for hop in route}
    assert spine not in shown


def test_traces_end_before_what_is_dead():
    made = agents()
    made.window()
    ends = next(each for each in made.clos.links if each[1].startswith("spine"))
    fail(made, Effect(link(*ends), 1.0))
    made.window()
    routes = {route for summary in made.window() for route in summary.paths.routes}
    assert not any(ends in pairwise(route) for route in routes)
    assert any(route[-1] == ends[0] and len(route) == 1 for route in routes)


def test_a_starved_host_is_late_and_loses_what_comes_after_the_time_out():
    made, numbers = agents(), FlowNumbers()
    fail(made, Effect(Component(Kind.HOST, "h3"), kept_ns=300_000_000, spread=0.8))
    for summary in made.window():
        rows = take(summary, numbers, width_ns=WIDTH_NS, with_paths=False).rows
        far = np.array([numbers.flow(n).target in OF_H3 for n in rows.flow.tolist()])
        hit = far | (summary.host == "h3")
        assert not rows.lost[~hit].any()
        if hit.any():
            assert 0.1 < rows.lost[hit].sum() / rows.sent[hit].sum() < 0.5
        late = rows.responder_ns if summary.host != "h3" else rows.prober_ns
        assert (late[hit & (rows.count > 2)] > 50_000_000).all()
        assert (rows.responder_ns[~far & (rows.count > 0)] < 4_000).all()


def test_an_agent_that_is_killed_is_refused_and_says_nothing():
    made, numbers = agents(), FlowNumbers()
    failure = Failure(21, Component(Kind.AGENT, "h3"), Family.AGENT, (), kills="h3")
    made.fail([failure], now_ns=made.start_ns)
    summaries = made.window()
    assert "h3" not in {each.host for each in summaries}
    for summary in summaries:
        rows = take(summary, numbers, width_ns=WIDTH_NS, with_paths=False).rows
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
    request = request_of(made, 0, 100)
    assert isinstance(made.reply(made.clos.endpoints[0].host, request), Failed)


def test_a_simulated_host_has_no_tables_to_compare_and_says_so():
    request = ValidateRequest(local=EndpointId("c", 0), remote_address="", remote_mac="")
    assert agents().reply("h0", request).why is Why.CANNOT


def request_of(made, flow, count):
    named = made.clos.flow(flow)
    return PathRequest(
        source=named.source, target=named.target, source_port=named.source_port, count=count
    )


@pytest.mark.parametrize("loss", [0.2, 1.0])
def test_packets_are_counted_up_to_what_loses_them(loss):
    made = agents()
    flow = next(f for f in range(made.clos.flows) if len(made.clos.routes[made.clos.there[f]]) == 3)
    route = made.clos.routes[int(made.clos.there[flow])]
    fail(made, Effect(switch(route[1]), loss))
    made.window()
    answer = made.reply("h0", request_of(made, flow, 100)).paths[0]
    assert answer.hops == route
    assert answer.answered[0] == 100
    # A router that loses a part of what it forwards answers all that ends at it.
    assert (answer.answered[1] == 0) is (loss >= DEAD)
    assert answer.answered[2] < 100


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


def test_a_host_finds_ways_and_counts_on_each_though_nothing_is_traced():
    made = agents(traced=False)
    pair = next(n for n in range(made.clos.flows) if len(made.clos.routes[made.clos.there[n]]) == 3)
    request = structs.replace(request_of(made, pair, 50), source_port=0, ways=16)
    lossy, dead = "spine-1", "spine-2"
    fail(made, Effect(switch(lossy), 0.5), Effect(switch(dead), 1.0))
    made.window()
    answers = made.reply("h0", request).paths
    assert {each.hops[1] for each in answers} <= {"spine-0", lossy}
    for each in answers:
        assert each.answered[0] == each.sent == 50
        assert (each.answered[-1] < 50) is (lossy in each.hops)
    assert made.reply("h0", structs.replace(request, ways=1)).paths
