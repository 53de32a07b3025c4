# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.config import Recording
from analyzer.judge import messages
from analyzer.judge.messages import HEAD, down, framed, question_of, up
from analyzer.questions import Ask, Failed, Question, StatusRequest, Why
from analyzer.replay import records
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.messages import CheckRequest, PathRequest

A, B = EndpointId("a", 0), EndpointId("b", 1)
PATH = PathRequest(source=A, target=B, source_port=7, count=100, size=64)


def opened(frame: bytes) -> bytes:
    (length,) = HEAD.unpack(frame[: HEAD.size])
    assert length == len(frame) - HEAD.size
    return frame[HEAD.size :]


@pytest.mark.parametrize(
    "message",
    [
        messages.Open(
            header=records.Header(netagent="1", window_s=5, probe_port=1),
            recording=Recording(), database="x",
        ),
        messages.Walk(query=1, pairs=((A, B),), layers=True),
        messages.Look(query=2, what="findings"),
        messages.replies(3, (Failed(Why.REFUSED, "refused"),)),
        records.Stepped(now_ns=5),
        records.PutLate(now_ns=6),
        records.Ingested(payload=b"\0\xff", now_ns=7),
    ],
    ids=lambda message: type(message).__name__,
)  # fmt: skip
def test_what_goes_down_arrives(message):
    assert down(opened(framed(message))) == message


@pytest.mark.parametrize(
    "message",
    [
        messages.Ready(pid=1),
        messages.Result(query=1, body=b"\0"),
        messages.NoResult(query=1, error="no", capability="a judge", bug=True),
        messages.Said(event="pair_traced", values={"pair": "a", "n": 1, "x": 0.5}, error="why"),
        messages.Refused(host="h0", error="odd"),
        messages.Done(deadline_ns=None),
        messages.Asking(query=1, asks=(messages.put(Ask("h0", PATH)),)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_comes_up_arrives(message):
    assert up(opened(framed(message))) == message


@pytest.mark.parametrize("request_", [StatusRequest(), CheckRequest(questions=()), PATH])
def test_a_question_arrives_as_it_was_asked(request_):
    question = Question(3, "h0", request_, 99)
    assert question_of(up(opened(framed(messages.put(question))))) == question


def test_replies_arrive_in_their_order():
    given_ = (Failed(Why.TIMEOUT, "timeout"), Failed(Why.ODD, "odd"))
    arrived = down(opened(framed(messages.replies(1, given_))))
    assert tuple(map(records.reply_of, arrived.replies)) == given_


def test_a_request_of_an_unknown_kind_is_refused():
    with pytest.raises(RemoteProtocolError, match="unknown kind"):
        question_of(messages.Put(host="h0", kind="dance", body=b""))


@given(st.binary(max_size=200))
def test_what_is_no_message_is_refused(payload):
    for read in (down, up):
        with pytest.raises(RemoteProtocolError):
            read(payload)


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_frames_are_whole_wherever_what_came_was_cut(payloads, data):
    stream = b"".join(HEAD.pack(len(each)) + each for each in payloads)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    frames, found = messages.Frames(), []
    for first, last in pairwise([0, *cuts, len(stream)]):
        found += frames.whole(stream[first:last])
    assert found == payloads
