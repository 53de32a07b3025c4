# SPDX-License-Identifier: Apache-2.0
from analyzer.commands.tasks import MAX_MISSING, report

TASK = {
    "id": "train-a", "declared": True, "containers": ["a0", "a1"], "rails": [0, 1],
    "endpoints_registered": 2, "endpoints_expected": 4, "list": "basic",
}  # fmt: skip
A1 = {"container": "a1", "declared_ns": 10**18}


def test_a_task_is_a_line_and_each_container_that_never_came_another_one():
    assert list(report([TASK | {"missing": [A1]}])) == [
        "TASK     KNOWN     CONTAINERS  RAILS  UP/EXPECTED  PROBED BY",
        "train-a  declared  2           0,1    2/4          basic",
        "missing: container a1 of train-a, declared 2001-09-09 01:46:40Z, never came",
    ]


def test_endpoints_that_crashed_are_registered_and_not_up():
    assert "1/4" in list(report([TASK | {"endpoints_up": 1}]))[1].split()


def test_what_kubernetes_declared_is_known_from_there():
    _, line = report([TASK | {"source": "kubernetes"}])
    assert line.split()[1] == "kubernetes"


def test_an_analyzer_of_an_earlier_version_says_nothing_of_them():
    assert len(list(report([TASK]))) == 2


def test_however_many_are_missing_they_fit_a_screen():
    lines = list(report([TASK | {"missing": [A1] * 500}]))
    assert len(lines) == 2 + MAX_MISSING + 1
    assert lines[-1] == "missing: 492 more of train-a; --json lists them"


def test_without_a_task_that_is_said():
    assert next(iter(report([]))).startswith("no tasks")
