# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.localize.sentences import _SAY, sentences
from netagent.model.evidence import Evidence, EvidenceKind


def said(kind, **values):
    return sentences([Evidence(kind, values)])


def test_every_kind_of_evidence_can_be_told():
    assert set(_SAY) == set(EvidenceKind)


def test_what_an_earlier_version_stored_is_shown_as_it_is_and_in_its_place():
    read = Evidence(EvidenceKind.READ, {"name": "carrier", "text": "0"})
    assert sentences(["old", read, "older"]) == ["old", "carrier: 0", "older"]


@pytest.mark.parametrize(("large", "size"), [(True, " of the largest size"), (False, "")])
def test_probes_of_the_largest_size_only_are_said_to_be(large, size):
    told = said(EvidenceKind.TALLY, component="switch s", lost=1, crossed=9, large=large)
    assert told == [f"1 of 9 probes{size} that cross switch s are lost"]


def test_what_did_not_answer_is_no_time_of_zero():
    (told,) = said(
        EvidenceKind.TIMED,
        source="a",
        routers=[("r1", 12_000), ("r2", 0), ("", 7_000)],
        before_ns=100_000,
        now_ns=5_000_000,
    )
    assert told.startswith("how late each router answered a: r1 12 us, r2 none, ? 7 us")
    assert told.endswith("end to end 100 us -> 5000 us")


def test_a_silent_router_is_a_question_mark_on_the_way():
    told = said(EvidenceKind.PATH, way=["a", "", "b"], reply=True, lost=1, sent=9)
    assert told == ["reply a > ? > b: 1/9 lost, there or back"]
    assert said(EvidenceKind.PATH, way=["a"], reply=False, lost=0, sent=9)[0].startswith("probe ")
    assert "a silent router" in said(EvidenceKind.TRACE_END, router="")[0]


def test_what_nobody_probes_lost_nothing_of_nothing():
    assert said(EvidenceKind.CROSSED, lost=0, sent=0) == ["no probe crosses it now"]
    assert said(EvidenceKind.CROSSED, lost=0, sent=4) == ["probes that cross it: 0 of 4 lost"]


def test_packets_that_reached_routers_are_somebody_s():
    told = said(EvidenceKind.COUNTED, source="a/rail0", routers=[("r1", 9), ("", 8)], sent=10)
    assert told == ["packets of a/rail0 that reached each router: r1 9/10, ? 8/10"]


def test_a_direction_says_both_rates_each_way():
    (told,) = said(
        EvidenceKind.DIRECTION, component="link x -- y", source="x", target="y",
        lost=5, crossed=10, back_lost=1, back_crossed=20,
    )  # fmt: skip
    assert "5 of 10 probes that cross link x -- y from x to y are lost" in told
    assert "1 of 20 that cross it the other way" in told


def test_a_walk_is_a_line_for_each_step_as_deep_as_it_stands():
    told = said(EvidenceKind.WALK, source="a", target="b", steps=[[0, "br-int"], [1, "table 40"]])
    assert told == ["walk a -> b:", "br-int", "  table 40"]
