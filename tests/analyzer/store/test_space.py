# SPDX-License-Identifier: Apache-2.0
import errno
import os

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.store.space import MOST_BYTES, Room, is_full, oldest


def test_a_part_of_a_small_disk_is_left_free_and_no_more_than_a_little_of_a_large_one():
    assert Room(1_000, 500).reserve == 50
    assert Room(1 << 50, 0).reserve == MOST_BYTES
    assert [Room(1_000, free).short for free in (0, 49, 50, 900)] == [50, 1, 0, 0]


def test_a_disk_says_what_it_has(tmp_path):
    room, said = Room.of(tmp_path), os.statvfs(tmp_path)
    assert room.total == said.f_blocks * said.f_frsize
    assert 0 <= room.free <= room.total


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), True),
        (duckdb.IOException('Could not write file "x.wal": No space left on device'), True),
        (OSError(errno.EIO, os.strerror(errno.EIO)), False),
        ("", False),
    ],
)
def test_lack_of_room_is_told_from_other_faults_of_a_disk(error, full):
    assert is_full(str(error)) is full


files = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=8)


@given(files, st.integers(0, 12), st.integers(0, 9))
def test_the_oldest_files_go_no_more_than_needed_and_none_that_a_restart_reads(
    made, needed, before_ns
):
    freeable = {n: size for n, (size, _) in enumerate(made)}
    newest_ns = {n: at for n, (_, at) in enumerate(made)}
    chosen = oldest(freeable, newest_ns, needed=needed, before_ns=before_ns)
    assert all(newest_ns[n] < before_ns and freeable[n] for n in chosen)
    freed = [freeable[n] for n in chosen]
    assert sum(freed[:-1]) < needed or not chosen
    spared = [n for n in freeable if n not in chosen and freeable[n]]
    assert chosen == sorted(chosen)
    assert not chosen or not spared or max(chosen) < min(spared)
    if sum(freed) < needed and spared:
        assert any(at >= before_ns for n, at in newest_ns.items() if n <= min(spared))
