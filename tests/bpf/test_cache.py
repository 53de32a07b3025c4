# SPDX-License-Identifier: Apache-2.0
import os

from bpf import cache
from bpf.cache import MAX_BYTES, MAX_FILES


def test_what_is_kept_comes_back(tmp_path):
    folder = tmp_path / "new"
    assert cache.get(folder, "a") is None
    cache.put(folder, "a", {"x": [1]})
    assert cache.get(folder, "a") == {"x": [1]}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_is_damaged_or_too_large_is_not_there(tmp_path):
    (tmp_path / "a.json").write_text("{")
    assert cache.get(tmp_path, "a") is None
    (tmp_path / "a.json").write_text(" " * MAX_BYTES + "{}")
    assert cache.get(tmp_path, "a") is None


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
