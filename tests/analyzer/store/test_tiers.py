# SPDX-License-Identifier: Apache-2.0

from dataclasses import replace
from pathlib import PurePath

import numpy as np
import pytest
import structlog

from analyzer.config import History
from analyzer.history.files import TRIPS, Piece, Tier, What
from analyzer.history.spread import NOTHING, RATIO
from analyzer.store import rows as store_rows
from analyzer.store.parquet import GROUP_ROWS, HALF, MANY_GROUP_ROWS, names_of
from analyzer.store.past import Wanted, page
from analyzer.store.tiers import Tiers
from netagent.model.errors import CapabilityMissing
from tests.analyzer.history.tables import MINUTE_NS, block

HOUR_NS = 60 * MINUTE_NS
START_NS = 490_000 * HOUR_NS


def opened(tmp_path, **keep):
    made = Tiers(str(tmp_path / "db"), History(**keep))
    return made, made.begin(START_NS + HOUR_NS)


def files(tmp_path):
    root = tmp_path / "db.history"
    return sorted(str(each.relative_to(root)) for each in root.rglob("*") if each.is_file())


def rows(tiers, tmp_path, piece):
    """Return the rows of a file, or those that have become a part of a pack."""
    if not (tmp_path / "db.history" / piece.path).exists():
        found = rows(tiers, tmp_path, piece.pack)
        return [row for row in found if row[0] == piece.start_ns]
    path = tmp_path / "db.history" / piece.path
    return tiers._parquet.rows("SELECT * FROM read_parquet($files)", {"files": names_of([path])})


def about(ns):
    """Return what a quantile of components is told as, within the bucket."""
    return pytest.approx(ns, rel=RATIO - 1)


def test_a_minute_is_four_files_under_its_day(tmp_path):
    tiers, until_ns = opened(tmp_path)
    assert until_ns == 0
    tiers.put(block(START_NS))
    pieces = {what: Piece(Tier.MINUTE, START_NS, what) for what in What}
    assert files(tmp_path) == sorted(str(each.path) for each in pieces.values())
    quantiles = [1_000] * 3
    assert rows(tiers, tmp_path, pieces[What.PAIRS]) == [
        (START_NS, 12, "a/rail0", "b/rail0", 10, 0, 0, 5, 1_000, 1_000, 1_000, *quantiles),
        (START_NS, 12, "c/rail0", "a/rail0", 20, 1, 0, 0, 0, 0, 0, None, None, None),
    ]
    one, other = rows(tiers, tmp_path, pieces[What.COMPONENTS])
    assert one[:8] == (START_NS, 12, "link x -- y", 10, 0, 0, 5, 1_000)
    assert one[8:] == tuple(about(ns) for ns in quantiles)
    assert other == (START_NS, 12, "switch x", 20, 1, 0, 0, 0, None, None, None)
    [trips] = rows(tiers, tmp_path, pieces[What.PAIR_TRIPS])
    assert trips == (START_NS, "a/rail0", "b/rail0", [bucket(1_000)], [5])
    [trips] = rows(tiers, tmp_path, pieces[What.COMPONENT_TRIPS])
    assert trips == (START_NS, "link x -- y", [bucket(1_000)], [5])
    path = tmp_path / "db.history" / pieces[What.PAIRS].path
    query = "SELECT * FROM parquet_kv_metadata($files)"
    assert tiers._parquet.rows(query, {"files": str(path)}) == [
        (str(path), b"netagent_history", b"2")
    ]
    assert opened(tmp_path)[1] == START_NS + MINUTE_NS


@pytest.mark.parametrize(
    ("more", "largest"), [(0, GROUP_ROWS), (1, MANY_GROUP_ROWS)], ids=["a part", "more"]
)
def test_a_minute_of_many_rows_has_them_in_larger_groups(tmp_path, more, largest):
    tiers, _ = opened(tmp_path)
    made = block(START_NS)
    which = np.sort(np.arange(store_rows.PART_ROWS + more) % len(made.pairs))
    keys, columns = (
        {name: each[which] for name, each in some.items()}
        for some in (made.pairs.keys, made.pairs.columns)
    )
    pairs = replace(made.pairs, keys=keys, columns=columns, spread=NOTHING)
    tiers.put(replace(made, pairs=pairs))
    path = tmp_path / "db.history" / Piece(Tier.MINUTE, START_NS, What.PAIRS).path
    query = "SELECT max(row_group_num_rows) FROM parquet_metadata($files)"
    assert tiers._parquet.rows(query, {"files": str(path)}) == [(largest,)]


def test_minutes_of_a_clock_that_was_ahead_do_not_count_at_a_restart(tmp_path):
    tiers, _ = opened(tmp_path)
    tiers.put(block(START_NS))
    tiers.put(block(START_NS + 9 * HOUR_NS))
    assert opened(tmp_path)[1] == START_NS + MINUTE_NS


@pytest.mark.parametrize("at_a_time", [store_rows.PART_ROWS, 1], ids=["at once", "in parts"])
def test_an_hour_is_its_minutes_added_up_once_it_is_over(tmp_path, monkeypatch, at_a_time):
    monkeypatch.setattr(store_rows, "PART_ROWS", at_a_time)
    tiers, _ = opened(tmp_path)
    tiers.put(block(START_NS, rtt=(1_000, 0)))
    tiers.put(block(START_NS + 59 * MINUTE_NS, rtt=(100_000, 7_000), windows=11))
    hour = Piece(Tier.HOUR, START_NS, What.PAIRS)
    assert str(hour.path) not in files(tmp_path)
    tiers.put(block(START_NS + HOUR_NS))
    one, other = rows(tiers, tmp_path, hour)
    assert one[:11] == (START_NS, 23, "a/rail0", "b/rail0", 20, 0, 0, 10, 1_000, 10_000, 100_000)
    assert one[11:] == (about(1_000), about(100_000), about(100_000))
    assert other == (
        START_NS, 23, "c/rail0", "a/rail0", 40, 2, 0, 5, 7_000, 7_000, 7_000, *[7_000] * 3,
    )  # fmt: skip
    component = rows(tiers, tmp_path, Piece(Tier.HOUR, START_NS, What.COMPONENTS))[0]
    assert component[:8] == (START_NS, 23, "link x -- y", 20, 0, 0, 10, 10_000)
    assert component[8:] == (about(1_000), about(100_000), about(100_000))
    [trips, _] = rows(tiers, tmp_path, Piece(Tier.HOUR, START_NS, What.PAIR_TRIPS))
    assert dict(zip(*trips[3:], strict=True)) == {bucket(1_000): 5, bucket(100_000): 5}
    assert not [name for name in files(tmp_path) if HALF in name]


def bucket(ns):
    return int(np.ceil(np.log(ns) / np.log(RATIO)))


def test_of_minutes_of_the_format_before_quantiles_are_not_known_and_all_else_is(tmp_path):
    """An hour of which half was written before an upgrade, and one all of which was."""
    tiers, _ = opened(tmp_path)
    for n in (0, 1, 60, 61):
        tiers.put(block(START_NS + n * MINUTE_NS, spread=n == 1))
        if n != 1:
            before(tiers, tmp_path, START_NS + n * MINUTE_NS)
    tiers.put(block(START_NS + 2 * HOUR_NS))
    for n in range(2):
        hour = Piece(Tier.HOUR, START_NS + n * HOUR_NS, What.PAIRS)
        assert rows(tiers, tmp_path, hour)[0] == (
            hour.start_ns, 24, "a/rail0", "b/rail0", 20, 0, 0, 10, 1_000, 1_000, 1_000,
            None, None, None,
        )  # fmt: skip
        hour = Piece(Tier.HOUR, START_NS + n * HOUR_NS, What.COMPONENTS)
        assert rows(tiers, tmp_path, hour)[0][6:] == (10, 1_000, None, None, None)
    minutes = Wanted(Tier.MINUTE, START_NS, START_NS + HOUR_NS, source="a/rail0", target="b/rail0")
    found = page(str(tmp_path / "db"), minutes, None, 9).rows
    assert [row["rtt_p50_ns"] for row in found] == [None, 1_000]
    old = Wanted(Tier.MINUTE, START_NS, START_NS + MINUTE_NS, component="link x -- y")
    [row] = page(str(tmp_path / "db"), old, None, 9).rows
    assert (row["rtt_mean_ns"], row["rtt_p99_ns"]) == (1_000, None)


def before(tiers, tmp_path, start_ns):
    """Write a minute's files anew as an analyzer wrote them that knew no quantiles."""
    for what in (What.PAIRS, What.COMPONENTS):
        path = tmp_path / "db.history" / Piece(Tier.MINUTE, start_ns, what).path
        query = "SELECT * EXCLUDE (rtt_p50_ns, rtt_p90_ns, rtt_p99_ns) FROM read_parquet($files)"
        tiers._parquet.write(path, query, {"files": names_of([path])})


def test_histograms_of_minutes_are_kept_for_a_day_and_quantiles_longer(tmp_path):
    tiers, _ = opened(tmp_path)
    for day in range(3):
        tiers.put(block(START_NS + 24 * day * HOUR_NS))
    kept = {what: len(starts(tiers, Tier.MINUTE, what)) for what in What}
    assert kept == {
        What.PAIRS: 3, What.COMPONENTS: 3, What.PAIR_TRIPS: 2, What.COMPONENT_TRIPS: 2,
    }  # fmt: skip
    assert len(starts(tiers, Tier.HOUR, What.PAIR_TRIPS)) == 2
    assert len(files(tmp_path)) == len(everything(tiers))


def everything(tiers):
    return [each for tier in Tier for each in tiers._all(tier)]


def starts(tiers, tier, what=What.PAIRS):
    return sorted(each.start_ns for each in tiers._all(tier) if each.what is what)


def test_a_damaged_histogram_costs_its_hour_the_quantiles_alone(tmp_path):
    tiers, _ = opened(tmp_path)
    for n in range(2):
        tiers.put(block(START_NS + n * MINUTE_NS))
    (tmp_path / "db.history" / Piece(Tier.MINUTE, START_NS, What.PAIR_TRIPS).path).write_bytes(b"")
    with structlog.testing.capture_logs() as logs:
        tiers.put(block(START_NS + HOUR_NS))
    assert [line["event"] for line in logs] == ["history_damaged"]
    row = rows(tiers, tmp_path, Piece(Tier.HOUR, START_NS, What.PAIRS))[0]
    assert (row[1], row[7], *row[11:]) == (24, 10, None, None, None)


def test_an_hour_under_way_at_a_restart_is_made_of_what_both_runs_wrote(tmp_path):
    opened(tmp_path)[0].put(block(START_NS))
    tiers, until_ns = opened(tmp_path)
    assert until_ns == START_NS + MINUTE_NS
    tiers.put(block(START_NS + MINUTE_NS))
    tiers.put(block(START_NS + HOUR_NS))
    assert rows(tiers, tmp_path, Piece(Tier.HOUR, START_NS, What.PAIRS))[0][1:5] == (
        24, "a/rail0", "b/rail0", 20,
    )  # fmt: skip


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"PAR1"), lambda p: p.unlink()])
def test_a_damaged_minute_is_left_out_of_its_hour_logged_and_counted(tmp_path, damage):
    tiers, _ = opened(tmp_path)
    for n in range(3):
        tiers.put(block(START_NS + n * MINUTE_NS))
    damage(tmp_path / "db.history" / Piece(Tier.MINUTE, START_NS, What.PAIRS).path)
    with structlog.testing.capture_logs() as logs:
        for n in (60, 61):
            tiers.put(block(START_NS + n * MINUTE_NS))
    assert [line["event"] for line in logs] == ["history_damaged"]
    assert tiers.counts.damaged == 1
    hour = Piece(Tier.HOUR, START_NS, What.PAIRS)
    assert rows(tiers, tmp_path, hour)[0][1] == 24
    components = Piece(Tier.HOUR, START_NS, What.COMPONENTS)
    assert rows(tiers, tmp_path, components)[0][1] == 36


def test_an_hour_of_which_nothing_can_be_read_is_not_tried_again(tmp_path):
    tiers, _ = opened(tmp_path)
    tiers.put(block(START_NS))
    for what in What:
        path = tmp_path / "db.history" / Piece(Tier.MINUTE, START_NS, what).path
        path.write_bytes(b"")
    with structlog.testing.capture_logs() as logs:
        for n in (60, 61):
            tiers.put(block(START_NS + n * MINUTE_NS))
    assert [line["event"] for line in logs] == ["history_damaged"] * len(What)
    assert not any(each.startswith("hour") for each in files(tmp_path))


def test_the_oldest_minutes_go_first_and_their_days_with_them(tmp_path):
    size = (1 << 20) // 3
    tiers, _ = opened(tmp_path, minute_bytes=1 << 20)
    for day in range(4):
        tiers.put(block(START_NS + 24 * day * HOUR_NS, spread=False))
        for sizes in (*tiers._sizes.values(), *tiers._packs.values()):
            sizes.update(dict.fromkeys(sizes, size))  # as if they were as large
        tiers._trim(START_NS + 24 * day * HOUR_NS)
    days = [START_NS + 24 * day * HOUR_NS for day in (2, 3)]
    for what in TRIPS:
        kept = starts(tiers, Tier.MINUTE, what)
        assert kept[-1] == days[-1]
        assert set(kept) <= set(days)
    assert len(starts(tiers, Tier.MINUTE, What.PAIRS)) + len(kept) >= 3
    assert len([*(tmp_path / "db.history" / "minute").iterdir()]) == 2


def test_old_minutes_and_hours_go_by_their_age(tmp_path):
    tiers, _ = opened(tmp_path, minute_age_s=2 * 3600, hour_age_s=3 * 3600)
    for n in range(6):
        tiers.put(block(START_NS + n * HOUR_NS))
    assert starts(tiers, Tier.MINUTE) == [START_NS + n * HOUR_NS for n in (3, 4, 5)]
    assert starts(tiers, Tier.HOUR) == [START_NS + n * HOUR_NS for n in (2, 3, 4)]
    assert len(files(tmp_path)) == len(everything(tiers))


def test_a_disk_that_refuses_is_told_and_the_next_minute_is_written(tmp_path):
    tiers, _ = opened(tmp_path)
    tiers.put(block(START_NS))
    piece = Piece(Tier.MINUTE, START_NS + MINUTE_NS, What.PAIRS)
    path = tmp_path / "db.history" / piece.path
    path.with_name(path.name + HALF).symlink_to("/dev/full")
    with pytest.raises(CapabilityMissing):
        tiers.put(block(START_NS + MINUTE_NS))
    assert len(files(tmp_path)) == len(What)
    tiers.put(block(START_NS + 2 * MINUTE_NS))
    assert len(files(tmp_path)) == 2 * len(What)


def test_what_a_kill_left_half_is_deleted_and_other_files_are_not(tmp_path):
    tiers, _ = opened(tmp_path)
    tiers.put(block(START_NS))
    day = (tmp_path / "db.history" / Piece(Tier.MINUTE, START_NS, What.PAIRS).path).parent
    (day / f"0000.pairs.parquet{HALF}").touch()
    (day / "notes.txt").touch()
    again, _ = opened(tmp_path)
    assert sorted(each.name for each in day.iterdir())[len(What) :] == ["notes.txt"]
    assert again._sizes == tiers._sizes


# --- packs --------------------------------------------------------------------------------------

HOUR = {what: Piece(Tier.MINUTE, START_NS, what, packed=True) for what in What}
"""Packs of the first hour's minutes."""


def packed(tmp_path, minutes=(0, 1, 60, 61, 62, 63), **keep):
    """Write minutes until the first hour's are put together."""
    tiers, _ = opened(tmp_path, **keep)
    for n in minutes:
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, 100 + n)))
    return tiers


def sent(tmp_path, tier=Tier.MINUTE, **names):
    """Return (start, sent) of a pair, as it is told."""
    asked = {"source": "a/rail0", "target": "b/rail0"} | names
    wanted = Wanted(tier, START_NS - START_NS % DAY_NS, START_NS + 9 * DAY_NS, **asked)
    found = page(str(tmp_path / "db"), wanted, None, 999)
    assert found.damaged == 0
    return [(row["start_ns"], row["sent"]) for row in found.rows]


DAY_NS = 24 * HOUR_NS


def test_minutes_of_an_hour_that_is_over_are_put_together_one_kind_a_minute(tmp_path):
    tiers = packed(tmp_path, (0, 1))
    before = {what: rows(tiers, tmp_path, Piece(Tier.MINUTE, START_NS, what)) for what in What}
    for n in range(4):
        done = [each for each in HOUR.values() if str(each.path) in files(tmp_path)]
        assert len(done) == n
        tiers.put(block(START_NS + (60 + n) * MINUTE_NS, sent=(60 + n, 100)))
        assert [at for at, _ in sent(tmp_path)][:3] == [
            START_NS + m * MINUTE_NS for m in (0, 1, 60)
        ]
    for what, pack in HOUR.items():
        found = rows(tiers, tmp_path, pack)
        assert len(found) == 2 * len(before[what])
        assert [row for row in found if row[0] == START_NS] == before[what]
        keys = [row[2:4] if what is What.PAIRS else row[1 : 2 + (what is What.COMPONENTS)]
                for row in found]  # fmt: skip
        assert keys == sorted(keys)
        assert str(Piece(Tier.MINUTE, START_NS, what).path) not in files(tmp_path)
    path = str(tmp_path / "db.history" / HOUR[What.PAIRS].path)
    query = "SELECT value FROM parquet_kv_metadata($files)"
    assert tiers._parquet.rows(query, {"files": path}) == [(b"3",)]
    assert opened(tmp_path)[0]._packs == tiers._packs


def test_hours_of_a_day_are_put_together_and_each_is_told_as_it_was(tmp_path):
    tiers, _ = opened(tmp_path)
    day_ns = START_NS - START_NS % DAY_NS
    told = []
    for n in range(20, 34):
        tiers.put(block(day_ns + n * HOUR_NS, sent=(n, n)))
        told.append((day_ns + n * HOUR_NS, n))
        assert sent(tmp_path, Tier.HOUR) == told[:-1]
    for _ in range(60):  # a minute after the other
        tiers._pack_one(day_ns + 33 * HOUR_NS)
    assert sent(tmp_path, Tier.HOUR) == told[:-1]
    day = [each for each in files(tmp_path) if "day." in each]
    assert day == [f"hour/2025-11-24/day.{what}.parquet" for what in sorted(What)]
    assert not [each for each in files(tmp_path) if each.startswith("hour/2025-11-24/2")]
    assert tiers._due(What.PAIRS, day_ns + 33 * HOUR_NS) == []


def test_minutes_of_a_format_before_are_put_together_with_what_they_lack_as_null(tmp_path):
    tiers, _ = opened(tmp_path)
    for n in range(2):
        tiers.put(block(START_NS + n * MINUTE_NS, spread=n == 1))
    before(tiers, tmp_path, START_NS)
    for n in range(60, 65):
        tiers.put(block(START_NS + n * MINUTE_NS))
    found = rows(tiers, tmp_path, HOUR[What.PAIRS])[:2]
    assert [row[-3:] for row in found] == [(None,) * 3, (1_000,) * 3]


def test_an_hour_that_could_not_be_made_is_made_of_the_pack_of_its_minutes(tmp_path):
    tiers = packed(tmp_path)
    hour = Piece(Tier.HOUR, START_NS, What.PAIRS)
    expected = rows(tiers, tmp_path, hour)
    tiers._drop(hour)
    tiers.put(block(START_NS + 64 * MINUTE_NS))
    assert rows(tiers, tmp_path, hour) == expected


def test_what_a_kill_left_beside_its_pack_counts_once_and_goes(tmp_path):
    tiers, _ = opened(tmp_path)
    for n in range(2):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, n)))
    folder = tmp_path / "db.history"
    left = {each: (folder / each).read_bytes() for each in files(tmp_path)}
    for n in range(60, 64):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, n)))
    expected = sent(tmp_path)
    for name, body in left.items():
        (folder / name).write_bytes(body)
    assert sent(tmp_path) == expected
    again, _ = opened(tmp_path)
    for n in range(64, 70):
        again.put(block(START_NS + n * MINUTE_NS, sent=(n, n)))
    assert not left.keys() & set(files(tmp_path))
    assert sent(tmp_path) == [*expected, *((START_NS + n * MINUTE_NS, n) for n in range(64, 70))]


def test_a_minute_of_a_clock_that_was_set_back_takes_the_place_of_the_one_in_the_pack(tmp_path):
    packed(tmp_path)
    tiers, _ = opened(tmp_path)
    for n in (1, 2, 3, 4, 5):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(1_000 + n, 0)))
        for _ in range(3):  # of each kind
            tiers._pack_one(START_NS + n * MINUTE_NS)
    assert sent(tmp_path)[:6] == [
        (START_NS + n * MINUTE_NS, 1_000 + n if n else 0) for n in range(6)
    ]


def test_a_damaged_minute_is_in_no_pack_stays_and_is_told(tmp_path):
    tiers, _ = opened(tmp_path)
    for n in range(3):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, n)))
    damaged = Piece(Tier.MINUTE, START_NS, What.PAIRS)
    (tmp_path / "db.history" / damaged.path).write_bytes(b"PAR1")
    for n in range(60, 65):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, n)))
    assert tiers.counts.damaged == 1
    assert len(rows(tiers, tmp_path, HOUR[What.PAIRS])) == 4
    assert str(damaged.path) in files(tmp_path)
    wanted = Wanted(Tier.MINUTE, START_NS, START_NS + HOUR_NS, source="a/rail0")
    found = page(str(tmp_path / "db"), wanted, None, 9)
    assert ([row["sent"] for row in found.rows], found.damaged) == ([1, 2], 1)


def test_a_pack_that_the_disk_refuses_costs_no_minute_and_is_tried_again_after_an_hour(tmp_path):
    tiers = packed(tmp_path, (0, 1))
    pack = Piece(Tier.MINUTE, START_NS, What.COMPONENT_TRIPS, packed=True)
    path = tmp_path / "db.history" / pack.path
    path.with_name(path.name + HALF).symlink_to("/dev/full")
    with structlog.testing.capture_logs() as logs:
        tiers.put(block(START_NS + HOUR_NS, sent=(60, 0)))
    assert [line["event"] for line in logs] == ["history_not_packed"]
    assert [n for _, n in sent(tmp_path)] == [0, 1, 60]
    for n in range(61, 120):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, 0)))
        assert not path.exists()
    for n in (120, 121, 122, 123, 124, 125, 126, 127):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, 0)))
    assert path.exists()


def test_a_pack_is_deleted_once_all_of_it_is_too_old(tmp_path):
    tiers = packed(tmp_path, minute_age_s=2 * 3600)
    tiers.put(block(START_NS + 2 * HOUR_NS + 59 * MINUTE_NS))
    assert START_NS in tiers._packs[Tier.MINUTE, What.PAIRS]
    tiers.put(block(START_NS + 3 * HOUR_NS))
    assert START_NS not in tiers._packs[Tier.MINUTE, What.PAIRS]
    assert not [each for each in files(tmp_path) if Piece.of(PurePath(each)) in HOUR.values()]
