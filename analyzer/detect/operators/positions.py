# SPDX-License-Identifier: Apache-2.0
"""Which pipeline stage each rank is of: whoever does the same work is compared with each other.

Where nobody says, the schedule does: the earlier a stage, the more forward passes it is ahead
before its first backward one. Where operations are not named after their direction, who sends
first to whom does. Stages that are ahead by all there is, as those of a job with fewer microbatches
than stages, are told apart by their groups: replicas and tensor parallel ranks are of one stage.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import UNKNOWN, GroupKind, Kind, Log

Ints = NDArray[np.int64]

_STEPS = 15  # about so many are looked at
_SEVERAL = 2  # times the ranks of another stage, from which ranks may be of two
_BESIDE = (GroupKind.DATA, GroupKind.TENSOR)


def stages(log: Log, ranks: Ints, step: NDArray[np.int32]) -> Ints:
    """Return (ranks,) the stage of each rank, counted from 0; all 0 where nothing tells."""
    named = _named(log, ranks)
    if named is not None:
        return _counted(named)
    beside = _beside(log, ranks)
    for told in (_ahead(log, ranks, step), _chain(log, ranks)):
        if told is not None:
            return _apart(told, beside)
    return beside


def _named(log: Log, ranks: Ints) -> Ints | None:
    named = [log.places[rank].pp if rank in log.places else UNKNOWN for rank in ranks.tolist()]
    return np.array(named, np.int64) if named and min(named) > UNKNOWN else None


def mixed(log: Log, ranks: Ints, stage: Ints) -> NDArray[np.bool_]:
    """Return (ranks,) who may be compared with ranks of another stage, as nothing tells them apart.

    Stages have equally many ranks, so where there are twice as many they are of several.
    """
    if _named(log, ranks) is not None or not len(ranks):
        return np.zeros(len(ranks), bool)
    count = np.bincount(stage)
    return np.asarray((count >= _SEVERAL * count[count > 0].min())[stage])


def _beside(log: Log, ranks: Ints) -> Ints:
    """Return stages as groups have them: who shares one of replicas, or in tensor parallel.

    In the order of their first ranks, as which one comes first no group says.
    """
    place = {rank: n for n, rank in enumerate(ranks.tolist())}
    of = list(range(len(ranks)))

    def root(at: int) -> int:
        while of[at] != at:
            of[at] = of[of[at]]
            at = of[at]
        return at

    covered = set[int]()
    for group in log.groups:
        if group.kind in _BESIDE:
            inside = [place[rank] for rank in group.members if rank in place]
            covered.update(inside if group.kind is GroupKind.DATA and len(inside) > 1 else ())
            for at in inside[1:]:
                of[max(root(inside[0]), root(at))] = min(root(inside[0]), root(at))
    if len(covered) < len(ranks):
        return np.zeros(len(ranks), np.int64)
    return _counted(np.array([root(at) for at in range(len(ranks))], np.int64))


def _apart(told: Ints, beside: Ints) -> Ints:
    """Return stages, of which those that are one only as far as is told are taken apart."""
    for part in range(int(beside.max(initial=0)) + 1):
        if len(np.unique(told[beside == part])) > 1:
            return told  # groups of other ranks than one stage's
    return _counted(told * (len(beside) + 1) + beside)


def _counted(values: NDArray[np.int64]) -> Ints:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def way(op: str) -> int:
    """Return 1 for what goes forward, -1 for what goes backward, 0 for neither."""
    lower = op.lower()
    forward, backward = (
        ("forward" in lower or "fwd" in lower),
        ("backward" in lower or "bwd" in lower),
    )
    return int(forward) - int(backward)


def _ahead(log: Log, ranks: Ints, step: NDArray[np.int32]) -> Ints | None:
    """Return stages by how many forward passes a rank makes before its first backward one."""
    ways = np.array([way(op) for op in log.ops], np.int64)
    known = np.unique(step)
    known = known[known != UNKNOWN]
    if not len(known) or not ways.any():
        return None
    # A few steps tell, and from each rank most of them: a log may lack operators.
    known = known[:: max(1, len(known) // _STEPS)]
    nth = np.minimum(np.searchsorted(known, step), len(known) - 1)
    some = np.flatnonzero(known[nth] == step)
    some = some[ways[log.op[some]] != 0]
    computes = log.kind[some] == Kind.COMPUTE
    some = some[computes] if computes.any() else some[log.kind[some] == Kind.SEND]
    cell = np.searchsorted(ranks, log.rank[some]) * len(known) + nth[some]
    order = np.lexsort((log.started_ns[some], cell))
    cell, forward = cell[order], ways[log.op[some]][order] > 0
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    total = np.cumsum(~forward)
    backs = total - np.repeat((total - ~forward)[first], np.diff([*first, len(cell)]))
    ahead = np.bincount(cell[forward & (backs == 0)], minlength=len(ranks) * len(known))
    count = np.median(ahead.reshape(len(ranks), len(known)), axis=1).astype(np.int64)
    if len(np.unique(count)) < 2:
        return None
    return _counted(-count)


def _chain(log: Log, ranks: Ints) -> Ints | None:
    """Return stages by following each rank's first send, from those whose first is a send."""
    rows = np.flatnonzero(((log.kind == Kind.SEND) | (log.kind == Kind.RECV)) & (log.peer >= 0))
    if not len(rows):
        return None
    rows = rows[np.lexsort((log.started_ns[rows], log.rank[rows]))]
    rank, kind = log.rank[rows], log.kind[rows]
    first = np.flatnonzero(np.diff(rank, prepend=-1))
    front = rank[first][kind[first] == Kind.SEND].tolist()
    sends = rows[kind == Kind.SEND]
    at = np.unique(log.rank[sends], return_index=True)[1]
    onward = dict(zip(log.rank[sends][at].tolist(), log.peer[sends][at].tolist(), strict=True))
    told: dict[int, int] = {}
    for begin in front:
        stage, now = 0, begin
        while now is not None and now not in told:
            told[now] = stage
            stage, now = stage + 1, onward.get(now)
    if any(rank not in told for rank in ranks.tolist()):
        return None
    return _counted(np.array([told[rank] for rank in ranks.tolist()], np.int64))
