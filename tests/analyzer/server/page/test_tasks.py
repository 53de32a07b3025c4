# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.diagnosis.inquiry import Answer
from analyzer.server.page import tasks as module
from analyzer.server.page.page import Page
from analyzer.server.page.tasks import ASKED_NS, _skeleton, task, tasks
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from analyzer.skeleton.infer import Skeleton
from analyzer.skeleton.judging import Used
from analyzer.skeleton.plans import Plan
from netagent.model.errors import CapabilityMissing
from netagent.model.task import Task
from tests.analyzer.server.page.looking import incident, on

INQUIRED = {
    "answer": Answer.INNOCENT.value, "innocent": True, "against": [], "not_looked_at": ["h9"],
    "windows": 12, "hosts": {"h0": 12, "h1": 11}, "sent": 60_000, "lost": 1,
    "lost_at_most": 0.000079, "rtt_us": {"median": 14.9, "p99": 21.2, "longest": 190.0},
    "pairs": [{}, {}], "unprobed": [["a/rail0", "b/rail0"]],
    "walks": {"delivered": 3}, "since_ns": 1, "until_ns": 2,
}  # fmt: skip


def test_tasks_are_listed_with_what_is_open_about_them(tmp_path):
    async def work(looked):
        await looked.tell(incident("i1", "t0", "t1"))
        told = tasks(Page(looked.analyzer), Sight())
        assert [(e["id"], e["hosts"], e["endpoints"], e["list"]) for e in told["tasks"]] == [
            (f"t{n}", 2, 4, "basic") for n in range(3)
        ]
        assert [each["incidents"] for each in told["tasks"]] == [["i1"], ["i1"], []]
        assert [e["at_fault"] for e in told["tasks"]] == [["switch spine-0"]] * 2 + [[]]
        assert {each["innocent"] for each in told["tasks"]} == {None}
        assert [e["id"] for e in tasks(Page(looked.analyzer), Sight(("t1",)))["tasks"]] == ["t1"]

    on(tmp_path, work)


def test_of_too_many_tasks_the_rest_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_TASKS", 1)

    async def work(looked):
        told = tasks(Page(looked.analyzer), Sight())
        assert (len(told["tasks"]), told["omitted"]) == (1, 2)

    on(tmp_path, work)


def test_a_task_tells_what_it_is_what_it_loses_and_who_is_missing(tmp_path):
    async def work(looked):
        await looked.tell(incident("i1", "t0"), incident("i2", "t1"))
        declared = Task("t0", ("c0", "c1", "cx"), 2, (0, 1), declared=True)
        await looked.analyzer.service.put_task(declared, 0)
        later_ns = looked.analyzer.clock() + 5 * 10**9
        looked.analyzer.clock = lambda: later_ns
        told = await task(Page(looked.analyzer), Sight(("t0",)), "t0")
        assert (told["declared"], told["endpoints_expected"], told["rails"]) == (True, 6, (0, 1))
        assert told["hosts"] == ["h0", "h1"]
        assert [each["container"] for each in told["missing"]] == ["cx"]
        assert [each["id"] for each in told["incidents"]] == ["i1"]
        lost = {(told["matrix"]["rows"][r], told["matrix"]["cols"][c]): lost
                for r, c, _, lost, *_ in told["matrix"]["cells"]}  # fmt: skip
        assert {pair for pair, many in lost.items() if many} == {("c0/rail0", "c1/rail0")}
        assert (told["series"], told["inquiry"]) == ([], None)

    on(tmp_path, work)


def test_without_a_window_the_rest_is_told_all_the_same(tmp_path):
    async def work(looked):
        page = Page(looked.analyzer)

        async def draw(_asked):
            raise CapabilityMissing("the judge", "later")

        looked.analyzer.judge.draw = draw
        assert (await task(page, Sight(), "t0"))["matrix"] is None

    on(tmp_path, work)


@pytest.mark.parametrize(
    ("answer", "innocent", "verdict"),
    [
        (Answer.INNOCENT, True, "innocent"),
        (Answer.SUSPECT, False, "not innocent"),
        (Answer.CANNOT_TELL, None, "cannot tell"),
    ],
)
def test_what_was_asked_lately_is_told_to_who_may_see_all(tmp_path, answer, innocent, verdict):
    async def work(looked):
        analyzer, page = looked.analyzer, Page(looked.analyzer)
        analyzer.inquired["t0"] = analyzer.clock(), INQUIRED | {"answer": answer.value}
        [first, *_] = tasks(page, Sight())["tasks"]
        assert first["innocent"] is innocent
        asked = (await task(page, Sight(), "t0"))["inquiry"]
        assert asked["verdict"] == verdict
        assert asked["looked_at"] == [
            "2 of 3 pairs were probed", "1 of 2 hosts sent all 12 windows, the least 11",
            "60,000 probes, of which 1 were lost; loss is below 0.0079 %, 95 % sure",
            "round trips: median 0.015 ms, p99 0.021 ms, longest 0.190 ms",
            "3 walks through flow tables: delivered",
        ]  # fmt: skip
        assert (await task(page, Sight(("t0",)), "t0"))["inquiry"] is None
        analyzer.inquired["t0"] = analyzer.clock() - ASKED_NS, INQUIRED
        assert (await task(page, Sight(), "t0"))["inquiry"] is None

    on(tmp_path, work)


def test_nobody_is_told_of_a_task_that_is_not_there_or_not_theirs(tmp_path):
    async def work(looked):
        for sees, name in ((Sight(), "none"), (Sight(("t0",)), "t1")):
            with pytest.raises(Problem):
                await task(Page(looked.analyzer), sees, name)

    on(tmp_path, work)


def test_groups_of_a_skeleton_are_told_as_far_as_they_fit(monkeypatch):
    monkeypatch.setattr(module, "MAX_NAMED", 5)
    plan = {"confidence": 0.9, "dp": 2, "groups": {"dp": [["a", "b"], ["c", "d"], ["e", "f"]]}}
    told = _skeleton(plan)
    assert told["groups"] == {"dp": [["a", "b"], ["c", "d"]]}
    assert (told["groups_omitted"], told["dp"], told["tp"]) == (1, 2, None)
    assert _skeleton({"reason": "too young"})["groups"] == {}
    wide = _skeleton(plan | {"superset": True, "pp": 8, "ep": 1})
    assert (wide["dp"], wide["pp"], wide["ep"]) == (None, 8, None)  # who is a replica is unknown


@pytest.mark.parametrize("period_s", [0.0, 4.0004])
def test_the_rhythm_of_iterations_is_told_as_far_as_it_was_inferred(tmp_path, period_s):
    async def work(looked):
        page = Page(looked.analyzer)
        assert (await task(page, Sight(), "t0"))["rhythm"] is None
        found = Skeleton(0.9144, "", 1, 1, 1, 1, {}, np.zeros((0, 2), np.int64), period_s=period_s)
        plan = Plan(1, 17, Used(found, None, 10**9, frozenset(), (), frozenset()), "")
        looked.analyzer.skeletons.plan = {"t0": plan}.get
        expected = {"period_s": 4.0, "confidence": 0.914, "since_ns": 17} if period_s else None
        assert (await task(page, Sight(("t0",)), "t0"))["rhythm"] == expected

    on(tmp_path, work)
