# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.review.report import MOST, _covered, distribution, figures, judged

SECOND = 10**9


def incident(name="i1", at_s=100, over_s=160, said=None, **fields):
    words = [] if said is None else [{"right": said, "component": "", "note": "", "by": "a"}]
    return {
        "id": name, "state": "recovered" if over_s else "open", "component": "link a -- b",
        "layer": "underlay", "symptom": "loss", "detected_ns": at_s * SECOND,
        "localized_ns": (at_s + 2) * SECOND, "recovered_ns": over_s and over_s * SECOND,
        "unobserved_ns": None, "tasks": ["train-a"], "feedback": words, **fields,
    }  # fmt: skip


def told(*incidents, since_s=0, until_s=1000, **fields):
    return figures(incidents, since_ns=since_s * SECOND, until_ns=until_s * SECOND, **fields)


def test_incidents_are_counted_by_layer_and_by_what_people_say():
    unnamed = incident("i2", component=None, layer=None, said=True)
    found = told(incident(), unnamed, incident("i3", over_s=None, symptom="masked", said=False))
    assert found["incidents"] == {
        "all": 3, "active": 1, "undecided": 1, "masked": 1,
        "by_layer": {"undecided": 1, "underlay": 2}, "called_right": 1, "called_wrong": 1,
        "not_judged": 1, "right_share": 0.5,
    }  # fmt: skip


def test_what_people_call_wrong_is_listed_and_counts_for_no_time():
    wrong = incident("i2", over_s=900)
    wrong["feedback"] = [
        {"right": True, "component": "", "note": "", "by": "a"},
        {"right": False, "component": "host h1", "note": "rebooted", "by": "b"},
    ]
    found = told(incident(), wrong)
    assert found["called_wrong"] == [
        {"id": "i2", "said": "link a -- b", "component": "host h1", "note": "rebooted", "by": "b"}
    ]
    assert found["recovered_after_s"]["most"] == 60
    assert found["parts"] == [{"component": "link a -- b", "incidents": 1, "seconds": 60.0}]


def test_only_what_was_not_over_before_and_had_begun_by_the_end_counts():
    early, late = incident("i1", 10, 20), incident("i2", 500, None)
    across = incident("i3", 10, 120)
    found = told(early, late, across, since_s=100, until_s=400)
    assert found["incidents"]["all"] == 1
    assert found["tasks"] == [{"task": "train-a", "incidents": 1, "seconds": 20.0}]


def test_times_that_overlap_are_counted_once():
    found = told(incident("i1", 100, 200), incident("i2", 150, 250), incident("i3", 900, None))
    assert found["tasks"][0]["seconds"] == 250.0
    assert found["named_after_s"] == {
        "count": 3, "least": 2.0, "median": 2.0, "p90": 2.0, "most": 2.0,
    }  # fmt: skip


def test_what_has_no_name_was_not_named_after_any_time():
    assert told(incident(component=None))["named_after_s"]["count"] == 0


def test_the_worst_links_and_what_was_not_judged_come_from_history():
    worst = {"worst": [{"component": "link a -- b", "sent": 1000, "lost": 5}], "windows": 90}
    unprobed = [{"what": "port", "why": "no-rail"}] * 3 + [{"what": "endpoint", "why": "alone"}]
    found = told(incident(unobserved_ns=5), worst=worst | {"expected": 120}, unprobed=unprobed)
    assert found["worst"] == [{"component": "link a -- b", "sent": 1000, "lost": 5, "share": 0.005}]
    assert found["unwatched"] == {
        "windows_share": 0.25,
        "windows_missed": 30,
        "windows_expected": 120,
        "windows_since_ns": None,
        "unobserved_incidents": 1,
        "unprobed_now": [
            {"what": "port", "why": "no-rail", "count": 3},
            {"what": "endpoint", "why": "alone", "count": 1},
        ],
    }


def test_who_may_not_read_history_is_told_so():
    found = told(incident())
    assert found["worst"] is None
    assert found["unwatched"]["windows_share"] is None


def test_tables_are_bounded():
    many = [incident(f"i{n}", tasks=[f"t{n}"], component=f"host h{n}") for n in range(50)]
    found = told(*many)
    assert len(found["tasks"]) == len(found["parts"]) == MOST


def test_an_analyzer_of_an_earlier_version_knows_no_words():
    assert judged({}) is None
    assert judged(incident(said=True)) is True


@given(st.lists(st.floats(0, 1e6), max_size=40))
def test_a_distribution_is_ordered(seconds):
    found = distribution(seconds)
    assert found["count"] == len(seconds)
    if seconds:
        assert found["least"] <= found["median"] <= found["p90"] <= found["most"]
        assert found["most"] == pytest.approx(max(seconds), abs=1e-3)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12))
def test_what_spans_cover_is_what_any_of_them_covers(spans):
    naive = {at for begin, end in spans for at in range(begin, end)}
    assert _covered(spans) == len(naive)
