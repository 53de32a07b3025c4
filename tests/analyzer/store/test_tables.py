# SPDX-License-Identifier: Apache-2.0
import asyncio
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import structlog

from analyzer.review.words import Word, Words
from analyzer.roster.registry import Registry
from analyzer.store import opening, segments, tables
from analyzer.store.manifest import SUMMARIES
from analyzer.store.space import Freed, Room
from analyzer.store.tables import Store
from analyzer.webhooks.outbox import Letter
from netagent.model.errors import CapabilityMissing
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, Layer
from netagent.model.task import Task
from netagent.model.verdict import Incident, IncidentState, Pair, Suspect, Symptom, Verdict
from tests.analyzer.cluster import endpoint, registration

ROOT = Path(__file__).parents[3]

SPINE = Component(Kind.SWITCH, "spine-0")


def incident(name="i1", state=IncidentState.OPEN, updated_ns=2):
    pair = Pair(EndpointId("a0", 0), EndpointId("a1", 0), 10, 9)
    verdict = Verdict(
        SPINE,
        Layer.UNDERLAY,
        Symptom.LOSS,
        0.9,
        "spine-0 loses",
        failing=(pair,),
        alternatives=(Suspect(SPINE, 0.5, 1, 2),),
        evidence=("table=40, priority=7 actions=drop",),
    )
    return Incident(name, state, verdict, 1, 2, updated_ns, tasks=("train-a",))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "deep" / "netagent.duckdb")


def using(path, work):
    """Run `work(store)` on the database at `path`, which is closed afterwards."""

    async def inside():
        store = Store(path)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(inside())


def size_of(path):
    files = [Path(path), *Path(path + SUMMARIES).iterdir()]
    return sum(file.stat().st_size for file in files)


async def replayed(store, since_ns=0):
    return [item async for item in store.replay(since_ns)]


def test_each_summary_is_stored_once_and_its_repeats_are_told(path):
    async def work(store):
        rows = [("h0", 5), ("h0", 10), ("h1", 5), ("h0", 5)]
        together = await asyncio.gather(*(store.put((h, s, 0), 7, b"x" * s) for h, s in rows))
        again = await store.put(("h0", 10, 0), 8, b"other")
        assert await store.put(("h0", 10, 7), 8, b"after its clock went back")
        return together, again, await store.usage()

    together, again, usage = using(path, work)
    assert together == [True, True, True, False]
    assert again is False
    assert usage == (4, 45)


def test_summaries_are_replayed_in_the_order_they_came(path):
    async def work(store):
        for n in (3, 1, 2, 0):
            await store.put((f"h{n}", 5, 0), n, b"%d" % n)
        return await replayed(store, 1)

    assert using(path, work) == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_windows_of_some_hosts_and_of_a_time_are_found_in_order(path):
    async def work(store):
        for host in ("h0", "h1", "h2"):
            for start_ns in (30, 10, 20):
                await store.put((host, start_ns, 0), 99, f"{host} {start_ns}".encode())
        parts = [part async for part in store.of_hosts(["h0", "h2"], 10, 20)]
        found = [payload for part in parts for payload in part]
        assert found == [b"h0 10", b"h2 10", b"h0 20", b"h2 20"]
        assert await store.count_of(["h0", "h2"], 10, 20) == 4
        assert await store.count_of([], 10, 20) == 0

    using(path, work)


def test_more_than_fits_into_memory_is_replayed_and_read(path, monkeypatch):
    """Above some thousand RNICs, two minutes of summaries exceed the limit: it did not start."""
    body = random.Random(1).randbytes(20_000)

    async def write(store):
        stored = [
            store.put((f"h{n % 4}", n // 4, 0), 1000 + n, body + n.to_bytes(2))
            for n in range(8_000)
        ]
        assert all(await asyncio.gather(*stored))

    async def read(store):
        replayed = [(at, one[-2:]) async for at, one in store.replay(1000)]
        some = [one[-2:] async for each in store.of_hosts(["h1", "h2"], 0, 9999) for one in each]
        return replayed, some

    using(path, write)
    monkeypatch.setattr(opening, "MEMORY_LIMIT", "128MB")
    replayed, some = using(path, read)
    assert replayed == [(1000 + n, n.to_bytes(2)) for n in range(8_000)]
    assert some == [n.to_bytes(2) for n in range(8_000) if n % 4 in (1, 2)]


def test_writes_go_on_while_a_replay_is_read(path):
    async def work(store):
        await asyncio.gather(*(store.put(("h0", n, 0), n, b"x") for n in range(1200)))
        seen = 0
        async for _ in store.replay(0):
            seen += 1
            if seen in {1, 700}:
                assert await store.put(("h1", seen, 0), 9999, b"y")
        return seen

    assert using(path, work) == 1200


def test_everything_else_survives_a_restart(path):
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0")), 1)
    state = registry.export_host("h0")
    task = Task("job", ("a0",), 1, (0,), declared=True)

    async def write(store):
        for _ in range(2):
            await store.put_host(state)
            await store.put_task(task)
            await store.put_incidents([incident(), incident(updated_ns=3)])
        await store.put_task(Task("gone"))
        await store.delete_task("gone")
        await store.put_host(registry.export_host("h0"))

    async def read(store):
        return (
            await store.hosts(),
            await store.tasks(),
            await store.incidents(),
        )

    using(path, write)
    assert using(path, read) == ([state], [task], [incident(updated_ns=3)])

    async def forget(store):
        await store.forget_host("h0")
        return await store.hosts()

    assert using(path, forget) == []


def test_letters_are_stored_with_their_incident_and_dropped_by_key(path):
    letters = [
        Letter("pager", n, "i1", "opened", "switch s", n, b"\x00{}" * n) for n in range(1, 4)
    ]
    hollow = replace(letters[2], body=b"")

    async def write(store):
        await store.put_incidents([incident()], letters)
        await store.change_letters([hollow], [letters[0].key, "pager 99"])
        await store.change_letters([], [])

    async def read(store):
        return await store.letters(), await store.incidents()

    using(path, write)
    assert using(path, read) == ([letters[1], hollow], [incident()])


def test_incidents_and_letters_are_stored_both_or_neither(path):
    letter = Letter("pager", 1, "i1", "opened", "", 1, b"{}")

    async def work(store):
        await store._run(lambda c: c.execute("DROP TABLE letters"))
        with pytest.raises(CapabilityMissing):
            await store.put_incidents([incident()], [letter])
        return await store.incidents()

    assert using(path, work) == []


def test_old_summaries_and_those_beyond_the_bytes_are_deleted_oldest_first(path):
    async def work(store):
        await asyncio.gather(*(store.put(("h0", n, 0), n, b"x" * 100) for n in range(50)))
        by_age = await store.trim(before_ns=10, max_bytes=10**9)
        by_size = await store.trim(before_ns=0, max_bytes=1000)
        idle = await store.trim(before_ns=0, max_bytes=1000)
        return by_age, by_size, idle, [at for at, _ in await replayed(store)]

    assert using(path, work) == (10, 30, 0, list(range(40, 50)))


def test_the_files_stay_bounded_however_long_they_are_written(path, monkeypatch):
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1_000_000)

    async def work(store):
        sizes = []
        for round_ in range(24):
            start = 100 * round_
            await asyncio.gather(
                *(
                    store.put(("h0", start + n, 0), start + n, os.urandom(20_000))
                    for n in range(100)
                )
            )
            await store.trim(before_ns=0, max_bytes=4_000_000)
            sizes.append(size_of(path))
        return sizes

    sizes = using(path, work)
    assert max(sizes[12:]) <= 1.5 * max(sizes[:12])
    assert max(sizes) < 40_000_000


class Small:
    """A disk that has room for so many bytes beside a folder's files."""

    def __init__(self, folder, free):
        self.folder = folder
        self.free = free + self.used

    @property
    def used(self):
        return sum(each.stat().st_blocks * 512 for each in self.folder.glob("*.segment"))

    def of(self, _):
        return Room(20 * 100_000, self.free - self.used)


def test_where_the_disk_is_short_the_oldest_go_by_whole_files_and_no_more(path, monkeypatch):
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 40_000)
    folder = Path(path + SUMMARIES)

    async def work(store):
        for n in range(30):
            await store.put(("h0", n, 0), n, n.to_bytes() * 10_000)
        disk = Small(folder, 30_000)  # 100,000 shall be free
        monkeypatch.setattr(store, "room", lambda: disk.of(None))
        first = await store.make_room(before_ns=1000)
        kept = [at for at, _ in await replayed(store)]
        assert store.room().short == 0
        assert store.room().free < 100_000 + 50_000
        assert kept == list(range(30 - len(kept), 30)[: len(kept)])
        assert (first.summaries, first.backups) == (30 - len(kept), 0)
        assert await store.make_room(before_ns=1000) == Freed()
        refused = await store.make_room(before_ns=1000, least=1)
        assert 0 < refused.summaries <= 5
        disk.free = 0
        last = await store.make_room(before_ns=20)
        left = [at for at, _ in await replayed(store)]
        assert last.summaries > 0
        assert left[-1] == 29
        assert set(range(20, 30)) <= set(left)
        assert await store.make_room(before_ns=20) == Freed()
        assert await store.put(("h0", 99, 0), 99, b"more")

    using(path, work)


def test_where_the_disk_is_short_backups_go_before_summaries(path, monkeypatch):
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 40_000)

    async def work(store):
        for n in range(12):
            await store.put(("h0", n, 0), n, n.to_bytes() * 10_000)
        for name in ("one", "two"):
            await store.back_up(name)
        rooms = [Room(2_000_000, 0), Room(2_000_000, 0), Room(2_000_000, 100_000)]
        monkeypatch.setattr(store, "room", lambda: rooms.pop(0) if len(rooms) > 1 else rooms[0])
        assert await store.make_room(before_ns=1000) == Freed(0, 2)
        assert len(await replayed(store)) == 12

    using(path, work)


def test_rows_whose_files_went_before_a_kill_go_with_the_next_ones(path, monkeypatch):
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 40_000)
    folder = Path(path + SUMMARIES)

    async def work(store):
        for n in range(20):
            await store.put(("h0", n, 0), n, n.to_bytes() * 10_000)
        (folder / f"{1:010d}.segment").unlink()
        await store.make_room(before_ns=1000, least=1)
        with structlog.testing.capture_logs() as logs:
            found = await replayed(store)
        assert logs == []
        assert [at for at, _ in found] == list(range(8, 20))

    using(path, work)


def test_only_recovered_incidents_are_dropped_with_age(path):
    async def work(store):
        old = [incident("open", updated_ns=1), incident("done", IncidentState.RECOVERED, 1)]
        await store.put_incidents([*old, incident("late", IncidentState.RECOVERED, 9)])
        await store.trim_incidents(5)
        return [i.id for i in await store.incidents()]

    assert using(path, work) == ["open", "late"]


def test_what_was_said_of_an_incident_is_kept_as_long_as_that(path):
    said = [Words(name, (Word("a", 1, right=True),)) for name in ("open", "done")]

    async def work(store):
        old = [incident("open", updated_ns=1), incident("done", IncidentState.RECOVERED, 1)]
        await store.put_incidents(old)
        for each in said:
            await store.put_words(Words(each.incident))
            await store.put_words(each)
        before = await store.words()
        await store.trim_incidents(5)
        return before, await store.words()

    before, after = using(path, work)
    assert sorted(before, key=lambda each: each.incident) == said[::-1]
    assert after == said[:1]


def test_one_bad_write_fails_alone(path):
    async def work(store):
        results = await asyncio.gather(
            store.put(("h0", 1, 0), 1, b""),
            store.put(("h0", 2**70, 0), 1, b""),
            store.put(("h0", 2, 0), 1, b""),
            return_exceptions=True,
        )
        return results, await store.usage()

    results, (kept, _) = using(path, work)
    assert (results[0], results[2], kept) == (True, True, 2)
    assert isinstance(results[1], Exception)


def test_a_caller_that_gave_up_stops_nobody(path):
    async def work(store):
        gone = asyncio.ensure_future(store.put(("h0", 1, 0), 1, b""))
        await asyncio.sleep(0)
        gone.cancel()
        return await store.put(("h0", 2, 0), 1, b"")

    assert using(path, work) is True


def test_a_closed_store_says_so(path):
    async def work(store):
        await store.close()
        with pytest.raises(CapabilityMissing):
            await store.put(("h0", 1, 0), 1, b"")

    using(path, work)


def test_a_payload_that_is_damaged_is_logged_and_the_others_are_read(path):
    async def work(store):
        for n in range(3):
            await store.put(("h0", n, 0), n, b"%d" % n)
        damage()
        return await replayed(store)

    def damage():
        [file] = Path(path + SUMMARIES).iterdir()
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)

    with structlog.testing.capture_logs() as logs:
        assert using(path, work) == [(0, b"0"), (2, b"2")]
    assert [line["event"] for line in logs] == ["summary_lost"]


def test_rows_that_cannot_be_read_are_set_aside_and_the_others_are_there(path):
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0")), 1)
    state, task = registry.export_host("h0"), Task("job", ("a0",), 1, (0,), declared=True)

    async def write(store):
        await store.put_host(state)
        await store.put_task(task)
        await store.put_incidents([incident()])

    async def read(store):
        everything = await store.hosts(), await store.tasks(), await store.incidents()
        return everything, await store.aside()

    using(path, write)
    bad = [("hosts", "h9", "{"), ("tasks", "t", '{"id": 7}'), ("tasks", "u", "[" * 9999)]
    with duckdb.connect(path) as connection:
        connection.execute("INSERT INTO hosts VALUES (?, ?)", bad[0][1:])
        connection.executemany("INSERT INTO tasks VALUES (?, ?)", [each[1:] for each in bad[1:]])
        connection.execute("INSERT INTO incidents VALUES ('i9', 'open', 1, 'null')")
    whole = ([state], [task], [incident()])
    with structlog.testing.capture_logs() as logs:
        assert using(path, read) == (whole, 4)
    assert {(each["event"], each["key"]) for each in logs} == {
        ("row_set_aside", key) for key in ("h9", "t", "u", "i9")
    }
    assert using(path, read) == (whole, 4)
    with duckdb.connect(path) as connection:
        kept = connection.execute("SELECT tbl, key, body FROM aside").fetchall()
        [(least_ns,)] = connection.execute("SELECT min(set_aside_ns) FROM aside").fetchall()
    assert sorted(kept) == sorted([*bad, ("incidents", "i9", "null")])
    assert least_ns > 0


def test_rows_that_can_be_neither_read_nor_moved_stay_and_the_start_goes_on(path, monkeypatch):
    using(path, lambda store: store.usage())
    with duckdb.connect(path) as connection:
        connection.execute("INSERT INTO tasks VALUES ('t', '{}')")

    async def read(store):
        return await store.tasks(), await store.aside()

    def refuse(*_):
        raise duckdb.IOException("No space left on device")

    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(tables, "set_aside", refuse)
        assert using(path, read) == ([], 0)
    assert [each["event"] for each in logs][-1] == "rows_not_moved"
    assert using(path, read) == ([], 1)


def test_work_that_fails_in_any_way_holds_up_nobody_else(path, monkeypatch):
    async def work(store):
        with monkeypatch.context() as patch:
            patch.setattr(store._writer, "_group", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await store.put(("h0", 0, 0), 1, b"")
        return await store.put(("h0", 1, 0), 1, b"")

    assert using(path, work) is True


# --- kill -9 --------------------------------------------------------------------------------------

WRITER = """
import asyncio, sys
from analyzer.store.manifest import SUMMARIES
from analyzer.store.space import Freed, Room
from analyzer.store.tables import Store

async def host(store, name, first):
    for n in range(first, first + 10**6):
        await store.put((name, n, 0), n, name.encode() * 500)
        print(name, n, flush=True)

async def main():
    store = Store(sys.argv[1])
    await asyncio.gather(*(host(store, f"h{i}", int(sys.argv[2])) for i in range(8)))

asyncio.run(main())
"""


def test_what_was_acknowledged_survives_kill_9(path):
    acknowledged = set()
    rng = random.Random(7)
    for life in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, path, str(life * 10**7)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        with writer:
            for _ in range(rng.randrange(20, 400)):
                acknowledged.add(tuple(writer.stdout.readline().split()))
            writer.send_signal(signal.SIGKILL)
            # A line cut short by the kill was not read whole: it acknowledged nothing.
            rest = [line for line in writer.stdout if line.endswith("\n")]
            acknowledged.update(tuple(line.split()) for line in rest)

    async def read(store):
        return [(payload[:2].decode(), str(at)) for at, payload in await replayed(store)]

    stored = using(path, read)
    assert len(acknowledged) > 80
    assert acknowledged <= set(stored)
    assert len(stored) == len(set(stored))
