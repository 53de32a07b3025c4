# SPDX-License-Identifier: Apache-2.0
"""The vote on a window's losses, with packets counted per router where it is a tie."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import combinations, takewhile

from analyzer.detect.flows import FlowView, unconnected_pairs
from analyzer.localize.case import Case, Explained, pair_of
from analyzer.localize.contract import Context
from analyzer.localize.voting.ballots import (
    Counted,
    Poll,
    by_votes,
    left,
    poll,
    poll_again,
    pool,
    sprayed,
)
from analyzer.localize.voting.counting import acquittal, asking, choosing, losses, proof, quoting
from analyzer.localize.voting.counting.counts import Count
from analyzer.localize.voting.election import Ballot, Election, is_dead
from analyzer.localize.voting.sampling import across, sample
from analyzer.questions import Asking
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.path import Component, Kind, link_ends

POOLED = 6
"""Most windows in a row whose probes are voted on together. Chosen: half a minute shows a loss of
three in a thousand on a link that some hundred flows cross."""
DYING = 0.9
"""Share of the lossy flows that lost their last probes, and no others, from which something broke
as the window ended. Chosen: nearly all; a stray loss before says little."""
RECOUNTS = 5
"""Windows in which packets are counted again, after somebody was named where nobody saw the ways.
Chosen: all that counts are added up over; in one of them a loss of a per cent hardly shows."""
RECOUNT_EVERY = 12
"""Windows after which they are once more. Chosen: a minute; each time is some thousand packets."""
OF_HOSTS = {Kind.RNIC, Kind.HOST, Kind.CONTAINER, Kind.ENDPOINT}
"""Kinds of components for which flow tables of hosts may be at fault instead."""
LARGE_SHARE = 0.6
"""Share of the largest probes among those lost from which packets of that size are counted. Chosen:
agents send a third of that size; the rest may be what another fault loses."""
LASTING = 100.0
"""Nats of evidence from which suspects that are still open are alike to probes. Chosen: far more
than a verdict needs."""


@dataclass(frozen=True, slots=True)
class _Window:
    """What is remembered of a window."""

    end_ns: int
    rest: Poll
    """What nobody was named for."""
    named: frozenset[Component]
    counted: tuple[Ballot, ...]
    """Packets that were counted per router."""
    is_open: bool
    """Whether many losses are nobody's, which would be laid at the door of anybody else's."""
    counts: tuple[Count, ...] = ()
    """What `counted` was made of."""


class Votes:
    """Votes on losses, window after window."""

    settles = False
    _before: tuple[_Window, ...] = ()
    """The newest windows in a row, newest first."""
    _counted_now: tuple[Ballot, ...] = ()
    """Packets that were counted for the window under judgement."""
    _counts_now: tuple[Count, ...] = ()
    _gone: frozenset[Component] = frozenset()
    """Switches that were named, and that no way which hosts found has crossed since."""

    def __init__(self, context: Context) -> None:
        self._topology = context.topology
        self._doubts = context.doubts

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return verdicts on the losses that may be voted on, the undecided last."""
        some = sample(self._doubts.leave(case, case.votable()), case)
        flows = some.flows
        before = [each.rest for each in self._in_a_row(case)]
        self._counted_now = self._counts_now = ()
        own = poll(case, flows, self._topology)
        polled, weighed = self._with_more(case, own, flows, before)
        polled, explained = yield from self._settled(case, polled, weighed)
        if some.others is not None:
            # What explains the flows that were weighed explains those of other pairs, too.
            best = {each.suspects[0].component for each in polled.elections if each.suspects}
            case.cover(across(some.others, best, case, self._topology))
            explained = [_of_sample(each, some.share) for each in explained]
        rest = left(polled if polled.windows == 1 else own)
        case.dead = rest.dead
        named = frozenset(e.suspects[0].component for e in polled.elections if e.decided)
        self._gone |= {component for component in named if component.kind is Kind.SWITCH}
        is_open = any(_lasting(e) and not e.decided for e in polled.elections)
        newest = _Window(
            case.window.end_ns, rest, named, self._counted_now, is_open, self._counts_now
        )
        self._before = (newest, *self._before[: len(before)])[: POOLED - 1]
        if before and named and _lossy(rest):
            pooled = self._beside(case, rest, before)
            if _shared(pooled):
                self._counted_now = self._counts_now = ()
                _, more = yield from self._settled(case, pooled, tuple(pooled.ballots.values()))
                explained += more
                self._before = (self._with_new(newest), *self._before[1:])
        return self._doubts.better(case, explained)

    def _settled(
        self, case: Case, polled: Poll, flows: Sequence[FlowView]
    ) -> Asking[tuple[Poll, list[Explained]]]:
        """Return a poll with packets counted per router where it is a tie, and its verdicts."""
        counted = Counted(missing=tuple(case.missing))
        ties = [e for e in polled.elections if choosing.worth_counting(e, case.standing)]
        ties += [e for e in polled.elections if e not in ties and self._to_recount(e, case)]
        if self._topology.sprays:
            ties = []  # routers that answer are of several packets' ways
        if wanted := choosing.choose(
            ties, flows, case.endpoints, self._topology, over_ms=choosing.OVER_MS
        ):
            large = polled.large_only or any(_of_large(each, polled) for each in polled.elections)
            counts = yield from asking.count(wanted, case.endpoints, self._topology, large=large)
            if counts:
                counts = [replace(each, window_ns=case.window.start_ns) for each in counts]
                polled = self._counted(case, polled, ties, counts)
            # What decided is quoted, though it was counted windows ago and is well by now.
            earlier = [count for window in self._with_counts(case, ties) for count in window.counts]
            counted = Counted(tuple(quoting.counted([*counts, *earlier])), tuple(case.missing))
        polled = sprayed(_alive(polled, case), self._topology)
        return polled, by_votes(case, polled, self._topology, counted)

    def _counted(
        self, case: Case, polled: Poll, ties: Sequence[Election], counts: Sequence[Count]
    ) -> Poll:
        """Return a poll as it ends with the packets that were counted for its ties."""
        ballots = losses.ballots(counts, case.endpoints, ties=ties)
        suspects = [suspect for tie in ties for suspect in tie.suspects]
        every = [suspect for each in polled.elections for suspect in each.suspects]
        self._gone -= acquittal.switches(counts)
        cleared = acquittal.cleared(suspects, counts, case.endpoints)
        borne_out = proof.judge(counts, ballots, case.endpoints, self._topology)
        again = {ballot.way for ballot in ballots}
        earlier = [
            ballot
            for each in self._with_counts(case, ties)
            for ballot in each.counted
            if ballot.way not in again
        ]
        self._counted_now, self._counts_now = tuple(ballots), tuple(counts)
        result = poll_again(
            polled, [*ballots, *earlier], cleared | acquittal.beyond(every, counts, self._gone),
            borne_out=borne_out,
            gone=self._gone if any(each.own for each in counts) else frozenset(),
        )  # fmt: skip
        elections = result.elections
        if borne_out is None:
            shown = proof.shown_at_fault(ballots)
            elections = proof.contradicted(elections, counts, ballots, case.standing)
            elections = _not_all(_shown(elections, polled.elections, shown), polled.elections)
            elections = proof.ruled_out(elections, polled.elections, shown)
            elections = proof.links_first(elections, polled.elections, shown)
            elections = tuple(
                replace(each, doubtful=True)
                if each.decided
                and each.suspects[0].component.kind is Kind.SWITCH
                and acquittal.forwards(each.suspects[0], counts, case.endpoints)
                else each
                for each in elections
            )
        turned = proof.turned(counts, self._topology, case.standing) - case.standing
        elections = tuple(
            replace(each, doubtful=True)
            if each.decided and each.suspects[0].component in turned
            else each
            for each in acquittal.whole(elections, counts)
        )
        return replace(result, elections=_kept(polled.elections, elections, case.standing))

    def _with_counts(self, case: Case, ties: Sequence[Election]) -> Sequence[_Window]:
        """Return the windows of which counts speak for these ties, too.

        Of a loss of a few per cent, one count shows little. What is dead was well before it died.
        """
        is_new = any(map(is_dead, ties))
        return () if is_new else self._in_a_row(case)

    def _with_new(self, window: _Window) -> _Window:
        """Return a window with the packets that were counted for it since."""
        return replace(
            window,
            counted=(*window.counted, *self._counted_now),
            counts=(*window.counts, *self._counts_now),
        )

    def _to_recount(self, election: Election, case: Case) -> bool:
        """Return whether to look for others beside one that was named just now, or long ago."""
        if not choosing.worth_recounting(election):
            return False
        if case.slow and self._before and self._before[0].counted:
            return False  # packets on the ways of what is slow are to be counted in time, too
        best = election.suspects[0].component
        is_new = sum(best in window.named for window in self._before) < RECOUNTS
        return is_new or case.window.start_ns // case.window.width_ns % RECOUNT_EVERY == 0

    def _with_more(
        self, case: Case, polled: Poll, flows: Sequence[FlowView], before: Sequence[Poll]
    ) -> tuple[Poll, Sequence[FlowView]]:
        """Return the poll, or one on several windows where this one leaves open who loses."""
        before = _since_losses(polled, before)
        if not polled.poor or not before or any(map(_lasting, polled.elections)):
            return polled, flows
        for count in sorted({1, len(before)}):
            pooled = pool(polled, before[:count], case)
            if _agrees(pooled, polled):
                return pooled, tuple(pooled.ballots.values())
        if _shared(pooled) and not _shared(polled):
            return pooled, tuple(pooled.ballots.values())  # packets that are counted may decide
        return polled, flows

    def _beside(self, case: Case, rest: Poll, before: Sequence[Poll]) -> Poll:
        """Return the poll on what several windows lost beside what is named in any of them."""
        windows = list(takewhile(lambda each: not each.is_open, self._before[: len(before) + 1]))
        if not windows:
            return Poll({})
        named = set(case.standing).union(*(each.named for each in windows))
        return pool(rest, [each.rest for each in windows[1:]], case, named)

    def _in_a_row(self, case: Case) -> list[_Window]:
        """Return the windows up to this one, newest first, as far as they follow each other."""
        found: list[_Window] = []
        end_ns = case.window.end_ns
        if self._before and self._before[0].end_ns != end_ns:
            end_ns = case.window.start_ns  # this one is not among them yet
        for each in self._before:
            if each.end_ns != end_ns:
                break
            found.append(each)
            end_ns -= case.window.width_ns
        return found


def _of_sample(explained: Explained, share: float) -> Explained:
    """Return a verdict that says of which share of the pairs it is."""
    fact = Evidence(EvidenceKind.SAMPLED, {"share": share})
    verdict = explained.verdict
    return replace(explained, verdict=replace(verdict, evidence=(*verdict.evidence, fact)))


def _kept(
    before: Sequence[Election], now: Sequence[Election], standing: AbstractSet[Component]
) -> tuple[Election, ...]:
    """Return elections with those of standing components that were decided before packets counted.

    They were counted again for others beside them; what is well at the moment is no reason to
    forget what the probes show.
    """
    named = {each.suspects[0].component for each in now if each.decided}
    kept = [
        each
        for each in before
        if each.decided and (best := each.suspects[0].component) in standing and best not in named
    ]
    again = {component for each in kept for component in each.tied}
    others = [each for each in now if each.decided or again.isdisjoint(each.tied)]
    return (*kept, *others)


def _shown(
    elections: Sequence[Election], before: Sequence[Election], lossy: AbstractSet[Component]
) -> tuple[Election, ...]:
    """Return elections, of which those that counts alone decided are doubtful without a loss there.

    What comes and goes loses none of the packets that are counted while it is away. They would
    acquit whatever more of them passed, and leave who is farther from the hosts that counted. Flows
    that were dead until the window's end are dead still, and need no other witness.
    """
    named = {each.suspects[0].component for each in before if each.decided}
    return tuple(
        replace(each, doubtful=True)
        if each.decided
        and each.suspects[0].component not in named | lossy
        and 2 * sum(ballot.run > 0 for ballot in each.explains) <= len(each.explains)
        else each
        for each in elections
    )


def _not_all(elections: Sequence[Election], before: Sequence[Election]) -> tuple[Election, ...]:
    """Return elections, of which those on several dead parts of one tie are doubtful.

    One dead part explains what the probes lost. Where counts from two sides accuse one part each,
    the router between them answers neither, as one does that lost its route.
    """
    dead = {e.suspects[0].component for e in elections if e.suspects and (e.dead or is_dead(e))}
    several = [dead.intersection(each.tied) for each in before if not each.decided]
    doubted = {
        component
        for found in several
        for one, other in combinations(sorted(found), 2)
        if one.kind is other.kind is Kind.LINK
        and not set(link_ends(one)).isdisjoint(link_ends(other))
        for component in (one, other)
    }
    return tuple(
        replace(each, doubtful=True)
        if each.suspects and each.suspects[0].component in doubted
        else each
        for each in elections
    )


def _alive(polled: Poll, case: Case) -> Poll:
    """Return a poll that names no part of a host for flows that were only just dying.

    What broke as the window ended has killed no pair yet, so no flow table was walked for it. A
    window later either one is found that stops them, or they are voted on.
    """
    doubted = [
        e for e in polled.elections if e.decided and e.suspects[0].component.kind in OF_HOSTS
    ]
    if polled.windows > 1 or not doubted:
        return polled
    dead = unconnected_pairs(case.rest)

    def dying(each: Election) -> bool:
        lossy = [view for b in each.explains if (view := polled.ballots[b]).lost]
        just_now = sum(view.run == view.lost for view in lossy)
        return just_now >= DYING * len(lossy) and not any(pair_of(v.flow) in dead for v in lossy)

    doubted = [each for each in doubted if dying(each)]
    return replace(
        polled,
        elections=tuple(
            replace(each, doubtful=True) if each in doubted else each for each in polled.elections
        ),
    )


def _of_large(election: Election, polled: Poll) -> bool:
    """Return whether probes of the largest size are most of what an election explains.

    Small packets would acquit what loses only those, as beside something that loses of all sizes.
    """
    views = [polled.ballots[each] for each in election.explains]
    return sum(v.lost_large for v in views) > LARGE_SHARE * sum(v.lost for v in views)


def _lasting(election: Election) -> bool:
    """Return whether more probes would show no more: what is open is not for want of them."""
    return election.shared and election.evidence >= LASTING


def _lossy(polled: Poll) -> bool:
    return any(ballot.lost for ballot in polled.ballots)


def _shared(polled: Poll) -> bool:
    return any(election.shared for election in polled.elections)


def _since_losses(polled: Poll, before: Sequence[Poll]) -> Sequence[Poll]:
    """Return the windows before, newest first, back to the oldest that lost what this one may have.

    Those before that were well before something broke: they would acquit whatever more probes
    cross.
    """
    tied = {component for each in polled.elections for component in each.tied}

    def is_lossy(ballot: Ballot) -> bool:
        mine = not tied or not tied.isdisjoint(ballot.components | ballot.maybe.keys())
        return bool(ballot.lost) and mine

    lossy = [n for n, each in enumerate(before, start=1) if any(map(is_lossy, each.ballots))]
    return before[: max(lossy, default=0)]


def _agrees(pooled: Poll, polled: Poll) -> bool:
    """Return whether this window alone suspects what several windows together accuse."""
    suspected = {component for election in polled.elections for component in election.tied}
    named = [election.suspects[0].component for election in pooled.elections if election.decided]
    return bool(named) and (not suspected or suspected.issuperset(named))
