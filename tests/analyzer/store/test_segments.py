# SPDX-License-Identifier: Apache-2.0
import errno
import os
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.store import segments as room
from analyzer.store.segments import HEAD, Place, Segments
from netagent.model.errors import RemoteProtocolError


def written(segments, *payloads):
    """Write payloads and return their places."""
    places = segments.places(map(len, payloads))
    segments.write(list(zip(places, payloads, strict=True)))
    return places


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.binary(max_size=40)), max_size=6))
def test_what_was_written_is_read_over_any_number_of_starts(tmp_path_factory, lives):
    folder, known = tmp_path_factory.mktemp("a"), {}
    for payloads in lives:
        segments = Segments(folder)
        known.update(zip(written(segments, *payloads), payloads, strict=True))
    assert len(known) == sum(map(len, lives))
    for place, payload in known.items():
        assert Segments(folder).read(place) == payload


def test_a_full_file_is_followed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "SEGMENT_BYTES", 100)
    segments = Segments(tmp_path)
    places = [written(segments, b"x" * 60)[0] for _ in range(5)]
    assert [place.segment for place in places] == [1, 1, 2, 2, 3]
    assert all(segments.read(place) == b"x" * 60 for place in places)


def test_what_is_not_written_of_what_had_a_place_takes_no_space_from_others(tmp_path):
    segments = Segments(tmp_path)
    first, _, third = segments.places((3, 1 << 20, 3))
    segments.write([(first, b"one"), (third, b"two")])  # between them is a hole
    assert [segments.read(each) for each in (first, third)] == [b"one", b"two"]
    [file] = tmp_path.iterdir()
    assert file.stat().st_blocks * 512 < 1 << 16
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_disk_that_refuses_leaves_what_was_there_and_takes_the_next(tmp_path, monkeypatch):
    segments = Segments(tmp_path)
    [before] = written(segments, b"before")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse)
        with pytest.raises(OSError, match="no space"):
            written(segments, b"x" * 10_000)
    [file] = tmp_path.iterdir()
    assert file.stat().st_size == HEAD.size + len(b"before")
    [after] = written(segments, b"after")
    assert [segments.read(each) for each in (before, after)] == [b"before", b"after"]


def refuse(_):
    raise OSError(errno.ENOSPC, "no space")


@pytest.mark.parametrize("change", ["length", "byte", "cut"])
def test_what_is_damaged_is_refused(tmp_path, change):
    segments = Segments(tmp_path)
    [place] = written(segments, b"payload")
    [file] = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    if change == "length":
        place = Place(place.segment, place.offset, place.length - 1)
    elif change == "byte":
        data[-1] ^= 1
    else:
        del data[-1]
    file.write_bytes(data)
    with pytest.raises(RemoteProtocolError, match="damaged at 0"):
        segments.read(place)
    with pytest.raises(OSError):
        segments.read(Place(99, 0, 1))


def test_files_of_which_nothing_is_kept_are_deleted_but_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "SEGMENT_BYTES", 1)
    segments = Segments(tmp_path)
    places = [written(segments, b"x")[0] for _ in range(4)]
    assert all(one.segment < other.segment for one, other in pairwise(places))
    (tmp_path / "other.segment").touch()  # not ours
    segments.drop_all_but({places[1].segment})
    left = {int(path.stem) for path in tmp_path.glob("0*.segment")}
    assert left == {places[1].segment, places[3].segment}
    assert (tmp_path / "other.segment").exists()


def test_whoever_asks_is_told_how_long_syncs_take(tmp_path, monkeypatch):
    now_ns, told = [0], []
    segments = Segments(tmp_path, told.append)
    monkeypatch.setattr(room, "monotonic_ns", lambda: now_ns[0])
    seen = []

    def sync(_):
        now_ns[0] += 7
        seen.append(segments.syncing_ns())

    def fail(file):
        sync(file)
        refuse(file)

    monkeypatch.setattr(os, "fdatasync", sync)
    written(segments, b"a")
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="no space"):
        written(segments, b"b")
    assert (seen, told, segments.syncing_ns()) == ([7, 7], [7, 7], 0)
