# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import RemoteProtocolError
from netagent.wire import frame
from netagent.wire.frame import Frame

U32 = st.integers(0, 0xFFFFFFFF)
FRAMES = st.builds(
    Frame, U32, U32, st.integers(0, 0xFFFF), st.integers(0, 7), held_seq=U32, held_ns=U32
)


@given(FRAMES, st.integers(0, 2000))
def test_what_is_encoded_is_decoded_whatever_the_padding(sent, size):
    payload = frame.encode(sent, size=size)
    assert frame.decode(payload) == sent
    assert len(payload) == max(size, frame.HEADER_BYTES)


@given(FRAMES, st.integers(0, 100))
def test_a_frame_of_ours_is_named_by_what_decoding_tells(sent, size):
    assert frame.name(frame.encode(sent, size=size)) == (sent.session, sent.seq)


@given(st.binary(max_size=frame.HEADER_BYTES - 1))
def test_a_cut_frame_has_no_name(payload):
    assert frame.name(payload) is None


@given(st.binary(max_size=64))
def test_foreign_bytes_give_a_typed_error_or_a_frame(payload):
    try:
        assert isinstance(frame.decode(payload), Frame)
    except RemoteProtocolError:
        assert payload[:5] != frame.encode(Frame(0, 0))[:5] or len(payload) < frame.HEADER_BYTES


@given(FRAMES, st.integers(0, frame.HEADER_BYTES - 1))
def test_a_truncated_frame_is_refused(sent, cut):
    with pytest.raises(RemoteProtocolError):
        frame.decode(frame.encode(sent)[:cut])


def test_the_flags_are_where_the_kernel_filter_looks():
    payload = frame.encode(Frame(1, 2, flags=frame.MARKED))
    assert payload[frame.FLAGS_OFFSET] == frame.MARKED
    assert int.from_bytes(payload[:4], "big") == frame.MAGIC


def test_a_newer_version_is_named():
    payload = bytearray(frame.encode(Frame(1, 2)))
    payload[4] = 9
    with pytest.raises(RemoteProtocolError, match="version 9"):
        frame.decode(bytes(payload))


def test_a_long_hold_saturates():
    payload = frame.encode(Frame(1, 2, held_ns=1 << 40))
    assert frame.decode(payload).held_ns == frame.MAX_HELD_NS


KEY, OTHER_KEY = b"k" * 16, b"o" * 16
NOW_NS = 480_000 * frame.EPOCH_NS + 5


def is_sealed(payload, *, key=KEY, target="c0/rail0", wall_ns=NOW_NS):
    return frame.sealed_at(payload, key, target, wall_ns=wall_ns) is not None


def sealed(sent, *, size=64):
    return frame.sealed(sent, KEY, "c0/rail0", size=size, wall_ns=NOW_NS)


@given(FRAMES, st.integers(frame.SEALED_BYTES, 1500))
def test_a_sealed_frame_is_the_frame_to_whoever_knows_no_seals(sent, size):
    payload = sealed(sent, size=size)
    assert len(payload) == size
    assert frame.decode(payload) == sent._replace(flags=sent.flags | frame.SEALED)
    assert is_sealed(payload)
    assert not is_sealed(payload, key=OTHER_KEY)
    assert not is_sealed(payload, target="c0/rail1")


@given(FRAMES, st.integers(0, frame.SEALED_BYTES - 1), st.integers(1, 255))
def test_a_frame_that_was_changed_has_no_seal(sent, at, change):
    payload = bytearray(sealed(sent))
    payload[at] ^= change
    assert not is_sealed(bytes(payload))


@pytest.mark.parametrize(("epochs", "holds"), [(-2, False), (-1, True), (1, True), (2, False)])
def test_a_seal_is_of_its_minute_and_those_beside_it(epochs, holds):
    payload = sealed(frame.Frame(7, 1, 50000))
    epoch = frame.sealed_at(payload, KEY, "c0/rail0", wall_ns=NOW_NS + epochs * frame.EPOCH_NS)
    assert epoch == (480_000 if holds else None)


@given(st.binary(max_size=64))
def test_foreign_bytes_have_no_seal(payload):
    assert not is_sealed(payload)


def test_a_frame_that_is_too_small_for_a_seal_has_none():
    sent = frame.Frame(7, 1, 50000)
    assert sealed(sent, size=31) == frame.encode(sent, size=31)
