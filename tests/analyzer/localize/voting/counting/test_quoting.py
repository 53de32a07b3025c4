# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from analyzer.localize.voting.counting.quoting import COUNTS_QUOTED, counted, timed
from netagent.model.evidence import EvidenceKind
from netagent.wire.messages import PathAnswer
from tests.analyzer.localize.voting.counting.ways import FLOW, SPINES, US, answered, way


def test_ways_that_lost_most_are_quoted_first_and_not_all_of_them():
    counts = [way(SPINES[0], 50, 50 - lost, 50 - lost) for lost in range(COUNTS_QUOTED + 3)]
    quoted = counted(counts)
    assert [each.kind for each in quoted] == [EvidenceKind.COUNTED] * COUNTS_QUOTED
    reached = [each.values["routers"][-1][1] for each in quoted]
    assert reached == sorted(reached)
    assert reached[0] == 50 - (COUNTS_QUOTED + 2)


def test_what_was_not_sent_is_no_evidence():
    (count,) = answered(0, 0, 0)
    assert counted([count])
    assert counted([replace(count, answer=PathAnswer(source_port=0, outer_port=1))]) == []


def test_times_are_quoted_of_what_became_slow():
    late = way(SPINES[0], 50, 50, 50, rtt_us=(9, 80, 81))
    (quoted,) = timed([late], {FLOW: (14 * US, 74 * US)})
    assert quoted.kind is EvidenceKind.TIMED
    assert [ns for _, ns in quoted.values["routers"]] == [9 * US, 80 * US, 81 * US]
    assert timed([way(SPINES[0], 50, 50, 50)], {}) == []
