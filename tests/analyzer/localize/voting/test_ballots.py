# SPDX-License-Identifier: Apache-2.0
"""Whole windows of a simulated fabric: the verdict must be the truth that was put in."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from msgspec.structs import replace as replace_answer

from analyzer.detect.flows import Flows, FlowView
from analyzer.localize.sentences import sentences
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.voting import ballots as ballots_module
from analyzer.localize.voting.ballots import (
    MAX_LOSSY,
    Counted,
    Poll,
    by_latency,
    by_votes,
    left,
    poll,
    poll_again,
    poll_latency,
    poll_latency_again,
    sprayed,
)
from analyzer.localize.voting.counting import acquittal, choosing, lateness, losses, quoting
from analyzer.localize.voting.counting.counts import counted_on
from analyzer.localize.voting.election import Ballot, Election
from analyzer.simulate.fabric import Fabric
from netagent.model.evidence import EvidenceKind
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, link, rnic, switch
from netagent.model.topology import DeclaredTopology, Uplink
from netagent.model.topology import Fabric as FabricKind
from netagent.model.verdict import Suspect, Symptom
from tests.length import some

LEAF_SPINE = link("leaf-s0-r0", "spine-1")
SEEDS = some(range(12), 4)


def untraced(fabric):
    """Return the cabling of a fabric, none of whose flows was traced."""
    links = {(min(a, b), max(a, b)) for route in fabric.routes.values() for a, b in pairwise(route)}
    uplinks = [Uplink(e.host, e.rnic, fabric.leaf(e.id)) for e in fabric.endpoints.values()]
    return LearnedTopology(DeclaredTopology(links=frozenset(links), uplinks=tuple(uplinks)))


def verdicts(fabric, *, count=True, missing=(), flows=None, topology=None, standing=()):
    """Vote as the engine does: count packets per router where the first vote is a tie."""
    case = fabric.case(standing=frozenset(standing))
    flows = Flows.of(flows(case.flows), case.flows.numbers) if flows else case.flows
    topology = topology or fabric.topology()
    polled = poll(case, flows, topology)
    counted = Counted(missing=missing)
    ties = [e for e in polled.elections if choosing.worth_counting(e)] if count else []
    if ties:
        chosen = choosing.choose(ties, flows, fabric.endpoints, topology)
        counts = [
            counted_on(each, fabric.count(each.flow, large=polled.large_only), topology)
            for each in chosen
        ]
        ballots = losses.ballots(counts, fabric.endpoints)
        suspects = [suspect for tie in ties for suspect in tie.suspects]
        cleared = acquittal.cleared(suspects, counts, fabric.endpoints)
        polled = poll_again(polled, ballots, cleared)
        counted = Counted(tuple(quoting.counted(counts)), missing)
    return [e.verdict for e in by_votes(case, polled, topology, counted)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("truth", "probability"),
    [
        (LEAF_SPINE, 1.0),
        (LEAF_SPINE, 0.1),
        (switch("spine-0"), 1.0),
        (switch("leaf-s1-r1"), 1.0),
        (rnic("h2", "rnic1"), 1.0),
        (rnic("h2", "rnic1"), 0.2),
        (Component.parse("container t1-c3"), 1.0),
    ],
    ids=str,
)
def test_one_fault_gives_one_verdict_and_it_is_the_truth(truth, probability, seed):
    fabric = Fabric(seed=seed, loss={truth: probability}, probes=12)
    decided = [v for v in verdicts(fabric) if v.component is not None]
    assert [v.component for v in decided] == [truth]
    assert decided[0].layer is truth.layer
    assert decided[0].failing


ENDS = ("leaf-s0-r0", "spine-1")


@pytest.mark.parametrize("ends", [ENDS, ENDS[::-1]], ids=" to ".join)
@pytest.mark.parametrize("seed", some(range(8), 4))
def test_a_link_that_loses_one_way_is_said_to(ends, seed):
    """Of the probes that cross it, a third crosses it the other way only, and loses nothing."""
    fabric = Fabric(seed=seed, loss_one_way={ends: 0.1}, probes=30)
    (verdict,) = (v for v in verdicts(fabric) if v.component is not None)
    assert verdict.component == LEAF_SPINE
    words = f" % of the probes that cross {LEAF_SPINE} from {ends[0]} to {ends[1]} are lost, 0 % "
    rate, said, rest = verdict.summary.partition(words)
    assert (said, rest) == (words, "the other way")
    assert 5 <= int(rate) <= 15
    tally, direction = verdict.evidence[:2]
    assert (tally.kind, direction.kind) == (EvidenceKind.TALLY, EvidenceKind.DIRECTION)
    assert (direction.values["source"], direction.values["target"]) == ends
    assert direction.values["lost"] == tally.values["lost"]
    assert direction.values["crossed"] + direction.values["back_crossed"] == tally.values["crossed"]
    (line,) = sentences([direction])
    assert f"that cross {LEAF_SPINE} from {ends[0]} to {ends[1]} are lost, 0 of " in line
    assert line.endswith(" that cross it the other way only")


@pytest.mark.parametrize("probability", [0.1, 1.0])
@pytest.mark.parametrize("seed", some(range(8), 4))
def test_a_link_that_loses_both_ways_is_not_said_to_lose_one_way(seed, probability):
    fabric = Fabric(seed=seed, loss={LEAF_SPINE: probability}, probes=30)
    (verdict,) = (v for v in verdicts(fabric) if v.component is not None)
    assert verdict.summary.endswith(f" % of the probes that cross {LEAF_SPINE} are lost")
    assert not any(e.kind is EvidenceKind.DIRECTION for e in verdict.evidence)


@pytest.mark.parametrize("seed", range(3))
def test_the_direction_changes_neither_who_is_named_nor_how_surely(seed, monkeypatch):
    def asked():
        found = verdicts(Fabric(seed=seed, loss_one_way={ENDS: 0.1}, probes=30))
        return [(v.component, v.confidence, v.failing, v.alternatives) for v in found]

    said = asked()
    monkeypatch.setattr("analyzer.localize.voting.ballots.one_way", lambda *_: None)
    assert asked() == said


def test_two_faults_at_once_give_two_verdicts():
    pair = {switch("spine-0"): 1.0, rnic("h3", "rnic0"): 1.0}
    found = {v.component for v in verdicts(Fabric(seed=3, loss=pair))}
    assert found == set(pair)


@pytest.mark.parametrize("seed", SEEDS)
def test_background_loss_accuses_nobody(seed):
    assert [v.component for v in verdicts(Fabric(seed=seed, background=0.002))] in ([], [None])


PORTS = {
    link(f"leaf-s{s}-r{r}", f"spine-{n}"): 0.003 for s in (0, 1) for r in (0, 1) for n in (0, 1)
} | {rnic(f"h{h}", f"rnic{r}"): 0.003 for h in range(4) for r in (0, 1)}


@pytest.mark.parametrize("standing", [(), (switch("spine-0"),)], ids=["fresh", "standing"])
@pytest.mark.parametrize("seed", SEEDS)
def test_loss_that_is_alike_on_every_port_accuses_no_switch(seed, standing):
    fabric = Fabric(seed=seed, loss=PORTS, probes=12)
    found = verdicts(fabric, standing=standing)
    assert {v.component for v in found} <= {None}


@pytest.mark.parametrize("ask", [True, False], ids=["counted", "not counted"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_spine_that_dies_within_a_window_is_not_taken_for_its_links(seed, ask, monkeypatch):
    """As on a lab: each rail had its own turns before and after, so their shares differ.

    Packets counted after the window are all lost.
    """
    if ask:
        monkeypatch.setattr(choosing, "worth_counting", lambda election: True)
    spine, seen = switch("spine-0"), Random(seed)
    fabric = Fabric(seed=seed, loss={spine: 1.0}, tasks=3, spines=4)
    shares = {rail: seen.uniform(0.3, 1.0) for rail in range(2)}

    def dying(flows):
        return [
            replace(view, lost=lost, lost_large=0, run=lost)
            if view.lost
            and (share := seen.gauss(shares[view.flow.source.rail], 0.2)) < 1
            and (lost := round(view.sent * max(0.0, share))) < view.lost
            else view
            for view in flows
        ]

    found = {v.component for v in verdicts(fabric, count=ask, flows=dying)}
    assert found == {spine} or (not ask and found == {None})


@pytest.mark.parametrize("seed", SEEDS)
def test_two_lossy_links_of_a_rail_accuse_nothing_healthy(seed):
    lossy = {link("leaf-s0-r0", "spine-0"), link("leaf-s0-r0", "spine-1")}
    fabric = Fabric(seed=seed, loss=dict.fromkeys(lossy, 0.05), probes=12)
    # The leaf between them loses exactly what they lose: it may be named, but nothing else.
    found = {v.component for v in verdicts(fabric)}
    assert found <= {*lossy, switch("leaf-s0-r0"), None}
    across = {link("leaf-s0-r0", "spine-0"), link("leaf-s1-r0", "spine-1")}
    found = {
        v.component
        for v in verdicts(Fabric(seed=seed, loss=dict.fromkeys(across, 0.05), probes=12))
    }
    assert found <= {*across, None}


def test_a_healthy_fabric_has_no_verdict():
    assert verdicts(Fabric()) == []


def test_loss_of_large_packets_only_is_told_as_such():
    found = verdicts(Fabric(seed=1, loss_large={LEAF_SPINE: 1.0}))
    assert [v.component for v in found] == [LEAF_SPINE]
    assert any("smaller probes" in line for line in sentences(found[0].evidence))


def test_a_lone_failing_pair_is_insufficient_evidence_and_says_what_is_missing():
    fabric = Fabric(seed=2)
    one = next(f for f in fabric.flows if fabric.leaf(f.source) != fabric.leaf(f.target))

    def one_dead(flows):
        pair = (one.source, one.target)
        return [_dead(v) if (v.flow.source, v.flow.target) == pair else v for v in flows]

    found = verdicts(fabric, flows=one_dead, missing=("x",))
    assert [v.component for v in found] == [None]
    assert "x" in found[0].missing
    assert any("second failing pair" in text for text in found[0].missing)
    assert found[0].alternatives


def _dead(view):
    return replace(view, lost=view.sent, sent_large=2, lost_large=2, run=view.sent, run_ms=2000)


def test_without_traces_the_paths_are_named_as_missing():
    fabric = Fabric(seed=1, loss={LEAF_SPINE: 0.3})
    found = verdicts(fabric, topology=LearnedTopology())
    assert all(v.component != LEAF_SPINE for v in found)
    assert any("underlay paths" in text for text in found[-1].missing)


def _bare(fabric, *some):
    """Return the fabric, of whose endpoints these, or all, are declared and have no tunnel."""
    for key, end in fabric.endpoints.items():
        if not some or key in some:
            fabric.endpoints[key] = replace(end, bridge="")
    return fabric


def test_paths_that_are_never_traced_are_named_with_the_reason():
    loss = {LEAF_SPINE: 0.3}
    found = verdicts(_bare(Fabric(seed=1, loss=loss)), topology=LearnedTopology())
    (said,) = [text for text in found[-1].missing if "underlay paths" in text]
    assert "which are not traced: no virtual switch carries t0-c0/rail0, t0-c" in said
    assert said.endswith(" more")
    one = next(key for key in Fabric(seed=1).endpoints if key.rail == 0)
    found = verdicts(_bare(Fabric(seed=1, loss=loss), one), topology=LearnedTopology())
    some, never = [text for text in found[-1].missing if "underlay paths" in text]
    assert some.endswith(" failing flows")
    assert never.endswith(f" which are not traced: no virtual switch carries {one}")


def test_what_is_named_where_no_path_is_ever_traced_says_so():
    dead = rnic("h1", "rnic0")
    fabric = Fabric(seed=1, loss={dead: 1.0})
    for carried in (True, False):
        (named,) = verdicts(fabric, topology=LearnedTopology())
        assert named.component == dead
        assert any("not traced" in text for text in named.missing) is not carried
        _bare(fabric)


def test_healthy_neighbours_are_quoted():
    found = verdicts(Fabric(seed=5, loss={LEAF_SPINE: 1.0}))
    assert found[0].healthy
    assert all(pair.lost == 0 for pair in found[0].healthy)


SHIFT = (4.2e6, 9e6)


def latency_verdicts(fabric, own_ns):
    """Vote as the engine does; `own_ns` is what a router takes to answer, by flow and place."""
    topology = fabric.topology()
    (culprit,) = fabric.slow_ns
    slow = {f: SHIFT for f in fabric.flows if culprit in topology.crossed(f)}
    case = fabric.case(slow=slow)
    polled = poll_latency(case, case.flows, topology)
    losing = [replace(v, lost=int(v.flow in slow)) for v in case.flows]
    counts = []
    for each in choosing.choose(polled.elections[:1], losing, fabric.endpoints, topology):
        answer = fabric.count(each.flow)
        rtts = tuple(rtt_ns + own_ns(each.flow, n) for n, rtt_ns in enumerate(answer.rtt_ns))
        counts.append(counted_on(each, replace_answer(answer, rtt_ns=rtts), topology))
    ballots = lateness.late_ballots(counts, fabric.endpoints, slow)
    polled = poll_latency_again(polled, ballots)
    return [e.verdict for e in by_latency(case, polled, Counted())]


@pytest.mark.parametrize(
    "own_ns",
    [
        pytest.param(lambda flow, n: 0, id="routers answer at once"),
        pytest.param(lambda flow, n: 8_600_000 + flow.source_port % 7 * 10**6, id="hosts are busy"),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_link_is_found_by_where_answers_become_late(seed, own_ns):
    fabric = Fabric(seed=seed, slow_ns={LEAF_SPINE: 4_800_000})
    (verdict,) = latency_verdicts(fabric, own_ns)
    assert (verdict.component, verdict.symptom) == (LEAF_SPINE, Symptom.LATENCY)


@pytest.mark.parametrize(
    "own_ns",
    [
        pytest.param(lambda flow, n: n * 40_000_000, id="steps beyond the shift"),
        pytest.param(lambda flow, n: (n == 1) * 30_000_000, id="a spine answers late"),
    ],
)
def test_routers_that_tell_nothing_leave_a_slow_tie_undecided(own_ns):
    fabric = Fabric(seed=1, slow_ns={LEAF_SPINE: 4_800_000})
    (verdict,) = latency_verdicts(fabric, own_ns)
    assert verdict.component is None
    tied = {s.component for s in verdict.alternatives[:2]}
    assert tied == {LEAF_SPINE, link("leaf-s1-r0", "spine-1")}
    assert verdict.missing


@pytest.mark.parametrize("seed", SEEDS)
def test_routers_that_are_all_as_late_do_not_clear_the_way_to_the_first(seed):
    fabric = Fabric(seed=seed, slow_ns={switch("leaf-s1-r1"): 4_800_000})
    (verdict,) = latency_verdicts(fabric, lambda flow, n: 0)
    assert verdict.component == switch("leaf-s1-r1")


def test_everything_slow_at_once_accuses_nobody():
    fabric = Fabric(seed=1)
    case = fabric.case(slow=dict.fromkeys(fabric.flows, (2e5, 5e6)))
    polled = poll_latency(case, case.flows, fabric.topology())
    assert by_latency(case, polled) == []


def test_a_tie_that_cannot_be_counted_stays_undecided():
    found = verdicts(Fabric(seed=1, loss={LEAF_SPINE: 1.0}), count=False)
    assert [v.component for v in found] == [None]
    tied = {s.component for s in found[0].alternatives[:2]}
    assert tied == {LEAF_SPINE, link("leaf-s1-r0", "spine-1")}


def test_of_a_host_with_many_flows_on_unknown_ways_every_second_or_third_is_put_to_the_vote(
    monkeypatch,
):
    fabric = Fabric(seed=1, ports=40, tasks=1, background=0.05)
    case, unknown = fabric.case(), LearnedTopology()
    lossy = [view for view in case.flows if view.lost]
    assert len(lossy) > 4 * 20
    monkeypatch.setattr(ballots_module, "MAX_OPEN", 20)
    polled = poll(case, case.flows, unknown)
    assert len(polled.ballots) == 4 * 20
    stood_for = sum(ballot.lost * ballot.times for ballot in polled.ballots)
    assert 0.6 < stood_for / sum(view.lost for view in lossy) < 1.4
    known = poll(case, case.flows, fabric.topology())
    assert len(known.ballots) + len(known.fine[0].rows) == len(case.flows)


def test_a_host_that_loses_everything_on_thousands_of_flows_costs_no_more_than_others():
    fabric = Fabric(seed=1, rails=1, tasks=1, ports=400)
    case = fabric.case()
    flows = [_dead(v) if fabric.endpoints[v.flow.source].host == "h0" else v for v in case.flows]
    polled = poll(case, Flows.of(flows, fabric.numbers), fabric.topology())
    assert sum(ballot.lost > 0 for ballot in polled.ballots) == MAX_LOSSY
    assert len(polled.fine[0].rows) == 3 * 3 * 400


class Again:
    """A vote that ends on one component once packets were counted."""

    def __init__(self, component):
        lossy = [Ballot(("a", str(n)), 9, 5, frozenset({component}), n) for n in range(3)]
        suspect = Suspect(component, 1.0, 15, 27)
        self.elections = (Election((suspect,), tuple(lossy), 3, 50.0),)

    def again(self, *_, **__):
        return self.elections


@pytest.mark.parametrize(("open_before", "after", "decided"), [
    (LEAF_SPINE, rnic("h2", "rnic1"), False),
    (rnic("h2", "rnic1"), rnic("h2", "rnic1"), True),
    (LEAF_SPINE, switch("spine-1"), True),
], ids=str)  # fmt: skip
def test_packets_counted_on_ways_make_no_rnic_a_suspect(open_before, after, decided):
    """A link flaps: it is well when packets are counted, and what they do not cross is left."""
    polled = Poll({}, vote=Again(after), elections=Again(open_before).elections)
    again = poll_again(polled, (), borne_out=lambda *_: True)
    assert [each.decided for each in again.elections] == [decided]
    known = poll_again(polled, ())
    assert [each.decided for each in known.elections] == [True]


def test_rates_of_links_are_of_all_that_crossed_them_where_nobody_saw_the_ways():
    fabric = Fabric(seed=3, loss={LEAF_SPINE: 0.2}, probes=40)
    case = fabric.case()
    open_ways = {
        each.component: each.lost / each.crossed
        for election in poll(case, case.flows, untraced(fabric)).elections
        for each in election.suspects
    }
    (truth,) = poll(case, case.flows, fabric.topology()).elections
    rate = truth.suspects[0].lost / truth.suspects[0].crossed
    assert open_ways[LEAF_SPINE] == pytest.approx(rate, rel=0.4)


@pytest.mark.parametrize(("fabric", "rate", "component", "decided"), [
    (FabricKind.ECMP, 0.5, LEAF_SPINE, True),
    (FabricKind.SPRAY, 0.5, LEAF_SPINE, False),
    (FabricKind.SPRAY, 0.5, switch("leaf-s0-r0"), False),
    (FabricKind.SPRAY, 1.0, switch("leaf-s0-r0"), True),
    (FabricKind.SPRAY, 0.5, rnic("h2", "rnic1"), True),
], ids=str)  # fmt: skip
def test_where_packets_are_sprayed_no_part_of_the_ways_is_named(fabric, rate, component, decided):
    topology = LearnedTopology(DeclaredTopology(fabric=fabric))
    lossy = [Ballot(("a", str(n)), 9, 9, frozenset({component}), n) for n in range(3)]
    suspect = Suspect(component, 1.0, 27, round(27 / rate))
    made = sprayed(Poll({}, elections=(Election((suspect,), tuple(lossy), 3, 50.0),)), topology)
    assert [each.decided for each in made.elections] == [decided]


@pytest.mark.parametrize(("run", "run_ms", "died", "one"), [
    (5, 1500, 5, 5), (2, 200, 0, 2), (0, 0, 0, 0),
])  # fmt: skip
@pytest.mark.parametrize("traced", [True, False])
def test_ballots_say_how_a_flow_ended(run, run_ms, died, one, traced):
    fabric = Fabric(seed=1, probes=8)
    case = fabric.case()
    lossy = [replace(view, lost=5, run=run, run_ms=run_ms) for view in case.flows[:8]]
    made = poll(
        case, Flows.of(lossy, fabric.numbers), fabric.topology() if traced else untraced(fabric)
    ).ballots
    far = [ballot for ballot in made if ballot.whole is traced]
    assert far
    for ballot in far:
        assert (ballot.lost, ballot.run, ballot.way) == (5, died, None)
        assert ballot.last == (died if traced else one)


@pytest.mark.parametrize(
    ("rate", "lost", "stays"), [(0.8, 9, False), (0.8, 2, True), (0.02, 9, True)]
)
def test_what_died_within_a_window_leaves_none_of_its_losses_to_others(rate, lost, stays):
    """A spine dies; flows that may have crossed it are laid at the door of a link, too."""
    spine = switch("spine-3")
    suspect = Suspect(spine, 1.0, round(500 * rate), 500)
    mine = [Ballot(("a", str(n)), 9, 9, frozenset({spine}), n) for n in range(3)]
    other = Ballot(("b", "c"), 9, lost, frozenset(), "x", {spine: 0.25})
    view = FlowView(FlowId(EndpointId("b", 0), EndpointId("c", 0), 1), 9, lost, 0, 0, 0, 0, 0, 0)
    polled = Poll(
        dict.fromkeys([*mine, other], view), elections=(Election((suspect,), (*mine,), 3, 50.0),)
    )
    assert [b.pair for b in left(polled).ballots] == [other.pair] * stays


@pytest.mark.parametrize("seed", range(6))
def test_what_a_dead_rnic_loses_is_not_counted_to_a_link_of_its_leaf(seed):
    dead = rnic("h0", "rnic0")
    fabric = Fabric(seed=seed, loss={LEAF_SPINE: 0.05, dead: 1.0}, probes=40)
    named = {v.component: v for v in verdicts(fabric) if v.component is not None}
    assert named.keys() == {LEAF_SPINE, dead}
    (tally,) = (e for e in named[LEAF_SPINE].evidence if e.kind is EvidenceKind.TALLY)
    assert tally.values["lost"] < 0.15 * tally.values["crossed"]
