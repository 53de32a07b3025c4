# SPDX-License-Identifier: Apache-2.0
"""The operators of one job as columns: what each rank computed, sent and took part in.

A row is one operator of one rank. All ranks of one collective share a key: group, sequence and,
where a source counts each operation apart, the operation. Times are those of the rank's own host,
possibly relative to its step, so times of two ranks are never subtracted: only durations, gaps
between operators of one rank, and orders inside a key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNKNOWN = -1
"""In a column of integers: not known, or none."""
NEVER = np.iinfo(np.int64).min
"""In a column of times: not known, or not yet. Not below zero at large: times may be relative."""


class Kind(IntEnum):
    """What an operator is."""

    OTHER = 0
    """What is neither computed nor communicated: a data loader, an optimizer, a collector."""
    COMPUTE = 1
    COLLECTIVE = 2
    SEND = 3
    RECV = 4


class State(IntEnum):
    """How far an operator had come when the log ended."""

    UNKNOWN = 0
    ENQUEUED = 1
    STARTED = 2
    ENDED = 3


class GroupKind(StrEnum):
    """What a group is for."""

    DATA = "dp"
    TENSOR = "tp"
    PIPELINE = "pp"
    EXPERT = "ep"
    WORLD = "world"
    UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Group:
    """One communicator."""

    name: str
    """Unique in the log."""
    kind: GroupKind = GroupKind.UNKNOWN
    members: tuple[int, ...] = ()
    """Ranks in ascending order; empty where the source does not say, and then those seen in it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank is."""

    host: str | None = None
    endpoints: tuple[str, ...] = ()
    """`container/railN`, where known."""
    dp: int = UNKNOWN
    pp: int = UNKNOWN
    tp: int = UNKNOWN
    ep: int = UNKNOWN


_COLUMNS: Mapping[str, type] = {
    "step": np.int32,
    "rank": np.int32,
    "kind": np.uint8,
    "op": np.int32,
    "group": np.int32,
    "peer": np.int32,
    "microbatch": np.int32,
    "bytes": np.int64,
    "sequence": np.int64,
    "enqueued_ns": np.int64,
    "started_ns": np.int64,
    "ended_ns": np.int64,
    "state": np.uint8,
}
_DEFAULTS = {
    "kind": Kind.OTHER, "state": State.UNKNOWN,
    "enqueued_ns": NEVER, "started_ns": NEVER, "ended_ns": NEVER,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Log:
    """Operators of n rows. Rows of one rank stand in the order in which the rank issued them."""

    step: NDArray[np.int32]
    """Training iteration; `UNKNOWN` where the source does not say."""
    rank: NDArray[np.int32]
    kind: NDArray[np.uint8]
    """`Kind`."""
    op: NDArray[np.int32]
    """Place in `ops`."""
    group: NDArray[np.int32]
    """Place in `groups`, or `UNKNOWN`."""
    peer: NDArray[np.int32]
    """Rank to which or from which, or `UNKNOWN`."""
    microbatch: NDArray[np.int32]
    bytes: NDArray[np.int64]
    sequence: NDArray[np.int64]
    """Number of the operator in its group, as the source counts; `UNKNOWN` where it does not."""
    enqueued_ns: NDArray[np.int64]
    started_ns: NDArray[np.int64]
    ended_ns: NDArray[np.int64]
    state: NDArray[np.uint8]
    """`State`."""
    ops: tuple[str, ...]
    """Names of operations, such as `all_reduce` or `forward-compute`."""
    groups: tuple[Group, ...] = ()
    places: Mapping[int, Place] = field(default_factory=dict)
    """By rank."""
    world: int = 0
    """How many ranks the job has; at least those in the log."""
    silent: tuple[int, ...] = ()
    """Ranks of which there is a log without an operator: hung or dead before they logged."""
    unseen: tuple[int, ...] = ()
    """Ranks of which there is no log: nothing may be said of them from this."""
    overdue: int = 0
    """How many operators the source itself gave up waiting for, as a watchdog does."""
    at_rest: bool = False
    """Whether it was written as a watchdog does, once a job has stood still for minutes. Who asks a
    job at work may get one like it."""
    is_whole: bool = True
    """Whether it has all in which ranks may have waited for each other. Where it has not, what is
    between two operators is not a rank's own work."""
    source: str = ""
    """What wrote it: `flight-recorder`, `nccl-inspector`, `hooks`, `uprobes`, `import`."""
    notes: tuple[str, ...] = ()
    """What the reader left out, changed or doubts, as sentences."""

    def __post_init__(self) -> None:
        """Raise `ValueError` where columns differ in length."""
        lengths = {name: len(getattr(self, name)) for name in _COLUMNS}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of unequal length: {lengths}")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rank)

    def take(self, rows: NDArray[Any]) -> "Log":
        """Return the log of some rows, by places or by a mask; the rest stays as it is."""
        others = {each.name: getattr(self, each.name) for each in fields(self)}
        return Log(**others | {name: others[name][rows] for name in _COLUMNS})

    @property
    def duration_ns(self) -> NDArray[np.int64]:
        """How long each took; `UNKNOWN` where it is not known."""
        known = (self.started_ns != NEVER) & (self.ended_ns != NEVER)
        return np.where(known, self.ended_ns - np.where(known, self.started_ns, 0), UNKNOWN)


def log_of(columns: Mapping[str, Sequence[int] | NDArray[Any]], **rest: Any) -> Log:
    """Return a log of some columns, at least `rank`; the others are unknown in all rows.

    `rest` is what else `Log` has. Raises `ValueError` for a column that there is not.
    """
    if stray := set(columns) - set(_COLUMNS):
        raise ValueError(f"no such column: {', '.join(sorted(stray))}")
    count = len(columns["rank"])
    made: dict[str, Any] = {
        name: np.asarray(columns[name], kind)
        if name in columns
        else np.full(count, _DEFAULTS.get(name, UNKNOWN), kind)
        for name, kind in _COLUMNS.items()
    }
    seen = int(made["rank"].max(initial=-1)) + 1
    return Log(**made | {"ops": ("",)} | rest | {"world": max(seen, rest.get("world", 0))})
