# SPDX-License-Identifier: Apache-2.0
"""A campaign's score as a picture: what was named for what failed, and how true confidence is."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from analyzer.simulate.failures import Family
from tests.campaign.score import Bin, Score, reliability

NAMED = ("link", "switch", "rnic", "endpoint", "host", "container", "vswitch", "agent", "nobody")


def draw(path: Path, score: Score) -> None:
    """Write the picture as SVG."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    canvas = FigureCanvasSVG(figure)
    left, right = figure.subplots(1, 2)
    _confusion(left, score)
    _reliability(right, reliability(score.verdicts))
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.print_figure(str(path), metadata={"Date": None})


def rows(score: Score) -> tuple[list[str], list[list[int]]]:
    """Return the families that failed, and how often each kind was named for them."""
    families = [f.value for f in Family if any(f == family for family, _ in score.confusion)]
    return families, [[score.confusion.get((f, kind), 0) for kind in NAMED] for f in families]


def _confusion(axes: Axes, score: Score) -> None:
    families, counts = rows(score)
    axes.set_title("Failures by what was named for them")
    if not families:
        return
    shares = [[each / max(1, sum(row)) for each in row] for row in counts]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for y, row in enumerate(counts):
        for x, each in enumerate(row):
            if each:
                dark = shares[y][x] > 0.5
                axes.text(x, y, str(each), ha="center", va="center", color="w" if dark else "k")
    axes.set_xticks(range(len(NAMED)), NAMED, rotation=40, ha="right")
    axes.set_yticks(range(len(families)), families)
    axes.set_xlabel("named (an RNIC and its only endpoint, or a host and its container, are one)")
    axes.set_ylabel("what failed")


def _reliability(axes: Axes, bins: Sequence[Bin]) -> None:
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for n, each in enumerate(bins):
        axes.plot([each.confidence] * 2, each.interval, color="C0", linewidth=2)
        axes.plot(each.confidence, each.share, "o", color="C0")
        axes.annotate(
            f"{each.verdicts}", (each.confidence, each.share), textcoords="offset points",
            xytext=(-6, -14 - 14 * (n % 2)), ha="right",
        )  # fmt: skip
    axes.set_xlim(0.3, 1.02)
    axes.set_ylim(0.3, 1.02)
    axes.set_xlabel("confidence of a verdict (number of verdicts beside)")
    axes.set_ylabel("share that was right, with its 95 % interval")
    axes.set_title("Is confidence true?")
