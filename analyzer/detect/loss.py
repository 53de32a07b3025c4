# SPDX-License-Identifier: Apache-2.0
"""Loss: a pair some of whose probes are not answered, or all of them."""

from collections import Counter
from collections.abc import Collection
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.contract import Seen
from analyzer.detect.flows import between, ends_of, unconnected_pairs, unobserved
from analyzer.questions import Asking
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId
from netagent.model.verdict import Symptom

CLEAN_RATE = 0.001
"""Largest share of lost probes at which an incident's pairs count as well again. Chosen: ten times
the background of one in ten thousand, which hundreds of pairs show in every window."""

Pair = tuple[EndpointId, EndpointId]


class Loss:
    """Sees pairs that lose probes."""

    symptoms = frozenset({Symptom.LOSS, Symptom.UNCONNECTIVITY})

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return the ends_of pairs that lost a probe, with their counts."""
        yield from ()  # no question is needed
        lossy = {ends_of(view.flow) for view in seen.flows if view.lost}
        dead = {(min(pair), max(pair)) for pair in unconnected_pairs(seen.flows)}
        window = seen.state.window
        return [
            Anomaly(
                pair,
                Symptom.UNCONNECTIVITY if pair in dead else Symptom.LOSS,
                window,
                (Evidence(EvidenceKind.CROSSED, {"lost": lost, "sent": sent}),),
            )
            for pair, (sent, lost) in sorted(_tally(seen, lossy).items())
        ]

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether these pairs lose no more than CLEAN_RATE of their probes, or are gone."""
        if unobserved(subjects, seen.flows, seen.endpoints):
            return False
        counts = _tally(seen, {each for each in subjects if isinstance(each, tuple)}).values()
        return sum(lost for _, lost in counts) <= CLEAN_RATE * sum(sent for sent, _ in counts)

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Remember nothing."""


def _tally(seen: Seen, pairs: AbstractSet[Pair]) -> dict[Pair, tuple[int, int]]:
    """Return probes sent and lost of those of these ends_of pairs that were probed."""
    if not pairs:
        return {}
    sent: Counter[Pair] = Counter()
    lost: Counter[Pair] = Counter()
    for pair, view in between(pairs, seen.flows):
        sent[pair] += view.sent
        lost[pair] += view.lost
    return {pair: (count, lost[pair]) for pair, count in sent.items()}
