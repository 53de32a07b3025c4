# SPDX-License-Identifier: Apache-2.0
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who, as_json, verdict_of


def test_a_verdict_has_the_documented_shape() -> None:
    culprit = Culprit(Who.EDGE, (3, 4), 0.98765, "4.2 times the median", host="h1")
    told = as_json(
        Verdict(Holdup.SLOW_COMMUNICATION, "s", (culprit,), innocent=False, iterations=9)
    )
    assert told == {
        "verdict": "communication slow", "summary": "s",
        "culprits": [
            {"kind": "edge", "ranks": [3, 4], "host": "h1", "confidence": 0.988,
             "why": "4.2 times the median"}
        ],
        "innocent": False, "evidence": [], "iterations": 9, "missing": [],
    }  # fmt: skip


def test_a_verdict_is_read_as_it_was_told() -> None:
    culprit = Culprit(Who.RANK, (3,), 0.5, "slow", host="h1")
    verdict = Verdict(Holdup.SLOW_RANK, "s", (culprit,), evidence=("e",), missing=("m",))
    assert verdict_of(as_json(verdict)) == verdict
