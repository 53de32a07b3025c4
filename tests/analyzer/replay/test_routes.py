# SPDX-License-Identifier: Apache-2.0
"""Routes in a file: whole and recent, or refused."""

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize.saved import COLUMNS, SavedRoutes
from analyzer.replay import routes
from analyzer.replay.routes import pack, unpack
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId

NOW_NS = 10**18


def saved(at_ns=NOW_NS):
    rng = np.random.default_rng(1)
    columns = {name: (rng.random(40) * 100).astype(dtype) for name, dtype in COLUMNS.items()}
    columns["left"] = columns["left"][:0]
    ends = tuple(EndpointId(f"c{n}", n % 8) for n in range(7))
    return SavedRoutes(at_ns, ends, ("", "L0"), {"10.0.0.1": "L0"}, columns)


def read(data, most_ns=10):
    return unpack(io.BytesIO(data), now_ns=NOW_NS, most_ns=most_ns)


DATA = b"".join(pack(saved()))


def test_what_was_written_is_read_in_however_many_parts(monkeypatch):
    monkeypatch.setattr(routes, "PART_BYTES", 13)
    monkeypatch.setattr(routes, "PART_ENDS", 3)
    for data in (DATA, b"".join(pack(saved()))):
        after, before = read(data), saved()
        assert (after.at_ns, after.endpoints, after.names) == (NOW_NS, before.endpoints, ("", "L0"))
        assert after.leaf_of == before.leaf_of
        for name, column in before.columns.items():
            assert np.array_equal(after.columns[name], column)
            assert after.columns[name].dtype == column.dtype


@pytest.mark.parametrize("at_ns", [NOW_NS + 1, NOW_NS - 11])
def test_one_of_another_time_is_refused(at_ns):
    with pytest.raises(RemoteProtocolError, match="ago"):
        read(b"".join(pack(saved(at_ns))))


def test_one_of_another_version_or_without_its_end_is_refused(monkeypatch):
    *but_last, _ = pack(saved())
    with pytest.raises(RemoteProtocolError, match="end is missing"):
        read(b"".join(but_last))
    with pytest.raises(RemoteProtocolError, match="empty"):
        read(b"")
    with pytest.raises(RemoteProtocolError, match="more than it says"):
        read(DATA + DATA)
    monkeypatch.setattr(routes, "MAX_FILE_BYTES", 10)
    with pytest.raises(RemoteProtocolError, match="no such size"):
        read(DATA)
    monkeypatch.setattr(routes, "FORMAT", 7)
    with pytest.raises(RemoteProtocolError, match="another version"):
        read(DATA)


@given(st.data())
def test_a_damaged_file_is_refused_and_nothing_else_happens(data):
    damaged = bytearray(DATA)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for each in (bytes(damaged), cut):
        with contextlib.suppress(RemoteProtocolError):
            assert each == DATA or read(each) is None
