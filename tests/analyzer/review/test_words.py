# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from analyzer.review.words import MAX_WORDS, Book, Tally, Word, Words, accuracy, last_of
from netagent.model.path import Component, Kind
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict


def incident(name, kind=Kind.LINK):
    component = Component(kind, "x") if kind else None
    layer = component.layer if component else None
    verdict = Verdict(component, layer, Symptom.LOSS, 0.9, "")
    return Incident(name, IncidentState.OPEN, verdict, 1, 1, 1)


def test_a_later_word_of_the_same_person_takes_the_place_of_the_earlier_one():
    words = Words("i1").add(Word("a", 1, right=True)).add(Word("b", 2, right=True))
    words = words.add(Word("a", 3, right=False))
    assert [(each.by, each.right) for each in words.words] == [("b", True), ("a", False)]
    assert last_of(words) is False


def test_however_many_speak_some_are_kept():
    words = Words("i1")
    for n in range(3 * MAX_WORDS):
        words = words.add(Word(f"p{n}", n, right=True))
    assert len(words.words) == MAX_WORDS
    assert words.words[-1].by == f"p{3 * MAX_WORDS - 1}"


def test_a_book_knows_what_was_stored_and_forgets_what_is_not_kept():
    book = Book([Words("i1", (Word("a", 1, right=True),)), Words("i2")])
    book.take(book.of("i3").add(Word("b", 2, right=False)))
    book.forget(lambda incident: incident != "i1")
    assert book.of("i1").words == ()
    assert book.of("i3").words == (Word("b", 2, right=False),)


def test_accuracy_counts_the_newest_word_of_each_incident_by_layer():
    right = Words("", (Word("a", 1, right=False), Word("b", 2, right=True)))
    wrong = Words("", (Word("a", 1, right=False),))
    said = {"i1": right, "i2": right, "i3": wrong, "i4": wrong}
    made = [incident(name) for name in ("i1", "i2", "i3", "i5")] + [incident("i4", None)]
    found = accuracy(made, lambda name: replace(said.get(name, Words("")), incident=name))
    assert found.whole == Tally(right=2, wrong=2, unjudged=1)
    assert found.whole.share == 0.5
    assert found.layers == {"": Tally(wrong=1), "underlay": Tally(2, 1, 1)}


def test_where_nobody_spoke_there_is_no_share():
    assert accuracy([incident("i1")], Book().of).whole == Tally(unjudged=1)
    assert Tally(unjudged=1).share is None
    assert accuracy([], Book().of).layers == {}
