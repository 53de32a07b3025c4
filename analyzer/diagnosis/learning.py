# SPDX-License-Identifier: Apache-2.0
"""Traced paths into the learned topology: of each host's, those that say something new."""

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.paths import PathTable
from analyzer.localize.topology import LearnedTopology
from analyzer.roster.registry import Registry
from netagent.model.ids import EndpointId

RELEARN_NS = 60_000_000_000
"""Nanoseconds after which unchanged paths are learned again. Chosen: endpoints may have moved
meanwhile, and learning every window costs time."""


class Learned:
    """What was learned of hosts' paths, as their summaries said it last."""

    def __init__(self) -> None:
        self._whole: dict[str, tuple[PathTable, NDArray[np.bool_]]] = {}
        """Host -> its paths, and which of them (n_paths,) were learned to their end."""
        self._since_ns: dict[str, int] = {}
        """Host -> start of the window that all of its paths were learned in."""

    def news(self, host: str, paths: PathTable, *, wall_ns: int) -> NDArray[np.int64]:
        """Return the rows that a window which began at `wall_ns` has to be learned from."""
        since_ns = self._since_ns.get(host)
        if since_ns is not None and wall_ns < since_ns + RELEARN_NS:
            before, whole = self._whole[host]
            same = paths.same(before)
            return np.flatnonzero(~(same & whole) if len(same) == len(whole) else ~same)
        # Without the difference all hosts would be learned again in one and the same window.
        early_ns = crc32(host.encode()) * RELEARN_NS >> 32 if since_ns is None else 0
        self._since_ns[host] = wall_ns - early_ns
        self._whole[host] = paths, np.zeros(len(paths), np.bool_)
        return np.arange(len(paths))

    def take(
        self, host: str, paths: PathTable, news: NDArray[np.int64], whole: NDArray[np.bool_]
    ) -> None:
        """Remember which of the news were learned to their end; all else was before."""
        known = np.ones(len(paths), np.bool_)
        known[news] = whole
        self._whole[host] = paths, known


def learn(
    learned: Learned,
    topology: LearnedTopology,
    roster: Registry,
    host: str,
    paths: PathTable,
    *,
    wall_ns: int,
) -> None:
    """Take the news of a host's paths into the topology, from a window that began at `wall_ns`."""

    def underlay(endpoint: EndpointId) -> str | None:
        record = roster.endpoint(endpoint)
        return record.endpoint.underlay if record is not None else None

    news = learned.news(host, paths, wall_ns=wall_ns)
    if not len(news):
        return
    # A host traces what its own endpoints send: probes of its flows, replies to others'.
    own = {record.endpoint.id for record in roster.endpoints_of(host)}
    rows = paths.rows(news)
    mine = np.array([(row.flow.target if row.reply else row.flow.source) in own for row in rows])
    kept = [row for row, is_own in zip(rows, mine.tolist(), strict=True) if is_own]
    whole = np.zeros(len(rows), np.bool_)
    whole[mine] = topology.learn(kept, underlay, wall_ns=wall_ns)
    learned.take(host, paths, news, whole)
