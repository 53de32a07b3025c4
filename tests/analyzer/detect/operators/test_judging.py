# SPDX-License-Identifier: Apache-2.0
from analyzer.detect.operators import judging
from analyzer.detect.operators.verdict import Holdup, Verdict
from analyzer.operators.log import log_of
from tests.analyzer.detect.operators.test_hang import collective, rows

EMPTY = log_of({"rank": []})


def test_a_hang_goes_before_all_else(monkeypatch):
    later = Verdict(Holdup.SLOW_RANK, "slow")
    monkeypatch.setattr(judging, "JUDGES", (*judging.JUDGES[:1], lambda _: later))
    assert judging.judged(rows(collective(0, 4))).holdup is not Holdup.SLOW_RANK
    assert judging.judged(EMPTY) is later


def test_where_nobody_has_something_to_say_nobody_is_to_blame(monkeypatch):
    monkeypatch.setattr(judging, "JUDGES", ())
    verdict = judging.judged(EMPTY)
    assert (verdict.holdup, verdict.culprits, verdict.innocent) == (Holdup.NOTHING, (), True)
