# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters.peers.spool import HELD, RECENT_NS, Spool, sync

LIMIT = 1000
HEADER = 12


def opened(folder: Path, limit: int = LIMIT) -> Spool:
    return Spool(folder, limit_bytes=limit)


def drain(spool: Spool) -> list[tuple[int, bytes]]:
    out = []
    while (oldest := spool.next()) is not None:
        out.append(oldest)
        spool.delete(oldest[0])
    return out


def test_summaries_come_back_oldest_first_also_to_a_later_process(tmp_path):
    spool = opened(tmp_path / "made" / "spool")
    for start_ns in (30, 10, 20):
        spool.put(start_ns, b"%d" % start_ns)
    assert spool.next() == (10, b"10")
    later = opened(tmp_path / "made" / "spool")
    assert len(later) == 3
    assert drain(later) == [(10, b"10"), (20, b"20"), (30, b"30")]
    assert len(opened(tmp_path / "made" / "spool")) == 0


def test_a_window_of_each_side_of_a_clock_that_went_back_is_kept(tmp_path):
    spool = opened(tmp_path)
    spool.put(10, b"before")
    spool.put(10, b"after")
    assert drain(opened(tmp_path)) == [(10, b"before"), (11, b"after")]
    assert spool.dropped == 0


def test_a_full_spool_drops_the_oldest_and_counts(tmp_path):
    spool = opened(tmp_path, limit=3 * (HEADER + 10))
    for start_ns in range(5):
        spool.put(start_ns, b"x" * 10)
    assert [start_ns for start_ns, _ in drain(spool)] == [2, 3, 4]
    assert spool.dropped == 2


def test_a_summary_larger_than_the_spool_is_dropped_and_counted(tmp_path):
    spool = opened(tmp_path)
    spool.put(1, b"kept")
    spool.put(2, b"x" * LIMIT)
    assert drain(spool) == [(1, b"kept")]
    assert spool.dropped == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:5],
        lambda data: data[:-1],
        lambda data: data + b"!",
        lambda data: data[:-1] + b"!",
        lambda data: b"XXXX" + data[4:],
        lambda data: b"",
    ],
)
def test_a_damaged_file_is_skipped_and_counted(tmp_path, damage):
    spool = opened(tmp_path)
    spool.put(1, b"first")
    spool.put(2, b"second")
    (first, _) = sorted(tmp_path.iterdir())
    first.write_bytes(damage(first.read_bytes()))
    later = opened(tmp_path)
    assert drain(later) == [(2, b"second")]
    assert later.damaged == 1
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_was_writing_is_removed_and_no_summary(tmp_path):
    (tmp_path / f"{7:020d}.new").write_bytes(b"NAS1half")
    (tmp_path / "README").write_text("not ours")
    assert len(opened(tmp_path)) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["README"]


def test_a_file_that_vanished_is_damaged(tmp_path):
    spool = opened(tmp_path)
    spool.put(1, b"x")
    next(tmp_path.iterdir()).unlink()
    assert spool.next() is None
    assert spool.damaged == 1


def test_what_the_disk_refuses_is_held_in_memory_for_a_while(tmp_path, monkeypatch):
    spool = opened(tmp_path)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    for start_ns in range(HELD + 2):
        spool.put(start_ns, b"x")
    assert spool.disk_errors == HELD + 2
    assert spool.dropped == 2
    assert [start_ns for start_ns, _ in drain(spool)] == list(range(2, HELD + 2))


def test_after_an_outage_the_newest_minutes_go_first_each_in_order(tmp_path):
    spool = opened(tmp_path)
    starts = [n * RECENT_NS // 2 for n in range(6)]
    for start_ns in starts:
        spool.put(start_ns, b"x")
    order = [start_ns for start_ns, _ in drain(spool)]
    assert order == [starts[n] for n in (4, 5, 2, 3, 0, 1)]


def test_what_is_measured_while_older_ones_wait_is_not_kept_waiting(tmp_path):
    spool = opened(tmp_path)
    for start_ns in (0, 5, 3 * RECENT_NS):
        spool.put(start_ns, b"x")
    spool.delete(spool.next()[0])
    assert spool.next()[0] == 0
    spool.put(3 * RECENT_NS + 5, b"x")
    assert spool.next()[0] == 3 * RECENT_NS + 5


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 30), st.binary(max_size=60)),
        st.tuples(st.just("take"), st.none(), st.none()),
        st.tuples(st.sampled_from(["crash", "torn"]), st.none(), st.none()),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_crashes_nothing_that_was_put_is_lost_but_what_is_counted(script):
    """A step puts a summary, has the oldest acknowledged, or kills the process (mid-write)."""
    with tempfile.TemporaryDirectory() as name:
        folder, kept, dropped = Path(name), {}, 0
        spool = opened(folder, limit=400)
        for step, start_ns, body in script:
            if step == "put":
                spool.put(start_ns, body)
                put_as = next(n for n in range(start_ns, 99) if n not in kept)
                kept[put_as] = body
                for _ in range(spool.dropped - dropped):
                    del kept[next(iter(kept))]
                dropped = spool.dropped
            elif step == "take":
                assert spool.next() == (min(kept.items()) if kept else None)
                if kept:
                    spool.delete(min(kept))
                    del kept[min(kept)]
            else:
                if step == "torn":
                    (folder / f"{99:020d}.new").write_bytes(b"NAS1")
                spool, dropped = opened(folder, limit=400), 0
                kept = dict(sorted(kept.items()))
            assert spool.used_bytes <= 400
            assert len(spool) == len(kept)
        assert drain(spool) == sorted(kept.items())
        assert spool.damaged == 0


def test_what_is_postponed_comes_after_all_others_and_is_not_lost(tmp_path):
    made = Spool(tmp_path / "spool", limit_bytes=10_000)
    for start_ns in (1, 2, 3):
        made.put(start_ns, b"%d" % start_ns)
    made.postpone(1)
    given = []
    while (found := made.next()) is not None:
        given.append(found[0])
        if found[0] == 2 and given.count(2) == 1:
            made.postpone(2)
        else:
            made.delete(found[0])
    assert given == [2, 3, 1, 2]


def test_only_its_user_reads_it(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o755)
    Spool(folder, limit_bytes=10_000)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_waits_is_synced_once_and_what_was_delivered_is_not(tmp_path, monkeypatch):
    spool = Spool(tmp_path, limit_bytes=10_000)
    for start_ns in (1, 2, 3):
        spool.put(start_ns, b"body")
    spool.delete(2)
    waiting = spool.take_unsynced()
    assert [int(path.stem) for path in waiting] == [1, 3]
    assert spool.take_unsynced() == []
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
    )
    spool.delete(3)  # meanwhile
    sync(waiting)
    assert synced == [str(waiting[0]), str(tmp_path)]
