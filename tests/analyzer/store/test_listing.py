# SPDX-License-Identifier: Apache-2.0

import pytest
import structlog

from analyzer.config import History
from analyzer.history.files import Piece, Tier, What
from analyzer.store import listing
from analyzer.store.listing import LOOKS, Moved
from analyzer.store.parquet import Parquet
from analyzer.store.past import Wanted, page
from analyzer.store.tiers import Tiers
from tests.analyzer.history.tables import MINUTE_NS, block

START_NS = 490_000 * 60 * MINUTE_NS
MINUTE = Piece(Tier.MINUTE, START_NS, What.PAIRS)


def test_where_there_is_a_pack_its_pieces_do_not_count():
    other = Piece(Tier.MINUTE, START_NS, What.COMPONENTS)
    later = Piece(Tier.MINUTE, START_NS + 60 * MINUTE_NS, What.PAIRS)
    found = [MINUTE.pack, MINUTE, other, later]
    assert listing.whole_pieces(found) == ([MINUTE.pack, other, later], [MINUTE])


def test_a_pack_is_found_by_any_part_of_its_time(tmp_path):
    path = tmp_path / MINUTE.pack.path
    path.parent.mkdir(parents=True)
    path.touch()
    for at, there in ((-1, False), (0, True), (59, True), (60, False)):
        since_ns = START_NS + at * MINUTE_NS
        found = listing.pieces_between(tmp_path, Tier.MINUTE, since_ns, since_ns + MINUTE_NS)
        assert [*found] == [MINUTE.pack] * there
    assert [*listing.pieces_in(tmp_path)] == [(MINUTE.pack, 0)]


def test_minutes_that_are_put_together_while_they_are_read_are_read_whole(tmp_path, monkeypatch):
    """The files are listed, and become a pack before they are opened."""
    database = str(tmp_path / "db")
    tiers = Tiers(database, History())
    tiers.begin(START_NS)
    for n in (0, 1):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, n)))
    pieces, asked = listing.pieces_between, []

    def listed(*args):
        found = [*pieces(*args)]
        if not asked:
            for n in range(60, 64):
                tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, n)))
        asked.append(found)
        return found

    monkeypatch.setattr(listing, "pieces_between", listed)
    wanted = Wanted(Tier.MINUTE, START_NS, START_NS + 60 * MINUTE_NS, source="a/rail0")
    with structlog.testing.capture_logs() as logs:
        found = page(database, wanted, None, 9)
    assert ([row["sent"] for row in found.rows], found.damaged, logs) == ([0, 1], 0, [])
    assert len(asked) == 2


def test_what_moves_on_and_on_is_read_as_it_is():
    told = []

    def read(is_last):
        told.append(is_last)
        if not is_last:
            raise Moved
        return "all that is left"

    assert listing.relisted(read) == "all that is left"
    assert told == [False] * (LOOKS - 1) + [True]


def test_what_is_gone_has_all_listed_again_and_the_last_time_it_is_left_out(tmp_path):
    with Parquet(tmp_path / "spill") as parquet:
        gone = tmp_path / "gone.parquet"
        with pytest.raises(Moved):
            listing.readable(parquet, [gone], is_last=False)
        with structlog.testing.capture_logs() as logs:
            assert listing.readable(parquet, [gone], is_last=True) == []
        assert logs[0]["files"] == [str(gone)]
