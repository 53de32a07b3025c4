# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from netagent.probing.rdma.resolution import (
    FIRST_BACKOFF_NS,
    HURRY_NS,
    MAX_BACKOFF_NS,
    REFRESH_NS,
    TIMEOUT_NS,
    ResolutionPlan,
)

S = 1_000_000_000


def plan(*keys: str) -> ResolutionPlan[str]:
    made: ResolutionPlan[str] = ResolutionPlan()
    for key in keys:
        made.want(key, now_ns=0)
    return made


def ask(made: ResolutionPlan[str], at_ns: int, *, resolved: bool) -> str | None:
    key = made.next(now_ns=at_ns)
    if key is not None:
        assert made.answered(key, resolved=resolved, now_ns=at_ns)
    return key


def test_never_asked_addresses_come_first():
    made = plan("dead")
    assert ask(made, 0, resolved=False) == "dead"
    made.want("new", now_ns=5 * S)
    assert [made.next(now_ns=5 * S) for _ in range(3)] == ["new", "dead", None]


def test_silent_addresses_are_asked_more_and_more_seldom():
    made, at_ns, waits = plan("dead"), 0, []
    for _ in range(9):
        assert ask(made, at_ns, resolved=False) == "dead"
        began_ns = at_ns
        while made.next(now_ns=at_ns) is None:
            at_ns += S // 2
        made.forgotten_questions()
        waits.append(at_ns - began_ns)
    assert waits[:4] == [FIRST_BACKOFF_NS << n for n in range(4)]
    assert waits[4:] == [MAX_BACKOFF_NS] * 5


def test_a_resolved_address_is_refreshed():
    made = plan("live")
    assert ask(made, 0, resolved=True) == "live"
    assert made.next(now_ns=REFRESH_NS - 1) is None
    assert ask(made, REFRESH_NS, resolved=True) == "live"


def test_losses_hurry_a_resolved_address_but_not_a_silent_one():
    made = plan("live", "dead")
    assert ask(made, 0, resolved=True) == "live"
    for n in range(4):
        assert ask(made, n * 10 * S, resolved=False) == "dead"
    made.hurry("live", now_ns=S)
    made.hurry("dead", now_ns=31 * S)
    made.hurry("absent", now_ns=S)
    assert made.next(now_ns=HURRY_NS - 1) is None
    assert made.next(now_ns=HURRY_NS) == "live"
    assert made.next(now_ns=31 * S) is None


def test_who_was_heard_of_is_asked_a_second_after_it_was_silent():
    made = plan("dead")
    for n in range(6):
        assert ask(made, n * 60 * S, resolved=False) == "dead"
    made.heard("dead", now_ns=300 * S + 1)
    made.heard("absent", now_ns=0)
    assert made.next(now_ns=301 * S - 1) is None
    assert made.next(now_ns=301 * S) == "dead"


def test_a_question_without_an_answer_is_overdue_and_can_be_asked_again():
    made = plan("a", "b")
    assert made.next(now_ns=0) == "a"
    assert made.overdue(now_ns=TIMEOUT_NS - 1) == []
    assert made.overdue(now_ns=TIMEOUT_NS) == ["a"]
    made.forgotten_questions()
    assert made.next(now_ns=TIMEOUT_NS) == "b"  # never asked
    assert made.next(now_ns=TIMEOUT_NS) == "a"


def test_answers_that_nobody_waits_for_change_nothing():
    made = plan("a")
    assert not made.answered("a", resolved=True, now_ns=0)
    made.next(now_ns=0)
    made.forget("a")
    assert not made.answered("a", resolved=True, now_ns=0)
    assert made.wanted() == []
    made.forget("a")


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["want", "ask", "good", "bad", "forget"])
        ),
        max_size=80,
    ),
    st.integers(0, 10 * S),
)
def test_no_address_is_asked_about_twice_at_once(script, step_ns):
    made, asking, at_ns = ResolutionPlan[str](), set[str](), 0
    for key, what in script:
        at_ns += step_ns
        if what == "want":
            made.want(key, now_ns=at_ns)
        elif what == "forget":
            made.forget(key)
            asking.discard(key)
        elif what == "ask":
            chosen = made.next(now_ns=at_ns)
            assert chosen not in asking
            if chosen is not None:
                asking.add(chosen)
        else:
            waited = made.answered(key, resolved=what == "good", now_ns=at_ns)
            assert waited == (key in asking)
            asking.discard(key)
