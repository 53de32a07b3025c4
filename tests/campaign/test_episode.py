# SPDX-License-Identifier: Apache-2.0
"""One failure of each type in a small fabric: named, alone, and health says nothing."""

import pickle

import numpy as np
import pytest

from analyzer.simulate.clos import Shape
from analyzer.simulate.failures import RESTARTED, STEPPED, TYPES, Effect, Failure, Family
from netagent.model.evidence import EvidenceKind
from netagent.model.path import link, switch
from tests.campaign.episode import Cluster, episode, types_of
from tests.campaign.score import score
from tests.length import some

SHAPE = Shape(hosts=32, hosts_per_segment=8, spines=4)


def well(cluster, windows):
    """Return the cluster after healthy windows, in which nobody was named."""
    warmed = cluster.warm(windows)
    assert not warmed.broken
    assert {each.component for each in warmed.said} <= {None}
    return cluster


def healthy(windows, **how):
    """Return a function that makes a cluster, each time anew, which was well until now."""
    made = well(Cluster(SHAPE, seed=5, **how), windows)
    kept = pickle.dumps(made)
    return lambda: pickle.loads(kept)  # noqa: S301 - our own, of a moment ago


@pytest.fixture(scope="module")
def warmed():
    return healthy(30)


@pytest.fixture(scope="module")
def untraced():
    return healthy(20, traced=False)


@pytest.mark.parametrize("number", [each for each in TYPES if each < STEPPED])
def test_a_failure_of_each_type_is_named_alone(warmed, number):
    outcome = episode(warmed(), 900 + number, (number,), windows=5)
    made = score([outcome])
    assert not outcome.broken
    assert (made.total.first, dict(made.wrong)) == (1, {})


@pytest.mark.parametrize("number", some([1, 2, 19, 4], 2))
def test_links_and_switches_are_named_where_no_way_is_traced(untraced, number):
    outcome = episode(untraced(), 930 + number, (number,), windows=9)
    made = score([outcome])
    assert not outcome.broken
    assert (made.total.first, dict(made.wrong)) == (1, {})


def begun(healthy, *failures):
    """Let failures begin in a cluster; return all that was named in ten windows."""
    cluster = healthy()
    cluster.agents.fail(failures, now_ns=cluster.now_ns)
    told = [each for _ in range(10) for each in cluster.window()]
    assert not any(each.error for each in told)
    return {str(c) for each in told if (c := each.incident.verdict.component) is not None}


SECOND = 1_000_000_000
NEAR = ("leaf-s1-r3", "spine-2")
BESIDE = ("leaf-s1-r3", "spine-0")


def lossy(ends, **effect):
    return Failure(1, link(*ends), Family.LINK, (Effect(link(*ends), **effect),))


@pytest.mark.parametrize(
    "failures",
    [
        pytest.param((lossy(NEAR, loss=0.02), lossy(BESIDE, loss=0.04)), id="of one leaf"),
        pytest.param((lossy(NEAR, loss=1.0, period_ns=5 * SECOND, duty=0.4),), id="flaps"),
        pytest.param(
            (lossy(NEAR, loss=1.0, period_ns=3 * SECOND, duty=0.3), lossy(BESIDE, loss=0.05)),
            id="flaps beside another one",
        ),
    ],
)
def test_faulty_links_are_all_named_where_no_way_is_traced(untraced, failures):
    assert begun(untraced, *failures) == {str(each.truth) for each in failures}


def test_a_spine_that_is_avoided_by_now_is_not_taken_for_its_links(untraced):
    dead = Failure(
        4,
        switch("spine-3"),
        Family.SWITCH,
        (Effect(switch("spine-3"), 1.0, reroute_ns=10 * SECOND),),
    )
    late = Effect(link(*NEAR), loss=0.002, delay_ns=60_000, period_ns=8 * SECOND, duty=0.5)
    named = begun(untraced, dead, Failure(19, link(*NEAR), Family.LINK, (late,)))
    assert named == {"switch spine-3", str(link(*NEAR))}


@pytest.mark.parametrize("gap", [0, 1, 2])
def test_a_spine_that_dies_is_not_acquitted_by_what_was_counted_before(gap):
    """A link of it lost some until a moment ago: packets were counted on all ways."""
    shape = Shape(hosts=4, rails=2, hosts_per_segment=2, spines=2, replicas=4, stages=1)
    cluster = Cluster(shape, seed=5, traced=False)
    well(cluster, 20)
    mine, spine = ("leaf-s0-r0", "spine-0"), switch("spine-0")
    dead = Failure(4, spine, Family.SWITCH, (Effect(spine, 1.0),))
    told = []
    for failures, windows in (([lossy(mine, loss=0.2)], 2), ([], gap), ([dead], 3)):
        cluster.agents.fail(failures, now_ns=cluster.now_ns)
        told.append([each.incident for _ in range(windows) for each in cluster.window()])
    before, _, now = told
    assert {each.verdict.component for each in before} == {link(*mine)}
    assert {each.verdict.component for each in now} == {spine}


def drained(cluster, leaf, spine, rng):
    """Let a leaf send a spine nothing, and hash its flows anew; agents trace that at once."""
    clos, without = cluster.agents.clos, frozenset({link(leaf, spine).name})
    for rows, reply in ((clos.there, False), (clos.back, True)):
        for flow, number in enumerate(rows.tolist()):
            way = clos.routes[number]
            if len(way) > 1 and (way[0] == leaf or clos.crosses(way, without)):
                draw = int(rng.integers(1 << 30))
                rows[flow] = clos.route(flow, draw, reply=reply, without=without)
    cluster.agents.routing.version += 1


@pytest.mark.parametrize("seed", range(3))
def test_links_that_flows_left_are_not_charged_with_what_is_lost_on_a_dead_one(warmed, seed):
    cluster, rng = warmed(), np.random.default_rng([2001400, seed])
    ends = cluster.agents.clos.links[int(rng.integers(len(cluster.agents.clos.links)))]
    leaf, spine = sorted(ends)
    other = f"spine-{(int(spine[-1]) + 1 + seed) % 4}"
    dead = Failure(2, link(*ends), Family.LINK, (Effect(link(*ends), 1.0),))
    cluster.agents.fail([dead], now_ns=cluster.now_ns)
    told = [each for _ in range(2) for each in cluster.window()]
    drained(cluster, leaf, other, rng)
    told += [each for _ in range(4) for each in cluster.window()]
    assert not any(each.error for each in told)
    assert {each.incident.verdict.component for each in told} == {link(*ends)}


def test_counts_that_decided_are_quoted_though_all_is_well_when_they_are_made_again():
    shape = Shape(hosts=4, rails=2, hosts_per_segment=2, spines=2, replicas=4, stages=1)
    cluster = Cluster(shape, seed=5, traced=False)
    well(cluster, 20)
    mine = ("leaf-s0-r0", "spine-0")
    passing = lossy(mine, loss=0.5, period_ns=80 * SECOND, duty=0.1)
    cluster.agents.fail([passing], now_ns=cluster.now_ns)
    first, last = (each.incident for _ in range(2) for each in cluster.window())
    assert first.updated_ns < last.updated_ns
    for incident in (first, last):
        assert incident.verdict.component == link(*mine)
        evidence = incident.verdict.evidence
        counts = [each.values for each in evidence if each.kind is EvidenceKind.COUNTED]
        assert any(reached < each["sent"] for each in counts for _, reached in each["routers"])


def test_a_link_that_loses_little_is_named_beside_one_that_loses_much(warmed):
    cluster = warmed()
    strong, weak = ("leaf-s0-r0", "spine-0"), ("leaf-s1-r3", "spine-2")
    cluster.agents.fail(
        [
            Failure(1, link(*ends), Family.LINK, (Effect(ends, loss),))
            for ends, loss in ((strong, 0.2), (weak, 0.007))
        ],
        now_ns=cluster.now_ns,
    )
    told = [each.incident for _ in range(10) for each in cluster.window()]
    named = [each.verdict.component for each in told]
    assert {link(*strong), link(*weak)} == {component for component in named if component}


def test_what_is_said_while_it_warms_up_is_kept_and_ends_nothing():
    shape = Shape(hosts=4, rails=2, hosts_per_segment=2, spines=2, replicas=4, stages=1)
    cluster = well(Cluster(shape, seed=5), 8)
    cluster.agents.fail([lossy(("leaf-s0-r0", "spine-0"), loss=0.3)], now_ns=cluster.now_ns)
    warmed = cluster.warm(4)
    assert (warmed.seed, warmed.warming, warmed.truths, warmed.seconds) == (5, True, (), 20.0)
    assert "link leaf-s0-r0 -- spine-0" in {each.component for each in warmed.said}
    assert all(0 < each.at_s < 25 for each in warmed.said)


def test_health_goes_on_without_a_word(warmed):
    outcome = episode(warmed(), 1, (), windows=8)
    assert outcome.said == ()


@pytest.mark.parametrize("number", [STEPPED, RESTARTED])
def test_what_is_no_fault_accuses_nobody(warmed, number):
    outcome = episode(warmed(), 960 + number, (number,), windows=6)
    assert not outcome.broken
    # A clock that is wrong keeps a host's summaries away: that may be told.
    assert {each.component for each in outcome.said} <= {None, *outcome.truths[0].also}


def test_an_agent_that_dies_is_told_of_when_its_second_window_is_overdue(warmed):
    outcome = episode(warmed(), 921, (21,), windows=4)
    first = min(each.at_s for each in outcome.said)
    assert first % 5 == pytest.approx(1.5)


def test_containers_that_come_and_go_are_registered_and_accuse_nobody():
    made = Cluster(SHAPE, seed=5, churn=4_000, bursts=True)
    before = {each.endpoint.id for each in made.registry.endpoints()}
    well(made, 24)
    assert {each.endpoint.id for each in made.registry.endpoints()} - before


def test_routers_avoid_a_dead_link_and_it_is_named_all_the_same():
    made = Cluster(SHAPE, seed=5, rehash=True)
    well(made, 8)
    outcome = episode(made, 2, (2,), windows=6)
    assert score([outcome]).whole == 1
    assert made.agents.routing.turned == {outcome.truths[0].component.removeprefix("link ")}


def test_ports_that_are_exchanged_accuse_nobody_and_hide_nothing():
    made = Cluster(SHAPE, seed=5, rotate=6)
    ports = made.clos.port.copy()
    well(made, 24)
    assert (made.clos.port != ports).mean() == pytest.approx(0.25)  # one of four
    assert score([episode(made, 2, (2,), windows=6)]).whole == 1


def test_where_packets_are_sprayed_a_dead_rnic_is_named_alone():
    made = Cluster(SHAPE, seed=5, spray=True)
    well(made, 8)
    assert score([episode(made, 3, (5,), windows=4)]).whole == 1


def test_how_many_fail_at_once_goes_round():
    assert [len(types_of(seed, most=3, among=(1, 2))) for seed in range(6)] == [1, 2, 3] * 2


def test_or_always_as_many():
    assert [len(types_of(seed, most=3, among=(1,), same=8)) for seed in range(3)] == [8] * 3
