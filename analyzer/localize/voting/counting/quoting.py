# SPDX-License-Identifier: Apache-2.0
"""Counts as evidence, for people."""

from collections.abc import Iterable, Mapping, Sequence

from analyzer.localize.case import Shift
from analyzer.localize.voting.counting.counts import Count
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import FlowId

COUNTS_QUOTED = 8
"""Most ways quoted with their counts. Chosen: what an operator reads."""


def counted(counts: Iterable[Count]) -> list[Evidence]:
    """Return the counts as evidence, those that lost most first."""
    shown = sorted((each for each in counts if each.answer.sent), key=_least_share)
    return [
        Evidence(
            EvidenceKind.COUNTED,
            {
                "source": str(each.flow.source),
                "sent": each.answer.sent,
                "routers": _beside(each.routers, each.answer.answered),
            },
        )
        for each in shown[:COUNTS_QUOTED]
    ]


def _least_share(count: Count) -> float:
    return min(count.answer.answered, default=0) / count.answer.sent


def timed(counts: Iterable[Count], slow: Mapping[FlowId, Shift]) -> list[Evidence]:
    """Return the routers' round trips as evidence, the latest first."""
    shown = sorted((c for c in counts if any(c.answer.rtt_ns)), key=lambda c: -max(c.answer.rtt_ns))
    return [
        Evidence(
            EvidenceKind.TIMED,
            {
                "source": str(each.flow.source),
                "routers": _beside(each.routers, each.answer.rtt_ns),
                "before_ns": slow[each.flow][0],
                "now_ns": slow[each.flow][1],
            },
        )
        for each in shown[:COUNTS_QUOTED]
    ]


def _beside(hops: Sequence[str], numbers: Sequence[int]) -> list[list[str | int]]:
    return [[hop, number] for hop, number in zip(hops, numbers, strict=False)]
