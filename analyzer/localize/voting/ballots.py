# SPDX-License-Identifier: Apache-2.0
"""Votes into verdicts: loss and latency over the components that flows cross."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from heapq import nsmallest
from itertools import pairwise

from analyzer.detect.chance import gathered
from analyzer.detect.flows import Flows, FlowView
from analyzer.localize.case import (
    Case,
    Endpoints,
    Explained,
    OrderedPair,
    is_switched,
    pair_of,
    pairs_quoted,
    unordered,
    ways_of,
)
from analyzer.localize.topology import LearnedTopology, Way
from analyzer.localize.voting.counting.counts import FABRIC
from analyzer.localize.voting.directions import OneWay, one_way
from analyzer.localize.voting.election import (
    MIN_LOST,
    MIN_PAIRS,
    MIN_RATE,
    Ballot,
    BorneOut,
    Election,
    Vote,
)
from analyzer.localize.voting.fine import Fine, divide
from analyzer.localize.voting.survivors import survived
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.path import Component, Kind, link_ends
from netagent.model.verdict import Pair, Suspect, Symptom, Verdict

HEALTHY_QUOTED = 6
"""Most healthy pairs in a verdict. Chosen: enough to compare with, short enough to read."""
PATHS_QUOTED = 4
"""Most failing flows whose paths a verdict quotes. Chosen: enough to see what they share, short
enough to read."""
ENDS_NAMED = 3
"""Endpoints, of several, that are named for never being traced. Chosen: to be read."""
VOTE_CONFIDENCE = 0.975
"""Largest confidence of a vote (decision 10). Of votes as sure as can be in simulated fabrics more
are right (docs/campaign.md); a vote infers, and stays below what a walk or a host's own finding
states."""
OPEN_CONFIDENCE = 0.97
"""The same where half of the failing flows took a way that nobody saw. Measured likewise."""
MAX_UNTRACED = 0.2
"""Largest share of an election's failing flows whose ways may be partly unknown. Chosen: with more,
the vote could name a neighbour of what is at fault."""
ENDPOINT_RATE = 0.9
"""Least loss rate of a component outside the fabric that is named while paths are unknown. Chosen:
a dead endpoint loses nearly every probe, and a fault on an unknown path loses some."""
FEW_PERCENT = 0.02
"""Rate below which a digit more is told. Chosen: what is less than two per cent would read as 0, 1
or 2."""
HARD_RATE = 0.3
"""Share lost across a switch from which what else its links lose is no fault of its own. Chosen: as
losses in lumps differ by link; a few per cent do not hide a link that loses far more."""
MAX_OPEN = 128
"""Most flows of a host whose ways are not wholly known that are put to the vote. Chosen: as many
show a loss of a few per cent; the rates of each suspect are fitted to each of them."""
MOST_OPEN = 512
"""Most flows of all hosts whose ways are not wholly known that are put to the vote. Chosen: each of
them is weighed on every way that it may have taken, and of so many the shares are known to a few
per cent."""
MAX_LOSSY = 256
"""Most flows of a host with losses that are put to the vote. Chosen: an agent with default settings
probes a hundred flows of an endpoint in a window, and a host that lies must not cost more."""
MOST_TIMES = 4
"""Most flows of a host that one of them stands for. Chosen: with the above, as many as the eight
endpoints of a host have; one that makes up more weighs no more."""
MIN_SLOW_SHARE = 0.1
"""Least share slow of the flows that cross a component blamed for it. Chosen: specific flows of an
RNIC are slow in three of ten RNIC faults (SkeletonHunter's companion study); the lateness of fewer
has other causes."""
GATHERED = 0.001
"""How likely slow flows may be on one component by chance, given how many are slow. Chosen: some
thirty components are candidates in a small fleet, where whatever keeps all busy slows some flows
here and there: four of a hundred share one of four hosts once in a hundred times."""


@dataclass(frozen=True, slots=True)
class Poll:
    """Flows as ballots, and what they elect."""

    ballots: dict[Ballot, FlowView]
    fine: tuple[Fine, ...] = ()
    """Flows that lost nothing and have no ballot, of each window."""
    vote: Vote | None = None
    """None where too few probes are lost to hold one."""
    elections: tuple[Election, ...] = ()
    large_only: bool = False
    """Whether all lost probes were of the largest size."""
    windows: int = 1
    """Windows whose probes were voted on together."""
    dead: frozenset[Component] = frozenset()
    """What lost all that crossed it."""

    @property
    def poor(self) -> bool:
        """Whether probes are lost, but too few to be sure what is at fault."""
        return any(ballot.lost for ballot in self.ballots) and not any(
            election.decided for election in self.elections
        )


@dataclass(frozen=True, slots=True)
class Counted:
    """Packets counted per router to break a tie, and what is missing elsewhere."""

    lines: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()


def poll(case: Case, flows: Flows, topology: LearnedTopology) -> Poll:
    """Put the losses of `flows` to the vote."""
    lost = int(flows.lost.sum())
    large_only = 0 < lost == int(flows.lost_large.sum())
    one_by_one, fine = divide(flows, case, topology, large_only=large_only)
    if not lost:
        return Poll({}, fine)
    ballots = _thinned(_ballots(one_by_one, case, topology, large_only=large_only), case)
    if lost < MIN_LOST:
        return Poll(ballots, fine, large_only=large_only)
    vote = Vote(list(ballots), case.standing, fine)
    return Poll(ballots, fine, vote, vote.elections, large_only)


def pool(
    polled: Poll,
    before: Sequence[Poll],
    case: Case,
    named: AbstractSet[Component] = frozenset(),
) -> Poll:
    """Put what several windows in a row lost to the vote, each on the ways of its own time.

    What may have been lost on a component in `named` is left out.
    """
    every = [_of_survivors(each) for each in (left(polled), *before)]
    ballots = {
        replace(ballot, key=(n, ballot.key)): view
        for n, each in enumerate(every)
        for ballot, view in each.ballots.items()
        if not ballot.lost or named.isdisjoint(_crossed(ballot))
    }
    lossy = [ballot for ballot in ballots if ballot.lost]
    if sum(b.lost for b in lossy) < MIN_LOST or len({b.pair for b in lossy}) < MIN_PAIRS:
        return Poll({})
    fine = tuple(fine for each in every for fine in each.fine)
    vote = Vote(list(ballots), case.standing, fine)
    return Poll(ballots, fine, vote, vote.elections, windows=len(every))


def _of_survivors(polled: Poll) -> Poll:
    """Return a poll in which flows that still got answers crossed nothing that was dead."""
    if not polled.dead:
        return polled
    ballots = {
        survived(ballot, polled.dead) if 2 * ballot.lost < ballot.sent else ballot: view
        for ballot, view in polled.ballots.items()
    }
    return replace(
        polled, ballots=ballots, fine=tuple(each.survived(polled.dead) for each in polled.fine)
    )


def left(polled: Poll) -> Poll:
    """Return what a poll leaves for later ones, of all sizes: not what it names somebody for.

    What something lost that died within the window may have been laid at another's door, too: at
    that of its links, or of whoever else the same flows crossed.
    """
    decided = [election for election in polled.elections if election.decided]
    told = {ballot for election in decided for ballot in election.explains}
    hard = {each.component for e in decided if _loses_much(each := e.suspects[0])}
    ballots = {
        _of_all_sizes(ballot, view): view
        for ballot, view in polled.ballots.items()
        if ballot not in told
        and (2 * ballot.lost < max(1, ballot.sent) or hard.isdisjoint(_crossed(ballot)))
    }
    fine = tuple(fine.of_all_sizes() for fine in polled.fine)
    return Poll(ballots, fine, dead=dead(polled))


def _of_all_sizes(ballot: Ballot, view: FlowView) -> Ballot:
    if (ballot.sent, ballot.lost) == (view.sent, view.lost):
        return ballot
    return replace(ballot, sent=view.sent, lost=view.lost)


def _crossed(ballot: Ballot) -> set[Component]:
    """Return all that a ballot's probes may have crossed."""
    return {*ballot.components, *ballot.maybe}


def _loses_much(suspect: Suspect) -> bool:
    return suspect.lost >= HARD_RATE * suspect.crossed


def dead(polled: Poll) -> frozenset[Component]:
    """Return what a poll names, and what lost all that crossed it."""
    return polled.dead | {e.suspects[0].component for e in polled.elections if e.dead}


def poll_again(
    polled: Poll,
    counted: Sequence[Ballot],
    cleared: AbstractSet[Component] = frozenset(),
    *,
    borne_out: BorneOut | None = None,
    gone: AbstractSet[Component] = frozenset(),
) -> Poll:
    """Return the poll as it ends with packets counted per router, which `cleared` some suspects.

    Where hosts counted on ways that they found by themselves, `borne_out` says of an election
    whether they bear it out, and `gone` are switches named before that none of these ways crosses.
    """
    if polled.vote is None:
        return polled
    elections = polled.vote.again(counted, cleared, freely=borne_out is not None, gone=gone)
    if borne_out is not None:
        open_before = {component for each in polled.elections for component in each.tied}
        named = [e.suspects[0].component if e.suspects else None for e in elections]
        others = [{c for m, c in enumerate(named) if c and m != n} for n in range(len(named))]
        elections = tuple(
            replace(e, doubtful=not (borne_out(e, rest) and _tells_itself(e, open_before)))
            for e, rest in zip(elections, others, strict=True)
        )
    return replace(polled, elections=elections)


def _tells_itself(election: Election, open_before: AbstractSet[Component]) -> bool:
    """Return whether the best suspect is of the fabric, or was suspected by the probes alone.

    Which endpoints a probe crosses is always known. Where one is suspected only once packets were
    counted between switches, those have acquitted what was at fault, and was well meanwhile.
    """
    best = next(iter(election.suspects), None)
    return best is None or best.component.kind in FABRIC or best.component in open_before


def sprayed(polled: Poll, topology: LearnedTopology) -> Poll:
    """Return a poll that names no switch and no link where each packet takes a way of its own.

    All links of a leaf, and the leaf, are then alike to probes. Only what loses everything, on all
    ways, is told from what is on some of them.
    """
    if not topology.sprays:
        return polled
    return replace(
        polled,
        elections=tuple(
            replace(each, doubtful=True)
            if each.decided and each.suspects[0].component.kind in FABRIC and not each.dead
            else each
            for each in polled.elections
        ),
    )


def by_votes(
    case: Case, polled: Poll, topology: LearnedTopology, counted: Counted | None = None
) -> list[Explained]:
    """Return verdicts for the losses that were put to the vote, the undecided last."""
    if not polled.elections:
        return _nobody(polled, topology, case.endpoints)
    return [
        _by_election(election, polled, topology, counted or Counted(), case.endpoints)
        for election in sorted(
            _doubted(_folded(polled.elections)), key=lambda each: not each.decided
        )
        if sum(ballot.lost for ballot in election.explains) >= MIN_LOST
    ]


def _folded(elections: Sequence[Election]) -> list[Election]:
    """Return elections without those on links of a switch that is named: their losses are its own.

    What a switch loses beside that on one of its links is a fault of its own only where the switch
    itself does not lose much.
    """
    left = list(elections)
    for n, whole in enumerate(left):
        if not whole.decided or whole.suspects[0].component.kind is not Kind.SWITCH:
            continue
        parts = [each for each in left if _is_part(each, whole.suspects[0])]
        mine = {*whole.explains}
        more = [b for part in parts for b in part.explains if b not in mine]
        left[n] = replace(whole, explains=(*whole.explains, *dict.fromkeys(more)))
    wholes = [each.suspects[0] for each in left if each.decided]
    return [each for each in left if not any(_is_part(each, whole) for whole in wholes)]


def _doubted(elections: Sequence[Election]) -> list[Election]:
    """Return elections, of which those on links are doubtful while their switch is suspected.

    That is so where nobody saw the ways, and where it is named, too: what a switch loses looks as
    if one of its links lost it.
    """
    suspected = {
        component.name
        for each in elections
        if each.shared
        for component in (each.tied if not each.decided else (each.suspects[0].component,))
        if component.kind is Kind.SWITCH
    }
    return [
        replace(each, doubtful=True)
        if each.decided
        and _is_open(each)
        and (best := each.suspects[0].component).kind is Kind.LINK
        and not suspected.isdisjoint(link_ends(best))
        else each
        for each in elections
    ]


def _is_open(election: Election) -> bool:
    """Return whether half of the flows that it explains took ways that nobody saw."""
    unseen = sum(not ballot.whole for ballot in election.explains)
    return 2 * unseen >= len(election.explains)


def _is_part(election: Election, whole: Suspect) -> bool:
    """Return whether an election is about links of a switch, and no fault of its own."""
    return (
        whole.component.kind is Kind.SWITCH
        and (_loses_much(whole) or not election.decided)
        and bool(election.suspects)
        and (part := election.suspects[0].component).kind is Kind.LINK
        and whole.component.name in link_ends(part)
    )


def _nobody(polled: Poll, topology: LearnedTopology, endpoints: Endpoints) -> list[Explained]:
    """Return that no component loses more than the others, where losses are many all the same."""
    lossy = [ballot for ballot in polled.ballots if ballot.lost]
    lost, sent = sum(b.lost for b in lossy), sum(b.sent for b in polled.ballots)
    sent += sum(each.probes for each in polled.fine)
    if lost < max(MIN_LOST, MIN_RATE * sent) or len({ballot.pair for ballot in lossy}) < MIN_PAIRS:
        return []
    flows = tuple(polled.ballots[ballot] for ballot in lossy)
    verdict = Verdict(
        None, None, Symptom.LOSS, 0.0,
        f"insufficient evidence: {lost} of {sent} probes are lost, whatever they cross",
        failing=pairs_quoted(flows), evidence=tuple(_paths(flows, topology)),
        missing=tuple(_untraced(lossy, polled, endpoints)),
    )  # fmt: skip
    return [Explained(verdict, flows)]


def _ballots(
    flows: Flows, case: Case, topology: LearnedTopology, *, large_only: bool
) -> dict[Ballot, FlowView]:
    ways = ways_of(flows, case, topology)
    return {
        _ballot(view, way, large_only=large_only): view
        for view, way in zip(flows, ways, strict=True)
    }


def _ballot(view: FlowView, way: Way, *, large_only: bool) -> Ballot:
    # Where only the largest probes are lost, the small ones say nothing.
    sent, lost = (view.sent_large, view.lost_large) if large_only else (view.sent, view.lost)
    pair = unordered(pair_of(view.flow))
    # Where the way is open, so is what broke within the window on how many of the others' ways.
    is_one = view.unconnected or not way.whole
    return Ballot(
        pair, sent, lost, way.certain, view.flow, way.maybe, way.unseen, way.legs,
        pair_of(view.flow), run=view.run if view.unconnected else 0,
        last=view.run if is_one else 0,
    )  # fmt: skip


def _thinned(ballots: dict[Ballot, FlowView], case: Case) -> dict[Ballot, FlowView]:
    """Leave out some of the ballots of hosts with many flows that are costly to weigh.

    Those are flows whose ways are not wholly known, and flows with losses.

    Every second, third ... flow in order is left, and stands for those that are not, so that shares
    stay as they are; but for no more than a host that tells the truth has.
    """
    opens: dict[tuple[bool, str], list[Ballot]] = defaultdict(list)
    lossy: dict[str, list[Ballot]] = defaultdict(list)
    for ballot, view in ballots.items():
        host = case.endpoints[view.flow.source].host
        if not ballot.whole:
            opens[2 * ballot.lost < ballot.sent, host].append(ballot)
        elif ballot.lost:
            lossy[host].append(ballot)
    for mine in (*opens.values(), *lossy.values()):
        mine.sort(key=lambda ballot: ballots[ballot].flow.order)
    times: dict[Ballot, int] = {}
    # The few that lose a little are not lost among the many that something dead leaves.
    for arrives in (False, True):
        some: dict[Ballot, int] = {}
        for (alive, _), mine in opens.items():
            if alive is arrives:
                some |= _evenly(mine, MAX_OPEN)
        every = sorted(some, key=lambda ballot: ballots[ballot].flow.order)
        most = min(MOST_OPEN, len(every))
        kept = [every[len(every) * n // most] for n in range(most)]
        share = len(every) / max(1, most)
        times |= {ballot: round(some[ballot] * share) for ballot in kept}
    for mine in lossy.values():
        times |= _evenly(mine, MAX_LOSSY)
    costly = {ballot for group in (opens, lossy) for mine in group.values() for ballot in mine}
    return {
        replace(ballot, times=count) if (count := times.get(ballot, 1)) > 1 else ballot: view
        for ballot, view in ballots.items()
        if ballot in times or ballot not in costly
    }


def _evenly(ballots: Sequence[Ballot], most: int) -> dict[Ballot, int]:
    """Return at most so many, with how many each stands for."""
    count = min(most, len(ballots))
    edges = [len(ballots) * n // count for n in range(count)] + [len(ballots)]
    return {ballots[edge]: min(MOST_TIMES, after - edge) for edge, after in pairwise(edges)}


def _by_election(
    election: Election,
    polled: Poll,
    topology: LearnedTopology,
    counted: Counted,
    endpoints: Endpoints,
) -> Explained:
    flows = tuple(polled.ballots[b] for b in election.explains)
    best = next(iter(election.suspects), None)
    rate = best.lost / max(1, best.crossed) if best else 1.0
    dead = any(v.unconnected for v in flows)
    symptom = Symptom.UNCONNECTIVITY if dead and rate > 0.5 else Symptom.LOSS
    size = " of the largest size" if polled.large_only else ""
    large = {"large": polled.large_only}
    facts: list[Evidence] = []
    if best is not None:
        tally = {"component": str(best.component), "lost": best.lost, "crossed": best.crossed}
        facts.append(Evidence(EvidenceKind.TALLY, tally | large))
    facts += [*counted.lines, *_paths(flows, topology)]
    if polled.windows > 1:
        facts.append(Evidence(EvidenceKind.POOLED, {"windows": polled.windows}))
    if polled.large_only:
        facts.append(Evidence(EvidenceKind.LARGE_ONLY))
    blind = (
        best is not None
        and _blind(election)
        and (rate < ENDPOINT_RATE or best.component.kind in FABRIC)
    )
    if best is not None and election.shared and not election.stands_out:
        lost, sent = election.beside
        beside = {"kind": best.component.kind.value, "lost": lost, "sent": sent}
        facts.append(Evidence(EvidenceKind.BESIDE, beside | large))
    if best is None or blind or not election.decided:
        wanted = list(counted.missing)
        if election.pairs < 2:
            wanted.append("a second failing pair that shares a component")
        wanted += _untraced(election.explains, polled, endpoints)
        undecided = _undecided(election, flows, facts, wanted, symptom)
        return Explained(undecided, flows)
    said = f"{_percent(rate)} of the probes{size} that cross {best.component} are lost"
    if way := _one_way(best.component, polled, topology):
        said = (
            f"{_percent(way.rate)} of the probes{size} that cross {best.component} from "
            f"{way.source} to {way.target} are lost, {_percent(way.back_rate)} the other way"
        )
        told = {"component": str(best.component), **asdict(way)}
        facts.insert(1, Evidence(EvidenceKind.DIRECTION, told | large))
    unseen = [pair_of(polled.ballots[b].flow) for b in election.explains if not b.whole]
    verdict = Verdict(
        best.component, best.component.layer, symptom, _confidence(election),
        said + _or_alike(election),
        failing=pairs_quoted(flows), healthy=_neighbours(best.component, polled),
        alternatives=election.suspects[1:], evidence=tuple(facts),
        missing=(*counted.missing, *_never_traced(unseen, endpoints)),
    )  # fmt: skip
    return Explained(verdict, flows)


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %" if 0 < rate < FEW_PERCENT else f"{100 * rate:.0f} %"


def _one_way(component: Component, polled: Poll, topology: LearnedTopology) -> OneWay | None:
    if component.kind is not Kind.LINK:
        return None
    votes = ((ballot, view.flow) for ballot, view in polled.ballots.items())
    return one_way(component, votes, topology, polled.fine)


def _blind(election: Election) -> bool:
    """Return whether too many of the lost probes took ways that are partly unknown."""
    unseen = sum(ballot.unseen > 0 for ballot in election.explains)
    return unseen > MAX_UNTRACED * len(election.explains)


def _undecided(
    election: Election,
    flows: Sequence[FlowView],
    facts: Sequence[Evidence],
    wanted: Sequence[str],
    symptom: Symptom,
) -> Verdict:
    compared = "a comparison of the datapath's and the RNIC's flow tables with OpenFlow's"
    return Verdict(
        None, None, symptom, _confidence(election),
        "insufficient evidence: no component explains the losses better than the others",
        failing=pairs_quoted(flows), alternatives=election.suspects,
        evidence=tuple(facts), missing=(*wanted, compared),
    )  # fmt: skip


def _untraced(ballots: Iterable[Ballot], polled: Poll, endpoints: Endpoints) -> list[str]:
    """Say of how many flows nobody saw the ways, apart from those that are never traced."""
    pairs = [pair_of(polled.ballots[ballot].flow) for ballot in ballots if not ballot.whole]
    some = sum(is_switched(pair, endpoints) for pair in pairs)
    seen_by_nobody = [f"the underlay paths of {some} failing flows"] if some else []
    return [*seen_by_nobody, *_never_traced(pairs, endpoints)]


def _never_traced(pairs: Iterable[OrderedPair], endpoints: Endpoints) -> list[str]:
    """Say of flows between such pairs that no way is seen of those without a virtual switch."""
    bare = [pair for pair in pairs if not is_switched(pair, endpoints)]
    ends = sorted(
        {key for pair in bare for key in pair if key in endpoints and not endpoints[key].bridge}
    )
    if not bare:
        return []
    more = f" and {len(ends) - ENDS_NAMED} more" if len(ends) > ENDS_NAMED else ""
    carried = f"no virtual switch carries {', '.join(map(str, ends[:ENDS_NAMED]))}{more}"
    return [f"the underlay paths of {len(bare)} failing flows, which are not traced: {carried}"]


def _confidence(election: Election) -> float:
    most = OPEN_CONFIDENCE if _is_open(election) else VOTE_CONFIDENCE
    return round(min(election.confidence, most), 3)


def _or_alike(election: Election) -> str:
    others = [str(each.component) for each in election.alike[1:]]
    return f"; the same probes cross {' and '.join(others)}" if others else ""


def _neighbours(component: Component, polled: Poll) -> tuple[Pair, ...]:
    # Healthy pairs that cross most of what the failing ones cross, but not the suspect.
    near: set[Component] = set()
    ballots = polled.ballots
    for ballot in ballots:
        if ballot.lost and component in ballot.components:
            near |= ballot.components
    sent = Counter[OrderedPair]()
    for ballot, view in ballots.items():
        if view.lost or component in ballot.components:
            continue
        if not near.isdisjoint(ballot.components):
            sent[pair_of(view.flow)] += view.sent
    for each in polled.fine[:1]:
        sent.update(each.neighbours(component, near, HEALTHY_QUOTED))
    most = nsmallest(HEALTHY_QUOTED, sent.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Pair(*pair, total, 0) for pair, total in most)


def _paths(flows: Sequence[FlowView], topology: LearnedTopology) -> list[Evidence]:
    lines: list[Evidence] = []
    for view in sorted(flows, key=lambda v: -v.lost)[:PATHS_QUOTED]:
        for reply in (False, True):
            hops = topology.hops(view.flow, reply=reply)
            if hops is None:
                continue
            a, b = view.flow.source, view.flow.target
            ends = (b, a) if reply else (a, b)
            way = [str(ends[0]), *hops, str(ends[1])]
            lost = {"lost": view.lost, "sent": view.sent}
            lines.append(Evidence(EvidenceKind.PATH, {"way": way, "reply": reply} | lost))
            after = topology.ends_after(view.flow, reply=reply)
            if after is not None:
                lines.append(Evidence(EvidenceKind.TRACE_END, {"router": after}))
    return lines


def poll_latency(case: Case, flows: Flows, topology: LearnedTopology) -> Poll:
    """Vote on which component the slow flows share; each flow counts as one probe."""
    slow = flows.among(case.slow)
    if int(slow.sum()) < MIN_LOST:
        return Poll({})
    one_by_one, fine = divide(flows.as_votes(slow), case, topology)
    ballots = _thinned(_ballots(one_by_one, case, topology, large_only=False), case)
    # What is slow arrived all the same.
    ballots = {survived(ballot, case.dead): view for ballot, view in ballots.items()}
    fine = tuple(each.survived(case.dead) for each in fine)
    vote = Vote(list(ballots), fine=fine)
    return _slow_enough(Poll(ballots, fine, vote, vote.elections))


def poll_latency_again(
    polled: Poll,
    counted: Sequence[Ballot],
    cleared: AbstractSet[Component] = frozenset(),
    *,
    borne_out: BorneOut | None = None,
) -> Poll:
    """Return the poll as it ends with routers that were timed, which `cleared` some suspects."""
    return _slow_enough(poll_again(polled, counted, cleared, borne_out=borne_out))


def _slow_enough(polled: Poll) -> Poll:
    kept = [
        election
        for election in polled.elections
        if election.suspects
        and (best := election.suspects[0]).lost >= MIN_SLOW_SHARE * best.crossed
        and (
            not election.beside[1] or gathered(best.lost, best.crossed, *election.beside) < GATHERED
        )
    ]
    return replace(polled, elections=tuple(kept))


def by_latency(case: Case, polled: Poll, counted: Counted | None = None) -> list[Explained]:
    """Return verdicts on the components that slow flows share, where they stand out.

    Where several components explain the slow flows equally well, and counts from routers do not
    decide between them, the verdict names none and lists them.
    """
    return [
        explained
        for election in _folded(polled.elections)
        if election.shared
        for explained in _by_slowness(election, case, polled, counted)
    ]


def _by_slowness(
    election: Election, case: Case, polled: Poll, counted: Counted | None
) -> list[Explained]:
    best = election.suspects[0]
    mine = tuple(polled.ballots[b] for b in election.explains)
    lines = [_shift(v, case) for v in mine[:8]]
    facts = (*(counted.lines if counted else ()), *lines)
    if not election.decided and counted is None:
        return []
    if not election.decided:
        wanted = _untraced(election.explains, polled, case.endpoints)
        wanted.append("routers whose answers become late where flows do")
        undecided = Verdict(
            None, None, Symptom.LATENCY, _confidence(election),
            f"insufficient evidence: {len(mine)} flows became slow, and several parts explain it",
            failing=pairs_quoted(mine), alternatives=election.suspects,
            evidence=facts, missing=tuple(wanted),
        )  # fmt: skip
        return [Explained(undecided, mine)]
    verdict = Verdict(
        best.component, best.component.layer, Symptom.LATENCY, _confidence(election),
        f"{best.lost} of {best.crossed} flows that cross {best.component} became slow"
        + _or_alike(election),
        failing=pairs_quoted(mine), healthy=_neighbours(best.component, polled),
        alternatives=election.suspects[1:], evidence=facts,
    )  # fmt: skip
    return [Explained(verdict, mine)]


def _shift(view: FlowView, case: Case) -> Evidence:
    flow, (before_ns, now_ns) = view.flow, case.slow[view.flow]
    ends = {"source": str(flow.source), "target": str(flow.target), "port": flow.source_port}
    return Evidence(EvidenceKind.SHIFT, ends | {"before_ns": before_ns, "now_ns": now_ns})
