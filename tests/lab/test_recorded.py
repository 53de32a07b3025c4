# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netagent_torch import form
from netagent_torch.ring import Ring
from tests.lab import recorded

MS = 1_000_000


def made(
    tmp_path: Path, name: str, *lines: dict[str, Any], records: Sequence[form.Record] = ()
) -> recorded.Ring:
    ring = Ring(tmp_path / name, capacity=64)
    for line in lines:
        ring.say(line)
    for each in records:
        ring.add(each)
    return recorded.read(ring.path.read_bytes())


def record(step: int, begun_ms: int, *, ended: bool = True, **more: int) -> form.Record:
    end = (begun_ms + 2) * MS if ended else 0
    return form.Record(
        0, begun_ms * MS, begun_ms * MS, end, 64, 1, step, -1, 0, 0, form.COLLECTIVE, 0
    )._replace(**more)


HOOKS = (
    {"op": 0, "name": "all_reduce"},
    {"job": "train-a", "rank": 1, "world": 2},
    {"group": 0, "name": "0:world", "size": 2, "members": [0, 1]},
)


def test_a_ring_is_a_table(tmp_path: Path) -> None:
    ring = made(tmp_path, "a.ring", *HOOKS, records=[record(1, 1), record(2, 5, ended=False)])
    rows = list(recorded.rows(ring, (0, 1, 0), steps=range(1, 3)))
    assert rows[0] == (
        1, 1, "collective", "all_reduce", "0:world", "", 0, 64, 1, 1000, 3000, 0, 1, 0,
    )  # fmt: skip
    assert rows[1][10] == ""
    assert len(list(recorded.rows(ring, (0, 1, 0), steps=range(2, 3)))) == 1
    path = tmp_path / "a.csv"
    assert recorded.write(path, rows) == 2
    assert path.read_text().splitlines()[0] == ",".join(recorded.COLUMNS)


def test_what_began_before_or_has_not_ended_is_taken_out_of_a_ring(tmp_path: Path) -> None:
    records = [record(1, 1), record(2, 5), record(3, 7, ended=False)]
    made(tmp_path, "a.ring", *HOOKS, records=records)
    data = (tmp_path / "a.ring").read_bytes()

    def steps(data: bytes) -> list[int]:
        return [each.step for each in recorded.read(data).records]

    assert steps(recorded.since(data, 0, over=False)) == [1, 2, 3]
    assert steps(recorded.since(data, 5 * MS, over=False)) == [2, 3]
    assert steps(recorded.since(data, 5 * MS, over=True)) == [2]


def test_probes_get_the_steps_of_the_hooks_and_know_the_world_by_its_size(tmp_path: Path) -> None:
    hooks = made(tmp_path, "a.ring", *HOOKS, records=[record(1, 1), record(2, 10)])
    probes = made(
        tmp_path, "b.ring",
        {"job": "train-a", "rank": 1, "world": 2},
        {"group": 0, "name": "c0", "size": 2, "place": 1},
        {"group": 1, "name": "c1", "size": 1, "place": 0},
        records=[record(-1, 0), record(-1, 2), record(-1, 11, group=1)],
    )  # fmt: skip
    found = recorded.stepped(probes, hooks)
    assert [each.step for each in found.records] == [1, 2]
    assert found.groups == {0: "world", 1: "1.1"}
