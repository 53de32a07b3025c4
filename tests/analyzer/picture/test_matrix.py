# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.picture import matrix as module
from analyzer.picture.asked import Matrix
from analyzer.picture.scene import UNKNOWN
from tests.analyzer.picture.scenes import (
    ENDPOINTS,
    PORTS,
    Flow,
    by,
    finished,
    flows,
    host_of,
    leaf_of,
    mean_ns,
    quantile,
    scene_of,
    task_of,
    traced,
)

NAMES = {
    "host": host_of,
    "rail": lambda number: f"rail{number % 2}",
    "task": task_of,
}


def matrix(scene, asked):
    return finished(module.matrix(scene, asked))


def cells(drawn):
    """Return cells by the names of their rows and columns."""
    return {(drawn["rows"][r], drawn["cols"][c]): rest for r, c, *rest in drawn["cells"]}


def agrees(drawn, naive):
    found = cells(drawn)
    assert found.keys() == naive.keys()
    for name, (sent, lost, mean, p99, pairs) in found.items():
        assert (sent, lost, pairs) == (naive[name][0], naive[name][1], len(naive[name][3]))
        trips = naive[name][2]
        expected = mean_ns(trips)
        assert mean is expected is None or abs(mean - expected) <= 1
        if trips:
            assert p99 == pytest.approx(quantile(trips, 0.99), rel=0.011)
        else:
            assert p99 is None


@given(flows, st.sampled_from(sorted(NAMES)))
def test_cells_are_what_one_counts_probe_by_probe(window, unit):
    name = NAMES[unit]
    drawn = matrix(scene_of(window), Matrix(by=unit))
    agrees(drawn, by(window, lambda f: (name(f.source), name(f.target))))
    assert drawn["omitted"] == {"rows": 0, "cols": 0}


@given(flows)
def test_leaves_are_those_that_traces_show(window):
    known = traced(window)
    drawn = matrix(scene_of(window), Matrix(by="leaf"))
    agrees(
        drawn, by(window, lambda f: (known.get(f.source, UNKNOWN), known.get(f.target, UNKNOWN)))
    )


@given(flows, st.sampled_from([("t0",), ("t[01]",), ("t9",), ()]))
def test_who_may_see_some_tasks_sees_what_is_between_their_endpoints_alone(window, patterns):
    may = {"t0", "t1"} if patterns == ("t[01]",) else set(patterns)
    mine = [f for f in window if {task_of(f.source), task_of(f.target)} <= may]
    drawn = matrix(scene_of(window), Matrix(by="host", tasks=patterns))
    agrees(drawn, by(mine, lambda f: (host_of(f.source), host_of(f.target))))


@given(flows)
def test_two_hosts_open_into_their_endpoints_and_a_leaf_into_its_hosts(window):
    end = [str(each.id) for each in ENDPOINTS]
    scene, known = scene_of(window), traced(window)
    both = [f for f in window if (host_of(f.source), host_of(f.target)) == ("h0", "h1")]
    drawn = matrix(scene, Matrix(by="host", row="h0", col="h1"))
    agrees(drawn, by(both, lambda f: (end[f.source], end[f.target])))
    assert (drawn["by"], drawn["opens"]) == ("endpoint", "pair")
    of_leaf = [f for f in window if known.get(f.source) == leaf_of(0)]
    drawn = matrix(scene, Matrix(by="leaf", row=leaf_of(0)))
    agrees(drawn, by(of_leaf, lambda f: (host_of(f.source), host_of(f.target))))
    assert (drawn["by"], drawn["opens"]) == ("host", "pair")


@given(flows)
def test_a_task_is_shown_by_its_endpoints(window):
    end = [str(each.id) for each in ENDPOINTS]
    mine = [f for f in window if task_of(f.source) == task_of(f.target) == "t1"]
    drawn = matrix(scene_of(window), Matrix(within="t1"))
    agrees(drawn, by(mine, lambda f: (end[f.source], end[f.target])))
    assert drawn["by"] == "endpoint"


def test_a_task_of_more_endpoints_than_fit_is_shown_by_its_hosts(monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    window = [Flow(4, 6, PORTS[0], 0, (1_000,), (None, None))]
    assert matrix(scene_of(window), Matrix(within="t1"))["by"] == "host"


def test_nobody_knows_a_name_that_is_none():
    window = [Flow(0, 2, PORTS[0], 0, (1_000,), (0, 0))]
    for asked in (Matrix(within="t9"), Matrix(by="task", row="t9"), Matrix(row="leaf-9")):
        assert matrix(scene_of(window), asked)["cells"] == []


def test_of_more_than_fit_those_are_shown_that_lost_most_with_whom_they_lost_it(monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    window = [
        Flow(0, 2, PORTS[0], 0, (1_000,) * 5, (None, None)),
        Flow(4, 10, PORTS[0], 3, (), (None, None)),
        Flow(6, 8, PORTS[0], 1, (), (None, None)),
    ]
    drawn = matrix(scene_of(window), Matrix(by="host"))
    assert drawn["rows"] == drawn["cols"] == ["h2", "h5"]
    assert drawn["cells"] == [[0, 1, 3, 3, None, None, 1]]
    assert drawn["omitted"] == {"rows": 4, "cols": 4}
