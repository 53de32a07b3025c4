# SPDX-License-Identifier: Apache-2.0
"""What happened in some days, as numbers: made of what the API answers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MOST = 10
"""Most parts, tasks and links that are told. Chosen: a table that fits a screen."""
SECOND = 1e9

Plain = dict[str, Any]


def figures(
    incidents: Iterable[Mapping[str, Any]],
    *,
    since_ns: int,
    until_ns: int,
    worst: Mapping[str, Any] | None = None,
    unprobed: Iterable[Mapping[str, Any]] = (),
) -> Plain:
    """Return the report as plain data; seconds, Unix nanoseconds, shares 0..1.

    `incidents` and `unprobed` are as the API lists them, `worst` what `/v1/history/worst` answers;
    None where that may not be read. An incident counts that began before `until_ns` and was not
    over at `since_ns`; one that people called wrong counts for no time.
    """
    mine = [each for each in incidents if _within(each, since_ns, until_ns)]
    true = [each for each in mine if judged(each) is not False]
    return {
        "since_ns": since_ns,
        "until_ns": until_ns,
        "incidents": _counts(mine),
        "named_after_s": distribution(_named(true)),
        "recovered_after_s": distribution(_recovered(true)),
        "parts": _by(true, lambda each: [_part(each)], "component", since_ns, until_ns),
        "tasks": _by(true, lambda each: each["tasks"], "task", since_ns, until_ns),
        "worst": None if worst is None else _worst(worst),
        "unwatched": _unwatched(mine, worst, unprobed),
        "called_wrong": [_wrong(each) for each in mine if judged(each) is False][:MOST],
    }


def judged(incident: Mapping[str, Any]) -> bool | None:
    """Return whether people call the verdict right, by the newest word; None where nobody spoke."""
    words = incident.get("feedback") or ()
    return bool(words[-1]["right"]) if words else None


def distribution(seconds: Sequence[float]) -> Plain:
    """Return count, least, median, nine tenths and most; None where there are none."""
    ordered = sorted(seconds)
    if not ordered:
        return {"count": 0, "least": None, "median": None, "p90": None, "most": None}

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {
        "count": len(ordered),
        **{
            name: round(value, 3)
            for name, value in (
                ("least", ordered[0]), ("median", at(0.5)), ("p90", at(0.9)), ("most", ordered[-1]),
            )
        },
    }  # fmt: skip


def _within(each: Mapping[str, Any], since_ns: int, until_ns: int) -> bool:
    over_ns = each["recovered_ns"]
    return each["detected_ns"] < until_ns and (over_ns is None or over_ns >= since_ns)


def _counts(mine: Sequence[Mapping[str, Any]]) -> Plain:
    said = Counter(judged(each) for each in mine)
    judgements = said[True] + said[False]
    return {
        "all": len(mine),
        "active": sum(each["state"] != "recovered" for each in mine),
        "undecided": sum(each["component"] is None for each in mine),
        "masked": sum(each["symptom"] == "masked" for each in mine),
        "by_layer": dict(sorted(Counter(each["layer"] or "undecided" for each in mine).items())),
        "called_right": said[True],
        "called_wrong": said[False],
        "not_judged": said[None],
        "right_share": round(said[True] / judgements, 4) if judgements else None,
    }


def _named(true: Iterable[Mapping[str, Any]]) -> list[float]:
    named = (each for each in true if each["component"] is not None)
    return [max(0.0, each["localized_ns"] - each["detected_ns"]) / SECOND for each in named]


def _recovered(true: Iterable[Mapping[str, Any]]) -> list[float]:
    over = (each for each in true if each["recovered_ns"])
    return [max(0.0, each["recovered_ns"] - each["detected_ns"]) / SECOND for each in over]


def _by(
    true: Iterable[Mapping[str, Any]], names: Any, called: str, since_ns: int, until_ns: int
) -> list[Plain]:
    """Return what was hit most, with how long something was wrong of it: times do not add up."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for each in true:
        end_ns = min(each["recovered_ns"] or until_ns, until_ns)
        for name in names(each):
            spans[name].append((max(each["detected_ns"], since_ns), end_ns))
    rows: list[Plain] = [
        {called: name, "incidents": len(mine), "seconds": round(_covered(mine) / SECOND, 3)}
        for name, mine in spans.items()
    ]
    return sorted(rows, key=lambda row: (-row["seconds"], -row["incidents"], row[called]))[:MOST]


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of spans."""
    total = reached = 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _part(each: Mapping[str, Any]) -> str:
    return str(each["component"] or "insufficient evidence")


def _worst(worst: Mapping[str, Any]) -> list[Plain]:
    return [
        {**each, "share": each["lost"] / each["sent"] if each["sent"] else 0.0}
        for each in worst["worst"][:MOST]
    ]


def _unwatched(
    mine: Iterable[Mapping[str, Any]],
    worst: Mapping[str, Any] | None,
    unprobed: Iterable[Mapping[str, Any]],
) -> Plain:
    expected = worst["expected"] if worst is not None else 0
    missed = max(0, expected - worst["windows"]) if worst is not None else None
    share = round(missed / expected, 4) if missed is not None and expected else None
    now = Counter((str(each["what"]), str(each["why"])) for each in unprobed)
    return {
        "windows_share": share,
        "windows_missed": missed,
        "windows_expected": expected if worst is not None else None,
        "windows_since_ns": worst.get("first_ns") if worst is not None else None,
        "unobserved_incidents": sum(each.get("unobserved_ns") is not None for each in mine),
        "unprobed_now": [
            {"what": what, "why": why, "count": count}
            for (what, why), count in now.most_common(MOST)
        ],
    }


def _wrong(each: Mapping[str, Any]) -> Plain:
    word = each["feedback"][-1]
    return {
        "id": each["id"], "said": _part(each), "component": word["component"],
        "note": word["note"], "by": word["by"],
    }  # fmt: skip
