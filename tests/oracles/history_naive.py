# SPDX-License-Identifier: Apache-2.0
"""Minutes by pair and by component, one row of one summary after the other: slow and literal."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from analyzer.history.blocks import Block, Table
from analyzer.history.spread import STEP
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.path import rnic
from netagent.wire.histogram import GAMMA
from netagent.wire.messages import Summary
from tests.oracles.rows import rows_of

MINUTE_NS = 60 * 10**9


@dataclass
class Sums:
    """What was gathered of one pair or component."""

    sent: int = 0
    lost: int = 0
    refused: int = 0
    count: int = 0
    ln: float = 0.0
    least: int = 0
    most: int = 0
    buckets: Counter[int] = field(default_factory=Counter)
    """Round trips by bucket of a summary."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one row."""
        self.sent += row["sent"]
        self.lost += row["lost"]
        self.refused += row["refused"]
        if row["count"]:
            self.least = min(self.least, row["min_ns"]) if self.count else row["min_ns"]
            self.most = max(self.most, row["max_ns"])
            self.count += row["count"]
            self.ln += row["count"] * row["mean_ln"]
            self.buckets.update(row["buckets"])

    @property
    def mean(self) -> int:
        """Return the geometric mean of the round trips; 0 where there is none."""
        return round(math.exp(self.ln / self.count)) if self.count else 0

    def quantile(self, share: float, *, has_extremes: bool) -> int:
        """Return the quantile as it is kept; 0 where it is not known.

        It is the representative of the bucket of STEP of a summary's that holds it.
        """
        if not self.count or self.buckets.total() != self.count:
            return 0
        rank, until = math.ceil(share * self.count), 0
        for fine, many in sorted(self.buckets.items()):
            until += many
            if until >= rank:
                ratio, bucket = GAMMA**STEP, math.ceil(fine / STEP)
                value = round(2 * ratio**bucket / (ratio + 1))
                return min(max(value, self.least), self.most) if has_extremes else value
        raise AssertionError("more than all")


@dataclass
class Naive:
    """Sums by minute and name."""

    pairs: dict[int, dict[tuple[str, str], Sums]] = field(default_factory=dict)
    components: dict[int, dict[str, Sums]] = field(default_factory=dict)

    def add(
        self,
        summaries: Iterable[Summary],
        endpoints: Mapping[EndpointId, Endpoint],
        topology: LearnedTopology,
    ) -> None:
        """Add summaries of one window, as of when it is judged."""
        for summary in summaries:
            minute = summary.start_ns // MINUTE_NS * MINUTE_NS
            pairs = self.pairs.setdefault(minute, {})
            components = self.components.setdefault(minute, {})
            for row in rows_of(summary):
                flow = row["flow"]
                key = str(flow.source), str(flow.target)
                pairs.setdefault(key, Sums()).add(row)
                ends = (endpoints[end] for end in (flow.source, flow.target))
                way = topology._settled(flow, summary.start_ns)
                crossed = {rnic(end.host, end.rnic) for end in ends}
                for each in crossed | (way.certain if way is not None else frozenset()):
                    components.setdefault(str(each), Sums()).add(row)


def of_pairs(block: Block) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return a block's pairs, by name."""
    names, keys = block.pairs.names, block.pairs.keys
    ends = zip(keys["source"].tolist(), keys["target"].tolist(), strict=True)
    return dict(zip([(names[a], names[b]) for a, b in ends], _rows(block.pairs), strict=True))


def of_components(block: Block) -> dict[str, tuple[int, ...]]:
    """Return a block's components, by name."""
    names, places = block.components.names, block.components.keys["component"].tolist()
    return dict(zip([names[each] for each in places], _rows(block.components), strict=True))


def _rows(table: Table) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in table.columns.values()), strict=True))
