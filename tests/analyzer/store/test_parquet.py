# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from analyzer.store import parquet as module
from analyzer.store.parquet import HALF, Parquet, names_of
from netagent.model.errors import CapabilityMissing, RemoteProtocolError

QUERY = "SELECT list_extract($names::VARCHAR[], place + 1) AS name, number FROM columns"
READ = "SELECT name, number FROM read_parquet($files) ORDER BY number"


@pytest.fixture
def parquet(tmp_path):
    with Parquet(tmp_path / "spill") as opened:
        yield opened


def write(parquet, path, numbers=(1, 2, 3)):
    columns = {
        "place": np.arange(len(numbers)) % 2,
        "number": np.array(numbers, np.uint32),
    }
    return parquet.write(path, QUERY, {"names": ["it's", "b"]}, {"columns": columns})


def read(parquet, *paths):
    return parquet.rows(READ, {"files": names_of(paths)})


def test_columns_and_names_come_back_as_rows(parquet, tmp_path):
    path = tmp_path / "day's [1]*" / "a.parquet"
    assert write(parquet, path) == path.stat().st_size
    assert read(parquet, path) == [("it's", 1), ("b", 2), ("it's", 3)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["a.parquet"]


def test_no_name_of_a_file_is_a_pattern(parquet, tmp_path):
    write(parquet, tmp_path / "a.parquet")
    with pytest.raises(RemoteProtocolError):
        read(parquet, tmp_path / "*.parquet")


def test_a_disk_that_refuses_leaves_the_file_that_was(parquet, tmp_path):
    path = tmp_path / "a.parquet"
    write(parquet, path)
    (tmp_path / f"a.parquet{HALF}").symlink_to("/dev/full")
    with pytest.raises(CapabilityMissing, match="free disk space"):
        write(parquet, path, (7, 8))
    assert len(read(parquet, path)) == 3
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]
    write(parquet, path, (7, 8))
    assert len(read(parquet, path)) == 2


def test_a_folder_that_cannot_be_made_is_a_disk_that_refuses(parquet, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CapabilityMissing, match="free disk space"):
        write(parquet, tmp_path / "file" / "a.parquet")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-50],
        lambda data: b"",
        lambda data: data[:40] + b"\xff" * 400 + data[440:],
        lambda data: b"PAR1",
    ],
    ids=["cut", "empty", "in the middle", "no more than its begin"],
)
def test_damage_is_told(parquet, tmp_path, damage):
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    write(parquet, good, range(1000))
    bad.write_bytes(damage(good.read_bytes()))
    assert parquet.is_whole(good)
    assert not parquet.is_whole(bad)
    assert not parquet.is_whole(tmp_path / "none.parquet")
    with pytest.raises(RemoteProtocolError):
        read(parquet, good, bad)
    copy = "SELECT * FROM read_parquet($files)"
    with pytest.raises(RemoteProtocolError):
        parquet.write(tmp_path / "all.parquet", copy, {"files": names_of([good, bad])})
    assert not (tmp_path / "all.parquet").exists()


def test_more_than_fits_into_memory_is_spilled(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MEMORY_LIMIT", "32MB")
    path = tmp_path / "a.parquet"
    query = "SELECT hash(range) AS name, range AS number FROM range($rows) ORDER BY name"
    with Parquet(tmp_path / "spill") as parquet:
        parquet.write(path, query, {"rows": 2_500_000})
        count = parquet.rows("SELECT count(*) FROM read_parquet($files)", {"files": str(path)})
    assert count == [(2_500_000,)]


def test_what_takes_long_can_be_interrupted(parquet):
    parquet.interrupt()  # nothing is under way
    assert parquet.rows("SELECT 1", {}) == [(1,)]


def test_what_is_known_of_groups_of_rows_is_of_as_many_as_is_said(parquet, tmp_path):
    path, query = tmp_path / "a.parquet", "SELECT range AS number FROM range(10000)"
    for said, groups in (({}, 2), ({"group_rows": 4096}, 3)):
        parquet.write(path, query, {}, **said)
        [(found,)] = parquet.rows(
            "SELECT num_row_groups FROM parquet_file_metadata($files)", {"files": str(path)}
        )
        assert found == groups
