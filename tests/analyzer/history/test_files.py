# SPDX-License-Identifier: Apache-2.0

from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.history.files import Piece, Tier, What, due, excess, packable

SECOND = 10**9
HOUR_NS = 3600 * SECOND
AT_NS = 1_795_666_500 * SECOND  # 2026-11-26 04:15 UTC


@pytest.mark.parametrize(
    ("tier", "start_ns", "path", "pack"),
    [
        (Tier.MINUTE, AT_NS, "minute/2026-11-26/0415.pairs.parquet", "04.pairs.parquet"),
        (
            Tier.HOUR, AT_NS - 900 * SECOND, "hour/2026-11-26/04.pairs.parquet",
            "day.pairs.parquet",
        ),
    ],
)  # fmt: skip
def test_a_file_is_named_for_its_time_in_utc(tier, start_ns, path, pack):
    piece = Piece(tier, start_ns, What.PAIRS)
    assert piece.path == PurePath(path)
    assert piece.pack.path == PurePath(path).with_name(pack)
    assert piece.pack.start_ns <= start_ns < piece.pack.until_ns
    assert piece.pack.until_ns - piece.pack.newest_ns == tier.width_ns


@given(st.sampled_from(Tier), st.integers(0, 10**6), st.sampled_from(What))
def test_what_a_file_holds_is_read_from_its_name(tier, number, what):
    piece = Piece(tier, number * tier.width_ns, what)
    assert Piece.of(piece.path) == piece
    assert Piece.of(piece.pack.path) == piece.pack == piece.pack.pack


@pytest.mark.parametrize(
    "path",
    [
        "minute/2026-11-26/0415.pairs.parquet.half",
        "minute/2026-11-26/415.pairs.parquet",
        "minute/2026-11-26/0415.routes.parquet",
        "minute/2026-13-26/0415.pairs.parquet",
        "hour/2026-11-26/0415.pairs.parquet",
        "minute/2026-11-26/day.pairs.parquet",
        "hour/2026-11-26/DAY.pairs.parquet",
        "day/2026-11-26/04.pairs.parquet",
        "0415.pairs.parquet",
        "spill/duckdb_temp_block/1",
    ],
)
def test_other_files_are_none_of_ours(path):
    assert Piece.of(PurePath(path)) is None


def test_an_hour_is_due_once_a_minute_of_a_later_one_is_written():
    minutes = [HOUR_NS - 60 * SECOND, HOUR_NS, HOUR_NS + 60 * SECOND, 3 * HOUR_NS]
    assert due(minutes, [], HOUR_NS - 60 * SECOND) == []
    assert due(minutes, [], HOUR_NS) == [0]
    assert due(minutes, [0], 3 * HOUR_NS) == [HOUR_NS]
    assert due(minutes, [], 3 * HOUR_NS) == [0, HOUR_NS]
    assert due(minutes, [HOUR_NS], 3 * HOUR_NS) == []  # the first one was deleted
    assert due(minutes, [9 * HOUR_NS], HOUR_NS) == [0]  # a clock was ahead


@given(
    st.dictionaries(st.integers(0, 100), st.integers(1, 50), max_size=20),
    st.integers(0, 500),
    st.integers(0, 100),
)
def test_the_oldest_go_and_no_more_than_has_to(sizes, max_bytes, before_ns):
    gone = excess(sizes, max_bytes=max_bytes, before_ns=before_ns)
    assert list(gone) == sorted(sizes)[: len(gone)]
    left = {start: size for start, size in sizes.items() if start not in gone}
    assert len(left) >= min(1, len(sizes))
    if len(left) > 1:
        assert sum(left.values()) <= max_bytes
        assert min(left) >= before_ns
    if gone:  # the last one had to
        last = gone[-1]
        assert last < before_ns or sum(left.values()) + sizes[last] > max_bytes


def test_a_pack_is_due_once_a_later_minute_is_written_and_the_newest_comes_first():
    minutes = [Piece(Tier.MINUTE, n * HOUR_NS, What.PAIRS) for n in (1, 2, 3)]
    packs = [each.pack for each in minutes]
    assert packable(minutes, [], 2 * HOUR_NS - 60 * SECOND) == []
    assert packable(minutes, [], 2 * HOUR_NS) == packs[:1]
    assert packable(minutes, [], 3 * HOUR_NS) == [packs[1], packs[0]]
    assert packable(minutes[:1], packs, HOUR_NS) == packs[:1]  # it came after its pack
    assert packable([], packs, 9 * HOUR_NS) == []
    hour = Piece(Tier.HOUR, 23 * HOUR_NS, What.PAIRS)
    assert packable([hour], [], 24 * HOUR_NS - 60 * SECOND) == []
    assert packable([hour], [], 24 * HOUR_NS) == [Piece(Tier.HOUR, 0, What.PAIRS, packed=True)]
