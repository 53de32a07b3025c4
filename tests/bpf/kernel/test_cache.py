# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

from bpf.kernel import cache
from bpf.kernel.cache import MAX_BYTES, MAX_FILES


def test_what_is_kept_comes_back(tmp_path):
    folder = tmp_path / "new"
    assert cache.get(folder, "a") is None
    cache.put(folder, "a", {"x": [1]})
    assert cache.get(folder, "a") == {"x": [1]}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_is_damaged_is_not_there(tmp_path):
    cache.put(tmp_path, "a", {"x": [1]})
    whole = (tmp_path / "a.json").read_bytes()
    for damaged in (b"", whole[:-1], whole.replace(b"1]", b"2]"), b"{}"):
        (tmp_path / "a.json").write_bytes(damaged)
        assert cache.get(tmp_path, "a") is None


def test_what_is_too_large_is_not_kept(tmp_path):
    cache.put(tmp_path, "a", "x" * MAX_BYTES)
    assert list(tmp_path.iterdir()) == []


def test_a_link_or_what_others_may_write_is_not_believed(tmp_path):
    kept, other = tmp_path / "kept", tmp_path / "other"
    cache.put(kept, "a", 1)
    cache.put(other, "a", 1)
    (kept / "b.json").symlink_to(other / "a.json")
    assert cache.get(kept, "b") is None
    (kept / "a.json").chmod(0o620)
    assert cache.get(kept, "a") is None
    (kept / "a.json").chmod(0o600)
    assert cache.get(kept, "a") == 1
    kept.chmod(0o777)
    assert cache.get(kept, "a") is None


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    cache.put(tmp_path, "a", 1)
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_give_way(tmp_path):
    for number in range(MAX_FILES + 2):
        cache.put(tmp_path, str(number), number)
        os.utime(tmp_path / f"{number}.json", (number, number))
    assert [cache.get(tmp_path, str(n)) for n in (0, 1, 2)] == [None, None, 2]


def test_a_folder_that_cannot_be_made_is_no_failure(tmp_path):
    (tmp_path / "file").write_text("")
    cache.put(tmp_path / "file" / "below", "a", 1)
    assert cache.get(tmp_path / "file" / "below", "a") is None


def test_what_another_user_wrote_is_not_believed(tmp_path, monkeypatch):
    cache.put(tmp_path, "a", 1)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert cache.get(tmp_path, "a") is None
