# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from analyzer.intake.traffic import TrafficBook
from analyzer.server import planner
from analyzer.server.planner import Planner
from analyzer.skeleton.judging import Judgement
from analyzer.skeleton.plans import Skeletons
from analyzer.skeleton.sampling import Sampling
from netagent.model.task import Task
from tests.analyzer.skeleton.test_plans import Cloud
from tests.waiting import until

S = 10**9


class Service:
    def __init__(self):
        self.replanned = []

    def replan(self, hosts):
        self.replanned.append(set(hosts))


def planner_of(cloud, sampling=None):
    clock = lambda: cloud.now * S  # noqa: E731
    made = Planner(cloud.skeletons, cloud.book, Service(), sampling or Sampling(), clock)
    return made, made._service


def run_until(work, reached):
    async def main():
        running = asyncio.create_task(work.run())

        def well():
            assert not running.done()
            return reached()

        await until(well, within_s=60)
        running.cancel()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(planner, "STEP_S", 0.001)


def test_a_task_whose_traffic_cannot_be_judged_stops_no_other(monkeypatch):
    cloud = Cloud()
    cloud.registry.put_task(Task("aaa", ("x0", "x1"), 1, (0,), declared=True), 0)

    def judge(case, book):
        if case.task.id == "aaa":
            raise ZeroDivisionError
        return Judgement(None, "fine")

    monkeypatch.setattr(planner, "judge", judge)
    monkeypatch.setattr(Skeletons, "_excuse", lambda *_: "")
    work, _ = planner_of(cloud)
    failed = "its traffic could not be judged: ZeroDivisionError"
    expected = {"aaa": failed, "train-a": "fine"}

    def reasons():
        return {task: plan.reason for task, plan in cloud.skeletons.plans().items()}

    run_until(work, lambda: reasons() == expected)


def test_membership_is_followed_while_a_task_is_thought_about(monkeypatch):
    cloud = Cloud()
    cloud.plays()
    cloud.run(330)
    assert cloud.plan.used is not None
    slow = asyncio.Event()

    async def think(self, case):
        await slow.wait()

    monkeypatch.setattr(Planner, "_judge", think)
    cloud.now += 10
    work, service = planner_of(cloud)
    cloud.register(3, generation=2, container="other")
    run_until(work, lambda: service.replanned)
    assert cloud.plan.used is None


def test_hosts_of_a_task_that_begins_to_send_are_asked_for_fine_ticks():
    cloud, sampling = Cloud(), Sampling()
    cloud.plays()
    cloud.run(10)
    work, _ = planner_of(cloud, sampling)
    hosts = {each.host for each in cloud.registry.agents()}
    run_until(work, lambda: all(sampling.of(host, cloud.now * S) for host in hosts))
    assert sampling.of("elsewhere", cloud.now * S) is None


def test_an_empty_analyzer_has_nothing_to_plan():
    cloud = Cloud()
    cloud.skeletons, cloud.book = Skeletons(cloud.registry), TrafficBook()
    cloud.registry.delete_task("train-a", 0)
    work, service = planner_of(cloud)
    run_until(work, lambda: cloud.skeletons.plans() is not None)
    assert service.replanned == []
