# SPDX-License-Identifier: Apache-2.0
import fcntl

import pytest

from netagent_torch import form
from netagent_torch.ring import Ring

EMPTY = form.Record(0, 10, 10, 20, 64, 1, 0, -1, 0, 0, form.COLLECTIVE, 0)


def read(path):
    data = path.read_bytes()
    return form.read_head(data), data


def test_records_and_lines_are_in_the_file(tmp_path):
    ring = Ring(tmp_path / "a.ring", capacity=64)
    assert ring.say({"op": 0, "name": "all_reduce"})
    assert [ring.add(EMPTY) for _ in range(3)] == [1, 2, 3]
    head, data = read(ring.path)
    assert head.written == 3
    lines = data[form.HEAD_BYTES : form.HEAD_BYTES + head.lines_used]
    assert form.read_lines(lines) == [{"op": 0, "name": "all_reduce"}]
    at = head.offset(3)
    assert form.read_records(data[at : at + form.RECORD_BYTES]) == [EMPTY._replace(number=3)]


def test_the_newest_records_take_the_place_of_the_oldest(tmp_path):
    ring = Ring(tmp_path / "a.ring", capacity=64)
    for _ in range(70):
        ring.add(EMPTY)
    head, data = read(ring.path)
    start = form.HEAD_BYTES + form.LINES_BYTES
    numbers = {each.number for each in form.read_records(data[start:])}
    assert numbers == set(range(head.first, 71)) == set(range(7, 71))


def test_a_line_without_room_is_refused_and_the_others_stay(tmp_path):
    ring = Ring(tmp_path / "a.ring", capacity=64)
    assert not ring.say({"name": "x" * form.LINES_BYTES})
    assert read(ring.path)[0].lines_used == 0


def test_what_is_left_out_is_counted(tmp_path):
    ring = Ring(tmp_path / "a.ring", capacity=64)
    ring.leave_out()
    ring.leave_out()
    assert read(ring.path)[0].left_out == 2


def test_the_file_is_locked_while_its_writer_lives(tmp_path):
    ring = Ring(tmp_path / "a.ring", capacity=64)
    with ring.path.open("rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        ring.close()
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_a_file_that_somebody_laid_there_is_not_taken_over(tmp_path):
    (tmp_path / "a.ring").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        Ring(tmp_path / "a.ring")
    assert not (tmp_path / "elsewhere").exists()
