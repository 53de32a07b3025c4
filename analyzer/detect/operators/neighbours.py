# SPDX-License-Identifier: Apache-2.0
"""To whom a rank sends where a log does not say it, but where everybody is."""

from dataclasses import replace

import numpy as np

from analyzer.detect.operators.positions import way
from analyzer.operators.log import UNKNOWN, Kind, Log


def with_peers(log: Log) -> Log:
    """Return the log with the peers that a pipeline's sends and receives have, if it lacks them.

    The log as it is where it has peers, or does not say where its ranks are.
    """
    moves = (log.kind == Kind.SEND) | (log.kind == Kind.RECV)
    cells = {
        (place.pp, place.dp, place.tp): rank
        for rank, place in log.places.items()
        if min(place.pp, place.dp) > UNKNOWN
    }
    if not moves.any() or (log.peer[moves] != UNKNOWN).any() or len(cells) < len(log.places):
        return log
    stages = max((cell[0] for cell in cells), default=0) + 1
    ways = np.array([way(op) for op in log.ops], np.int64)[log.op]
    step = np.where(log.kind == Kind.RECV, -ways, ways)
    beside = np.full((int(log.rank.max(initial=0)) + 1, 2), UNKNOWN, np.int32)
    for (stage, data, tensor), rank in cells.items():
        for side, at in enumerate((stage - 1, stage + 1)):
            if rank < len(beside):
                beside[rank, side] = cells.get((at % stages, data, tensor), UNKNOWN)
    told = moves & (ways != 0)
    peer = np.where(told, beside[log.rank, (step > 0).astype(np.int64)], log.peer)
    return replace(log, peer=peer.astype(np.int32))
