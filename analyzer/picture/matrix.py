# SPDX-License-Identifier: Apache-2.0
"""From whom to whom: cells of rows that are summed by leaf, rail, host, task or endpoint."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzer.picture.asked import Matrix
from analyzer.picture.scene import Floats, Ints, Mask, Names, Scene
from analyzer.picture.sums import COUNT, LN, LOST, SENT, mean_ns, quantiles, summed

MOST = 64
"""Most rows, and columns. Chosen: 4,096 cells are what fits a screen, and 300 KB."""

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Level:
    """By what is summed, and which rows count."""

    by: str
    names: Names
    opens: str | None
    mask: Mask
    is_narrow: bool = False
    """Whether rows and columns are of different places."""


def matrix(scene: Scene, asked: Matrix) -> Generator[None, None, Plain]:
    """Return cells, those of who lost most first, piece by piece.

    A cell is [row, column, probes sent, lost, mean and p99 of round trips in ns, pairs].
    """
    level = _level(scene, asked)
    mask, names = level.mask, level.names
    ends, columns = scene.ends, scene.columns[: LOST + 1]
    if not mask.all():
        ends, columns = ends[:, mask], columns[:, mask]
    ends, size = names.of[ends], len(names.names)
    rows, cols = (_met(each, columns, size) for each in ends)
    if not level.is_narrow:  # the same names on both sides
        rows = cols = np.union1d(rows, cols)
    probed = [len(each) for each in (rows, cols)]
    rows, cols = _worst(ends, columns[LOST], (rows, cols), is_narrow=level.is_narrow)
    at = [np.full(size, -1) for _ in ends]
    for place, chosen in zip(at, (rows, cols), strict=True):
        place[chosen] = np.arange(len(chosen))
    row, col = (place[each] for place, each in zip(at, ends, strict=True))
    is_shown = (row >= 0) & (col >= 0)
    mine = mask.copy()
    mine[mask] = is_shown
    key = (row * len(cols) + col)[is_shown]
    yield
    cells = yield from _cells(scene, mine, key, (len(rows), len(cols)))
    return {
        "by": level.by,
        "rows": [names.names[each] for each in rows.tolist()],
        "cols": [names.names[each] for each in cols.tolist()],
        "cells": cells,
        "opens": level.opens,
        "omitted": {"rows": probed[0] - len(rows), "cols": probed[1] - len(cols)},
        "at_ns": scene.start_ns,
        "width_ns": scene.width_ns,
    }


def _cells(
    scene: Scene, mine: Mask, key: Ints, shape: tuple[int, int]
) -> Generator[None, None, list[list[int | None]]]:
    size = shape[0] * shape[1]
    sums = summed(key, scene.columns if mine.all() else scene.columns[:, mine], size)
    pairs = np.bincount(key[scene.first[mine]], minlength=size).tolist()
    yield
    [p99] = quantiles(scene, mine, key, size, (0.99,))
    return [
        [
            *divmod(cell, shape[1]),
            int(sums[SENT, cell]), int(sums[LOST, cell]),
            mean_ns(sums[COUNT, cell], sums[LN, cell]), p99[cell],
            pairs[cell],
        ]
        for cell in np.flatnonzero(np.array(pairs) > 0).tolist()
    ]  # fmt: skip


def _met(place: Ints, columns: Floats, size: int) -> Ints:
    """Return the places that any probe is of, in order."""
    return np.flatnonzero(np.bincount(place, columns[SENT], size) > 0)


def _worst(
    ends: Ints, lost: Floats, there: tuple[Ints, Ints], *, is_narrow: bool
) -> tuple[Ints, Ints]:
    """Return the places of rows and columns: those of the cells that lost most, then by name.

    Two who lost most of all, and nothing of what they sent each other, would be no cell.
    """
    lossy = np.flatnonzero(lost > 0)
    met, cell = np.unique(ends[:, lossy], axis=1, return_inverse=True)
    total = np.bincount(cell.reshape(-1), lost[lossy], met.shape[1])
    worst = met[:, np.argsort(-total, kind="stable")]
    first = (worst[0], worst[1]) if is_narrow else (worst.T.reshape(-1),) * 2
    rows, cols = (
        np.array([*dict.fromkeys([*mine.tolist(), *rest.tolist()])][:MOST], np.int64)
        for mine, rest in zip(first, there, strict=True)
    )
    return rows, cols


def _level(scene: Scene, asked: Matrix) -> _Level:
    known, mask = scene.known, scene.seen(asked.tasks)
    if asked.within is not None:
        tasks = known.tasks
        of = tasks.names.index(asked.within) if asked.within in tasks.names else -1
        mine = tasks.of == of
        by_host = int(mine.sum()) > MOST
        names = known.hosts if by_host else known.named(mine)
        by = "host" if by_host else "endpoint"
        return _Level(by, names, "pair", mask & mine[scene.ends].all(axis=0))
    given = (asked.row, asked.col)
    if asked.by in {"rail", "task"}:
        names = known.rail_names if asked.by == "rail" else known.tasks
        sides = [_of(names, each) for each in given]
        return _Level(asked.by, names, None, mask & _sides(scene, sides), given != (None, None))
    if given == (None, None):
        if asked.by == "host":
            return _Level("host", known.hosts, "pair", mask)
        return _Level("leaf", scene.leaves, "host", mask)
    hosts = [each in known.hosts.names for each in given]
    if asked.tasks is not None:  # a host of others' is what is not there
        ends = scene.ends[:, mask]
        hosts = [each is not None and bool(_of(known.hosts, each)[ends].any()) for each in given]
    sides = [
        _of(known.hosts if is_host else scene.leaves, each)
        for is_host, each in zip(hosts, given, strict=True)
    ]
    mask = mask & _sides(scene, sides)
    if all(hosts):
        names = known.named(sides[0] | sides[1])
        return _Level("endpoint", names, "pair", mask, is_narrow=True)
    return _Level("host", known.hosts, "pair", mask, is_narrow=True)


def _of(names: Names, wanted: str | None) -> Mask:
    """Return (n_endpoints,) who is of a name; None: all."""
    if wanted is None:
        return np.ones(len(names.of), np.bool_)
    place = names.names.index(wanted) if wanted in names.names else -1
    found: Mask = names.of == place
    return found


def _sides(scene: Scene, sides: list[Mask]) -> Mask:
    found: Mask = sides[0][scene.ends[0]] & sides[1][scene.ends[1]]
    return found
