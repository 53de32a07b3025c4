# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import struct
import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.replay.frames import (
    HEAD,
    MAX_BYTES,
    SAMPLE_BYTES,
    DamagedRecording,
    frame,
    payloads,
    whole,
)

PAYLOADS = st.lists(st.binary(max_size=2000), max_size=8)


def read(data):
    return [payload for _, _, payload in payloads(io.BytesIO(data))]


@given(PAYLOADS)
def test_what_was_framed_is_read_again(made):
    data = b"".join(map(frame, made))
    assert read(data) == made
    assert whole(io.BytesIO(data)) == (len(made), len(data))


@given(st.lists(st.binary(min_size=1, max_size=700), min_size=1, max_size=4), st.data())
def test_any_byte_that_is_changed_is_found_and_its_frame_named(made, data):
    frames = list(map(frame, made))
    whole_bytes = bytearray(b"".join(frames))
    at = data.draw(st.integers(0, len(whole_bytes) - 1))
    whole_bytes[at] ^= data.draw(st.integers(1, 255))
    number = next(n for n in range(len(frames)) if at < sum(map(len, frames[: n + 1])))
    with pytest.raises(DamagedRecording) as caught:
        read(bytes(whole_bytes))
    assert caught.value.number == number
    assert caught.value.offset == sum(map(len, frames[:number]))
    assert f"byte {caught.value.offset}" in str(caught.value)


@given(st.binary(min_size=1, max_size=700), st.data())
def test_what_is_cut_within_a_frame_is_found(payload, data):
    made = frame(b"first") + frame(payload)
    cut = data.draw(st.integers(len(frame(b"first")) + 1, len(made) - 1))
    with pytest.raises(DamagedRecording) as caught:
        read(made[:cut])
    assert caught.value.number == 1
    assert whole(io.BytesIO(made[:cut])) == (1, len(frame(b"first")))


@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_raise(data):
    with contextlib.suppress(DamagedRecording):
        assert b"".join(map(frame, read(data))) is not None


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_what_shrinks_is_deflated_and_what_is_deflated_already_is_not(size, monkeypatch):
    text, noise = b"netagent " * (size // 9), Random(1).randbytes(size)
    assert len(frame(text)) < size // 5
    deflated = []
    noting = lambda data: deflated.append(len(data)) or data  # noqa: E731
    monkeypatch.setattr("analyzer.replay.frames.quickly_deflated", noting)
    assert frame(noise)[HEAD.size :] == noise
    assert deflated == [min(size, SAMPLE_BYTES)]
    monkeypatch.undo()
    assert read(frame(text) + frame(noise)) == [text, noise]


def test_a_bomb_does_not_go_off():
    body = zlib.compress(b"\0" * (MAX_BYTES + 1))
    head = struct.pack("<IB", len(body), 1)
    bomb = HEAD.pack(len(body), zlib.crc32(body, zlib.crc32(head)), 1) + body
    with pytest.raises(DamagedRecording, match="at most"):
        read(bomb)
