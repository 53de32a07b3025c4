# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.wire.codec import ContentType, decode, encode
from netagent.wire.validate import (
    MAX_FINDINGS,
    MAX_QUOTES,
    MAX_TEXT,
    MAX_UNREAD,
    Inconsistency,
    Quoted,
    ValidateReply,
    ValidateRequest,
)

FORMS = list(ContentType)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_TEXT)
counts = st.integers(0, 1 << 31)
findings = st.builds(
    Inconsistency,
    check=texts,
    severity=st.sampled_from(["warning", "note"]),
    component=st.builds(Component, st.sampled_from(Kind), texts),
    text=texts,
    quotes=st.lists(st.builds(Quoted, what=texts, entry=texts), max_size=MAX_QUOTES).map(tuple),
)
replies = st.builds(
    ValidateReply,
    host=texts, wall_ns=st.integers(0, 1 << 62), looks=counts, flows=counts, judged=counts,
    in_hardware=counts, findings=st.lists(findings, max_size=3).map(tuple), omitted=counts,
    unread=st.lists(texts, max_size=MAX_UNREAD).map(tuple),
)  # fmt: skip
ONE = Inconsistency(
    check="missing", severity="note", component=Component(Kind.VSWITCH, "h0"), text="x"
)
REPLY = ValidateReply(host="h0", wall_ns=1, looks=1, flows=0, judged=0, in_hardware=0)
REQUEST = ValidateRequest(local=EndpointId("a", 0), remote_address="10.0.0.1", remote_mac="02::")


@given(replies, st.sampled_from(FORMS))
def test_an_answer_is_what_it_was(reply, form):
    assert decode(encode(reply, form), ValidateReply, form) == reply


@pytest.mark.parametrize("form", FORMS)
def test_a_question_is_what_it_was(form):
    assert decode(encode(REQUEST, form), ValidateRequest, form) == REQUEST


@pytest.mark.parametrize(
    "message",
    [
        structs.replace(REPLY, findings=(ONE,) * (MAX_FINDINGS + 1)),
        structs.replace(REPLY, unread=("x",) * (MAX_UNREAD + 1)),
        structs.replace(REPLY, unread=("x" * (MAX_TEXT + 1),)),
        structs.replace(REPLY, flows=-1),
        structs.replace(
            REPLY,
            findings=(
                structs.replace(ONE, quotes=(Quoted(what="flow", entry="x"),) * (MAX_QUOTES + 1)),
            ),
        ),
        structs.replace(REPLY, findings=(structs.replace(ONE, text="x" * (MAX_TEXT + 1)),)),
        structs.replace(REQUEST, remote_mac="x" * (MAX_TEXT + 1)),
        structs.replace(REQUEST, source_port=1 << 16),
    ],
    ids=["findings", "unread", "reason", "count", "quotes", "text", "address", "port"],
)
@pytest.mark.parametrize("form", FORMS)
def test_more_than_is_bearable_is_refused(message, form):
    with pytest.raises(RemoteProtocolError):
        decode(encode(message, form), type(message), form)


@given(st.binary(max_size=200), st.sampled_from(FORMS))
def test_anything_else_is_refused(body, form):
    try:
        decode(body, ValidateReply, form)
    except RemoteProtocolError:
        return
    raise AssertionError(body)
