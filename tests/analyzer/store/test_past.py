# SPDX-License-Identifier: Apache-2.0

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.config import History
from analyzer.history.files import Piece, Tier, What
from analyzer.store import past as room
from analyzer.store.past import Page, Place, Wanted, page
from analyzer.store.tiers import Tiers
from tests.analyzer.history.tables import MINUTE_NS, block

START_NS = 490_000 * 60 * MINUTE_NS
MINUTES = 70


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Return a history of MINUTES minutes, and so one hour."""
    path = str(tmp_path_factory.mktemp("past") / "db's [x]")
    tiers = Tiers(path, History())
    tiers.begin(START_NS)
    for n in range(MINUTES):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, 100 + n)))
    return path


def wanted(**fields):
    times = {"since_ns": START_NS, "until_ns": START_NS + MINUTES * MINUTE_NS}
    return Wanted(**{"tier": Tier.MINUTE, **times, **fields})


def everything(database, asked, limit):
    """Return all rows, page by page."""
    rows, after = [], None
    while True:
        found = page(database, asked, after, limit)
        assert len(found.rows) <= limit
        rows += found.rows
        if found.following is None:
            return rows
        after = Place.parse(str(found.following))
        assert len(found.rows) == limit


def plain(asked):
    """Return (minute, sent) of what is wanted, from what was put in."""
    pairs = [("a/rail0", "b/rail0", 0), ("c/rail0", "a/rail0", 100)]
    found = []
    for n in range(MINUTES):
        start_ns = START_NS + n * MINUTE_NS
        if start_ns + MINUTE_NS <= asked.since_ns or start_ns >= asked.until_ns:
            continue
        found += [
            (start_ns, more + n)
            for source, target, more in pairs
            if asked.source in {None, source}
            and asked.target in {None, target}
            and asked.endpoint in {None, source, target}
        ]
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "source": st.sampled_from(["a/rail0", "c/rail0", "nobody"]),
            "target": st.sampled_from(["a/rail0", "b/rail0"]),
            "endpoint": st.sampled_from(["a/rail0", "b/rail0", "' OR 1 = 1 --"]),
        },
    ),
    st.integers(0, MINUTES * 60),
    st.integers(0, MINUTES * 60),
    st.sampled_from([7, 50, 1000]),
)
def test_pages_hold_each_row_that_is_wanted_once_in_the_order_of_time(
    database, names, since_s, long_s, limit
):
    since_ns = START_NS + since_s * 10**9
    asked = wanted(**names, since_ns=since_ns, until_ns=since_ns + long_s * 10**9 + 1)
    rows = everything(database, asked, limit)
    assert [(row["start_ns"], row["sent"]) for row in rows] == plain(asked)
    assert all(tuple(row) == room.COLUMNS[What.PAIRS] for row in rows)


def test_a_component_and_an_hour_are_told_likewise(database):
    rows = everything(database, wanted(component="switch x"), 16)
    assert [row["sent"] for row in rows] == [100 + n for n in range(MINUTES)]
    (hour,) = everything(database, wanted(component="switch x", tier=Tier.HOUR), 16)
    assert hour == {
        "start_ns": START_NS, "windows": 720, "component": "switch x",
        "sent": sum(100 + n for n in range(60)), "lost": 60, "refused": 0, "rtt_count": 0,
        "rtt_mean_ns": 0, "rtt_p50_ns": None, "rtt_p90_ns": None, "rtt_p99_ns": None,
    }  # fmt: skip
    assert everything(database, wanted(component="switch"), 16) == []


def test_without_a_history_nothing_is_known(tmp_path):
    assert page(str(tmp_path / "none"), wanted(source="a/rail0"), None, 5) == Page()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"PAR1"), None])
def test_what_is_damaged_is_left_out_and_counted_and_what_is_gone_is_not_there(
    tmp_path, monkeypatch, damage
):
    database = str(tmp_path / "db")
    tiers = Tiers(database, History())
    tiers.begin(START_NS)
    for n in range(4):
        tiers.put(block(START_NS + n * MINUTE_NS, sent=(n, n)))
    path = tmp_path / "db.history" / Piece(Tier.MINUTE, START_NS + MINUTE_NS, What.PAIRS).path
    if damage:
        damage(path)
    else:  # deleted once the files were listed
        pieces = room.files_between

        def listed(*args):
            found = pieces(*args)
            path.unlink(missing_ok=True)
            return found

        monkeypatch.setattr(room, "files_between", listed)
    with structlog.testing.capture_logs() as logs:
        found = page(database, wanted(source="a/rail0"), None, 10)
    assert [row["sent"] for row in found.rows] == [0, 2, 3]
    assert found.damaged == (damage is not None)
    assert [each["files"] for each in logs] == [[str(path)]] * found.damaged


@pytest.mark.parametrize("text", ["", "5", "5.", ".5", "a.b", "-1.0", "5.5.5"])
def test_what_is_no_place_is_refused(text):
    with pytest.raises(ValueError, match="no place"):
        Place.parse(text)
