# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.probing import session as s
from netagent.wire.frame import HELD, REPLY, Frame

TIMEOUT_NS = 500
A, B = EndpointId("a", 0), EndpointId("b", 0)
FLOW = FlowId(A, B, 40000)


def fresh():
    return s.ProbeSession(session=7, timeout_ns=TIMEOUT_NS)


def events(session):
    return list(iter(session.next_event, None))


def send(session, now_ns=0, flow=FLOW):
    return session.send(flow, 0, now_ns=now_ns, wall_ns=now_ns)


def reply(session, seq, *, at_ns, held=None, port=FLOW.source_port):
    flags = REPLY | (HELD if held else 0)
    frame = Frame(7, seq, port, flags, *(held or ()))
    session.receive(frame, arrived_wall_ns=at_ns, taken_wall_ns=at_ns + 3)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.one_of(
            st.just(("send",)),
            st.tuples(st.sampled_from(["reply", "refuse", "fail", "stamp"]), st.integers(0, 30)),
            st.just(("expire",)),
            st.just(("introduce",)),
        ),
    ),
    max_size=60,
)


@given(STEPS)
def test_every_probe_settles_exactly_once(steps):
    session, now_ns, sent = fresh(), 0, []
    for wait_ns, (what, *which) in steps:
        now_ns += wait_ns
        if what == "send":
            sent.append(send(session, now_ns).seq)
        elif what == "expire":
            session.expire(now_ns=now_ns)
        elif what == "introduce":
            session.introduce([FLOW], until_ns=now_ns + 3 * TIMEOUT_NS)
        elif what == "reply":
            reply(session, which[0], at_ns=now_ns)
        elif what == "refuse":
            session.refuse(which[0])
        elif what == "fail":
            session.fail(which[0])
        else:
            session.transmitted(which[0], left_wall_ns=now_ns)
    session.expire(now_ns=now_ns + TIMEOUT_NS)
    settled = [e.seq for e in events(session) if not isinstance(e, s.ProbeMeasured)]
    assert sorted(settled) == sent
    assert session.deadline_ns() is None


def test_a_reply_read_late_but_received_in_time_is_no_loss():
    session = fresh()
    seq = send(session).seq
    session.transmitted(seq, left_wall_ns=1)
    reply(session, seq, at_ns=400)  # read long after, stamped by the kernel in time
    session.expire(now_ns=10_000)
    assert [type(e) for e in events(session)] == [s.ProbeReplied]


def test_a_reply_received_after_its_deadline_stays_lost():
    session = fresh()
    seq = send(session).seq
    reply(session, seq, at_ns=TIMEOUT_NS + 1)
    session.expire(now_ns=TIMEOUT_NS)
    assert events(session) == [s.ProbeLost(FLOW, seq, 0, 0)]


def losses(session):
    return [(e.seq, e.introducing) for e in events(session) if isinstance(e, s.ProbeLost)]


def test_what_is_sent_before_the_first_answer_is_lost_as_introducing():
    session = fresh()
    session.introduce([FLOW], until_ns=10 * TIMEOUT_NS)
    first, second, third = (send(session, now_ns).seq for now_ns in (0, 400, 450))
    session.expire(now_ns=TIMEOUT_NS)
    reply(session, third, at_ns=600)
    assert losses(session) == [(first, True), (second, True)]
    fourth = send(session, 1000).seq
    session.expire(now_ns=1000 + TIMEOUT_NS)
    assert losses(session) == [(fourth, False)]


def test_an_introduction_takes_its_time_and_no_longer():
    session = fresh()
    other = FlowId(A, B, 40001)
    session.introduce([FLOW, other], until_ns=2 * TIMEOUT_NS)
    early, late = send(session, 0).seq, send(session, TIMEOUT_NS).seq
    session.expire(now_ns=2 * TIMEOUT_NS - 1)
    session.expire(now_ns=2 * TIMEOUT_NS)
    assert losses(session) == [(early, True), (late, False)]
    met = send(session, 2 * TIMEOUT_NS, flow=other).seq  # it answers at once: no loss at all
    reply(session, met, at_ns=2 * TIMEOUT_NS + 1, port=other.source_port)
    assert losses(session) == []


def test_the_answer_of_one_flow_introduces_no_other():
    session = fresh()
    other = FlowId(A, B, 40001)
    session.introduce([FLOW, other], until_ns=10 * TIMEOUT_NS)
    silent = send(session, 0, flow=other).seq
    reply(session, send(session, 1).seq, at_ns=2)
    session.expire(now_ns=TIMEOUT_NS)
    assert losses(session) == [(silent, True)]


def test_six_stamps_separate_network_from_hosts():
    session = fresh()
    first = session.send(FLOW, 0, now_ns=0, wall_ns=100).seq
    session.transmitted(first, left_wall_ns=110)
    reply(session, first, at_ns=200)  # t6 = 203
    second = send(session, 300).seq
    reply(session, second, at_ns=350, held=(first, 40))
    measured = [e for e in events(session) if isinstance(e, s.ProbeMeasured)]
    assert measured == [s.ProbeMeasured(FLOW, first, 90 - 40, 10 + 3, 40)]


@pytest.mark.parametrize("order", ["stamp last", "stamp first"])
def test_stamps_may_come_in_any_order(order):
    session = fresh()
    first, second = send(session, 0).seq, send(session, 1).seq
    if order == "stamp first":
        session.transmitted(first, left_wall_ns=2)
    reply(session, first, at_ns=20)
    reply(session, second, at_ns=21, held=(first, 5))
    if order == "stamp last":
        session.transmitted(first, left_wall_ns=2)
    assert [e.network_ns for e in events(session) if isinstance(e, s.ProbeMeasured)] == [13]


def test_a_wall_clock_that_stepped_costs_a_measurement_and_no_probe():
    session = fresh()
    first = send(session, 1000).seq
    session.transmitted(first, left_wall_ns=1000)
    reply(session, first, at_ns=10)  # stepped back
    second = send(session, 1001).seq
    reply(session, second, at_ns=1010, held=(first, 5))
    assert [type(e) for e in events(session)] == [s.ProbeReplied, s.ProbeReplied]


def test_replies_to_a_former_life_are_refused():
    session = fresh()
    send(session)
    with pytest.raises(RemoteProtocolError):
        session.receive(Frame(8, 0, 0, REPLY), arrived_wall_ns=0, taken_wall_ns=0)
    with pytest.raises(RemoteProtocolError):
        reply(session, 0, at_ns=1, port=41000)


def test_probes_of_a_target_that_left_are_forgotten_without_a_verdict():
    session = fresh()
    send(session)
    other = send(session, flow=FlowId(A, EndpointId("c", 0), 40000)).seq
    session.abandon_target({(A, EndpointId("c", 0))})
    session.expire(now_ns=TIMEOUT_NS)
    assert [e.seq for e in events(session)] == [other]
    send(session)
    session.abandon()
    assert session.deadline_ns() is None


def test_unmeasured_probes_are_bounded():
    session = fresh()
    for _ in range(s.MAX_UNMEASURED + 10):
        reply(session, send(session).seq, at_ns=1)
    assert len(session._unmeasured) == s.MAX_UNMEASURED


def test_a_reply_tells_the_delay_of_the_one_before():
    responder = s.Responder()
    assert not responder.reply(Frame(7, 1, 9)).flags & HELD
    responder.replied(7, 9, 1, held_ns=44, now_ns=0)
    told = responder.reply(Frame(7, 2, 9, 2))
    assert (told.seq, told.held_seq, told.held_ns, told.port) == (2, 1, 44, 9)
    assert told.flags == REPLY | HELD | 2  # a mark is echoed
    assert not responder.reply(Frame(7, 3, 9)).flags & HELD  # told once


def test_a_reply_may_tell_its_own_delay():
    session = fresh()
    seq = send(session).seq
    session.transmitted(seq, left_wall_ns=2)
    reply(session, seq, at_ns=10, held=(seq, 5))
    replied, measured = events(session)
    assert isinstance(replied, s.ProbeReplied)
    assert (measured.network_ns, measured.responder_ns) == (3, 5)


def told(responder, *, session=7, port=9):
    return bool(responder.reply(Frame(session, 2, port)).flags & HELD)


def test_a_clock_that_stepped_back_in_between_leaves_nothing_to_tell():
    responder = s.Responder()
    responder.replied(7, 9, 1, held_ns=-1, now_ns=0)
    assert not told(responder)


def test_a_responder_remembers_a_bounded_number_of_flows(monkeypatch):
    monkeypatch.setattr(s, "MAX_PEERS", 4)
    responder = s.Responder()
    for port in range(10):
        responder.replied(7, port, 1, held_ns=1, now_ns=0)
    assert [told(responder, port=port) for port in (0, 8, 9)] == [False, True, True]


def test_a_delay_is_told_minutes_later_and_flows_that_end_do_not_add_up():
    """A container that ends each minute for a day, whose ports nobody asks for again."""
    responder = s.Responder()
    for minute in range(24 * 60):
        now_ns = minute * 60 * 10**9
        for port in range(4):
            responder.replied(minute, port, 1, held_ns=1, now_ns=now_ns)
    assert len(responder._held) <= 4 * 20
    assert told(responder, session=minute - 9, port=3)
