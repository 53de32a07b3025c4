# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import structlog

from analyzer.config import History
from analyzer.history.files import TRIPS, Piece, Tier, What
from analyzer.history.spread import RATIO
from analyzer.store.parquet import HALF, names_of
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


def test_minutes_of_a_clock_that_was_ahead_do_not_count_at_a_restart(tmp_path):
    tiers, _ = opened(tmp_path)
    tiers.put(block(START_NS))
    tiers.put(block(START_NS + 9 * HOUR_NS))
    assert opened(tmp_path)[1] == START_NS + MINUTE_NS


def test_an_hour_is_its_minutes_added_up_once_it_is_over(tmp_path):
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


def bucket(ns):
    return int(np.ceil(np.log(ns) / np.log(RATIO)))


def test_of_minutes_of_the_format_before_quantiles_are_not_known_and_all_else_is(tmp_path):
    """An hour of which half was written before an upgrade, and one all of which was."""
    tiers, _ = opened(tmp_path)
    tiers.put(block(START_NS, spread=False))
    tiers.put(block(START_NS + MINUTE_NS))
    tiers.put(block(START_NS + HOUR_NS, spread=False))
    tiers.put(block(START_NS + HOUR_NS + MINUTE_NS, spread=False))
    for n in (0, 60, 61):
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
    kept = {what: len(tiers._sizes[Tier.MINUTE, what]) for what in What}
    assert kept == {
        What.PAIRS: 3, What.COMPONENTS: 3, What.PAIR_TRIPS: 2, What.COMPONENT_TRIPS: 2,
    }  # fmt: skip
    assert len(tiers._sizes[Tier.HOUR, What.PAIR_TRIPS]) == 2
    assert len(files(tmp_path)) == sum(map(len, tiers._sizes.values()))


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
    for day in range(3):
        tiers.put(block(START_NS + 24 * day * HOUR_NS, spread=False))
        for sizes in tiers._sizes.values():
            sizes.update(dict.fromkeys(sizes, size))  # as if they were as large
    tiers.put(block(START_NS + 72 * HOUR_NS, spread=False))
    minutes = [each for each in files(tmp_path) if each.startswith("minute")]
    kept = [START_NS + 24 * day * HOUR_NS for day in (2, 3)]
    assert minutes == [str(Piece(Tier.MINUTE, s, w).path) for s in kept for w in sorted(TRIPS)]
    assert len([*(tmp_path / "db.history" / "minute").iterdir()]) == 2


def test_old_minutes_and_hours_go_by_their_age(tmp_path):
    tiers, _ = opened(tmp_path, minute_age_s=2 * 3600, hour_age_s=3 * 3600)
    for n in range(6):
        tiers.put(block(START_NS + n * HOUR_NS))
    starts = {tier: set(tiers._sizes[tier, What.PAIRS]) for tier in Tier}
    assert starts[Tier.MINUTE] == {START_NS + n * HOUR_NS for n in (3, 4, 5)}
    assert starts[Tier.HOUR] == {START_NS + n * HOUR_NS for n in (2, 3, 4)}
    assert len(files(tmp_path)) == sum(map(len, tiers._sizes.values()))


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
