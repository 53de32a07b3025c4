# SPDX-License-Identifier: Apache-2.0
import asyncio
import io

import pytest

from analyzer.judge import ring as module
from analyzer.judge.ring import Ring
from analyzer.replay import records
from analyzer.replay.player import read

HEADER = records.Header(netagent="1", window_s=5, probe_port=1)


def ring(folder, *, max_bytes=1 << 20, opening=lambda **_: [HEADER]):
    made = Ring(folder / "recording", max_bytes=max_bytes, opening=opening)
    made.begin()
    return made


def step(at):
    return records.Stepped(now_ns=at)


def exported(made, folder):
    async def export():
        return await made.export(folder / "out")

    size = asyncio.run(export())
    data = (folder / "out").read_bytes()
    assert size == len(data)
    return list(read(io.BytesIO(data)))


def test_what_was_written_is_exported_with_an_end(tmp_path):
    made = ring(tmp_path)
    for at in range(1, 4):
        made.write(step(at))
    assert exported(made, tmp_path) == [
        HEADER, step(1), step(2), step(3), records.End(records=4)
    ]  # fmt: skip
    made.write(step(4))
    assert exported(made, tmp_path)[-2:] == [step(4), records.End(records=5)]
    assert [path.name for path in tmp_path.iterdir()].count("out.half") == 0
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_the_oldest_files_go_and_each_begins_with_what_a_replay_needs(tmp_path):
    made = ring(tmp_path, max_bytes=4000)
    for at in range(1, 2000):
        made.write(step(at))
        if at % 5 == 0:
            asyncio.run(made.flush())
    kept = exported(made, tmp_path)
    size = sum(path.stat().st_size for path in (tmp_path / "recording").iterdir())
    assert size <= 4000 + 4000 // module.FILES + 200
    assert kept[0] == HEADER
    assert sum(each == HEADER for each in kept) > 3
    steps = [each.now_ns for each in kept if isinstance(each, records.Stepped)]
    assert steps == list(range(steps[0], 2000))


def test_a_file_is_begun_only_at_a_moment_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FILES", 1 << 20)  # so that a file is full with its first record
    moments = iter([[HEADER], None, None, [HEADER]])
    made = ring(tmp_path, opening=lambda **_: next(moments, None))
    for at in range(1, 6):
        made.write(step(at))
        asyncio.run(made.flush())
    kept = exported(made, tmp_path)[:-1]
    assert kept == [HEADER, step(1), step(2), step(3), HEADER, step(4), step(5)]


def test_the_disk_stays_bounded_where_there_is_never_a_moment_for_a_new_file(tmp_path):
    asked = []

    def opening(*, urgent):
        asked.append(urgent)
        return [HEADER] if urgent or len(asked) == 1 else None

    made = ring(tmp_path, max_bytes=4000, opening=opening)
    for at in range(1, 2000):
        made.write(step(at))
        if at % 5 == 0:
            asyncio.run(made.flush())
    size = sum(path.stat().st_size for path in (tmp_path / "recording").iterdir())
    assert size <= 4000 + 2 * (4000 // module.FILES) + 200
    assert exported(made, tmp_path)[0] == HEADER


def test_a_record_larger_than_a_frame_is_counted_as_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 200)
    made = ring(tmp_path)
    made.write(records.Ingested(payload=bytes(200), now_ns=1))
    made.write(step(2))
    assert exported(made, tmp_path)[:-1] == [HEADER, records.Lost(records=1), step(2)]


def test_nobody_else_may_look_into_the_folder(tmp_path):
    (tmp_path / "recording").mkdir(mode=0o755)
    ring(tmp_path)
    assert (tmp_path / "recording").stat().st_mode & 0o777 == 0o700


def test_a_frame_that_a_kill_cut_is_left_out_after_the_restart(tmp_path):
    made = ring(tmp_path)
    made.write(step(1))
    made.write(step(2))
    asyncio.run(made.flush())
    (part,) = (tmp_path / "recording").iterdir()
    part.write_bytes(part.read_bytes()[:-3])
    made = ring(tmp_path)
    made.write(step(3))
    assert exported(made, tmp_path)[:-1] == [HEADER, step(1), HEADER, step(3)]


def test_what_a_full_disk_refuses_is_counted_and_told_of(tmp_path, monkeypatch):
    made = ring(tmp_path)
    asyncio.run(made.flush())
    write = made._write

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(made, "_write", full)
    made.write(step(1))
    asyncio.run(made.flush())
    monkeypatch.setattr(made, "_write", write)
    made.write(step(2))
    assert made.lost == 1
    assert exported(made, tmp_path)[:-1] == [HEADER, records.Lost(records=1), step(2)]


def test_a_disk_that_stands_still_costs_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 100)
    made = ring(tmp_path)
    for at in range(1000):
        made.write(step(at))
    assert made.lost > 900
    asyncio.run(made.flush())
    made.write(step(1000))
    assert exported(made, tmp_path)[-3] == records.Lost(records=made.lost)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "recording").write_text("a file")
    with pytest.raises(OSError):
        ring(tmp_path)


def test_a_record_that_was_read_from_bytes_is_kept_as_these(tmp_path):
    made = ring(tmp_path)
    made.write(step(1), records.pack(step(2)))  # bytes that are told apart
    assert exported(made, tmp_path) == [HEADER, step(2), records.End(records=2)]
