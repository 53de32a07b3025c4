# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab import holdings
from tests.lab.holdings import Reading, expected, least, module_of, read, sizes
from tests.lab.shape import Shape, Transport

WAITS = "import sys; print(flush=True); sys.stdin.read()"


class Processes:
    def __init__(self, pid: int | None) -> None:
        self._pid = pid

    def names(self) -> list[str]:
        return ["analyzer/analyzer", "h0/agent", "h0/ovs-vswitchd", "traffic"]

    def pid(self, name: str) -> int | None:
        return self._pid if name == "analyzer/analyzer" else os.getpid()


def lab(directory: Path, pid: int | None) -> Any:
    state = SimpleNamespace(shape=Shape(hosts=1, segments=1))
    return SimpleNamespace(directory=directory, processes=Processes(pid), state=lambda: state)


@pytest.fixture
def helpers() -> Iterator[dict[str, int]]:
    """Return processes of this one, by the module that they seem to run."""
    made = {}
    for module in ("analyzer.judge", "netagent"):
        argv = [sys.executable, "-c", WAITS, "-m", module, "answer"]
        made[module] = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for each in made.values():
        assert each.stdout is not None
        each.stdout.readline()
    yield {module: each.pid for module, each in made.items()}
    for each in made.values():
        each.communicate()


def test_each_part_of_a_lab_is_read(tmp_path: Path, helpers: dict[str, int]) -> None:
    folder = tmp_path / "analyzer"
    for name in ("netagent.duckdb", "netagent.duckdb.summaries/0.segment", "recording/0.part"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(1 << 20))
    found = read(lab(tmp_path, os.getpid()))
    assert expected(Shape(hosts=1, segments=1)) <= found.held.keys()
    judge = "analyzer/analyzer: analyzer.judge"
    assert all((found.held[judge, kind] or 0) >= 1 for kind in holdings.KINDS)
    assert (found.held["h0/agent: others", "processes"] or 0) >= 1
    assert found.held["folder", "disk_mb"] == 3
    assert found.pids[judge] == {helpers["analyzer.judge"]}
    assert found.pids["h0/agent"] == {os.getpid()}


def test_what_is_dead_is_not_known_instead_of_zero(tmp_path: Path) -> None:
    (tmp_path / "analyzer").mkdir()
    found = read(lab(tmp_path, None))
    assert found.held["analyzer/analyzer", "memory_mb"] is None
    assert "analyzer/analyzer" not in found.pids
    ended = subprocess.Popen(["true"])
    ended.wait()
    of_ended = [holdings.KINDS[kind](ended.pid) for kind in ("memory_mb", "descriptors", "threads")]
    assert of_ended == [None, None, None]


def test_helpers_of_a_kind_are_added_up_and_one_unknown_makes_all_unknown() -> None:
    assert holdings._sum([2.0, 3.0]) == 5.0
    assert holdings._sum([2.0, None]) is None
    assert holdings._sum([]) == 0.0


def test_a_module_is_known_by_its_command_line() -> None:
    assert module_of(["/usr/bin/python3", "-m", "analyzer.judge", "--socket", "9"]) == (
        "analyzer.judge"
    )
    assert module_of(["python3", "netagent", "run", "-m"]) == ""
    assert module_of([]) == ""


def test_the_least_of_some_readings_counts() -> None:
    key, gone = ("h0/agent", "threads"), ("h1/agent", "threads")
    one = Reading({key: 5.0, gone: None}, {"h0/agent": {7}})
    two = Reading({key: None}, {"h0/agent": {9}})
    assert least([one, two]) == Reading({key: 5.0, gone: None}, {"h0/agent": {7, 9}})


def test_the_folder_is_measured_by_its_parts(tmp_path: Path) -> None:
    names = (
        "netagent.duckdb", "netagent.duckdb.wal", "netagent.duckdb.summaries/0001.segment",
        "netagent.duckdb.history/minute/2026-11-27/0154.pairs.parquet",
        "netagent.duckdb.baselines", "netagent.duckdb.routes", "recording/0001.part",
        "analyzer.log", "probes.key",
    )  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(1 << 20))
    parts = ("baselines", "history", "log", "recording", "rest", "routes", "summaries")
    found = {f"folder: {part}": 1.0 for part in parts} | {"folder: database": 2.0, "folder": 9.0}
    assert sizes(tmp_path) == {(part, "disk_mb"): size for part, size in found.items()}


def test_an_rdma_lab_must_have_queue_pairs_and_helpers() -> None:
    wanted = {
        ("all devices", "queue_pairs"),
        ("h0/agent: netagent.adapters.rdma.resolver", "threads"),
    }
    assert wanted <= expected(Shape(transport=Transport.RDMA))
    assert not wanted & expected(Shape())
