# SPDX-License-Identifier: Apache-2.0
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from analyzer.incidents import YOUNG_NS, IncidentBook
from netagent.model.ids import EndpointId
from netagent.model.path import Component
from netagent.model.verdict import IncidentState, Pair, Symptom, Verdict

LINK = Component.parse("link leaf-0 -- spine-0")
SPINE = Component.parse("switch spine-0")
AGENT = Component.parse("agent h2")
A, B, C = (EndpointId(name, 0) for name in "abc")


def verdict(component, *, confidence=0.9, pairs=((A, B),), symptom=Symptom.LOSS):
    layer = component.layer if component else None
    failing = tuple(Pair(a, b, 10, 5) for a, b in pairs)
    return Verdict(component, layer, symptom, confidence, "why", failing=failing)


def book():
    numbers = count()
    return IncidentBook(new_id=lambda _: f"i{next(numbers)}")


DIRTY, CLEAN, GONE = (10, 5), (2000, 0), (0, 0)


def apply(kept, *verdicts, at=0, seen=DIRTY, speaks=False):
    return kept.apply(
        verdicts,
        tally=lambda _: seen,
        speaks=lambda _: speaks,
        now_ns=at,
        task_of=lambda _: "t",
    )


def test_a_fact_is_confirmed_at_once_and_a_vote_by_the_next_window():
    kept = book()
    (fact,) = apply(kept, verdict(LINK, confidence=0.97))
    assert fact.state is IncidentState.CONFIRMED
    kept = book()
    (voted,) = apply(kept, verdict(LINK))
    assert voted.state is IncidentState.OPEN
    (again,) = apply(kept, verdict(LINK), at=5)
    assert (again.id, again.state) == (voted.id, IncidentState.CONFIRMED)
    assert again.tasks == ("t",)


def test_detection_dates_from_the_first_loss_of_its_pairs():
    kept = book()
    kept.saw_loss({(A, B)}, now_ns=3)
    kept.saw_loss({(A, B), (B, C)}, now_ns=8)
    (incident,) = apply(kept, verdict(LINK), at=9)
    assert (incident.detected_ns, incident.localized_ns) == (3, 9)
    kept.saw_loss(set(), now_ns=20)
    kept.saw_loss({(A, B)}, now_ns=30)
    (other,) = apply(kept, verdict(AGENT, pairs=((B, A),)), at=31 + YOUNG_NS)
    assert other.detected_ns == 30


def test_it_recovers_when_its_pairs_are_clean_or_gone():
    for seen in (CLEAN, GONE, (2000, 1)):
        kept = book()
        apply(kept, verdict(LINK))
        assert apply(kept, at=5, seen=(2000, 3)) == []
        (over,) = apply(kept, at=10, seen=seen)
        assert (over.state, over.recovered_ns) == (IncidentState.RECOVERED, 10)
        assert kept.standing() == frozenset()


def test_it_does_not_recover_while_it_is_still_named():
    kept = book()
    apply(kept, verdict(LINK))
    (still,) = apply(kept, verdict(LINK), at=5, seen=CLEAN)
    assert still.state is IncidentState.CONFIRMED


def test_a_silent_agent_is_over_when_it_speaks_whatever_its_peers_lost():
    kept = book()
    apply(kept, verdict(AGENT, confidence=0.98, symptom=Symptom.SILENCE))
    assert apply(kept, at=5, seen=GONE) == []
    (over,) = apply(kept, at=10, speaks=True)
    assert over.state is IncidentState.RECOVERED


def test_a_young_incident_is_revised_not_doubled():
    kept = book()
    apply(kept, verdict(LINK))
    (revised,) = apply(kept, verdict(SPINE, confidence=0.95), at=5)
    assert len(kept.all()) == 1
    assert revised.verdict.component == SPINE
    assert revised.notes == (f"revised: was {LINK}",)
    assert kept.standing() == {SPINE}


def test_an_old_incident_or_other_pairs_are_not_revised():
    kept = book()
    apply(kept, verdict(LINK))
    apply(kept, verdict(SPINE, confidence=0.95, pairs=((B, C),)), at=5)
    apply(kept, verdict(AGENT, confidence=0.95), at=YOUNG_NS + 1)
    assert kept.standing() == {LINK, SPINE, AGENT}


def test_insufficient_evidence_opens_only_if_it_lasts():
    kept = book()
    assert apply(kept, verdict(None, confidence=0.4)) == []
    (unknown,) = apply(kept, verdict(None, confidence=0.4), at=5)
    assert unknown.verdict.component is None
    (named,) = apply(kept, verdict(LINK), at=10)
    assert (named.id, named.verdict.component) == (unknown.id, LINK)


def test_insufficient_evidence_about_pairs_with_an_incident_is_no_second_one():
    kept = book()
    apply(kept, verdict(LINK))
    for at in (5, 10):
        changed = apply(kept, verdict(LINK), verdict(None), at=at)
        assert [i.verdict.component for i in changed] == [LINK]
    other = verdict(None, pairs=((B, C),))
    changed = apply(kept, verdict(LINK), other, at=15)
    assert [i.verdict.component for i in changed] == [LINK, None]


def test_a_restart_keeps_what_is_open():
    kept = book()
    apply(kept, verdict(LINK))
    apply(kept, verdict(AGENT, pairs=((B, C),), confidence=0.97), at=1)
    apply(kept, verdict(LINK), at=5, seen=CLEAN)
    after = book()
    after.restore(kept.all())
    assert after.all() == kept.all()
    assert after.standing() == {LINK}
    (over,) = apply(after, at=10, seen=CLEAN)
    assert over.verdict.component == LINK


COMPONENTS = st.sampled_from([LINK, SPINE, AGENT, None])


@given(
    st.lists(st.tuples(st.lists(COMPONENTS, max_size=3, unique=True), st.booleans()), max_size=30)
)
def test_no_component_has_two_open_incidents_and_no_id_is_reused(script):
    kept = book()
    for at, (components, fine) in enumerate(script):
        made = [verdict(c, pairs=((A, B) if c == LINK else (B, C),)) for c in components]
        apply(kept, *made, at=at * 5_000_000_000, seen=CLEAN if fine else DIRTY)
    ids = [incident.id for incident in kept.all()]
    assert len(ids) == len(set(ids))
    still = [i.verdict.component for i in kept.all() if i.state is not IncidentState.RECOVERED]
    assert len(still) == len(set(still))
