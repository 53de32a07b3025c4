# SPDX-License-Identifier: Apache-2.0
import os

from analyzer.store.space import MOST_BYTES, Room


def test_a_part_of_a_small_disk_is_left_free_and_no_more_than_a_little_of_a_large_one():
    assert Room(1_000, 500).reserve == 50
    assert Room(1 << 50, 0).reserve == MOST_BYTES
    assert [Room(1_000, free).short for free in (0, 49, 50, 900)] == [50, 1, 0, 0]


def test_a_disk_says_what_it_has(tmp_path):
    room, said = Room.of(tmp_path), os.statvfs(tmp_path)
    assert room.total == said.f_blocks * said.f_frsize
    assert 0 <= room.free <= room.total
