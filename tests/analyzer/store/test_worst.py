# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import structlog

from analyzer.config import History
from analyzer.history.files import Piece, Tier, What
from analyzer.history.spread import buckets_of, values_ns
from analyzer.store.tiers import Tiers
from analyzer.store.worst import LEAST_SENT, Lossy, Worst, first_ns, worst
from netagent.wire.histogram import bucket_of
from tests.analyzer.history.tables import MINUTE_NS, block

START_NS = 490_000 * 60 * MINUTE_NS
MINUTES = 70
[P99] = values_ns(buckets_of(np.array([bucket_of(1_000)], np.uint16))).tolist()
"""Of what `block` measures."""


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Return a history of an hour and ten minutes more, and the minutes of that hour."""
    path = str(tmp_path_factory.mktemp("worst") / "db's [x]")
    tiers = Tiers(path, History())
    tiers.begin(START_NS)
    for n in range(MINUTES):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(100, 200), lost=(1, n % 2)))
    return path


def between(database, first, last, kind="link", limit=10):
    return worst(database, kind, START_NS + first * MINUTE_NS, START_NS + last * MINUTE_NS, limit)


def test_hours_and_the_minutes_after_them_are_counted_once(database):
    found = between(database, 0, MINUTES)
    assert found == Worst((Lossy("link x -- y", 100 * MINUTES, MINUTES, P99),), 12 * MINUTES)
    assert between(database, 0, MINUTES, kind="switch").lossy == (
        Lossy("switch x", 200 * MINUTES, MINUTES // 2),
    )


@pytest.mark.parametrize(("first", "last"), [(5, 40), (58, 70), (60, 70), (0, 60)])
def test_what_begins_within_the_time_counts(database, first, last):
    found = between(database, first, last)
    minutes = last - first
    assert found.windows == 12 * minutes
    assert found.lossy == (
        (Lossy("link x -- y", 100 * minutes, minutes, P99),) if 100 * minutes >= LEAST_SENT else ()
    )


def test_what_loses_nothing_or_is_of_another_kind_is_not_told(database):
    assert between(database, 0, MINUTES, kind="host").lossy == ()
    assert between(database, 0, MINUTES, limit=1).lossy


def test_where_there_is_no_history_nothing_is_known(tmp_path):
    assert worst(str(tmp_path / "none"), "link", 0, 10**18, 5) == Worst()
    assert first_ns(str(tmp_path / "none")) is None


def test_history_begins_with_its_first_minute_also_within_an_hour(tmp_path):
    begun_ns = START_NS + 54 * MINUTE_NS
    tiers = Tiers(str(tmp_path / "db"), History())
    tiers.begin(begun_ns)
    for n in range(12):
        tiers.put(block(begun_ns + n * MINUTE_NS, sent=(100, 200), lost=(1, 0)))
    assert list((tmp_path / "db.history").glob("hour/**/*.parquet"))
    assert first_ns(str(tmp_path / "db")) == begun_ns


def test_a_damaged_file_is_left_out_and_counted(tmp_path):
    path = str(tmp_path / "db")
    tiers = Tiers(path, History())
    tiers.begin(START_NS)
    for n in range(20):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(100, 200), lost=(1, 1)))
    piece = Piece(Tier.MINUTE, START_NS, What.COMPONENTS)
    (tmp_path / "db.history" / piece.path).write_bytes(b"PAR1 no")
    with structlog.testing.capture_logs() as logs:
        found = between(path, 0, 20)
    assert (found.damaged, found.windows) == (1, 12 * 19)
    assert found.lossy == (Lossy("link x -- y", 1900, 19, P99),)
    assert [each["event"] for each in logs] == ["history_damaged"]


def test_a_damaged_minute_beside_the_pack_of_its_hour_is_counted(tmp_path):
    path = str(tmp_path / "db")
    tiers = Tiers(path, History())
    tiers.begin(START_NS)
    for n in range(MINUTES):
        if n == 60:
            piece = Piece(Tier.MINUTE, START_NS, What.COMPONENTS)
            (tmp_path / "db.history" / piece.path).write_bytes(b"PAR1 no")
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(100, 200), lost=(1, 1)))
    assert (tmp_path / "db.history" / piece.pack.path).exists()
    found = between(path, 0, MINUTES)
    assert (found.damaged, found.windows) == (1, 12 * (MINUTES - 1))
