# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.diagnosis.incidents import ADOPT_NS, UNNAMED_NS, YOUNG_NS, IncidentBook
from netagent.model.evidence import Evidence, EvidenceKind
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


def apply(kept, *verdicts, at=0, over=(), unseen=False):
    """Let a window pass; the symptoms in `over` are seen no more, or nothing is seen at all."""
    return kept.apply(
        verdicts,
        over=lambda symptom, subjects: symptom in over and bool(subjects),
        now_ns=at,
        task_of=lambda _: "t",
        unseen=lambda _: unseen,
    )


def test_a_fact_is_confirmed_at_once_and_a_vote_by_the_next_window():
    kept = IncidentBook()
    (fact,) = apply(kept, verdict(LINK, confidence=0.98))
    assert fact.state is IncidentState.CONFIRMED
    kept = IncidentBook()
    (voted,) = apply(kept, verdict(LINK))
    assert voted.state is IncidentState.OPEN
    (again,) = apply(kept, verdict(LINK), at=5)
    assert (again.id, again.state) == (voted.id, IncidentState.CONFIRMED)
    assert again.tasks == ("t",)


def test_two_that_are_named_for_the_same_pairs_are_two_incidents():
    """Both ends of a pair may be down, and each says so."""
    kept = IncidentBook()
    ends = [Component.parse(f"endpoint {end}") for end in (A, B)]
    first = apply(kept, *(verdict(end, confidence=0.99) for end in ends))
    for at in (5, 10):
        again = apply(kept, *(verdict(end, confidence=0.99) for end in ends), at=at)
        assert [(each.id, each.verdict.component) for each in again] == [
            (each.id, end) for each, end in zip(first, ends, strict=True)
        ]
        assert [each.notes for each in again] == [(), ()]


def test_detection_dates_from_the_first_loss_of_its_pairs():
    kept = IncidentBook()
    kept.saw({(A, B)}, now_ns=3)
    kept.saw({(A, B), (B, C)}, now_ns=8)
    (incident,) = apply(kept, verdict(LINK), at=9)
    assert (incident.detected_ns, incident.localized_ns) == (3, 9)
    kept.saw(set(), now_ns=20)
    kept.saw({(A, B)}, now_ns=30)
    (other,) = apply(kept, verdict(AGENT, pairs=((B, A),)), at=31 + YOUNG_NS)
    assert other.detected_ns == 30


def test_it_recovers_when_what_raised_it_sees_no_more_of_it():
    kept = IncidentBook()
    apply(kept, verdict(LINK))
    assert apply(kept, at=5, over=[Symptom.LATENCY, Symptom.SILENCE]) == []
    (over,) = apply(kept, at=10, over=[Symptom.LOSS])
    assert (over.state, over.recovered_ns) == (IncidentState.RECOVERED, 10)
    assert kept.standing() == frozenset()


@pytest.mark.parametrize(
    ("lost", "windows", "needed"), [(400, 1, 1), (20, 1, 1), (4, 1, 3), (12, 6, 5), (6, 6, 10)]
)
def test_what_loses_little_is_over_only_after_as_many_windows_as_chance_leaves_clean(
    lost, windows, needed
):
    kept = IncidentBook()
    seen = [Evidence(EvidenceKind.TALLY, {"component": "x", "lost": lost, "crossed": 5000})]
    if windows > 1:
        seen.append(Evidence(EvidenceKind.POOLED, {"windows": windows}))
    apply(kept, replace(verdict(LINK), evidence=tuple(seen)))
    for n in range(1, needed):
        assert apply(kept, at=n, over=[Symptom.LOSS]) == []
    assert len(apply(kept, at=needed, over=[Symptom.LOSS])) == 1


def test_what_loses_little_again_meanwhile_has_to_be_well_from_the_start():
    kept = IncidentBook()
    seen = (Evidence(EvidenceKind.TALLY, {"component": "x", "lost": 4, "crossed": 5000}),)
    apply(kept, replace(verdict(LINK), evidence=seen))
    assert apply(kept, at=1, over=[Symptom.LOSS]) == []
    assert apply(kept, at=2) == []
    assert [len(apply(kept, at=n, over=[Symptom.LOSS])) for n in (3, 4, 5)] == [0, 0, 1]


def test_it_does_not_recover_while_it_is_still_named():
    kept = IncidentBook()
    apply(kept, verdict(LINK))
    (still,) = apply(kept, verdict(LINK), at=5, over=[Symptom.LOSS])
    assert still.state is IncidentState.CONFIRMED


def test_a_silent_agent_is_over_when_it_speaks_whatever_its_peers_lost():
    kept, asked = IncidentBook(), []
    apply(kept, verdict(AGENT, confidence=0.98, symptom=Symptom.SILENCE))
    kept.apply((), over=lambda *what: asked.append(what) or False, now_ns=5, task_of=lambda _: "t")
    assert asked == [(Symptom.SILENCE, {AGENT})]  # its own subject, and not its peers' pairs
    (over,) = apply(kept, at=10, over=[Symptom.SILENCE])
    assert over.state is IncidentState.RECOVERED


def test_a_young_incident_is_revised_not_doubled():
    kept = IncidentBook()
    apply(kept, verdict(LINK))
    (revised,) = apply(kept, verdict(SPINE, confidence=0.98), at=5)
    assert len(kept.open()) == 1
    assert revised.verdict.component == SPINE
    assert revised.notes == (f"revised: was {LINK}",)
    assert kept.standing() == {SPINE}


@pytest.mark.parametrize("whole", ["container a", "host h1"])
def test_a_part_that_failed_first_is_revised_to_the_whole_though_other_pairs_are_quoted(whole):
    kept, pairs = IncidentBook(), [(A, EndpointId("b", n)) for n in range(8)]
    apply(kept, verdict(Component.parse("rnic h1/mlx5_6"), pairs=pairs))
    more = [(A, EndpointId("c", n)) for n in range(70)]
    found = verdict(Component.parse(whole), pairs=more)
    elsewhere = verdict(Component.parse("host h2"), pairs=[(B, C)])
    kept.apply(
        [found, elsewhere], over=lambda *_: False, now_ns=5, task_of=lambda _: "t",
        host_of=lambda end: "h1" if end == A else "h3",
    )  # fmt: skip
    assert set(map(str, kept.standing())) == {whole, "host h2"}


def test_a_link_that_was_named_first_is_revised_to_its_switch_and_no_other():
    kept = IncidentBook()
    apply(kept, verdict(LINK, pairs=((B, C),)))
    apply(kept, verdict(Component.parse("switch spine-1")), at=1)
    (revised,) = apply(kept, verdict(SPINE, pairs=((A, C),)), at=2)
    assert revised.notes == (f"revised: was {LINK}",)
    assert len(kept.open()) == 2


def test_slow_pairs_that_have_an_incident_open_another_only_if_it_lasts():
    kept = IncidentBook()
    slow = {"symptom": Symptom.LATENCY}
    apply(kept, verdict(LINK, **slow))
    assert apply(kept, verdict(SPINE, **slow), at=YOUNG_NS + 1) == []
    assert apply(kept, verdict(LINK, **slow), at=YOUNG_NS + 2)
    assert apply(kept, verdict(SPINE, **slow), at=YOUNG_NS + 3) == []
    (opened,) = apply(kept, verdict(SPINE, **slow), at=YOUNG_NS + 4)
    assert opened.verdict.component == SPINE
    other = verdict(AGENT, pairs=((B, C),), **slow)
    assert apply(kept, other, at=YOUNG_NS + 5)


def test_a_container_that_never_came_revises_no_incident_and_names_its_task():
    kept = IncidentBook()
    rnic = Component.parse("rnic h0/rnic0")
    apply(kept, verdict(rnic, confidence=0.99, pairs=()))  # a finding, while nothing is lost
    awaited = Evidence(EvidenceKind.AWAITED, {"task": "job", "declared_ns": 1, "begun_ns": 2})
    late = Component.parse("container c9")
    missing = verdict(late, confidence=0.99, pairs=(), symptom=Symptom.MISSING)
    apply(kept, verdict(rnic, pairs=()), replace(missing, evidence=(awaited,)), at=1)
    assert [(i.verdict.component, i.tasks) for i in kept.open()] == [(rnic, ()), (late, ("job",))]


def test_an_incident_without_a_pair_is_of_the_task_that_has_the_component():
    kept = IncidentBook()
    crashed = Component.parse("container a")
    gone = verdict(crashed, confidence=0.99, pairs=())
    kept.apply(
        [gone, verdict(LINK)], over=lambda *_: False, now_ns=0, task_of=lambda _: "t",
        tasks_at=lambda part: {crashed: {"job"}}[part],
    )  # fmt: skip
    assert [(i.verdict.component, i.tasks) for i in kept.open()] == [
        (crashed, ("job",)), (LINK, ("t",)),
    ]  # fmt: skip


def test_an_old_incident_or_other_pairs_are_not_revised():
    kept, other = IncidentBook(), Component.parse("switch spine-1")
    apply(kept, verdict(LINK))
    apply(kept, verdict(other, confidence=0.98, pairs=((B, C),)), at=5)
    apply(kept, verdict(AGENT, confidence=0.98), at=YOUNG_NS + 1)
    assert kept.standing() == {LINK, other, AGENT}


@pytest.mark.parametrize(("before", "is_revised"), [(0.9, True), (0.99, False)])
def test_what_a_controller_wants_revises_an_entry_of_which_it_said_nothing(before, is_revised):
    kept = IncidentBook()
    default, hole = (Component.parse(f"flow h0/br-int/table={table}") for table in (34, 33))
    apply(kept, verdict(default, confidence=before))
    apply(kept, verdict(hole, confidence=0.99), at=YOUNG_NS + 1)
    assert kept.standing() == ({hole} if is_revised else {default, hole})


def test_insufficient_evidence_opens_only_if_it_lasts():
    kept = IncidentBook()
    assert apply(kept, verdict(None, confidence=0.4)) == []
    (unknown,) = apply(kept, verdict(None, confidence=0.4), at=5)
    assert unknown.verdict.component is None
    (named,) = apply(kept, verdict(LINK), at=10)
    assert (named.id, named.verdict.component) == (unknown.id, LINK)


@pytest.mark.parametrize(
    ("at", "pairs", "others", "is_revised"),
    [
        (YOUNG_NS, ((A, B), (B, C)), (), True),
        (UNNAMED_NS - 1, ((A, B), (B, C)), (), True),
        (UNNAMED_NS, ((A, B), (B, C)), (), False),
        (YOUNG_NS, ((A, B),), (), False),  # a third of what is undecided
        (YOUNG_NS, ((A, B), (B, C)), (None,), False),  # which something else accounts for, too
    ],
)
def test_what_was_undecided_for_long_is_revised_where_most_of_it_and_nothing_else_is_named(
    at, pairs, others, is_revised
):
    kept = IncidentBook()
    undecided = verdict(None, confidence=0.4, pairs=((A, B), (B, C), (C, A)))
    apply(kept, undecided)
    apply(kept, undecided)
    apply(
        kept, verdict(LINK, pairs=pairs), *(verdict(each, confidence=0.4) for each in others), at=at
    )
    assert kept.standing() == {LINK}
    assert len(kept.open()) == (1 if is_revised else 2)


def test_what_was_compared_is_kept_whichever_verdict_without_a_name_is_surer():
    """It was made, and is missing no more."""
    made = Evidence(EvidenceKind.COMPARED, {"host": "h0"})
    plain = replace(verdict(None, confidence=0.6), missing=("a comparison",))
    compared = replace(verdict(None, confidence=0.5), evidence=(made,))
    kept = IncidentBook()
    for at, each in enumerate((plain, plain, compared, plain)):
        incidents = apply(kept, each, at=at)
    assert incidents[0].verdict.evidence == (made,)
    assert incidents[0].verdict.missing == ()
    assert incidents[0].verdict.confidence == 0.6
    (named,) = apply(kept, verdict(LINK), at=5)
    assert named.verdict.evidence == ()  # it has its own reasons


def test_insufficient_evidence_about_pairs_with_an_incident_is_no_second_one():
    kept = IncidentBook()
    apply(kept, verdict(LINK))
    for at in (5, 10):
        changed = apply(kept, verdict(LINK), verdict(None), at=at)
        assert [i.verdict.component for i in changed] == [LINK]
    other = verdict(None, pairs=((B, C),))
    changed = apply(kept, verdict(LINK), other, at=15)
    assert [i.verdict.component for i in changed] == [LINK, None]


def test_a_restart_keeps_what_is_open():
    kept = IncidentBook()
    apply(kept, verdict(LINK))
    apply(kept, verdict(AGENT, pairs=((B, C),), confidence=0.98), at=1)
    (over,) = apply(kept, verdict(LINK), at=5, over=[Symptom.LOSS])[1:]
    after = IncidentBook()
    after.restore([*kept.open(), over], now_ns=6)
    assert after.open() == kept.open()
    assert after.standing() == {LINK}
    (over,) = apply(after, at=10, over=[Symptom.LOSS])
    assert over.verdict.component == LINK


def test_what_was_open_before_a_restart_and_is_not_seen_again_is_over_in_time():
    kept = IncidentBook()
    apply(kept, verdict(LINK))
    apply(kept, verdict(AGENT, pairs=((B, C),), confidence=0.98), at=1)
    after = IncidentBook()
    after.restore(kept.open(), now_ns=100)
    assert apply(after, verdict(LINK), at=99 + ADOPT_NS)[0].verdict.component == LINK
    (orphan,) = apply(after, at=100 + ADOPT_NS)
    assert (orphan.verdict.component, orphan.state) == (AGENT, IncidentState.RECOVERED)
    assert "restarted" in orphan.notes[-1]
    assert after.standing() == {LINK}


def test_the_same_windows_give_the_same_names():
    def ids():
        kept = IncidentBook()
        made = apply(kept, verdict(LINK), verdict(AGENT, pairs=((B, C),)), at=7)
        return [incident.id for incident in made]

    assert ids() == ids()
    assert len(set(ids())) == 2


COMPONENTS = st.sampled_from([LINK, SPINE, AGENT, None])


@given(
    st.lists(st.tuples(st.lists(COMPONENTS, max_size=3, unique=True), st.booleans()), max_size=30)
)
def test_no_component_has_two_open_incidents_and_no_id_is_reused(script):
    kept, opened = IncidentBook(), {}
    for at, (components, fine) in enumerate(script):
        made = [verdict(c, pairs=((A, B) if c == LINK else (B, C),)) for c in components]
        over = [Symptom.LOSS] if fine else []
        for incident in apply(kept, *made, at=at * 5_000_000_000, over=over):
            detected_ns = opened.setdefault(incident.id, incident.detected_ns)
            assert detected_ns == incident.detected_ns
    still = [incident.verdict.component for incident in kept.open()]
    assert len(still) == len(set(still))


def test_an_incident_is_unobserved_from_the_second_window_without_a_probe_until_the_next_one():
    kept = IncidentBook()
    apply(kept, verdict(LINK))
    assert apply(kept, at=1, unseen=True) == []
    (dark,) = apply(kept, at=2, unseen=True)
    assert (dark.state, dark.unobserved_ns) == (IncidentState.OPEN, 2)
    assert apply(kept, at=3, unseen=True) == []
    (seen,) = apply(kept, at=4)
    assert (seen.state, seen.unobserved_ns) == (IncidentState.OPEN, None)
    apply(kept, at=5, unseen=True)
    assert apply(kept, at=6) == []
    for at in (7, 8):
        apply(kept, at=at, unseen=True)
    (over,) = apply(kept, at=9, over={Symptom.LOSS})
    assert (over.state, over.unobserved_ns) == (IncidentState.RECOVERED, None)


def test_two_facts_without_a_failing_pair_stay_two_incidents():
    kept = IncidentBook()
    made = [
        verdict(Component.parse(f"vswitch {host}"), confidence=0.99, pairs=())
        for host in ("h0", "h1")
    ]
    apply(kept, *made)
    assert {str(i.verdict.component) for i in kept.open()} == {"vswitch h0", "vswitch h1"}
