# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from analyzer.store import opening as room
from analyzer.store.manifest import SUMMARIES
from analyzer.store.opening import SCHEMA
from analyzer.store.segments import Segments
from analyzer.store.tables import Store
from netagent.model.errors import ConfigError
from netagent.model.task import Task
from netagent.wire.codec import ContentType, deflated, encode
from netagent.wire.messages import SummaryHead
from tests.analyzer.store.test_tables import using


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "deep" / "netagent.duckdb")


async def replayed(store):
    return [item async for item in store.replay(0)]


def refusal(path):
    with pytest.raises(ConfigError) as caught:
        Store(path)
    return caught.value.message


def test_a_database_in_use_names_who_holds_it(path):
    script = "import sys, duckdb; c = duckdb.connect(sys.argv[1]); print(flush=True); input()"
    using(path, lambda store: store.usage())
    holder = subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        holder.stdout.readline()
        message = refusal(path)
        holder.stdin.close()
    assert f"PID {holder.pid}" in message
    assert "stop that one" in message


def test_a_file_that_is_no_database_is_left_alone(tmp_path):
    path = tmp_path / "x.duckdb"
    path.write_bytes(b"not a database" * 1000)
    assert "move it away" in refusal(str(path))
    assert path.read_bytes().startswith(b"not a database")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be created" in refusal(str(tmp_path / "file" / "x.duckdb"))


def test_a_database_of_another_schema_is_refused(path):
    using(path, lambda store: store.usage())
    with duckdb.connect(path) as connection:
        connection.execute("UPDATE meta SET schema = ?", [SCHEMA + 1])
        before = connection.execute("SHOW TABLES").fetchall()
        connection.execute("DROP TABLE aside")
    assert f"schema {SCHEMA + 1}" in refusal(path)
    with duckdb.connect(path) as connection:  # it is a later version's: nothing is made in it
        assert connection.execute("SHOW TABLES").fetchall() == [
            each for each in before if each != ("aside",)
        ]


OLD = """
CREATE TABLE meta (schema INTEGER NOT NULL);
INSERT INTO meta VALUES (1);
CREATE TABLE summaries (
    host VARCHAR NOT NULL, start_ns BIGINT NOT NULL, received_ns BIGINT NOT NULL,
    bytes BIGINT NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (host, start_ns));
CREATE TABLE tasks (id VARCHAR PRIMARY KEY, body VARCHAR NOT NULL);
"""


def test_a_database_of_the_first_version_is_moved_on_with_all_that_it_holds(path, monkeypatch):
    monkeypatch.setattr(room, "MOVE_BYTES", 5000)
    Path(path).parent.mkdir()
    rows = [("h0" if n % 2 else "h1", n, 100 + n // 3, 1000, b"%d" % n * 500) for n in range(40)]
    with duckdb.connect(path) as connection:
        connection.execute(OLD)
        connection.executemany("INSERT INTO summaries VALUES (?, ?, ?, ?, ?)", rows)
    for _ in range(2):
        found = using(path, replayed)
        assert sorted(found) == sorted((received_ns, body) for *_, received_ns, _, body in rows)
    assert using(path, lambda store: store.put(("h1", 0, 0), 999, b"again")) is False
    with duckdb.connect(path) as connection:
        names = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
    assert "summaries" not in names


SECOND = """
CREATE TABLE meta (schema INTEGER NOT NULL);
INSERT INTO meta VALUES (2);
CREATE TABLE windows (
    host VARCHAR NOT NULL, start_ns BIGINT NOT NULL, received_ns BIGINT NOT NULL,
    segment BIGINT NOT NULL, place BIGINT NOT NULL, bytes BIGINT NOT NULL,
    PRIMARY KEY (host, start_ns));
CREATE TABLE hosts (host VARCHAR PRIMARY KEY, body VARCHAR NOT NULL);
CREATE TABLE tasks (id VARCHAR PRIMARY KEY, body VARCHAR NOT NULL);
CREATE TABLE incidents (
    id VARCHAR PRIMARY KEY, state VARCHAR NOT NULL, updated_ns BIGINT NOT NULL,
    body VARCHAR NOT NULL);
CREATE TABLE versions (version INTEGER);
"""


@pytest.mark.parametrize("version", [2, 3])
def test_a_database_of_a_later_version_is_moved_on_with_all_that_it_holds(path, version):
    Path(path).parent.mkdir()
    task = Task("job", ("a0",), 1, (0,), declared=True)
    segments = Segments(Path(path + SUMMARIES))
    places = segments.places([3, 5])
    segments.write(list(zip(places, (b"one", b"three"), strict=True)))
    with duckdb.connect(path) as connection:
        connection.execute(SECOND)
        connection.execute("UPDATE meta SET schema = ?", [version])
        for n, place in enumerate(places):
            values = ["h0", n, 10 + n, place.segment, place.offset, place.length]
            connection.execute("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?)", values)
        body = encode(task, ContentType.JSON).decode()
        connection.execute("INSERT INTO tasks VALUES ('job', ?), ('odd', '{}')", [body])

    async def read(store):
        return await replayed(store), await store.tasks(), await store.aside()

    for _ in range(2):
        assert using(path, read) == ([(10, b"one"), (11, b"three")], [task], 1)
    with duckdb.connect(path) as connection:
        names = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
        assert connection.execute("SELECT schema FROM meta").fetchall() == [(SCHEMA,)]
    assert ("versions" in names) == (version == 3)  # version 3 has no such table by itself
    assert "windows_3" not in names
    assert using(path, lambda store: store.put(("h0", 0, 0), 99, b"again")) is False
    assert using(path, lambda store: store.put(("h0", 0, 1), 99, b"another life")) is True


def summary(start_ns):
    return SummaryHead(host="h0", instance="a", start_ns=start_ns, width_ns=5)


def of_the_third_version(path, summaries):
    Path(path).parent.mkdir()
    segments, bodies = Segments(Path(path + SUMMARIES)), [deflated(encode(s)) for s in summaries]
    places = segments.places(map(len, bodies))
    segments.write(list(zip(places, bodies, strict=True)))
    with duckdb.connect(path) as connection:
        connection.execute(SECOND)
        connection.execute("UPDATE meta SET schema = 3")
        for of, place in zip(summaries, places, strict=True):
            values = [of.host, of.start_ns, of.start_ns, place.segment, place.offset, place.length]
            connection.execute("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?)", values)


def of_the_first_version(path, summaries):
    Path(path).parent.mkdir()
    with duckdb.connect(path) as connection:
        connection.execute(OLD)
        for of in summaries:
            body = deflated(encode(of))
            values = [of.host, of.start_ns, of.start_ns, len(body), body]
            connection.execute("INSERT INTO summaries VALUES (?, ?, ?, ?, ?)", values)


@pytest.mark.parametrize("made", [of_the_first_version, of_the_third_version])
def test_what_was_stored_and_not_answered_before_a_move_is_known_after_it(path, made):
    stored = [summary(n * 10**9) for n in range(0, 300, 5)]
    made(path, stored)

    async def again(store):
        found = [await store.put(each.key, 400 * 10**9, b"again") for each in stored[-12:]]
        return found, len(await replayed(store))

    assert using(path, again) == ([False] * 12, len(stored))


def test_one_that_cannot_be_moved_on_stays_as_it_was(path, monkeypatch):
    Path(path).parent.mkdir()
    with duckdb.connect(path) as connection:
        connection.execute(OLD)
        connection.execute("INSERT INTO summaries VALUES ('h0', 5, 7, 1, 'x'::BLOB)")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: Path("/nowhere").stat())
        assert "free disk space" in refusal(path)
    assert using(path, replayed) == [(7, b"x")]
