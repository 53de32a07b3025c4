# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.actions.broker import (
    CONFIRM_NS,
    HELP_NS,
    HOUR_NS,
    MOST_WHY,
    Broker,
    Limits,
    Mode,
    Step,
)
from analyzer.actions.verbs import Verb
from netagent.model.path import controller, rnic
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict

EVERY = frozenset(Verb)


def incident(host="h1", number=0, state=IncidentState.CONFIRMED, part=None):
    component = part or controller(host)
    verdict = Verdict(component, component.layer, Symptom.MASKED, 0.9, f"{component} is stale")
    return Incident(f"i{number}", state, verdict, 0, 0, 0)


def broker(mode=Mode.ACT, **limits):
    return Broker(Limits(mode, **({"verbs": EVERY, "cordon": ("c",)} | limits)), lambda _: "br-int")


def steps(made):
    return [entry.step for entry in made.trail]


def test_nothing_is_even_proposed_unless_somebody_permits_it():
    made = Broker(Limits(), lambda _host: "br-int")
    made.take(incident(), 0)
    assert made.step(10 * CONFIRM_NS, hosts=100) == []
    assert not made.trail


def test_where_advice_is_asked_for_it_is_given_once_and_nothing_is_done():
    made = broker(Mode.ADVISE)
    made.take(incident(), 0)
    assert made.step(CONFIRM_NS, hosts=100) == []
    assert made.step(2 * CONFIRM_NS, hosts=100) == []
    assert [(e.step, e.text) for e in made.trail] == [
        (Step.ADVISED, "ovn-appctl -t ovn-controller inc-engine/recompute")
    ]


def test_what_is_not_listed_is_advised_where_the_rest_is_done():
    made = broker(verbs=frozenset({Verb.CORDON}))
    made.take(incident(), 0)
    assert made.step(CONFIRM_NS, hosts=100) == []
    assert steps(made) == [Step.ADVISED]


def test_a_host_that_says_much_makes_no_line_of_the_trail_that_is_not_read_again():
    made, said = broker(), incident()
    long = replace(said, verdict=replace(said.verdict, summary="x" * 1_000_000))
    made.take(long, 0)
    (action,) = made.step(CONFIRM_NS, hosts=100)
    assert len(action.why) == MOST_WHY


def test_it_takes_two_confirmations():
    made = broker()
    made.take(incident(state=IncidentState.OPEN), 0)
    assert made.step(10 * CONFIRM_NS, hosts=100) == []
    made.take(incident(), 10 * CONFIRM_NS)
    assert made.deadline_ns() == 11 * CONFIRM_NS
    assert made.step(11 * CONFIRM_NS - 1, hosts=100) == []
    (action,) = made.step(11 * CONFIRM_NS, hosts=100)
    assert (action.remedy.verb, action.remedy.host) == (Verb.RECOMPUTE, "h1")
    assert made.step(12 * CONFIRM_NS, hosts=100) == []


def test_what_recovers_meanwhile_or_turns_out_to_be_another_part_waits_anew():
    made = broker()
    made.take(incident(), 0)
    made.take(incident(state=IncidentState.RECOVERED), 1)
    assert made.step(2 * CONFIRM_NS, hosts=100) == []
    made.take(incident(number=1), 0)
    made.take(incident("h2", number=1), CONFIRM_NS)
    assert made.step(CONFIRM_NS + 1, hosts=100) == []
    (action,) = made.step(2 * CONFIRM_NS, hosts=100)
    assert action.remedy.host == "h2"


def started(made, at_ns=CONFIRM_NS):
    made.take(incident(), at_ns - CONFIRM_NS)
    (action,) = made.step(at_ns, hosts=100)
    return action


def test_what_helped_is_told_and_the_breaker_stays_closed():
    made = broker()
    made.ended(started(made), "", CONFIRM_NS + 1)
    made.take(incident(state=IncidentState.RECOVERED), CONFIRM_NS + 2)
    made.step(HOUR_NS, hosts=100)
    assert steps(made) == [Step.STARTED, Step.DONE, Step.HELPED]
    assert not made.opened


def test_what_was_over_before_it_was_done_helped_no_less():
    made = broker()
    action = started(made)
    made.take(incident(state=IncidentState.RECOVERED), CONFIRM_NS + 1)
    made.ended(action, "", CONFIRM_NS + 2)
    made.step(HOUR_NS, hosts=100)
    assert steps(made) == [Step.STARTED, Step.DONE, Step.HELPED]
    assert not made.opened


@pytest.mark.parametrize("problem", ["no answer", ""])
def test_after_a_failure_or_no_help_nothing_is_done_until_a_person_looked(problem):
    made = broker()
    made.ended(started(made), problem, CONFIRM_NS)
    now_ns = CONFIRM_NS + HELP_NS
    made.step(now_ns, hosts=100)
    assert made.opened
    made.take(incident("h1", number=1), now_ns)
    assert made.step(now_ns + CONFIRM_NS, hosts=100) == []
    assert made.trail[-1].step is Step.HELD
    made.close("anna", now_ns)
    made.take(incident("h1", number=2), now_ns)
    assert made.step(now_ns + CONFIRM_NS, hosts=100)


def test_what_was_done_is_undone_once_and_by_whom_is_told():
    made = broker()
    made.take(incident(part=rnic("h1", "rnic0")), 0)
    (action,) = made.step(CONFIRM_NS, hosts=100)
    assert made.undo(action.id) is None
    made.ended(action, "", CONFIRM_NS)
    assert made.undo(action.id) == action
    made.undone(action, "anna", "no answer", CONFIRM_NS + 1)
    assert made.trail[-1].step is Step.NOT_UNDONE
    assert not made.opened
    assert made.undo(action.id) == action
    made.undone(action, "anna", "", CONFIRM_NS + 2)
    assert made.undo(action.id) is None
    assert (made.trail[-1].step, made.trail[-1].by) == (Step.UNDONE, "anna")
    made.step(HOUR_NS, hosts=100)
    assert not made.opened


@given(
    told=st.lists(
        st.tuples(
            st.integers(0, 30),
            st.integers(0, 12),
            st.integers(1, 600),
            st.sampled_from(IncidentState),
        ),
        max_size=60,
    ),
    per_hour=st.integers(1, 5),
    share=st.floats(0, 0.3),
    hosts=st.integers(1, 40),
)
def test_whatever_is_told_the_limits_hold(told, per_hour, share, hosts):
    made = broker(per_hour=per_hour, share=share)
    now_ns, begun = 0, []
    for number, host, seconds, state in told:
        now_ns += seconds * 10**9
        made.take(replace(incident(f"h{host}", number), state=state), now_ns)
        assert made.opened == ""
        for action in made.step(now_ns, hosts=hosts):
            begun.append((now_ns, action.remedy.host))
            made.ended(action, "", now_ns)
            made.take(
                incident(number=int(action.incident[1:]), state=IncidentState.RECOVERED), now_ns
            )
        lately = [(at, on) for at, on in begun if at > now_ns - HOUR_NS]
        assert len(lately) <= per_hour
        assert len({on for _, on in lately}) <= max(1, int(share * hosts))
    ends = Counter(entry.step for entry in made.trail)
    assert ends[Step.STARTED] == ends[Step.HELPED] == len(begun)


def again(made, **limits):
    """Return what a broker knows after a restart, from what was written down."""
    after = broker(**limits)
    after.restore(made.news)
    return after


def test_after_a_restart_nothing_is_done_or_proposed_twice():
    made = broker()
    action = started(made)
    after = again(made)
    assert after.unfinished() == [action]
    after.take(incident(), 2 * CONFIRM_NS)
    assert after.step(HELP_NS, hosts=100) == []
    assert after.begin(action.id, "anna", HELP_NS, hosts=100) == "it was begun before"
    after.ended(action, "", HELP_NS)
    after.take(incident(state=IncidentState.RECOVERED), HELP_NS + 1)
    assert steps(after) == [Step.STARTED, Step.DONE, Step.HELPED]
    assert again(made, mode=Mode.OBSERVE).unfinished() == []


def test_limits_and_what_may_be_undone_outlive_a_restart():
    made = broker(per_hour=1)
    made.take(incident(part=rnic("h1", "rnic0")), 0)
    (action,) = made.step(CONFIRM_NS, hosts=100)
    made.ended(action, "", CONFIRM_NS)
    after = again(made, per_hour=1)
    assert after.undo(action.id) == action
    after.take(incident("h2", number=2), CONFIRM_NS)
    assert after.step(2 * CONFIRM_NS, hosts=100) == []
    assert after.trail[-1].step is Step.HELD
    after.undone(action, "anna", "", 2 * CONFIRM_NS)
    made.news.extend(after.news)
    assert again(made).undo(action.id) is None


def test_an_open_breaker_outlives_a_restart_until_it_is_closed():
    made = broker()
    made.ended(started(made), "no answer", CONFIRM_NS)
    assert [s for s in steps(made) if s in {Step.OPENED, Step.CLOSED}] == [Step.OPENED]
    after = again(made)
    assert after.opened == made.opened
    after.close("anna", HELP_NS)
    assert (after.trail[-1].step, after.trail[-1].by) == (Step.CLOSED, "anna")
    made.news.extend(after.news)
    assert again(made).opened == ""


def test_what_an_owner_does_not_permit_is_no_failure_and_costs_no_limit():
    made = broker(per_hour=1)
    action = started(made)
    made.refused(action, "not in actions.allow", CONFIRM_NS)
    assert (made.opened, made.trail[-1].step) == ("", Step.REFUSED)
    made.take(incident("h2", number=1), CONFIRM_NS)
    assert made.step(2 * CONFIRM_NS, hosts=100)
    assert again(made).unfinished()[0].remedy.host == "h2"


def test_a_person_does_what_was_advised_and_a_limit_holds_for_persons_too():
    made = broker(Mode.ADVISE, per_hour=1)
    made.take(incident(), 0)
    (offered,) = made.offers("i0")
    assert made.begin(offered.id, "anna", 0, hosts=100) == offered
    assert (made.trail[-1].step, made.trail[-1].by) == (Step.STARTED, "anna")
    made.step(CONFIRM_NS, hosts=100)
    assert steps(made) == [Step.STARTED]
    made.take(incident("h2", number=1), 0)
    (other,) = made.offers("i1")
    assert (
        made.held(other, 1, hosts=100)
        == "1 actions in the last hour, 1 at most ([actions] per_hour)"
    )
    assert made.begin(other.id, "anna", 1, hosts=100) == made.held(other, 1, hosts=100)
    assert made.begin(other.id, "anna", HOUR_NS, hosts=100) == other


def test_a_person_does_nothing_for_what_is_over_or_cannot_be_done():
    made = broker(cordon=())
    assert "no such action" in made.begin("i9-00000000", "anna", 0, hosts=9)
    made.take(incident(part=rnic("h1", "rnic0")), 0)
    (offered,) = made.offers("i0")
    assert "no command" in made.begin(offered.id, "anna", 0, hosts=9)
    made.step(CONFIRM_NS, hosts=9)
    assert steps(made) == [Step.ADVISED]
    made.take(incident(state=IncidentState.RECOVERED), 1)
    assert "over" in made.begin(offered.id, "anna", 1, hosts=9)


def test_a_person_may_act_while_the_breaker_is_open():
    made = broker()
    made.ended(started(made), "no answer", CONFIRM_NS)
    made.take(incident("h2", number=1), 0)
    (offered,) = made.offers("i1")
    assert made.begin(offered.id, "anna", CONFIRM_NS, hosts=100) == offered


def test_what_nobody_measures_any_more_is_left_alone():
    made = broker()
    made.take(replace(incident(), unobserved_ns=1), 0)
    assert made.deadline_ns() is None
    assert made.step(2 * CONFIRM_NS, hosts=100) == []
    made.take(incident(), 2 * CONFIRM_NS)
    assert made.step(2 * CONFIRM_NS, hosts=100)


def test_a_part_that_is_blamed_again_is_not_mended_again():
    made = broker()
    started(made)
    made.take(incident("h2"), HELP_NS)
    made.take(incident("h1"), HELP_NS)
    assert made.step(2 * HELP_NS, hosts=100) == []
    assert steps(made) == [Step.STARTED]
