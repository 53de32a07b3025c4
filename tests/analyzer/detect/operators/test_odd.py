# SPDX-License-Identifier: Apache-2.0
from analyzer.detect.operators import odd
from analyzer.detect.operators.chains import ends_of
from analyzer.detect.operators.mismatch import mismatches
from analyzer.detect.operators.verdict import Holdup, Who
from analyzer.detect.operators.waits import Waits
from analyzer.operators.log import Group, Kind, State, log_of
from tests.analyzer.detect.operators.test_hang import collective, named, rows


def test_who_does_other_than_most_is_named_with_what_it_does():
    log = log_of(
        {"rank": range(3), "kind": [Kind.COLLECTIVE] * 3, "group": [0] * 3, "sequence": [4] * 3,
         "op": [0, 1, 0], "state": [State.STARTED] * 3},
        ops=("all_reduce", "broadcast"), groups=(Group("g", members=(0, 1, 2)),),
    )  # fmt: skip
    waits = Waits(log)
    verdict = odd.mismatched(waits, list(mismatches(waits)))
    assert (verdict.holdup, named(verdict)) == (Holdup.MISMATCH, [(Who.RANK, (1,))])
    assert verdict.culprits[0].confidence == odd.ODD_CONFIDENCE
    assert len(verdict.evidence) == 2


def test_a_circle_without_a_majority_is_all_of_it():
    groups = (Group("a", members=(0, 1)), Group("b", members=(0, 1)))
    waits = Waits(rows(collective(0, 1), collective(1, 1, group=1), groups=groups))
    verdict = odd.circle(waits, ends_of(waits, first=True))
    assert named(verdict) == [(Who.GROUP, (0, 1))]
    assert verdict.culprits[0].confidence < odd.ODD_CONFIDENCE
