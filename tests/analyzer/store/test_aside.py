# SPDX-License-Identifier: Apache-2.0
import duckdb
import pytest

from analyzer.store import aside
from analyzer.store.aside import Unreadable, set_aside, sorted_out
from analyzer.store.opening import TABLES
from netagent.model.task import Task
from netagent.wire.codec import ContentType, encode


@pytest.fixture
def connection():
    with duckdb.connect() as made:
        made.execute(TABLES)
        yield made


def kept(connection):
    return connection.execute("SELECT key, set_aside_ns FROM aside ORDER BY key").fetchall()


def test_what_can_be_read_is_told_from_what_cannot():
    good = encode(Task("a"), ContentType.JSON).decode()
    found, unreadable = sorted_out("tasks", [("a", good), ("b", "{}"), ("c", "")], Task)
    assert found == [Task("a")]
    assert [(each.key, each.body) for each in unreadable] == [("b", "{}"), ("c", "")]
    assert all("no Task" in each.why for each in unreadable)


def test_of_more_rows_than_are_kept_the_oldest_go(connection, monkeypatch):
    monkeypatch.setattr(aside, "ASIDE_ROWS", 3)
    for now_ns, keys in ((1, "ab"), (2, "cd")):
        rows = [Unreadable("tasks", key, "{}", "odd") for key in keys]
        for key in keys:
            connection.execute("INSERT INTO tasks VALUES (?, '{}')", [key])
        set_aside(connection, rows, now_ns)
    assert kept(connection) == [("b", 1), ("c", 2), ("d", 2)]
    assert connection.execute("SELECT count(*) FROM tasks").fetchall() == [(0,)]


def test_only_the_row_that_is_meant_leaves_its_table(connection):
    connection.execute("INSERT INTO hosts VALUES ('a', '{}'), ('b', '{}')")
    connection.execute("INSERT INTO tasks VALUES ('a', '{}'), ('b', '{}')")
    connection.execute("INSERT INTO incidents VALUES ('a', 'open', 1, ''), ('b', 'open', 1, '')")
    connection.execute("INSERT INTO words VALUES ('a', '{}'), ('b', '{}')")
    connection.execute("INSERT INTO letters VALUES ('a', '{}'), ('b', '{}')")
    names = ("SELECT host FROM hosts", "SELECT id FROM tasks", "SELECT id FROM incidents",
             "SELECT incident FROM words", "SELECT key FROM letters")  # fmt: skip
    for n, (table, select) in enumerate(zip(aside.DELETES, names, strict=True)):
        set_aside(connection, [Unreadable(table, "a", "{}", "odd")], n)
        assert connection.execute(select).fetchall() == [("b",)]
        assert kept(connection) == [("a", each) for each in range(n + 1)]
