# SPDX-License-Identifier: Apache-2.0
"""Some pairs for all, where more flows lose probes than can be weighed in a window.

A dead spine leaves a tenth of a large fabric's flows lossy, and each flow that is weighed is an
object. Some thousands of them say what they share as surely. Pairs are drawn with all of their
flows, lossy or not: so shares stay as they are, and what is left open is not made to look sure, as
it would be where each flow stood for several. Each window draws others.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.flows import Flows
from analyzer.localize.case import Case
from analyzer.localize.incidence import Ints
from analyzer.localize.own import KINDS
from analyzer.localize.topology import LearnedTopology
from netagent.model.path import Component

MOST_LOSSY = 8_192
"""Flows with losses that are put to the vote, on average. Chosen: of so many a share of one in a
thousand is known to a third of it, and they take the judge some two seconds."""
MOST_OF_HOST = 1_024
"""Most of them by which a host makes others be left out. Chosen: as many as eight endpoints have in
a window by default; one that makes up more must not keep others from the vote."""
_MIXERS = np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(0xBF58_476D_1CE4_E5B9)
"""Odd numbers by which keys are mixed (Steele, Lea & Flood, "SplitMix", OOPSLA 2014)."""
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Sample:
    """Flows of some pairs."""

    flows: Flows
    share: float = 1.0
    """Of the pairs, that are drawn."""
    others: Flows | None = None
    """Lossy flows of the pairs that are not; None where all are."""


def sample(flows: Flows, case: Case) -> Sample:
    """Return the flows of as many pairs as can be weighed."""
    lossy = flows.lost > 0
    if int(lossy.sum()) <= MOST_LOSSY:
        return Sample(flows)
    many = np.minimum(_by_host(flows.ends[0, lossy], flows, case), MOST_OF_HOST).sum()
    if many <= MOST_LOSSY:
        return Sample(flows)
    share = MOST_LOSSY / float(many)
    window = case.window.start_ns // case.window.width_ns
    drawn = _drawn(flows.pairs(), window) < share
    return Sample(flows.only(drawn), share, flows.only(lossy & ~drawn))


def across(
    flows: Flows, parts: Collection[Component], case: Case, topology: LearnedTopology
) -> Ints:
    """Return the numbers of those of some flows that cross any of `parts` on known ways."""
    settled = topology.settled(flows.number, flows.numbers, at_ns=case.window.start_ns)
    known, hit = settled.there >= 0, settled.incidence.across(parts)
    found = np.zeros(len(flows), np.bool_)
    found[known] = hit[settled.there[known]] | hit[settled.back[known]]
    if any(part.kind in KINDS for part in parts):
        ends = np.unique(flows.ends).tolist()
        own = [n for n in ends if not case.own_parts(flows.numbers.endpoint(n)).isdisjoint(parts)]
        found |= flows.of_ends(np.array(own, np.int64))
    numbers: Ints = flows.number[found]
    return numbers


def _by_host(sources: Ints, flows: Flows, case: Case) -> Ints:
    """Return how many of the flows with these sources each host has."""
    met, place = np.unique(sources, return_inverse=True)
    hosts = [case.endpoints[flows.numbers.endpoint(n)].host for n in met.tolist()]
    number = {host: n for n, host in enumerate(dict.fromkeys(hosts))}
    return np.bincount(np.array([number[host] for host in hosts], np.int64)[place])


def _drawn(pairs: Ints, window: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each pair, another one in each window."""
    keys = pairs.astype(np.uint64) ^ np.array([window], np.uint64) * _MIXERS[0]
    for mixer in _MIXERS:
        keys = (keys ^ (keys >> _HALF)) * mixer
    return (keys >> np.uint64(11)).astype(np.float64) / 2.0**53
