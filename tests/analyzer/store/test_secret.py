# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.store.secret import SECRET_BYTES, kept_secret


def test_it_is_made_once_and_its_owner_alone_reads_it(tmp_path):
    path = tmp_path / "probes.key"
    made = kept_secret(path)
    assert len(made) == SECRET_BYTES
    assert kept_secret(path) == made == path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert kept_secret(tmp_path / "another.key") != made
    assert sorted(each.name for each in tmp_path.iterdir()) == ["another.key", "probes.key"]


@pytest.mark.parametrize("content", [b"", b"x" * (SECRET_BYTES - 1), b"x" * (SECRET_BYTES + 1)])
def test_one_that_is_damaged_is_replaced(tmp_path, content):
    path = tmp_path / "probes.key"
    path.write_bytes(content)
    assert len(kept_secret(path)) == SECRET_BYTES
    assert kept_secret(path) == path.read_bytes()


def test_a_disk_that_refuses_is_no_reason_not_to_start(tmp_path):
    path = tmp_path / "none" / "probes.key"
    assert len(kept_secret(path)) == SECRET_BYTES
    assert not path.exists()
