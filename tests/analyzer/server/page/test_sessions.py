# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from analyzer.server.page.sessions import (
    LINK_NS,
    MAX_LINKS,
    MAX_SESSIONS,
    SESSION_NS,
    Holder,
    Sessions,
)

ADMIN, OTHER = Holder("admin", "admin", "01"), Holder("tenant", "other", "02")


def test_a_link_is_opened_once():
    sessions = Sessions()
    token = sessions.invite(ADMIN, 0)
    session = sessions.enter(token, 1)
    assert session not in {None, token}
    assert sessions.holder(session, 2) == ADMIN
    assert sessions.enter(token, 2) is None
    assert sessions.enter(session, 2) is None
    assert sessions.holder(token, 2) is None


def test_a_link_is_opened_soon_and_a_session_ends():
    sessions = Sessions()
    token = sessions.invite(ADMIN, 0)
    assert sessions.enter(token, LINK_NS) is None
    session = sessions.enter(sessions.invite(ADMIN, 0), LINK_NS - 1)
    assert sessions.holder(session, LINK_NS + SESSION_NS - 2) == ADMIN
    assert sessions.holder(session, LINK_NS + SESSION_NS - 1) is None


def test_nobody_guesses_a_session():
    sessions = Sessions()
    sessions.enter(sessions.invite(ADMIN, 0), 0)
    for guess in ("", "x", "\udc80", "A" * 43):
        assert sessions.holder(guess, 1) is None
        assert sessions.enter(guess, 1) is None


def test_of_one_who_asks_the_oldest_give_way_and_nobody_elses():
    sessions = Sessions()
    theirs = sessions.enter(sessions.invite(OTHER, 0), 0)
    mine = [sessions.enter(sessions.invite(ADMIN, 0), 0) for _ in range(MAX_SESSIONS + 2)]
    assert [sessions.holder(each, 1) for each in mine[:3]] == [None, None, ADMIN]
    assert sessions.holder(theirs, 1) == OTHER
    assert len(sessions) == MAX_SESSIONS + 1
    links = [sessions.invite(ADMIN, 0) for _ in range(MAX_LINKS + 1)]
    assert sessions.enter(links[0], 1) is None
    assert sessions.enter(links[1], 1) is not None


def test_all_end_where_another_signs_certificates():
    sessions = Sessions()
    token, session = sessions.invite(ADMIN, 0), sessions.enter(sessions.invite(ADMIN, 0), 0)
    sessions.clear()
    assert sessions.enter(token, 1) is sessions.holder(session, 1) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, SESSION_NS)), max_size=80))
def test_what_is_kept_is_bounded_by_who_asks(asked):
    sessions, now_ns = Sessions(), 0
    for name, wait_ns in asked:
        now_ns += wait_ns
        sessions.enter(sessions.invite(Holder(name, name), now_ns), now_ns)
        assert len(sessions) <= MAX_SESSIONS * 3
