# SPDX-License-Identifier: Apache-2.0
"""One verdict over a log: of the first who has something to say of it."""

from collections.abc import Callable

from analyzer.detect.operators import hang, slow
from analyzer.detect.operators.verdict import Holdup, Verdict
from analyzer.operators.log import Log

Judge = Callable[[Log], Verdict | None]

JUDGES: tuple[Judge, ...] = (hang.judge, slow.judge)
"""In order: a job that stands still has no durations to compare."""


def judged(log: Log) -> Verdict:
    """Return the verdict of the first judge that has one."""
    verdicts = (judge(log) for judge in JUDGES)
    found = next((each for each in verdicts if each is not None), None)
    return found or Verdict(Holdup.NOTHING, "no operator waits for a rank that is late")
