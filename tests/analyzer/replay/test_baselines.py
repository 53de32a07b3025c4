# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.latency.saved import Saved
from analyzer.replay import baselines
from analyzer.replay.baselines import AGE_NS, AHEAD_NS, CHUNK_FLOWS, EXPECTED, pack, unpack
from analyzer.replay.frames import frame
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.wire.codec import encode

NOW_NS = 10**18


def saved(count=40, seed=1, until_ns=NOW_NS):
    rng = np.random.default_rng(seed)
    ends = [EndpointId(f"c{n}", n % 8) for n in range(7)]
    flows = tuple(FlowId(ends[n % 7], ends[(n + 1 + n // 7) % 7], n % 65536) for n in range(count))
    columns = {
        name: (rng.random((count, *shape)) * 100).astype(dtype)
        for name, (dtype, shape) in EXPECTED.items()
    }
    return Saved(until_ns, 7, flows, columns)


def file_of(of):
    return b"".join(pack(of))


def read(data, now_ns=NOW_NS):
    return unpack(io.BytesIO(data), now_ns=now_ns)


@pytest.mark.parametrize("count", [0, 1, CHUNK_FLOWS, CHUNK_FLOWS + 3])
def test_what_was_written_is_read(count):
    before = saved(count)
    after = read(file_of(before))
    assert (after.until_ns, after.drift_window, after.flows) == (NOW_NS, 7, before.flows)
    assert after.columns.keys() == before.columns.keys()
    for name, column in before.columns.items():
        assert np.array_equal(after.columns[name], column)
        assert after.columns[name].dtype == column.dtype


DATA = file_of(saved())


@given(st.data())
def test_a_damaged_file_is_refused_and_nothing_else_happens(data):
    damaged = bytearray(DATA)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    if bytes(damaged) != DATA:
        with pytest.raises(RemoteProtocolError):
            read(bytes(damaged))


@given(st.integers(0, len(DATA) - 1))
def test_a_file_that_was_cut_is_refused(size):
    with pytest.raises(RemoteProtocolError):
        read(DATA[:size])


@given(st.binary(max_size=300))
def test_any_message_in_a_frame_is_refused(payload):
    with pytest.raises(RemoteProtocolError):
        read(frame(payload))
    with contextlib.suppress(RemoteProtocolError):
        read(next(iter(pack(saved(0)))) + frame(payload))


def test_another_versions_file_is_refused(monkeypatch):
    monkeypatch.setattr(baselines, "FORMAT", 2)
    later = file_of(saved())
    monkeypatch.undo()
    with pytest.raises(RemoteProtocolError, match="another version"):
        read(later)
    fewer = saved()
    without = {name: each for name, each in fewer.columns.items() if name != "spread.past"}
    with pytest.raises(RemoteProtocolError, match="another version"):
        read(file_of(replace(fewer, columns=without)))


@pytest.mark.parametrize(
    ("off_ns", "fits"),
    [(-AHEAD_NS, True), (-AHEAD_NS - 1, False), (AGE_NS, True), (AGE_NS + 1, False)],
)
def test_only_recent_baselines_are_taken(off_ns, fits):
    with contextlib.nullcontext() if fits else pytest.raises(RemoteProtocolError, match="ago"):
        read(DATA, now_ns=NOW_NS + off_ns)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(value):
    odd = saved()
    odd.columns["step.mean.var"][3] = value
    with pytest.raises(RemoteProtocolError, match=r"step\.mean\.var"):
        read(file_of(odd))


def test_negative_counts_are_refused():
    odd = saved()
    odd.columns["spread.fitted"][3] = -1
    with pytest.raises(RemoteProtocolError, match="negative"):
        read(file_of(odd))


def test_flows_that_do_not_fit_their_columns_are_refused(monkeypatch):
    head, chunk = pack(saved(10)), pack(saved(11))
    next(chunk)
    with pytest.raises(RemoteProtocolError, match="11 of 10"):
        read(next(head) + next(chunk))
    names = dict.fromkeys(EXPECTED, b"")
    odd = {"endpoints": [], "source": b"\1\0\0\0", "target": b"\0" * 4, "port": b"\0\0"}
    with pytest.raises(RemoteProtocolError, match="do not agree"):
        read(next(pack(saved(1))) + frame(encode(odd | {"columns": names})))
    monkeypatch.setattr(baselines, "MAX_SAVED", 5)
    with pytest.raises(RemoteProtocolError, match="at most"):
        read(DATA)
