# SPDX-License-Identifier: Apache-2.0

import msgspec
import pytest

from analyzer.history.files import HISTORY, Piece, Tier, What
from analyzer.judge.kept import BASELINES, ROUTES
from analyzer.store.manifest import DATABASE, KEPT, MANIFEST, NAME, Damaged, read, verified
from netagent.wire.codec import MAX_BODY_BYTES
from tests.analyzer.store import backups


@pytest.fixture
def made(tmp_path):
    return backups.made(tmp_path / "netagent.duckdb")


def test_a_backup_that_is_whole_is_verified(made):
    manifest = verified(made)
    assert manifest == read(made)
    assert manifest.summaries == 3
    assert manifest.bytes == sum(
        each.stat().st_size for each in made.rglob("*") if each.is_file() and each.name != MANIFEST
    )


def changed(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def shorter(path):
    data = path.read_bytes()
    path.unlink()  # not what it is a link to
    path.write_bytes(data[:-1])


@pytest.mark.parametrize("spoil", [changed, shorter, lambda path: path.unlink()])
def test_one_whose_database_is_damaged_is_told(made, spoil):
    spoil(made / DATABASE)
    with pytest.raises(Damaged, match=DATABASE):
        verified(made)


@pytest.mark.parametrize("spoil", [shorter, lambda path: path.unlink()])
def test_one_whose_payloads_are_not_all_there_is_told(made, spoil):
    [segment] = made.rglob("*.segment")
    spoil(segment)
    with pytest.raises(Damaged, match="segment"):
        verified(made)


@pytest.mark.parametrize(
    "name",
    [
        "../x", "/etc/passwd", "odd", f"{DATABASE}.summaries/../../x",
        f"{DATABASE}.history/minute/../04.pairs.parquet",
        f"{DATABASE}.history/hour/2026-11-26/04.pairs.parquet.half",
    ],
)  # fmt: skip
def test_one_that_names_files_of_others_is_told(made, name):
    plain = msgspec.json.decode((made / MANIFEST).read_bytes())
    plain["files"].append({"name": name, "bytes": 1})
    (made / MANIFEST).write_bytes(msgspec.json.encode(plain))
    with pytest.raises(Damaged, match="no place"):
        verified(made)


def test_one_without_a_database_is_told(made):
    plain = msgspec.json.decode((made / MANIFEST).read_bytes())
    plain["files"] = []
    (made / MANIFEST).write_bytes(msgspec.json.encode(plain))
    with pytest.raises(Damaged, match="no database"):
        verified(made)


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff"])
def test_what_is_no_manifest_is_told(made, body):
    (made / MANIFEST).write_bytes(body)
    with pytest.raises(Damaged, match="cannot be read"):
        read(made)
    with pytest.raises(Damaged, match="is no backup"):
        read(made.parent)


def test_all_that_the_judge_keeps_has_a_place(made):
    assert {f".{each.name}" for each in (BASELINES, ROUTES)} == set(KEPT)
    assert all(NAME.fullmatch(DATABASE + suffix) for suffix in ("", *KEPT))


def test_one_with_more_files_than_a_message_may_name_is_read(made):
    path = made / MANIFEST
    path.write_bytes(path.read_bytes() + b" " * MAX_BODY_BYTES)
    assert read(made).summaries == 3


def test_every_file_of_a_history_has_a_place():
    pieces = [Piece(tier, at_ns, what) for tier in Tier for what in What for at_ns in (0, 10**18)]
    assert all(NAME.fullmatch(f"{DATABASE}{HISTORY}/{each.path}") for each in pieces)
