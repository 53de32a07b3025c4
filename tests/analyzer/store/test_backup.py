# SPDX-License-Identifier: Apache-2.0
import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analyzer.store import backup, manifest, segments, space
from analyzer.store.opening import open_
from analyzer.store.restore import restore
from analyzer.store.segments import Segments
from analyzer.store.tables import Store
from netagent.model.errors import CapabilityMissing
from netagent.model.task import Task
from tests.analyzer.store.backups import history, remembered

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS


@pytest.fixture
def path(tmp_path):
    return tmp_path / "netagent.duckdb"


def using(path, work):
    """Run `work(store)` on the database at `path`, which is closed afterwards."""

    async def inside():
        store = Store(str(path))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(inside())


async def fill(store, first, count, size=2_000):
    """Store summaries, each told by what is in it; return them."""
    made = {n: n.to_bytes(4) * (size // 4) for n in range(first, first + count)}
    assert all(
        await asyncio.gather(*(store.put(("h0", n, 0), n, body) for n, body in made.items()))
    )
    return made


def held_by(folder, elsewhere):
    """Return what a store holds that is restored from a backup."""
    database = elsewhere / "other.duckdb"
    restore(folder, database, replace=False, now_ns=0)

    async def read(store):
        return dict([each async for each in store.replay(0)]), await store.tasks()

    return using(database, read)


class Paused:
    """Copies a file in pieces; between two of them, somebody else writes."""

    def __init__(self, between):
        self.loop, self.between = asyncio.get_running_loop(), between

    def __call__(self, source, to):
        size, step = source.stat().st_size, 1 + source.stat().st_size // 5
        for place in range(0, size, step):
            words = f"skip={place},count={step}".split(",")
            flags = "iflag=skip_bytes,count_bytes", "oflag=seek_bytes", f"seek={place}"
            command = ["dd", f"if={source}", f"of={to}", *words, *flags, "conv=notrunc"]
            subprocess.run(command, check=True, capture_output=True)
            asyncio.run_coroutine_threadsafe(self.between(), self.loop).result()


def test_a_backup_holds_what_was_stored_before_it_and_nothing_of_what_came_meanwhile(
    path, tmp_path, monkeypatch
):
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 300_000)
    place = [1_000]

    async def work(store):
        await store.put_task(Task("before", declared=True))
        before = await fill(store, 0, 700)

        async def between():
            place[0] += 40_000
            await fill(store, place[0], 2_000, size=40)
            await store.put_task(Task("after", declared=True))

        monkeypatch.setattr(backup, "copied", Paused(between))
        folder, made = await store.back_up("one")
        assert made.summaries == len(before)
        assert await store.usage() == (len(before) + 5 * 2_000, 700 * 2_000 + 10_000 * 40)
        return before, folder

    before, folder = using(path, work)
    assert held_by(folder, tmp_path) == (before, [Task("before", declared=True)])
    using(path, lambda store: fill(store, 10**6, 10))  # the log of that time was not lost


def test_a_backup_takes_next_to_no_space_for_summaries_and_they_outlive_their_deletion(
    path, tmp_path, monkeypatch
):
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 50_000)

    async def work(store):
        before = await fill(store, 0, 100)
        folder, _ = await store.back_up()
        linked = [each.stat().st_nlink for each in folder.rglob("*.segment")]
        assert set(linked) == {2}
        await fill(store, 1_000, 100)
        assert await store.trim(before_ns=10**9, max_bytes=10**9) == 200
        return before, folder

    before, folder = using(path, work)
    assert held_by(folder, tmp_path)[0] == before


def test_while_and_after_it_is_made_nobody_else_can_open_the_database(path, monkeypatch):
    script = "import sys, duckdb; duckdb.connect(sys.argv[1])"

    def refused():
        tried = [sys.executable, "-c", script, str(path)]
        said = subprocess.run(tried, check=False, capture_output=True, text=True)
        return "Conflicting lock" in said.stderr

    async def work(store):
        await fill(store, 0, 10)

        async def between():
            assert await asyncio.to_thread(refused)

        with monkeypatch.context() as patch:
            patch.setattr(backup, "copied", Paused(between))
            await store.back_up("one")
        await store.back_up("two")
        assert await asyncio.to_thread(refused)

    using(path, work)
    assert not refused()


def test_only_the_newest_are_kept_and_folders_of_others_stay(path, monkeypatch):
    monkeypatch.setattr(backup, "BACKUPS_KEPT", 2)

    async def work(store):
        await fill(store, 0, 1)
        for name in ("c", "b", "a", "d"):
            await store.back_up(name)
        (folder := backup.beside(path, backup.BACKUPS)).joinpath("notes").mkdir()
        assert await store.drop_old_backups() == ["c", "b"]
        return sorted(each.name for each in folder.iterdir())

    assert using(path, work) == ["a", "d", "notes"]


def left(path):
    return sorted(each.name for each in backup.beside(path, backup.BACKUPS).iterdir())


def failing(path, monkeypatch, copy):
    """Try a backup with a copy that fails; return what is told, and what a later one tells."""

    async def work(store):
        await fill(store, 0, 10)
        with monkeypatch.context() as patch:
            patch.setattr(backup, "copied", copy)
            with pytest.raises(CapabilityMissing) as caught:
                await store.back_up("one")
        assert left(path) == []
        await fill(store, 100, 10)
        _, made = await store.back_up("later")
        assert made.summaries == 20
        return caught.value.remedy

    return using(path, work)


def full(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("copy", "why"),
    [(full, "No space left"), (lambda _, to: to.write_bytes(b"no"), "cannot be opened")],
)
def test_one_that_fails_leaves_nothing_and_the_next_one_is_made(path, monkeypatch, copy, why):
    assert why in failing(path, monkeypatch, copy)


def test_a_copy_that_lacks_something_is_no_backup(path, monkeypatch, tmp_path):
    empty = tmp_path / "empty.duckdb"
    using(empty, lambda store: store.usage())
    why = failing(path, monkeypatch, lambda _, to: shutil.copy(empty, to))
    assert "0 summaries, not 10" in why


def test_a_database_that_is_opened_again_meanwhile_makes_no_backup(path, monkeypatch):
    async def work(store):
        async def between():
            await store._run(lambda _: store._writer._reopen(), alone=True)

        with monkeypatch.context() as patch:
            patch.setattr(backup, "copied", Paused(between))
            with pytest.raises(CapabilityMissing, match="opened again"):
                await store.back_up("one")
        await fill(store, 0, 1)
        return left(path)

    assert using(path, work) == []


def test_without_room_it_is_refused_before_anything_is_written(path, monkeypatch):
    monkeypatch.setattr(space, "MOST_BYTES", 1 << 60)
    monkeypatch.setattr(space, "SHARE", 1)

    async def work(store):
        with pytest.raises(CapabilityMissing, match="free some"):
            await store.back_up("one")

    using(path, work)
    assert left(path) == []


def test_one_of_a_name_that_is_taken_is_refused(path):
    async def work(store):
        await store.back_up("one")
        with pytest.raises(CapabilityMissing, match="another name"):
            await store.back_up("one")

    using(path, work)
    assert left(path) == ["one"]


def test_what_a_kill_left_half_is_no_backup_and_goes_with_the_next(path):
    using(path, lambda store: store.back_up("one"))
    folder = backup.beside(path, backup.BACKUPS)
    shutil.copytree(folder / "one", folder / "two.half")
    (folder / "odd").mkdir()
    assert [each.name for each in backup.known(path)] == ["one"]
    using(path, lambda store: store.back_up("three"))
    assert left(path) == ["odd", "one", "three"]


def test_a_disk_that_knows_no_links_gets_copies(path, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    async def work(store):
        before = await fill(store, 0, 10)
        monkeypatch.setattr(os, "link", refuse)
        return before, (await store.back_up())[0]

    before, folder = using(path, work)
    assert {each.stat().st_nlink for each in folder.rglob("*.segment")} == {1}
    assert held_by(folder, tmp_path)[0] == before


def test_after_it_is_frozen_the_file_stays_as_it_is_until_it_is_thawed(path, tmp_path):
    """What the copy rests on: between two checkpoints DuckDB writes to its log only."""
    made = Segments(Path(f"{path}.summaries"))
    connection = open_(str(path), made)
    connection.execute("INSERT INTO tasks SELECT 'a' || i, 'x' FROM range(50000) t(i)")
    frozen = backup.freeze(connection, made, 5)
    shutil.copy(path, copy := tmp_path / "copy")
    for n in range(4):
        many = "INSERT INTO hosts SELECT ? || i, repeat('x', 500) FROM range(60000) t(i)"
        connection.execute(many, [f"h{n}-"])
        connection.execute("UPDATE tasks SET body = body || 'y' WHERE id < 'a3'")
    whole, now = copy.read_bytes(), subprocess.check_output(["cat", path])
    head = 3 * 4096  # of the file and of the database: which blocks count
    assert now[:head] == whole[:head]
    assert Path(f"{path}.wal").stat().st_size > 16 << 20
    backup.thaw(connection, frozen)
    connection.execute("INSERT INTO tasks VALUES ('z', 'x')")
    assert subprocess.check_output(["cat", path])[:head] != whole[:head]
    connection.close()


def test_names_are_when_they_are_made():
    assert backup.named(1_795_154_400 * 10**9) == "20261120T060000Z"


def test_the_judges_files_are_in_it(path):
    for suffix in manifest.KEPT:
        backup.beside(path, suffix).write_bytes(suffix.encode())
    folder, made = using(path, lambda store: store.back_up())
    names = {each.name for each in made.files}
    assert {manifest.DATABASE + suffix for suffix in ("", *manifest.KEPT)} <= names
    for suffix in manifest.KEPT:
        assert (folder / (manifest.DATABASE + suffix)).read_bytes() == suffix.encode()


def test_history_is_in_it_by_links_and_outlives_its_deletion(path, tmp_path):
    before = remembered(path, [0, HOUR_NS])
    assert {name.split("/")[0] for name in before} == {"minute", "hour"}
    there = backup.beside(path, ".history")
    (there / "minute" / "1970-01-01" / "0101.pairs.parquet.half").touch()
    (there / "spill").mkdir()
    folder, made = using(path, lambda store: store.back_up())
    listed = {each.name: each for each in made.files if ".history/" in each.name}
    assert listed.keys() == {f"{manifest.DATABASE}.history/{name}" for name in before}
    assert all(each.bytes and each.sha256 is None for each in listed.values())
    assert {(folder / name).stat().st_nlink for name in listed} == {2}
    shutil.rmtree(there)
    restore(folder, tmp_path / "other.duckdb", replace=False, now_ns=0)
    assert history(tmp_path / "other.duckdb") == before


def test_history_that_becomes_too_old_meanwhile_is_no_failure(path, monkeypatch):
    before = remembered(path, [0, DAY_NS, DAY_NS + HOUR_NS])
    there, link = backup.beside(path, ".history") / "minute", backup.link

    def late(source, to):
        if source == there / "1970-01-01" / "0000.components.parquet":
            source.unlink()
            shutil.rmtree(there / "1970-01-02")  # a whole day, which was to be linked next
        link(source, to)

    monkeypatch.setattr(backup, "link", late)
    folder, made = using(path, lambda store: store.back_up())
    assert manifest.verified(folder) == made
    gone = {"minute/1970-01-01/0000.components.parquet"} | {
        name for name in before if name.startswith("minute/1970-01-02/")
    }
    linked = {each.name.partition(".history/")[2] for each in made.files} - {""}
    assert linked == before.keys() - gone


def test_a_disk_that_knows_no_links_needs_room_for_history_as_well(path, monkeypatch):
    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    using(path, lambda store: fill(store, 0, 1))
    needed = sum(map(backup._size, (path, *backup.beside(path, ".summaries").glob("*"))))
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(space.Room, "of", lambda _: space.Room(0, needed))
    using(path, lambda store: store.back_up("without"))
    remembered(path, [0])
    with pytest.raises(CapabilityMissing, match="free some"):
        using(path, lambda store: store.back_up("with"))


def test_only_what_is_no_link_is_brought_to_the_disk(path, monkeypatch):
    """Each costs a flush of the device, and a history may have a hundred thousand files."""
    remembered(path, [0])
    synced, sync = set(), backup.sync
    monkeypatch.setattr(backup, "sync", lambda each: synced.add(each) or sync(each))

    async def work(store):
        await fill(store, 0, 10)
        return await store.back_up()

    _, made = using(path, work)
    names = {str(each).rpartition(".half/")[2] for each in synced}
    assert {each.name for each in made.files} & names == {manifest.DATABASE}
    assert {manifest.MANIFEST, f"{manifest.DATABASE}.history/minute/1970-01-01"} <= names
