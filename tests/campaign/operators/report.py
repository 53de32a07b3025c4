# SPDX-License-Identifier: Apache-2.0
"""What a campaign comes to: shares with their intervals, by rule and by fault."""

from collections.abc import Callable, Iterator, Sequence

from tests.campaign.operators.episode import EXPECTED, Outcome
from tests.campaign.score import wilson

RULES = ("netagent", "who waits least", "one iteration", "ratios to means")
_NOBODY = {fault.value for fault in EXPECTED}


def share(name: str, values: Sequence[bool]) -> dict[str, object]:
    """Return a share of cases with its 95 % interval."""
    low, high = wilson(sum(values), len(values)) if values else (0.0, 1.0)
    return {
        "figure": name, "hits": sum(values), "of": len(values),
        "share": round(sum(values) / max(len(values), 1), 6),
        "low": round(low, 6), "high": round(high, 6),
    }  # fmt: skip


def blamed(outcome: Outcome) -> bool:
    """Return whether anybody is to blame."""
    return bool(set(outcome.faults) - _NOBODY)


def plain(outcomes: Sequence[Outcome]) -> Iterator[dict[str, object]]:
    """Yield all figures."""
    guilty = [each for each in outcomes if blamed(each)]
    quiet = [each for each in outcomes if not blamed(each)]
    for rule in RULES:
        yield {"rule": rule} | share("right first", [each.first[rule] for each in guilty])
        yield {"rule": rule} | share("right among two", [each.second[rule] for each in guilty])
        yield {"rule": rule} | share("healthy blamed", [each.false[rule] for each in outcomes])
    yield {"rule": "netagent"} | share("all of them named", [each.every for each in guilty])
    several = [each.every for each in guilty if not set(each.faults) & _NOBODY and each.faults[1:]]
    yield {"rule": "netagent"} | share("both named, of two at fault", several)
    told = [each.told for each in quiet if each.faults]
    yield {"rule": "netagent"} | share("nobody's fault, told as such", told)
    yield {"rule": "netagent"} | share(
        "healthy, told as such", [each.told for each in quiet if not each.faults]
    )
    yield from _by_fault(guilty, quiet)


def _by_fault(guilty: Sequence[Outcome], quiet: Sequence[Outcome]) -> Iterator[dict[str, object]]:
    def by(
        some: Sequence[Outcome], right: Callable[[Outcome], bool]
    ) -> Iterator[dict[str, object]]:
        for fault in sorted({each.faults[0] for each in some if each.faults}):
            own = [right(each) for each in some if each.faults and each.faults[0] == fault]
            yield {"rule": "netagent", "fault": fault} | share("right first", own)

    yield from by(guilty, lambda each: each.first["netagent"])
    yield from by(quiet, lambda each: each.told)


def table(figures: Sequence[dict[str, object]]) -> Iterator[str]:
    """Yield the lines of a table for people."""
    for each in figures:
        name = str(each.get("fault", each["figure"]))
        counts = f"{each['hits']}/{each['of']}"
        span = f"{each['low']:.1%} to {each['high']:.1%}"
        yield f"{each['rule']!s:<16} {name:<32} {counts:>9} {each['share']:>7.1%}  {span}"
