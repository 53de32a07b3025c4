# SPDX-License-Identifier: Apache-2.0
"""Loss: a pair some of whose probes are not answered, or all of them."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.contract import Seen
from analyzer.detect.flows import Flows, Ints, Pair, unconnected_pairs, unobserved
from analyzer.questions import Asking
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.verdict import Symptom

CLEAN_RATE = 0.001
"""Largest share of lost probes at which an incident's pairs count as well again. Chosen: ten times
the background of one in ten thousand, which hundreds of pairs show in every window."""


class Loss:
    """Sees pairs that lose probes."""

    symptoms = frozenset({Symptom.LOSS, Symptom.UNCONNECTIVITY})

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return the ends_of pairs that lost a probe, with their counts."""
        yield from ()  # no question is needed
        flows, window = seen.flows, seen.state.window
        lossy = np.unique(flows.pairs(np.flatnonzero(flows.lost)))
        dead = {(min(pair), max(pair)) for pair in unconnected_pairs(flows)}
        return [
            Anomaly(
                pair,
                Symptom.UNCONNECTIVITY if pair in dead else Symptom.LOSS,
                window,
                (Evidence(EvidenceKind.CROSSED, {"lost": lost, "sent": sent}),),
            )
            for pair, (sent, lost) in sorted(_tally(flows, lossy).items(), key=_in_order)
        ]

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether these pairs lose no more than CLEAN_RATE of their probes, or are gone."""
        if unobserved(subjects, seen.flows, seen.endpoints):
            return False
        mine = seen.flows.between({each for each in subjects if isinstance(each, tuple)})
        return bool(seen.flows.lost[mine].sum() <= CLEAN_RATE * seen.flows.sent[mine].sum())

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Remember nothing."""


def _in_order(tally: tuple[Pair, list[int]]) -> tuple[str, int, str, int]:
    """Return what pairs are in the order of, without comparing endpoints one by one."""
    one, other = tally[0]
    return one.container, one.rail, other.container, other.rail


def _tally(flows: Flows, pairs: Ints) -> dict[Pair, list[int]]:
    """Return probes sent and lost of some pairs, which are numbers in order."""
    if not len(pairs):
        return {}
    place = np.flatnonzero(flows.of_ends(np.unique([pairs >> 32, pairs & 0xFFFF_FFFF])))
    keys = flows.pairs(place)
    row = np.minimum(np.searchsorted(pairs, keys), len(pairs) - 1)
    mine = pairs[row] == keys
    sums = (
        np.bincount(row[mine], column[place[mine]], len(pairs)).astype(np.int64).tolist()
        for column in (flows.sent, flows.lost)
    )
    named = map(flows.pair, pairs.tolist())
    return {(min(pair), max(pair)): n for pair, *n in zip(named, *sums, strict=True)}
