# SPDX-License-Identifier: Apache-2.0

import pytest
import structlog

from analyzer.config import History
from analyzer.history.files import Piece, Tier, What
from analyzer.history.spread import RATIO
from analyzer.store.past import Wanted
from analyzer.store.tiers import Tiers
from analyzer.store.together import Sum, together
from tests.analyzer.history.tables import MINUTE_NS, block

START_NS = 490_000 * 60 * MINUTE_NS
END_NS = START_NS + 3 * MINUTE_NS
MINUTES = Wanted(Tier.MINUTE, START_NS, END_NS)


def about(ns):
    return pytest.approx(ns, rel=RATIO - 1)


def written(tmp_path, minutes=3, **shown):
    """Write minutes of a -> b and c -> a; return the database's name."""
    database = str(tmp_path / "db")
    tiers = Tiers(database, History())
    tiers.begin(START_NS)
    for n in range(minutes):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, 100 + n), **shown))
    return database


def test_minutes_of_some_endpoints_are_the_sums_of_what_they_probed(tmp_path):
    database = written(tmp_path)
    a, both, nobody = (
        together(database, MINUTES, sources)
        for sources in (["a/rail0"], ["a/rail0", "c/rail0"], ["nobody/rail0"])
    )
    assert [(each.start_ns, each.sent) for each in a] == [
        (START_NS + n * MINUTE_NS, n) for n in range(3)
    ]
    assert [round(each.rtt_mean_ns) for each in a] == [1_000] * 3
    assert [each.sent for each in both] == [100 + 2 * n for n in range(3)]
    assert [each.lost for each in both] == [1] * 3
    c = together(database, MINUTES, ["c/rail0"])
    assert {each[4:] for each in c} == {(None,) * 6}  # nothing came back
    assert nobody == together(database, MINUTES, []) == []


def test_quantiles_of_several_pairs_are_of_all_their_round_trips(tmp_path):
    database = written(tmp_path, 1, rtt=(1_000, 900_000))
    [found] = together(database, MINUTES)
    assert found == Sum(
        START_NS, 100, 1, 10, about(30_000), 1_000, 900_000,
        about(1_000), about(900_000), about(900_000),
    )  # fmt: skip
    assert 1_000 <= found.rtt_p50_ns <= found.rtt_p90_ns <= 900_000
    ends = (Wanted(Tier.MINUTE, START_NS, END_NS, **{end: "a/rail0"}) for end in (
        "source", "target", "endpoint",
    ))  # fmt: skip
    assert [together(database, each)[0].rtt_p50_ns for each in ends] == [
        1_000, 900_000, about(1_000),
    ]  # fmt: skip


def test_where_some_are_not_known_quantiles_are_not(tmp_path):
    database = written(tmp_path, spread=False)
    assert {each[-3:] for each in together(database, MINUTES)} == {(None,) * 3}


def test_an_hour_of_several_pairs_has_quantiles_after_its_minutes_are_gone(tmp_path):
    database = written(tmp_path, 61, rtt=(1_000, 900_000))
    hour = Wanted(Tier.HOUR, START_NS, END_NS)
    [found] = together(database, hour)
    assert (found.rtt_count, found.rtt_p50_ns) == (600, about(1_000))


def test_of_damaged_minutes_the_others_are_summed(tmp_path):
    database = str(tmp_path / "db")
    assert together(database, MINUTES) == []
    written(tmp_path)
    paths = [
        tmp_path / "db.history" / Piece(Tier.MINUTE, START_NS + n * MINUTE_NS, What.PAIRS).path
        for n in range(3)
    ]
    for damaged, left in ((paths[1:2], [0, 2]), (paths, [])):
        for path in damaged:
            path.write_bytes(b"PAR1")
        with structlog.testing.capture_logs() as logs:
            found = together(database, MINUTES, ["a/rail0"])
        assert [each.sent for each in found] == left
        assert [each["event"] for each in logs] == ["history_damaged"]
