# SPDX-License-Identifier: Apache-2.0
"""Where on a way packets become late: what routers' round trips say of what became slow."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from statistics import median_low

from analyzer.localize.case import Endpoints, Shift
from analyzer.localize.voting.counting.counts import Count, ballot_of, crossed_to
from analyzer.localize.voting.election import Ballot
from netagent.model.ids import FlowId
from netagent.model.path import rnic

LEAST_WAYS = 3
"""Ways among which one can be late. Chosen: of two, nobody knows which one is as usual."""
MAD_SCALE = 1.4826
"""Standard deviations in a median absolute deviation, where the distribution is normal."""
NOISES = 3.5
"""Standard deviations of ways' round trips that half a flow's shift must exceed. Chosen: what is
later then hardly is so by chance, though many ways are looked at."""
SLOW_WEIGHT = 20
"""Probes that one router's median answer time counts as. Chosen: it sums up many answers, which are
not independent."""
MOST_SHIFTS = 4
"""Largest step between routers, in multiples of the flow's shift, that may be the shift itself.
Chosen: the shift is known roughly; a larger step has another cause."""
LEAST_SHIFT_NS = 500_000.0
"""Least shift, in nanoseconds, assumed of a slow flow. Chosen: routers' answer times differ by less
without any fault, and the same floor is in `detect.latency.floors`."""


def late_ballots(
    counts: Iterable[Count], endpoints: Endpoints, slow: Mapping[FlowId, Shift]
) -> list[Ballot]:
    """Return a ballot per slow flow and router: whether the slowness begins on the way there.

    A router's own time to answer is unknown. But a packet that a farther router answered early was
    not late at a nearer one. So routers of one flow are compared only with each other, and only a
    step of about the flow's shift counts.

    Where a host found its ways by itself, no flow took them for certain. There a router is compared
    with those as far away on the other ways.
    """
    counts = list(counts)
    made = _late_ways([each for each in counts if each.own], endpoints, slow)
    for each in counts:
        if each.own:
            continue
        hops, source = each.routers, endpoints[each.flow.source]
        late = _late(each.answer.rtt_ns[: len(hops)], slow[each.flow])
        near = crossed_to(hops, 1) | {rnic(source.host, source.rnic)}
        told = {n: is_late for n, is_late in enumerate(late, start=1) if is_late is not None}
        if told and True not in told.values():
            # The slowness may lie before the first router or beyond the last. One ballot spares
            # everything between them.
            last = max(told)
            if crossed := crossed_to(hops, last) - near:
                made.append(ballot_of(each, last, SLOW_WEIGHT, 0, crossed))
            continue
        for n, is_late in told.items():
            crossed = near | crossed_to(hops, n)
            made.append(ballot_of(each, n, SLOW_WEIGHT, SLOW_WEIGHT * is_late, crossed))
    return made


def _late_ways(
    counts: Sequence[Count], endpoints: Endpoints, slow: Mapping[FlowId, Shift]
) -> list[Ballot]:
    """Return a ballot per way and router, for hosts to which some of their ways are late."""
    made: list[Ballot] = []
    by_flow = groupby(sorted(counts, key=lambda c: c.flow), key=lambda c: c.flow)
    shown_of = {flow: _shown(list(ways)) for flow, ways in by_flow}
    noise_ns = _noise([_rtts(ways, n) for each in shown_of.values() for n, ways in each.items()])
    for flow, shown in shown_of.items():
        source = endpoints[flow.source]
        ballots: list[Ballot] = []
        for n, ways in shown.items():
            beyond = _beyond(_rtts(ways, n), slow[flow], noise_ns)
            for way, is_late in zip(ways, beyond, strict=False):
                if is_late is None:
                    continue
                crossed = crossed_to(way.routers, n) | {rnic(source.host, source.rnic)}
                # Whatever the share of slow flows, all packets are late while a queue stands.
                sent = 1 if is_late else SLOW_WEIGHT
                ballots.append(ballot_of(way, n, sent, int(is_late), crossed))
        if any(ballot.lost for ballot in ballots):  # else it may have passed by before they counted
            made += ballots
    return made


def _shown(ways: Sequence[Count]) -> dict[int, list[Count]]:
    """Return the ways whose n-th router answered, by n from 1 on."""
    length = max(len(way.answer.rtt_ns) for way in ways)
    return {
        n: [w for w in ways if len(w.answer.rtt_ns) >= n and w.answer.rtt_ns[n - 1]]
        for n in range(1, 1 + length)
    }


def _rtts(ways: Sequence[Count], n: int) -> list[int]:
    return [way.answer.rtt_ns[n - 1] for way in ways]


def _noise(alike: Sequence[Sequence[int]]) -> float:
    """Return the standard deviation of round trips that should be alike; few of each are known."""
    off: list[int] = []
    for rtts_ns in alike:
        if len(rtts_ns) >= LEAST_WAYS:
            usual_ns = median_low(rtts_ns)
            off += sorted(abs(each - usual_ns) for each in rtts_ns)[1:]  # the first is the median
    return MAD_SCALE * median_low(off) if off else 0.0


def _beyond(rtts_ns: Sequence[int], shift: Shift, noise_ns: float) -> list[bool | None]:
    """Return which of the round trips are later than the others by about a flow's shift.

    Where all that are alike differ by more than that, only what is later by far is late, and of the
    others nothing is known: a queue that comes and goes is longer than flows' shift. The list is
    empty where these are too few.
    """
    if len(rtts_ns) < LEAST_WAYS:
        return []
    usual_ns = median_low(rtts_ns)
    half_ns, far_ns = (shift[1] - shift[0]) / 2, NOISES * noise_ns
    late = [rtt_ns - usual_ns > max(half_ns, far_ns) for rtt_ns in rtts_ns]
    return [is_late if is_late or half_ns >= far_ns else None for is_late in late]


def _late(rtts_ns: Sequence[int], shift: Shift) -> list[bool | None]:
    """Return whether packets were late at each router; None where the router does not show it.

    The list is empty where no router shows it. A round trip of 0 means that a router did not
    answer.
    """
    if len(rtts_ns) < 2 or not rtts_ns[0] or not any(rtts_ns[1:]):
        return []
    shift_ns = max(shift[1] - shift[0], LEAST_SHIFT_NS)
    half_ns, most_ns = shift_ns / 2, MOST_SHIFTS * shift_ns
    least_ns = accumulate((rtt_ns or math.inf for rtt_ns in reversed(rtts_ns)), min)
    way_ns = list(least_ns)[::-1]
    beyond_ns = [way - way_ns[0] if rtt else 0.0 for way, rtt in zip(way_ns, rtts_ns, strict=True)]
    if max(beyond_ns) > most_ns:
        return []
    return [
        # A router that is slow to answer gives an upper bound of the way there, and no more. A
        # queue that comes and goes may be shorter now: what is late by less is not in time.
        None
        if not rtt
        or (beyond > half_ns and rtt - way > half_ns)
        or LEAST_SHIFT_NS < beyond <= half_ns
        else beyond > half_ns
        for rtt, way, beyond in zip(rtts_ns, way_ns, beyond_ns, strict=True)
    ]
