# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import msgspec
import pytest

from analyzer.store.backup import beside
from analyzer.store.manifest import MANIFEST, Damaged
from analyzer.store.opening import RESTORING, SCHEMA
from analyzer.store.restore import restore
from analyzer.store.tables import Store
from netagent.model.errors import ConfigError
from tests.analyzer.history.tables import MINUTE_NS
from tests.analyzer.store import backups

HELD = [b"one", b"two", b"three"]
NOW_NS = 1_795_154_400 * 10**9


@pytest.fixture
def backup(tmp_path):
    return backups.made(tmp_path / "netagent.duckdb")


@pytest.fixture
def other(tmp_path):
    """Return where a database with something else is."""
    path = tmp_path / "other.duckdb"
    backups.filled(path, b"other")
    beside(path, ".routes").write_bytes(b"routes of the other")
    return path


def test_a_backup_is_put_where_nothing_was_and_may_be_put_there_again(backup, tmp_path):
    database = tmp_path / "new" / "x.duckdb"
    done = restore(backup, database, replace=False, now_ns=NOW_NS)
    assert (done.database, done.replaced, done.manifest.summaries) == (database, None, 3)
    assert backups.held(database) == HELD
    assert not beside(database, RESTORING).exists()
    backups.filled(database, b"again", b"again", b"again", b"more")
    assert backups.held(database) == [*HELD, b"more"]
    again = restore(backup, database, replace=True, now_ns=NOW_NS)
    assert backups.held(database) == HELD
    assert backups.held(again.replaced) == [*HELD, b"more"]


def test_it_survives_the_loss_of_what_it_is_a_copy_of(backup, tmp_path):
    away = tmp_path / "away"
    shutil.copytree(backup, away)
    for left in tmp_path.glob("netagent.duckdb*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    restore(away, tmp_path / "netagent.duckdb", replace=False, now_ns=NOW_NS)
    assert backups.held(tmp_path / "netagent.duckdb") == HELD


def test_what_is_there_is_moved_aside_whole_if_that_is_asked_for(backup, other):
    with pytest.raises(ConfigError, match="--replace"):
        restore(backup, other, replace=False, now_ns=NOW_NS)
    assert backups.held(other) == [b"other"]
    done = restore(backup, other, replace=True, now_ns=NOW_NS)
    assert done.replaced.name == "other.duckdb.replaced-20261120T060000Z"
    assert backups.held(done.replaced) == [b"other"]
    assert beside(done.replaced, ".routes").read_bytes() == b"routes of the other"
    assert not beside(other, ".routes").exists()
    assert backups.held(other) == HELD
    with pytest.raises(ConfigError, match="run this again"):
        restore(backup, other, replace=True, now_ns=NOW_NS)


def test_what_a_killed_analyzer_had_only_in_its_log_stays_with_it(backup, other):
    script = (
        "import sys, os, duckdb; c = duckdb.connect(sys.argv[1]); "
        "c.execute(sys.argv[2]); os._exit(0)"
    )
    sql = "INSERT INTO tasks VALUES ('late', '{}')"
    subprocess.run([sys.executable, "-c", script, str(other), sql], check=True)
    assert beside(other, ".wal").exists()
    done = restore(backup, other, replace=True, now_ns=NOW_NS)
    assert not beside(other, ".wal").exists()
    with duckdb.connect(str(done.replaced)) as connection:
        assert connection.execute("SELECT id FROM tasks").fetchall() == [("late",)]


def test_a_database_in_use_is_refused_and_left_alone(backup, other):
    script = "import sys, duckdb; c = duckdb.connect(sys.argv[1]); print(flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(other)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        holder.stdout.readline()
        with pytest.raises(ConfigError, match="in use"):
            restore(backup, other, replace=True, now_ns=NOW_NS)
        holder.stdin.close()
    assert backups.held(other) == [b"other"]


def test_a_damaged_backup_and_one_of_a_later_version_change_nothing(backup, other):
    plain = msgspec.json.decode((backup / MANIFEST).read_bytes())
    (backup / MANIFEST).write_bytes(msgspec.json.encode({**plain, "schema": SCHEMA + 1}))
    with pytest.raises(ConfigError, match="update netagent"):
        restore(backup, other, replace=True, now_ns=NOW_NS)
    (backup / MANIFEST).unlink()
    with pytest.raises(Damaged):
        restore(backup, other, replace=True, now_ns=NOW_NS)
    assert backups.held(other) == [b"other"]


def test_history_is_replaced_with_the_rest_and_moved_aside(tmp_path, other):
    """A backup of a version that left it out is restored without any."""
    path = tmp_path / "netagent.duckdb"
    without = backups.made(path)
    mine = backups.remembered(path, [0])
    backup, _ = backups.using(path, lambda store: store.back_up("two"))
    theirs = backups.remembered(other, [10**18 // MINUTE_NS * MINUTE_NS])
    first = restore(backup, other, replace=True, now_ns=NOW_NS)
    assert backups.history(other) == mine
    assert {p.stat().st_mode & 0o777 for p in beside(other, ".history").rglob("*/")} == {0o700}
    assert backups.history(first.replaced) == theirs
    second = restore(without, other, replace=True, now_ns=NOW_NS + 10**9)
    assert backups.history(second.replaced) == mine
    assert not beside(other, ".history").exists()


class Killed(BaseException):
    """Ends a restore where it is."""


def test_a_kill_at_any_step_leaves_a_restore_that_can_be_run_again(tmp_path, monkeypatch):
    """Until it is, no analyzer starts beside what is half there, and nothing is lost."""
    backup = backups.made(tmp_path / "netagent.duckdb")
    rename, survived = Path.rename, 0
    for step in range(9):
        other, left = tmp_path / f"{step}.duckdb", [step]

        def killed(path, to, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return rename(path, to)

        backups.filled(other, b"other")
        beside(other, ".routes").write_bytes(b"routes")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", killed)
            with contextlib.suppress(Killed):
                restore(backup, other, replace=True, now_ns=NOW_NS)
                survived += 1
        if left[0] < 0:
            with pytest.raises(ConfigError, match="not finished"):
                Store(str(other))
            restore(backup, other, replace=False, now_ns=NOW_NS + 10**9)
        assert backups.held(other) == HELD
        aside = list(tmp_path.glob(f"{step}.duckdb.replaced-*"))
        assert sum(each.suffix == ".routes" for each in aside) == 1
        assert any(each.name.endswith("Z") for each in aside)
    assert 0 < survived < 9  # the last steps are after the last rename


def test_a_disk_that_refuses_says_what_to_do(backup, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy2", refuse)
        with pytest.raises(ConfigError, match="No space left"):
            restore(backup, tmp_path / "x.duckdb", replace=False, now_ns=NOW_NS)
    restore(backup, tmp_path / "x.duckdb", replace=False, now_ns=NOW_NS)
    assert backups.held(tmp_path / "x.duckdb") == HELD


def test_what_is_restored_belongs_to_whoever_the_backup_belongs_to(backup, tmp_path, monkeypatch):
    owned = {}
    monkeypatch.setattr(os, "chown", lambda path, *who: owned.update({path.name: who}))
    restore(backup, tmp_path / "x.duckdb", replace=False, now_ns=NOW_NS)
    of = (backup / "netagent.duckdb").stat()
    assert owned["netagent.duckdb"] == (of.st_uid, of.st_gid)
    assert len(owned) == 3  # and the folder, and the file in it
