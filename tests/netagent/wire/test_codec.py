# SPDX-License-Identifier: Apache-2.0
import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import LocalProtocolError, RemoteProtocolError
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.wire import codec
from netagent.wire.codec import (
    APART,
    MAX_BODY_BYTES,
    ContentType,
    decode,
    deflated,
    encode,
    inflated,
    is_deflated,
)
from netagent.wire.messages import (
    CheckRequest,
    EgressQuestion,
    FlowColumns,
    IngressQuestion,
    Summary,
)

FORMS = pytest.mark.parametrize("form", list(ContentType))
TEXT = st.text(max_size=8)
I64 = st.integers(0, 2**63 - 1)
ENDPOINT_IDS = st.builds(EndpointId, TEXT, st.integers(0, 7))
FINDINGS = st.builds(
    Finding,
    st.sampled_from(FindingKind),
    st.builds(Component, st.sampled_from(Kind), TEXT),
    TEXT,
    I64,
    st.dictionaries(TEXT, TEXT, max_size=2),
)
COLUMNS = st.builds(FlowColumns, sent=st.binary(max_size=8), hist_bucket=st.binary(max_size=8))
SUMMARIES = st.builds(
    Summary,
    host=TEXT,
    instance=TEXT,
    start_ns=I64,
    width_ns=I64,
    endpoints=st.lists(ENDPOINT_IDS, max_size=3).map(tuple),
    flows=COLUMNS,
    findings=st.lists(FINDINGS, max_size=2).map(tuple),
)
QUESTIONS = st.builds(
    EgressQuestion, source=ENDPOINT_IDS, target_address=TEXT, target_mac=TEXT
) | st.builds(
    IngressQuestion, rail=st.integers(0, 7), tun_src=TEXT, tun_dst=TEXT, tun_id=I64,
    source_address=TEXT, source_mac=TEXT, target_address=TEXT, target_mac=TEXT,
)  # fmt: skip


@FORMS
@given(summary=SUMMARIES)
def test_a_summary_survives_both_forms(form, summary):
    assert decode(encode(summary, form), Summary, form) == summary


@FORMS
@given(questions=st.lists(QUESTIONS, max_size=3).map(tuple))
def test_questions_keep_their_kind(form, questions):
    request = CheckRequest(questions=questions)
    assert decode(encode(request, form), CheckRequest, form) == request


def test_a_number_too_large_for_the_wire_is_our_own_fault():
    with pytest.raises(LocalProtocolError):
        encode(Summary(host="h", instance="i", start_ns=2**80, width_ns=1))


@FORMS
@given(body=st.binary(max_size=200))
def test_any_bytes_give_a_message_or_a_typed_error(form, body):
    try:
        decoded = decode(body, Summary, form)
    except RemoteProtocolError:
        return
    assert decode(encode(decoded, form), Summary, form) == decoded


@given(st.data())
def test_a_truncated_summary_is_refused(data):
    body = encode(data.draw(SUMMARIES))
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(RemoteProtocolError):
        decode(body[:cut], Summary)


def test_a_huge_body_is_refused_unread():
    with pytest.raises(RemoteProtocolError, match="at most"):
        decode(bytes(MAX_BODY_BYTES + 1), Summary)


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("application/msgpack", ContentType.MSGPACK),
        ("application/x-msgpack; q=1", ContentType.MSGPACK),
        ("application/json", ContentType.JSON),
        ("*/*", ContentType.JSON),
        (None, ContentType.JSON),
    ],
)
def test_the_form_follows_the_header(header, form):
    assert ContentType.of(header) is form


@given(st.binary(max_size=300), st.integers(1, 12))
def test_what_is_deflated_is_decoded_as_it_was(data, times):
    body = encode({"data": data * times})
    packed = deflated(body)
    assert len(packed) <= len(body)
    assert inflated(packed) == body
    assert decode(packed, dict[str, bytes]) == {"data": data * times}


@given(st.lists(st.sampled_from(APART) | st.binary(max_size=20), max_size=30))
def test_wherever_a_body_is_cut_the_same_is_inflated(parts):
    body = encode({"data": b"".join(parts) * 3})
    assert inflated(deflated(body)) == body


def test_what_would_not_be_inflated_again_is_not_deflated():
    body = encode({"data": bytes(1 << 20)})
    assert not is_deflated(deflated(body))
    assert is_deflated(deflated(encode({"data": bytes(100)})))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (zlib.compress(bytes(1 << 24)), "inflates to more than"),
        (zlib.compress(bytes(range(256)))[:-1], "not whole"),
        (zlib.compress(b"\x80") + b"x", "not whole"),
        (b"\x78\xffrubbish", "cannot be inflated"),
        (b"\x78", "not whole"),
    ],
)
def test_a_body_that_is_torn_or_a_bomb_is_refused(body, why):
    with pytest.raises(RemoteProtocolError, match=why):
        decode(body, dict[str, bytes])


def test_no_more_is_inflated_than_a_body_may_be():
    packed = zlib.compress(encode({"data": bytes(range(250)) * 8}))
    with pytest.raises(RemoteProtocolError, match="more than 1000 bytes"):
        decode(packed, dict[str, bytes], max_bytes=1000)


@given(st.binary(max_size=60))
def test_any_bytes_that_begin_like_a_deflated_body_are_decoded_or_refused(rest):
    with contextlib.suppress(RemoteProtocolError):
        assert isinstance(decode(b"\x78" + rest, dict[str, bytes]), dict)


@pytest.mark.parametrize("module", ["zlib", "zlib_ng.zlib_ng"])
def test_with_either_library_the_same_is_inflated_and_the_same_refused(monkeypatch, module):
    monkeypatch.setattr(codec, "fast_zlib", pytest.importorskip(module))
    body = encode({"data": bytes(range(256)) * 9})
    packed = deflated(body)
    assert is_deflated(packed)
    assert inflated(packed) == body
    for odd, why in (
        (packed[:-1], "not whole"),
        (packed + b"\0", "not whole"),
        (packed[:-1] + b"\0", "cannot be inflated"),
        (packed[:1], "not whole"),
    ):
        with pytest.raises(RemoteProtocolError, match=why):
            inflated(odd)
    with pytest.raises(RemoteProtocolError, match="more than 99 bytes"):
        inflated(packed, max_bytes=99)
