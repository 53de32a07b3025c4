# SPDX-License-Identifier: Apache-2.0
"""A campaign's score as lines of text."""

import math
import textwrap
from collections import Counter
from collections.abc import Sequence

from analyzer.simulate.failures import TYPES
from tests.campaign.episode import Outcome
from tests.campaign.options import judges
from tests.campaign.score import (
    UNCONNECTED,
    Bin,
    Score,
    Tally,
    false_alarms,
    poisson,
    quantile,
    reliability,
    wilson,
)

WINDOW_S = 5


def lines(score: Score, outcomes: Sequence[Outcome], *, rnics: int) -> list[str]:
    """Return the score for a terminal of 80 columns."""
    total = score.total
    warming = [each for each in outcomes if each.warming]
    outcomes = [each for each in outcomes if not each.warming]
    made = _types(score)
    for number, quiet in sorted(score.harmless.items()):
        made.append(
            _share(f"{number:2d} {TYPES[number][0]}: no part named", sum(quiet), len(quiet), 33)
        )
    made.append("")
    shares = [
        ("precision", score.right, score.named),
        ("recall", total.detected, total.failures),
        ("top 1", total.first, total.failures),
        ("top 2", total.second, total.failures),
        ("top 1 of links and switches", score.places.first, score.places.failures),
        ("episodes wholly right", score.whole, score.episodes),
    ]
    made += [_share(name, hits, of) for name, hits, of in shares if of]
    alarms, named, days = false_alarms(outcomes, rnics)
    if days:
        low, high = (each / days * 10_000 for each in poisson(alarms))
        made.append(
            f"{alarms} false alarms in {days:.1f} RNIC-days of health: "
            f"{low:.0f} to {high:.0f} in 10,000"
        )
        made += [f"  {alarms - named} of them name nobody"] if alarms else []
    alarms, named, _ = false_alarms(warming, rnics)
    if alarms:
        made.append(f"{alarms} alarms while the fabric warmed up, {alarms - named} name nobody")
    if total.failures and score.beside:
        made += ["", "beside it, on flows that pass a fixed threshold:"]
        for name, tally in score.beside.items():
            made += [f"  {_share(f'{name} top 1', tally.first, tally.failures, 18)}"]
            made += [f"  {_share(f'{name} precision', tally.detected, score.blamed[name], 18)}"]
    healthy = [each for each in outcomes if not each.truths]
    if healthy:
        windows = sum(round(each.seconds / WINDOW_S) for each in healthy)
        passed = sum(each.alarms for each in healthy)
        made += [f"  {passed} of {windows} windows of health have a flow that passes a threshold"]
    if score.verdicts:
        made.append("")
        made.append("confidence  right (of verdicts, 95 %)             right less confidence")
        made += map(_bin, reliability(score.verdicts))
    if score.wrong:
        made += ["", "named wrongly:"]
        made += [f"  {what} ({n})" for what, n in sorted(score.wrong.items())][:40]
        made += textwrap.wrap(
            f"seeds: {', '.join(map(str, sorted(set(score.wrong_seeds))))}", 78,
            initial_indent="  ", subsequent_indent="  ",
        )  # fmt: skip
    return made + _remarks(score, outcomes)


def _remarks(score: Score, outcomes: Sequence[Outcome]) -> list[str]:
    """Return what else there is to say."""
    made = []
    if score.aside:
        made += ["", f"{score.aside} incidents named nobody, beside failures that they do not list"]
    if score.broken:
        made.append(f"{score.broken} windows could not be judged")
    if tuning := sum(not judges(each.seed) for each in outcomes):
        made += ["", f"{tuning} episodes are of tuning seeds, which rules were made of"]
    versions = Counter(each.version for each in outcomes if each.version)
    if len(versions) > 1:
        told = ", ".join(f"{count} by {version}" for version, count in sorted(versions.items()))
        made += ["", f"episodes of several versions: {told}"]
    return made


def plain(score: Score, outcomes: Sequence[Outcome], *, rnics: int) -> dict[str, object]:
    """Return the score as plain data."""
    warming = [each for each in outcomes if each.warming]
    alarms, named, days = false_alarms([each for each in outcomes if not each.warming], rnics)
    warm_alarms, warm_named, _ = false_alarms(warming, rnics)
    return {
        "types": {number: _plain(tally) for number, tally in sorted(score.by_type.items())},
        "all": _plain(score.total),
        "unconnectivity": _plain(score.of(UNCONNECTED)),
        "links_and_switches": _plain(score.places),
        "episodes": {"with_failures": score.episodes, "wholly_right": score.whole},
        "named": score.named,
        "right": score.right,
        "wrong": score.wrong,
        "wrong_seeds": sorted(set(score.wrong_seeds)),
        "harmless": {
            number: {"episodes": len(quiet), "nobody_named": sum(quiet)}
            for number, quiet in sorted(score.harmless.items())
        },
        "health": {"alarms": alarms, "named": named, "rnic_days": days},
        "warming": {"alarms": warm_alarms, "named": warm_named},
        "beside": {
            name: _plain(tally) | {"blamed": score.blamed[name]}
            for name, tally in score.beside.items()
        },
        "reliability": [
            {
                "confidence": each.confidence,
                "right": each.share,
                "verdicts": each.verdicts,
                "low": each.interval[0],
                "high": each.interval[1],
            }
            for each in reliability(score.verdicts)
        ],
        "nameless_aside": score.aside,
        "not_judged": score.broken,
    }


def _plain(tally: Tally) -> dict[str, object]:
    times = {f"p{share}_s": quantile(tally.seconds, share / 100) for share in (50, 99)}
    return {
        "failures": tally.failures, "detected": tally.detected, "top1": tally.first,
        "top2": tally.second, **({} if not tally.seconds else times),
    }  # fmt: skip


def _types(score: Score) -> list[str]:
    """Return a table of what was named, by type."""
    made = [
        f"{'type':<32} {'n':>4} {'recall':>7} {'top 1':>7} {'top 2':>7} {'median':>7} {'p99':>6}"
    ]
    made += [
        _row(f"{number:2d} {TYPES[number][0]}", tally)
        for number, tally in sorted(score.by_type.items())
    ]
    made.append(_row("all", score.total))
    if (unconnected := score.of(UNCONNECTED)).failures:
        made.append(_row("those that are unconnectivity", unconnected))
    return made


def _row(name: str, tally: Tally) -> str:
    shares = [each / max(1, tally.failures) for each in (tally.detected, tally.first, tally.second)]
    times = [quantile(tally.seconds, share) for share in (0.5, 0.99)]
    return (
        f"{name:<32} {tally.failures:4d} "
        + " ".join(f"{100 * share:6.1f}%" for share in shares)
        + f" {_seconds(times[0]):>7} {_seconds(times[1]):>6}"
    )


def _seconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}s"


def _bin(each: Bin) -> str:
    low, high = each.interval
    span = f"{each.share:.3f} ({each.right} of {each.verdicts}, {low:.3f} to {high:.3f})"
    return f"{each.confidence:10.3f}  {span:<39} {each.share - each.confidence:+.3f}"


def _share(name: str, hits: int, of: int, width: int = 27) -> str:
    low, high = wilson(hits, of)
    span = f"({100 * low:.2f} to {100 * high:.2f}; {hits} of {of})"
    return f"{name:<{width}} {100 * hits / max(1, of):6.2f} % {span}"
