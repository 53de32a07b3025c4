# SPDX-License-Identifier: Apache-2.0
"""What of a log nobody can have meant, since whoever records may write anything."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import UNKNOWN, Log

LONGEST_NS = 3_600_000_000_000
"""Longest operator that is believed. Chosen: an hour; groups give up after half of one mostly."""
FARTHEST_NS = 24 * LONGEST_NS
"""How far from the middle of all that a process recorded an operator may be. Chosen: a ring holds
minutes; with one that is years away, floats no longer tell milliseconds apart."""
_MOST_CELLS = 1 << 26

Ints = NDArray[np.int64]


def are_plausible(begun_ns: Ints, ended_ns: Ints, over: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return (n,) which operators can have been: `over` says which ended."""
    if not len(begun_ns):
        return np.ones(0, bool)
    # Floats, since the difference of two such numbers may have no room in an integer.
    begun, ended = begun_ns.astype(np.float64), ended_ns.astype(np.float64)
    near = np.abs(begun - np.median(begun)) <= FARTHEST_NS
    # Whole nanoseconds of today are beyond what a float tells apart: none ends before it began.
    took = ended_ns - begun_ns
    return np.asarray(near & (~over | ((np.abs(ended - begun) <= LONGEST_NS) & (took >= 0))))


def of_members(log: Log) -> Log:
    """Return the log in which only members take part in a group; a note says how many did not.

    Who states of others that they are in a group, and is in none of it himself, would else have
    them named for what he does.
    """
    top = int(log.rank.max(initial=0)) + 1
    stated = [(n, rank) for n, each in enumerate(log.groups) for rank in each.members]
    if not stated or not len(log):
        return log
    group, rank = np.array(stated, np.int64).T
    known = np.zeros(len(log.groups), bool)
    known[group] = True
    asked = np.flatnonzero((log.group >= 0) & known[np.maximum(log.group, 0)])
    if len(log.groups) * top <= _MOST_CELLS:
        inside = np.zeros((len(log.groups), top), bool)
        inside[group[rank < top], rank[rank < top]] = True
        is_member = inside[log.group[asked], log.rank[asked]]
    else:
        rows = log.group[asked].astype(np.int64) * top + log.rank[asked]
        is_member = np.isin(rows, (group * top + rank)[rank < top])
    if is_member.all():
        return log
    others = asked[~is_member]
    column = log.group.copy()
    column[others] = UNKNOWN
    who = np.unique(log.rank[others]).tolist()
    some = ", ".join(map(str, who[:8])) + (", ..." if len(who) > 8 else "")
    note = f"{len(others)} operators are in groups that do not list their ranks ({some})"
    return replace(log, group=column, notes=(*log.notes, note))
