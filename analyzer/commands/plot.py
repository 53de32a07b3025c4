# SPDX-License-Identifier: Apache-2.0
"""Skeletons, history and operators as pictures: the door of matplotlib, which is an extra."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.operators.waits import Waits
from analyzer.operators.log import Log
from analyzer.skeleton.infer import Skeleton
from analyzer.skeleton.series import Ints, TrafficSeries, basic_edges
from analyzer.skeleton.spectrum import compress, features, filled
from netagent.model.errors import CapabilityMissing, ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REMEDY = "pip install matplotlib, or netagent[plot]"
CELLS = 512
"""Most cells per side of a drawn matrix; larger matrices are summed by cell. Chosen: about a
screen's resolution."""
GROUPS_SHOWN = 8
"""Most stages drawn, and most series in each. Chosen: more cannot be told apart by eye."""
OPERATORS_SHOWN = 5000
"""Most operators drawn, of each rank the last ones, and one at least. Chosen: more take long."""
PERIODS_SHOWN = 4
"""Iterations drawn. Chosen: enough to see them repeat."""


def draw(path: str, series: TrafficSeries, found: Skeleton) -> None:
    """Write a picture to `path`: series by group, signatures, and edges beside the basic list.

    Raises CapabilityMissing without matplotlib, ConfigError where the file cannot be written.
    """

    def drawn(figure: "Figure") -> None:
        figure.suptitle(_title(series, found))
        axes = figure.subplots(2, 2)
        _draw_series(axes[0, 0], series, found)
        _draw_signatures(axes[0, 1], series, found)
        basic = basic_edges(series.host, series.rail)
        _draw_edges(axes[1, 0], basic, len(series), f"basic list: {len(basic)} pairs")
        mine = f"skeleton: {len(found.edges)} pairs"
        _draw_edges(
            axes[1, 1],
            found.edges,
            len(series),
            mine if found.confident else "no skeleton: basic list",
        )

    _write(path, (13, 9), drawn)


def draw_history(
    path: str,
    title: str,
    at_ns: Sequence[int],
    lost: Sequence[float],
    lines_us: Mapping[str, Sequence[float | None]],
) -> None:
    """Write a picture to `path`: per cent lost, and lines of round trips, by time (UTC).

    A line is broken where it has None. Raises as `draw`.
    """
    times = [datetime.fromtimestamp(each // 10**9, UTC) for each in at_ns]
    marker = "." if len(times) < CELLS else ""

    def drawn(figure: "Figure") -> None:
        figure.suptitle(title)
        axes = figure.subplots(2, 1, sharex=True)
        axes[0].plot(times, lost, linewidth=0.9, marker=marker)
        for name, values in lines_us.items():
            known = [np.nan if each is None else each for each in values]
            axes[1].plot(times, known, linewidth=0.9, marker=marker, label=name)
        axes[1].legend(loc="upper left", ncols=len(lines_us), frameon=False)
        for each, label in zip(axes, ("lost, %", "round trip, us"), strict=True):
            each.set_ylabel(label)
            each.set_ylim(bottom=0)
        axes[1].set_xlabel("UTC")
        figure.autofmt_xdate()

    _write(path, (13, 6), drawn)


def draw_operators(path: str, log: Log, named: Sequence[int], title: str) -> None:
    """Write a picture to `path`: who waits for whom, and how far ranks came or when they worked.

    `named` are the ranks that hold the job up. Raises as `draw`.
    """

    def drawn(figure: "Figure") -> None:
        figure.suptitle(title if len(title) < 120 else f"{title[:117]}...")
        left, right = figure.subplots(1, 2)
        _draw_waits(left, log, named)
        _draw_times(right, log, named)

    _write(path, (13, 6), drawn)


def _draw_waits(axes: "Axes", log: Log, named: Sequence[int]) -> None:
    """Draw how often each rank (row) waits for each (column), where not all came."""
    waits = Waits(log)
    cells = max(1, min(CELLS, log.world))
    matrix = np.zeros((cells, cells))
    for meeting in waits.meetings:
        columns = np.array(waits.late(meeting), np.int64) * cells // max(log.world, 1)
        rows = np.array(waits.waiters(meeting), np.int64) * cells // max(log.world, 1)
        for column in columns.tolist():
            np.add.at(matrix, (rows, column), 1)
    end = max(log.world, 1) - 0.5
    extent = (-0.5, end, end, -0.5)
    axes.imshow(matrix, cmap="Greys", vmin=0, interpolation="none", extent=extent)
    for rank in named[:CELLS]:
        axes.axvline(rank, color="C3", linewidth=0.8)
    axes.set_xlabel("rank that is waited for; red: named")
    axes.set_ylabel("rank that waits")
    axes.set_title("who waits for whom when the log ends")


def _draw_times(axes: "Axes", log: Log, named: Sequence[int]) -> None:
    """Draw when each rank worked; each begins at 0, since clocks are not compared."""
    known = _last_of_each(log)
    rank, started = log.rank[known], log.started_ns[known]
    if len(known):
        first = np.full(int(rank.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, rank, started)
        at_ms = (started - first[rank]) / 1e6
        shown = np.isin(rank, np.array(named, np.int64))
        for which, color in ((~shown, "C0"), (shown, "C3")):
            took_ms = log.duration_ns[known][which] / 1e6
            axes.barh(rank[which], took_ms, left=at_ms[which], color=color, height=0.8)
    else:
        axes.text(0.5, 0.5, "no operator has a duration", ha="center", transform=axes.transAxes)
    axes.set_xlabel("ms of the rank's own clock; red: named")
    axes.set_ylabel("rank")
    axes.set_title("when ranks were in an operator")


def _last_of_each(log: Log) -> Ints:
    """Return the rows of the last operators with a duration, of each rank as many."""
    known = np.flatnonzero(log.duration_ns >= 0)
    known = known[np.argsort(log.rank[known], kind="stable")]
    _, begins, counts = np.unique(log.rank[known], return_index=True, return_counts=True)
    left = np.repeat(begins + counts, counts) - np.arange(len(known))
    return known[left <= max(1, OPERATORS_SHOWN // max(1, len(counts)))]


def _write(path: str, size: tuple[float, float], drawn: "Callable[[Figure], None]") -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise CapabilityMissing("drawing", REMEDY) from error
    figure = Figure(figsize=size, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    drawn(figure)
    try:
        canvas.print_figure(path, dpi=110, format="png")
    except OSError as error:
        raise ConfigError(path, f"cannot be written: {error.strerror}") from error


def _title(series: TrafficSeries, found: Skeleton) -> str:
    what = f"{len(series)} endpoints, {series.rate.shape[1] * series.tick_s:g} s of traffic"
    if not found.confident:
        return f"{what}: {found.reason}"
    if found.superset:
        return f"{what}: a superset, confidence {found.confidence:.2f}"
    degrees = f"DP {found.dp}  PP {found.pp}  TP {found.tp}  EP {found.ep}"
    return f"{what}: {degrees}, confidence {found.confidence:.2f}"


def _stage(series: TrafficSeries, found: Skeleton) -> Ints:
    return found.stage if len(found.stage) else np.zeros(len(series), np.int64)


def _draw_series(axes: "Axes", series: TrafficSeries, found: Skeleton) -> None:
    """Draw what the members of each group send, one group above the other."""
    stage = _stage(series, found)
    span_s = PERIODS_SHOWN * found.period_s if found.period_s else np.inf
    ticks = max(2, int(min(series.rate.shape[1], span_s / series.tick_s)))
    rate = series.rate[:, -ticks:] / series.tick_s
    at_s = np.arange(ticks) * series.tick_s
    groups = min(GROUPS_SHOWN, int(stage.max()) + 1)
    # With the quantile, one spike does not flatten everything else.
    step = max(float(np.nanquantile(rate, 0.99)), 1e-9) * 1.1 if rate.size else 1.0
    for number in range(groups):
        members = rate[stage == number][:GROUPS_SHOWN]
        axes.plot(at_s, members.T + number * step, color=f"C{number}", linewidth=0.7, alpha=0.6)
    axes.set_yticks(np.arange(groups) * step, [f"stage {number}" for number in range(groups)])
    axes.set_xlabel("s")
    axes.set_title(f"bytes/s, one stage above the other, {_unit(step)} apart")


def _draw_signatures(axes: "Axes", series: TrafficSeries, found: Skeleton) -> None:
    """Draw each endpoint's coherence with the landmarks, sorted by group."""
    stage = _stage(series, found)
    made = features(filled(compress(series.rate))).pooled
    order = np.lexsort((series.rail, series.host, stage))
    picture = _put_together(made[order])
    limit = max(float(np.abs(picture).max()), 1e-9) if picture.size else 1.0
    axes.imshow(picture, aspect="auto", cmap="RdBu", vmin=-limit, vmax=limit, interpolation="none")
    _mark_groups(axes, stage[order], len(picture))
    axes.set_ylabel("endpoints, by stage")
    axes.set_xlabel("frequency, for each landmark; real, then imaginary part")
    axes.set_title("signatures: what clusters")


def _put_together(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    parts = np.array_split(rows, min(CELLS, len(rows)))
    return np.stack([part.mean(axis=0) for part in parts])


def _mark_groups(axes: "Axes", stage: Ints, height: int) -> None:
    ends = np.flatnonzero(np.diff(stage)) + 1
    for end in ends.tolist():
        axes.axhline(end * height / len(stage) - 0.5, color="black", linewidth=0.4)


def _draw_edges(axes: "Axes", edges: Ints, count: int, title: str) -> None:
    """Draw which endpoints are joined: the adjacency matrix, darker where more are."""
    cells = min(CELLS, count)
    both = np.concatenate([edges, edges[:, ::-1]])
    place = both * cells // count
    matrix = np.zeros((cells, cells))
    np.add.at(matrix, (place[:, 0], place[:, 1]), 1)
    most = max(float(matrix.max()), 1.0)
    axes.imshow(
        matrix, cmap="Greys", vmin=0, vmax=most, interpolation="none", extent=(0, count, count, 0)
    )
    axes.set_title(title)
    axes.set_xlabel("endpoint")


def _unit(bytes_per_s: float) -> str:
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.3g} {unit}"
    return f"{bytes_per_s:.3g} B/s"
