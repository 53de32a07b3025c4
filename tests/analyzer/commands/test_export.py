# SPDX-License-Identifier: Apache-2.0
"""What `export` does with odd answers; a whole one is in tests/analyzer/server/test_history.py."""

import io
import re
from pathlib import Path

import duckdb
import pytest

import analyzer
from analyzer import cli
from analyzer.commands.connection import Connection, Refused
from analyzer.commands.export import EPILOG, _Chunks, _is_between
from tests.analyzer.store.backups import remembered

HOUR_NS = 3600 * 10**9
OPERATING = Path(analyzer.__file__).parents[1] / "docs" / "operating.md"


@pytest.mark.parametrize("chunks", [[], [b""], [b"abc", b"", b"d", b"efghij"], [b"x"] * 9])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_pieces_read_like_a_file(chunks, size):
    file = io.BufferedReader(_Chunks(iter(chunks)))
    assert b"".join(iter(lambda: file.read(size), b"")) == b"".join(chunks)


@pytest.mark.parametrize(
    ("detected_ns", "recovered_ns", "expected"),
    [(5, None, True), (5, 9, False), (5, 10, True), (19, None, True), (20, None, False)],
)
def test_incidents_that_were_open_at_some_time_between_are_meant(
    detected_ns, recovered_ns, expected
):
    incident = {"detected_ns": detected_ns, "recovered_ns": recovered_ns}
    assert _is_between(incident, (10, 20)) is expected


def answering(monkeypatch, *names):
    """Let an analyzer list files of these names, each of which holds its name."""
    monkeypatch.setattr(Connection, "all", lambda *_, **__: {"files": list(names)})
    monkeypatch.setattr(Connection, "fetch", lambda _, path: path.encode())


def test_an_answer_does_not_say_where_to_write(tmp_path, monkeypatch, capsys):
    answering(monkeypatch, "../../etc/passwd")
    words = ["export", "--since", "1h", "-o", str(tmp_path / "out"), "--only", "minute"]
    assert cli.main(words) == 3
    assert "no file of a history" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_an_analyzer_that_cannot_be_reached_leaves_no_folder(tmp_path, is_there):
    out = tmp_path / "a" / "out"
    if is_there:
        out.mkdir(parents=True)
    words = ["export", "--since", "1h", "-o", str(out), "--url", "http://127.0.0.1:1"]
    assert cli.main(words) == 3
    assert out.exists() == out.parent.exists() == is_there


def test_files_are_copied_to_where_the_analyzer_has_them(tmp_path, monkeypatch, capsys):
    name = "hour/2026-11-26/04.pairs.parquet"
    answering(monkeypatch, name)
    words = ["export", "--since", "1h", "-o", str(tmp_path), "--only", "hour"]
    assert cli.main(words) == 0
    assert "1 hour files" in capsys.readouterr().out
    assert (tmp_path / name).read_text() == f"/v1/history/files/{name}"
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_minutes_that_are_put_together_while_they_are_copied_come_once(
    tmp_path, monkeypatch, capsys
):
    """The first is copied, then both become a pack, and the second is gone."""
    first, second, pack = (f"minute/2026-11-26/{n}.pairs.parquet" for n in ("0415", "0416", "04"))
    listed = [[first, second], [pack]]
    monkeypatch.setattr(Connection, "all", lambda *_, **__: {"files": listed.pop(0)})

    def fetch(_, path):
        if path.endswith(second):
            raise Refused(404, "no file", "")
        return path.encode()

    monkeypatch.setattr(Connection, "fetch", fetch)
    words = ["export", "--since", "1h", "-o", str(tmp_path), "--only", "minute"]
    assert cli.main(words) == 0
    assert "1 minute files" in capsys.readouterr().out
    assert [str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*.parquet")] == [pack]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EPILOG, [("switch x", 1), ("link x -- y", 0)]),
        (OPERATING.read_text(), [("link x -- y", 0, 10)]),
    ],
)
def test_the_queries_that_are_shown_can_be_made(tmp_path, monkeypatch, text, expected):
    query, *more = re.findall(r'duckdb -c "([^"]+)"', text)
    monkeypatch.chdir(tmp_path)
    files = remembered(tmp_path / "analyzer.duckdb", [0, HOUR_NS])
    answering(monkeypatch, *(name for name in files if name.startswith("hour/")))
    monkeypatch.setattr(Connection, "fetch", lambda _, path: files[path.split("/", 4)[4]])
    assert cli.main(["export", "--since", "1h", "-o", "week", "--only", "hour"]) == 0
    assert duckdb.sql(query).fetchall() == expected
    for each in more:
        assert len(duckdb.sql(re.sub(r"\d{4}-\d\d-\d\d", "*", each)).fetchall()) == 1


@pytest.mark.parametrize(
    "words", [["--since", "1h", "--until", "2h"], ["--since", "never"], ["--since", "1h"]]
)
def test_what_cannot_be_is_refused(tmp_path, words, capsys):
    (tmp_path / "file").touch()
    assert cli.main(["export", *words, "-o", str(tmp_path / "file" / "out")]) == 2
