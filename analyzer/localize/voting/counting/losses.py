# SPDX-License-Identifier: Apache-2.0
"""What counted packets lost, as ballots."""

from collections import defaultdict
from collections.abc import Iterable

from analyzer.localize.case import Endpoints
from analyzer.localize.incidence import Route
from analyzer.localize.voting.counting.counts import Count, ballot_of, crossed_to
from analyzer.localize.voting.election import Ballot, Election
from netagent.model.path import rnic, switch

REACHED = 0.5
"""Probability that a packet which ends at a router crosses what is broken in it. Chosen: nothing is
known of the router's inside."""
REACHED_IF_LOST, REACHED_IF_NOT = 0.95, 0.05
"""The same where all that ends at a router is lost, or none of it. Chosen: it is one fact of the
router, the same for all flows; where they agree, they show it."""
MOST_COUNTED = 8
"""Most lost packets of a flow and router that count. Chosen: enough to tell who loses; packets are
counted after the window, when another share may be lost, and that shows nobody guilty."""
DEAD_SHARE = 0.3
"""Share of the packets lost from which they count as one. Chosen: they died of one cause."""
SEVERAL = 3
"""Lost packets of a flow and router that are no stray losses. Chosen: of fifty, where one in ten
thousand is lost for no reason."""
LIMITED = 0.05
"""Share of the packets below which a router that answers at all is held to limit its answers.
Chosen: a dead link lets none pass, and what loses less is counted.
"""


def ballots(
    counts: Iterable[Count], endpoints: Endpoints, *, ties: Iterable[Election] = ()
) -> list[Ballot]:
    """Return a ballot per way and router: packets lost on the way there, to break these ties.

    The answers of routers that are not sure may come back over other links than those the packets
    took. What is lost there may be lost on the way back, which is not known.
    """
    counts = list(counts)
    made: list[Ballot] = []
    broken, limited = _broken(counts), _limited(counts)
    hard = any(_loses_much(each) for each in ties)
    for each in counts:
        answer, hops = each.answer, each.routers
        source = endpoints[each.flow.source]
        for n, reached in enumerate(answer.answered[: len(hops)], start=1):
            # A packet that ends at a router is not forwarded by it.
            last = {switch(hops[n - 1])} if hops[n - 1] else set()
            crossed = crossed_to(hops, n) - last | {rnic(source.host, source.rnic)}
            maybe = dict.fromkeys(last, broken.get(hops[n - 1], REACHED))
            unseen = 0.0 if n <= each.sure else 1.0
            if n > 1 and hops[n - 2 : n] in limited and reached < LIMITED * answer.sent:
                continue
            sent, lost = _tempered(answer.sent, answer.sent - reached, hard=hard)
            made.append(ballot_of(each, n, sent, lost, crossed, maybe, unseen))
    return made


def _loses_much(tie: Election) -> bool:
    best = tie.suspects[0]
    return best.lost >= DEAD_SHARE * best.crossed


def _tempered(sent: int, lost: int, *, hard: bool) -> tuple[int, int]:
    """Return what counts of packets sent and lost; `hard` where the probes lost a large share.

    What comes and goes was away for some of the packets: they do not speak for it.
    """
    if hard and lost >= SEVERAL:
        return 1, 1
    most = 1 if lost >= DEAD_SHARE * sent else MOST_COUNTED
    return (round(most * sent / lost), most) if lost > most else (sent, lost)


def _limited(counts: Iterable[Count]) -> set[Route]:
    """Return (router before, router) where the second is reached, but answers next to nothing.

    One that has lost its route may say so once a second, whatever arrives (RFC 1812, 4.3.2.8).
    """
    return {
        each.routers[n - 2 : n]
        for each in counts
        for n, (reached, hop) in enumerate(
            zip(each.answer.answered, each.answer.hops, strict=False), start=1
        )
        if n > 1
        and hop
        and hop not in each.answer.hops[: n - 1]
        and 0 < reached < LIMITED * each.answer.sent
    }


def _broken(counts: Iterable[Count]) -> dict[str, float]:
    """Return routers with the probability that packets which end there cross what is broken."""
    shares: dict[str, list[bool]] = defaultdict(list)
    for each in counts:
        for hop, reached in zip(each.routers, each.answer.answered, strict=False):
            shares[hop].append(reached < each.answer.sent)
    return {
        hop: REACHED_IF_LOST if all(lossy) else REACHED if any(lossy) else REACHED_IF_NOT
        for hop, lossy in shares.items()
    }
