# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.lab import operators
from tests.lab.operators import FAULTS, Told
from tests.lab.wrong import NOTE, Wrong


def test_each_fault_is_named_once_and_says_who_is_at_fault() -> None:
    assert len({each.name for each in FAULTS}) == len(FAULTS)
    assert all(bool(each.ranks) == (each.kind != "nobody") for each in FAULTS)


def test_a_table_has_a_line_for_each() -> None:
    made = [
        Told("slow-rank", "rank 3", 10, 0.7, 1.4, told="rank 3", right=True),
        Told("stopped", "rank 5", 10, 0.7, None, told_alone="rank 5", right_alone=False),
    ]
    head, first, second, *alone = operators.lines(made)
    assert first.endswith("yes")
    assert "hangs" in second
    assert len(head) == len(second) - len("-") + len("right")
    assert alone[-2].endswith("-")
    assert alone[-1].endswith("rank 5".ljust(34) + " NO")


def test_a_rank_does_what_the_note_says_of_it(tmp_path: Path) -> None:
    note = tmp_path / NOTE

    def read(rank: int, stage: int = 0, step: int = 0) -> Wrong:
        return Wrong.read(tmp_path, rank, stage, step)

    assert read(0) == Wrong()
    note.write_text('{"kind": "slow-rank", "rank": 3, "factor": 5.0}')
    assert (read(3).factor, read(2).factor) == (5.0, 1.0)
    note.write_text('{"kind": "slow-loader", "rank": 4, "seconds": 0.5}')
    assert (read(4).loads_s, read(3).loads_s) == (0.5, 0.0)
    note.write_text('{"kind": "imbalance", "stage": 1, "factor": 1.5}')
    assert (read(0, stage=1).factor, read(0).factor) == (1.5, 1.0)
    note.write_text('{"kind": "skipped", "rank": 1}')
    assert (read(1).skips, read(0).skips) == (True, False)
    note.write_text('{"kind": "garbage", "seconds": 0.2}')
    assert {read(rank, step=step).collects_s for rank in range(3) for step in range(3)} == {0, 0.2}
    note.write_text('{"kind": ')
    assert read(1) == Wrong()


def verdict(kind: str = "", *ranks: int, innocent: bool = True) -> dict[str, object]:
    named = [{"kind": kind, "ranks": list(ranks)}] if kind else []
    return {"verdict": "slow", "culprits": named, "innocent": innocent}


@pytest.mark.parametrize(
    ("fault", "said", "right"),
    [
        ("healthy", verdict(), True),
        ("garbage", verdict("rank", 1), False),
        ("slow-rank", verdict("rank", 3), True),
        ("slow-rank", verdict("rank", 3, 4), False),
        ("slow-rank", verdict("group", 3), False),
        ("imbalance", verdict("group", 2, 3, 6, 7), True),
        ("imbalance", verdict("rank", 2), False),
        ("slow-uplink", verdict("edge", 2, 6, innocent=False), True),
        ("slow-uplink", verdict("rank", 2), False),
        ("slow-link", verdict("group", 0, 4, innocent=False), True),
        ("slow-link", verdict("group", 0, 1, innocent=False), False),
    ],
)
def test_what_is_told_is_held_against_the_truth(
    fault: str,
    said: dict[str, object],
    right: bool,  # noqa: FBT001 - what is expected
) -> None:
    known = next(each for each in FAULTS if each.name == fault)
    assert operators._compared(said, known)[1] is right
