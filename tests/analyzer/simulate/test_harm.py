# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.simulate.clos import PORTS, Clos, Shape
from analyzer.simulate.failures import Effect, Failure, Family
from analyzer.simulate.harm import Harm
from analyzer.simulate.routing import Routing
from netagent.model.path import Component, Kind, link, switch

S = 1_000_000_000
CLOS = Clos(Shape(hosts=16, hosts_per_segment=4, spines=3, replicas=4, stages=2), seed=1)
FLOWS = np.arange(CLOS.flows)
HOST = Component(Kind.HOST, "h3")


def harm(*effects, **kinds):
    failure = Failure(1, HOST, Family.HOST, effects, start_ns=2 * S, **kinds)
    return Harm(CLOS, Routing(CLOS), [failure], 10 * S)


def crossed(made, *, at_s=13, large=True, hashes=0.5):
    return made.crossed(
        FLOWS, np.full(CLOS.flows, at_s * S), np.full(CLOS.flows, large),
        (CLOS.there, CLOS.back), np.full(CLOS.flows, hashes), np.random.default_rng(1),
    )  # fmt: skip


def on_h3():
    ends = np.repeat(np.stack([CLOS.source, CLOS.target]), PORTS, axis=1) // 8
    return (ends == 3).any(axis=0)


@pytest.mark.parametrize("at", [HOST, CLOS.rnic(5), link(*CLOS.links[0]), switch("spine-1")])
def test_what_is_dead_loses_all_that_crosses_it_and_nothing_else(at):
    lost, late = crossed(harm(Effect(at, 1.0)))
    if at == HOST:
        hit = on_h3()
    elif at.kind is Kind.RNIC:
        hit = np.repeat((CLOS.source == 5) | (CLOS.target == 5), PORTS)
    else:
        ways = np.asarray([CLOS.crosses(route, frozenset({at.name})) for route in CLOS.routes])
        hit = ways[CLOS.there] | ways[CLOS.back]
    assert hit.any()
    assert (lost == hit).all()
    assert not late.any()


def test_what_is_late_is_late_by_about_as_much():
    lost, late = crossed(harm(Effect(HOST, delay_ns=50_000.0)))
    assert not lost.any()
    assert 45_000 < np.median(late[on_h3()]) < 55_000
    assert not late[~on_h3()].any()


@pytest.mark.parametrize(
    ("effect", "kinds"),
    [
        ({}, {"at_s": 11}),
        ({"period_ns": 2 * S, "duty": 0.5}, {"at_s": 13}),
        ({"reroute_ns": S}, {"at_s": 13}),
        ({"large_only": True}, {"large": False}),
        ({"share": 0.4}, {"hashes": 0.4}),
    ],
    ids=["not yet", "in a pause", "avoided", "small", "another flow"],
)
def test_what_does_not_apply_does_nothing(effect, kinds):
    made = harm(Effect(HOST, 1.0, **effect))
    assert not crossed(made, **kinds)[0].any()
    assert crossed(made, at_s=12, large=True, hashes=0.3)[0].any()


def test_what_is_at_fault_now_is_told():
    effect = Effect(HOST, 1.0)
    assert harm(effect).active(11 * S) == []
    assert harm(effect).active(12 * S) == [effect]


def test_a_busy_host_keeps_what_it_sends_and_what_it_answers():
    kept = harm(Effect(HOST, kept_ns=200e6)).kept(
        FLOWS, np.full(CLOS.flows, 13 * S), np.random.default_rng(1)
    )
    for row, ends in zip(kept, (CLOS.source, CLOS.target), strict=True):
        mine = np.repeat(ends // 8 == 3, PORTS)
        assert (row[mine] > 50e6).all()
        assert (row[~mine] < 20_000).all()


@pytest.mark.parametrize(("back_ns", "still"), [(0, True), (3 * S, False)])
def test_a_killed_agent_is_gone_until_another_is_there(back_ns, still):
    made = harm(kills="h3", back_ns=back_ns)
    mine = np.repeat(CLOS.target // 8 == 3, PORTS)
    for at_s, gone in ((11, False), (13, True), (16, still)):
        assert (made.refused(FLOWS, np.full(CLOS.flows, at_s * S)) == (mine & gone)).all()
        assert made.gone(at_s * S) == ({"h3"} if gone else set())
    assert made.back_ns(made.failures[0]) == 12 * S + back_ns
