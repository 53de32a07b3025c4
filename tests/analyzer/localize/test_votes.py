# SPDX-License-Identifier: Apache-2.0
"""Losses that are over when packets are counted, or that go on."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from msgspec import structs

from analyzer.detect.flows import Flows, FlowView
from analyzer.localize import votes as votes_module
from analyzer.localize.case import Case
from analyzer.localize.contract import Context
from analyzer.localize.tracing.doubts import Doubts
from analyzer.localize.votes import Votes
from analyzer.localize.voting.ballots import Poll
from analyzer.localize.voting.election import Ballot, Election
from analyzer.questions import Ask
from analyzer.roster.registry import Registry
from analyzer.simulate.fabric import Fabric
from netagent.model.ids import FlowId
from netagent.model.path import Component, link, rnic, switch
from netagent.model.verdict import Suspect, Verdict
from netagent.wire.messages import PathReply, PathRequest
from tests.length import some

LOSSY = link("leaf-s0-r0", "spine-1")
SEEDS = some(range(6), 3)


def judged(seed: int, *, later: float, rate: float = 0.08) -> Sequence[Verdict]:
    """Return the verdicts on a link that loses `rate`, and `later` when packets are counted."""
    fabric = Fabric(seed=seed, loss={LOSSY: rate}, probes=12)
    case = fabric.case()
    # Endpoints of one leaf alone had a turn on this rail, so they alone are asked to count.
    far = {e for e in fabric.endpoints if fabric.leaf(e) == "leaf-s1-r0"}
    near = [view for view in case.flows if view.flow.source not in far]
    case = replace(case, flows=Flows.of(near, fabric.numbers))
    fabric.loss = {LOSSY: later}
    votes = Votes(Context(Registry(), fabric.topology(), Doubts(1), 1))
    return said(votes, case, fabric)


def said(votes: Votes, case: Case, fabric: Fabric) -> Sequence[Verdict]:
    """Return the verdicts on a window, while packets are counted on the fabric."""
    asking = votes.explain(case)
    replies = None
    try:
        while True:
            asks = asking.send(replies) if replies else next(asking)
            replies = [answer(fabric, ask) for ask in asks]
    except StopIteration as done:
        return [each.verdict for each in done.value]


def named_in(fabric: Fabric, *, windows: int) -> set[Component]:
    """Return whom some windows in a row name, while packets are counted on the fabric."""
    votes = Votes(Context(Registry(), fabric.topology(), Doubts(1), 1))
    named = set[Component]()
    for n in range(windows):
        case = fabric.case()
        window = replace(case.window, start_ns=n * case.window.width_ns)
        verdicts = said(votes, replace(case, window=window, standing=frozenset(named)), fabric)
        named |= {each.component for each in verdicts if each.component}
    return named


def through(fabric: Fabric, ask: Ask, *, spine: int) -> PathReply:
    """Count as where the spine lost its route to one leaf: it answers nobody, or once a second."""
    (honest,) = answer(fabric, ask).paths
    near, far = fabric.routes[flow_of(fabric, ask), False][0], "leaf-s1-r0"
    said = spine if near == far else 0
    hops = (near, "spine-1" if said else "", "")
    return PathReply(paths=(structs.replace(honest, answered=(100, said, 0), hops=hops),))


def half_dead(view: FlowView) -> FlowView:
    """Return a flow that died in the middle of the window."""
    lost = view.lost // 2
    dead = {"run": lost, "run_ms": 200 * lost} if view.lost == view.sent else {}
    return replace(view, lost=lost, lost_large=0, **dead)


@pytest.mark.parametrize("dying", [False, True])
@pytest.mark.parametrize(("spine", "named"), [(0, []), (1, [LOSSY])])
@pytest.mark.parametrize("seed", SEEDS)
def test_of_two_dead_links_in_a_row_the_probes_need_one(seed, spine, named, dying):
    fabric = Fabric(seed=seed, loss={LOSSY: 1.0}, probes=12)
    case = fabric.case()
    if dying:
        case = replace(case, flows=Flows.of(map(half_dead, case.flows), fabric.numbers))
    asking = Votes(Context(Registry(), fabric.topology(), Doubts(1), 1)).explain(case)
    asks = next(asking)
    with pytest.raises(StopIteration) as done:
        asking.send([through(fabric, ask, spine=spine) for ask in asks])
    verdicts = [each.verdict for each in done.value.value]
    assert [each.component for each in verdicts if each.component] == named


RNIC = rnic("h1", "rnic0")


@pytest.mark.parametrize(
    ("last", "earlier", "dead", "named"),
    [
        pytest.param(2, 0, False, None, id="dying"),
        pytest.param(2, 1, False, RNIC, id="lossy before"),
        pytest.param(2, 0, True, RNIC, id="a pair is dead, and was walked"),
        pytest.param(0, 2, False, RNIC, id="well again"),
    ],
)
def test_a_part_of_a_host_is_not_named_before_flow_tables_could_be(last, earlier, dead, named):
    fabric = Fabric(seed=1, probes=12)
    topology, case = fabric.topology(), fabric.case()
    mine = [f for f in fabric.flows if RNIC in fabric.crossed(f, reply=False)]
    a_pair = (mine[0].source, mine[0].target)
    views = []
    for view in case.flows:
        flow = view.flow
        is_dead = dead and (flow.source, flow.target) == a_pair
        hit = flow in mine and (is_dead or flow.source_port % 4 < 3)
        run = 3 if is_dead else last
        lost = {"lost": run + earlier, "run": run, "run_ms": 200 * run} if hit else {}
        views.append(replace(view, **lost))
    asking = Votes(Context(Registry(), topology, Doubts(1), 1)).explain(
        replace(case, flows=Flows.of(views, case.flows.numbers))
    )
    with pytest.raises(StopIteration) as done:
        next(asking)
    assert [each.verdict.component for each in done.value.value] == [named]


def answer(fabric: Fabric, ask: Ask) -> PathReply:
    assert isinstance(ask.request, PathRequest)
    return PathReply(paths=(fabric.count(flow_of(fabric, ask), large=ask.request.size > 1000),))


def flow_of(fabric: Fabric, ask: Ask) -> FlowId:
    request = ask.request
    assert isinstance(request, PathRequest)
    wanted = request.source, request.target, request.source_port
    return next(f for f in fabric.flows if (f.source, f.target, f.source_port) == wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_counts_that_lost_nothing_leave_a_tie_as_it_was(seed):
    """They passed the near link once more than the far one, which says nothing of either."""
    for verdict in judged(seed, later=0.0):
        assert verdict.component is None, verdict


@pytest.mark.parametrize("seed", SEEDS)
def test_counts_that_lost_on_the_near_link_name_it(seed):
    (verdict,) = judged(seed, later=0.2)
    assert verdict.component == LOSSY


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_small_packets_do_not_acquit_what_loses_large_ones(seed):
    """Beside it an RNIC loses of all sizes; its leaf has both, and is not why."""
    narrow, lossy = link("leaf-s0-r1", "spine-0"), rnic("h1", "rnic1")
    fabric = Fabric(seed=seed, loss={lossy: 0.03}, loss_large={narrow: 1.0}, probes=12)
    assert named_in(fabric, windows=5) == {narrow, lossy}


@pytest.mark.parametrize("seed", [14, 16])
def test_packets_counted_for_what_loses_little_are_remembered_beside_another_fault(seed):
    """Of 100 packets it loses none or one: those of one window alone name the link behind it."""
    lossy, weak = link("leaf-s0-r0", "spine-1"), link("leaf-s0-r1", "spine-0")
    fabric = Fabric(seed=seed, loss={lossy: 0.12, weak: 0.006}, probes=30)
    assert named_in(fabric, windows=3) == {lossy, weak}


class Member(Fabric):
    """A fabric in which a link loses all packets of some flows."""

    broken = link("leaf-s1-r1", "spine-0")

    def lost(self, flow: FlowId, *, large: bool) -> bool:
        crossed = self.crossed(flow, reply=False) + self.crossed(flow, reply=True)
        return (self._is_hit(flow) and self.broken in crossed) or super().lost(flow, large=large)

    def _passes(self, flow: FlowId, way: tuple[str, ...], rates: dict[Component, float]) -> bool:
        crossed = {link(a, b) for a, b in pairwise(way)}
        return not (self._is_hit(flow) and self.broken in crossed) and super()._passes(
            flow, way, rates
        )

    def view(self, flow: FlowId) -> FlowView:
        hosts = {self.endpoints[end].host for end in (flow.source, flow.target)}
        self.probes = 2 if "h0" in hosts and len(self.routes[flow, False]) > 1 else 12
        return super().view(flow)

    def _is_hit(self, flow: FlowId) -> bool:
        source, target = (ord(end.container[-1]) for end in (flow.source, flow.target))
        return (flow.source_port + source + target) % 2 == 1


NARROW = rnic("h1", "rnic1")


@pytest.mark.parametrize("seed", [1, 5, 7, 18])
def test_counts_choose_from_what_would_be_at_fault_without_the_switch(seed):
    fabric = Member(seed=seed, loss={NARROW: 0.1}, loss_large={NARROW: 1.0})
    votes = Votes(Context(Registry(), fabric.topology(), Doubts(1), 1))
    found = {each.component for each in said(votes, fabric.case(), fabric)}
    assert found == {NARROW, fabric.broken}


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_a_switch_that_stands_for_two_parts_gives_way_to_those_that_counts_show(seed):
    """One loses large packets, the other all of some flows; a leaf that both touch has it all."""
    fabric = Member(seed=seed, loss={NARROW: 0.1}, loss_large={NARROW: 1.0})
    assert named_in(fabric, windows=4) == {NARROW, fabric.broken}


LEAF = switch("leaf-s0-r0")
BESIDE = link("leaf-s1-r0", "spine-1")


def test_windows_count_back_to_the_oldest_that_lost_what_this_one_may_have():
    def poll_of(*lost):
        ballots = [Ballot(("a", "b"), 9, 1, frozenset({each}), str(each)) for each in lost]
        return Poll(dict.fromkeys(ballots), elections=(tie,) if LOSSY in lost else ())

    tie = Election((Suspect(LOSSY, 0.5, 9, 90), Suspect(LEAF, 0.4, 9, 99)), (), 4, 50.0)
    now, well, lost, other = poll_of(LOSSY), poll_of(), poll_of(LEAF), poll_of(BESIDE)
    back = votes_module._since_losses
    assert list(back(now, [well, well])) == []
    assert list(back(now, [lost, well, other])) == [lost]
    assert list(back(now, [well, lost, well])) == [well, lost]
    assert list(back(well, [well, other, well])) == [well, other]
