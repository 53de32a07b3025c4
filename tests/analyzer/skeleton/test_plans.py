# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.intake.traffic import TrafficBook, traffic_of
from analyzer.roster.registry import Registry
from analyzer.simulate.scattered import Scatter, scatter
from analyzer.simulate.workload import Disturbance, Template, generate
from analyzer.skeleton.infer import Skeleton
from analyzer.skeleton.judging import Case, is_ordered, judge, natural
from analyzer.skeleton.plans import FINE_S, LASTS, STATED_NS, Skeletons
from analyzer.skeleton.stated import Stated
from netagent.model.endpoint import EndpointState
from netagent.model.ids import EndpointId
from netagent.model.task import Parallelism, Task
from netagent.wire.messages import UNKNOWN_BYTES, Summary, TrafficBlock
from tests.analyzer.cluster import endpoint, registration

S = 10**9
EPOCH = 1_800_000_000
JOB = Parallelism(4, 2, 2)
HOSTS = 8
STEP = 5
TASK = Task("train-a", tuple(f"c{n}" for n in range(HOSTS)), 2, (0, 1), declared=True)
NOISE = Disturbance(noise=0.1)
SHORT = Template(period_s=20, plateau_s=10, burst_s=2, stage_shift_s=1)


class Cloud:
    """One task on eight hosts of two rails, and an analyzer that hears what they send."""

    def __init__(self, *tasks, **options):
        self.registry, self.book = Registry(), TrafficBook()
        self.skeletons = Skeletons(self.registry, **options)
        self.now = EPOCH
        for task in tasks or (TASK,):
            self.registry.put_task(task, 0)
        for host in range(HOSTS):
            self.register(host)
        self.touched, self.reasons, self.rate, self.at = [], [], None, 0

    def register(self, host, *, generation=1, state=EndpointState.UP, container=None):
        own = [endpoint(f"h{host}", container or f"c{host}", rail, state=state) for rail in (0, 1)]
        message = registration(f"h{host}", *own, generation=generation)
        self.registry.apply(message, self.now * S)

    def plays(self, job=JOB, *, seed=1, ticks=3000, template=SHORT, scale=1.0, tick_s=1.0):
        """Send what `job` does from now on."""
        work = generate(
            job,
            seed=seed,
            ticks=ticks,
            tick_s=tick_s,
            rnics_per_host=2,
            template=template,
            disturbance=NOISE,
        )
        self.rate, self.at, self.tick_s = scale * work.series.rate, 0, tick_s
        return work

    def pause(self):
        self.rate = np.full_like(self.rate, 100.0)

    def run(self, seconds):
        """Let time pass in windows; collect which hosts' lists changed, and every reason given."""
        for _ in range(seconds // STEP):
            self.now += STEP
            if self.rate is not None:
                self._send()
            now_ns = self.now * S
            self.touched.append(self.skeletons.refresh(now_ns))
            for case in self.skeletons.cases(now_ns):
                judgement = judge(case, self.book)
                done = self.skeletons.settle(case, judgement, now_ns=now_ns, took_ns=10**6)
                self.touched.append(done)
            if (plan := self.plan) and plan.reason not in self.reasons[-1:]:
                self.reasons.append(plan.reason)
        return self

    def _send(self):
        ticks = round(STEP / self.tick_s)
        part = self.rate[:, self.at : self.at + ticks]
        self.at += ticks
        for host in range(HOSTS):
            sent = np.nan_to_num(part).astype("<u8")
            sent[np.isnan(part)] = UNKNOWN_BYTES
            block = TrafficBlock(
                start_ns=(self.now - STEP) * S,
                tick_ns=round(self.tick_s * S),
                endpoint=b"\0\0\1\0",
                sent=sent[2 * host : 2 * host + 2].tobytes(),
            )
            ids = tuple(EndpointId(f"c{host}", rail) for rail in (0, 1))
            summary = Summary(
                host=f"h{host}",
                instance="one",
                start_ns=(self.now - STEP) * S,
                width_ns=STEP * S,
                endpoints=ids,
                traffic=(block,),
            )
            blocks = traffic_of(summary)
            self.book.add(summary.host, summary.clock, blocks, set(ids), self.now * S)

    @property
    def plan(self):
        return self.skeletons.plan("train-a")

    def often(self, a, b):
        """Whether endpoint `a` probes endpoint `b` often."""
        used = self.skeletons.used("train-a", EndpointId(a, 0))
        return used is None or EndpointId(b, 0) in used

    def pairs(self):
        """Return the pairs of rail 0 that are probed often, as numbers of containers."""
        pairs = {(a, b) for a in range(HOSTS) for b in range(HOSTS) if self.often(f"c{a}", f"c{b}")}
        assert all(self.often(f"c{b}", f"c{a}") for a, b in pairs)
        return {(a, b) for a, b in pairs if a < b}


EVERYTHING = {(a, b) for a in range(HOSTS) for b in range(HOSTS) if a < b}
DP4_PP2 = {(a, b) for a, b in EVERYTHING if (b - a) % 2 == 0} | {(0, 1), (2, 3), (4, 5), (6, 7)}


def learned(**played):
    cloud = Cloud()
    cloud.plays(**played)
    return cloud.run(330)


def test_a_task_begins_on_its_basic_list_and_goes_over_to_its_skeleton():
    cloud = Cloud()
    cloud.plays()
    cloud.run(230)
    assert cloud.plan.used is None
    assert cloud.plan.reason == "not enough traffic yet"
    assert cloud.pairs() == EVERYTHING
    cloud.run(100)
    assert cloud.plan.version == 2
    assert cloud.pairs() == DP4_PP2
    assert {f"h{n}" for n in range(HOSTS)} in cloud.touched
    found = cloud.plan.used.skeleton
    assert (found.dp, found.pp, found.tp, found.ep) == (4, 2, 2, 1)


def test_a_skeleton_that_fits_stays():
    cloud = learned()
    version = cloud.plan.version
    cloud.run(1200)
    assert cloud.plan.version == version


def test_a_pause_falls_back_at_once_and_the_skeleton_comes_back_by_itself():
    cloud = learned()
    rate, at = cloud.rate, cloud.at
    cloud.pause()
    cloud.run(50)
    assert cloud.plan.used is None
    assert "next to nothing" in cloud.plan.reason
    assert cloud.pairs() == EVERYTHING
    cloud.rate, cloud.at = rate, at
    cloud.run(150)
    assert cloud.pairs() == DP4_PP2


def test_a_restart_with_another_parallelism_falls_back_and_is_learned_anew():
    cloud = learned()
    cloud.plays(Parallelism(1, 8, 2), seed=7)
    cloud.run(90)
    assert cloud.plan.used is None
    assert cloud.pairs() == EVERYTHING
    cloud.run(400)
    assert cloud.pairs() == {(n, n + 1) for n in range(HOSTS - 1)}


def test_membership_that_changes_ends_a_skeleton_in_the_same_step():
    cloud = learned()
    crashed = EndpointState.CRASHED
    cloud.register(3, generation=2, state=crashed)
    cloud.run(STEP)
    assert cloud.plan.used is None
    assert cloud.plan.reason == "14 of 16 endpoints are up"
    cloud.register(3, generation=3)
    cloud.run(150)
    assert cloud.pairs() == DP4_PP2  # the same endpoints are back, and their traffic fits


def test_who_comes_between_two_looks_is_probed():
    cloud = learned()
    assert not cloud.often("c0", "c3")
    new = endpoint("h99", "new", task="train-a")
    cloud.registry.put_task(replace(TASK, containers=(*TASK.containers, "new")), 1)
    cloud.registry.apply(registration("h99", new), 1)
    assert cloud.often("c0", "new")
    cloud.registry.apply(registration("h99", generation=2), 2)
    cloud.registry.put_task(TASK, 3)
    cloud.skeletons.refresh(cloud.now * S)
    assert not cloud.often("c0", "c3")  # it left before anybody looked


@pytest.mark.parametrize(
    ("task", "options", "why"),
    [
        (replace(TASK, skeleton=False), {}, "the task opted out"),
        (TASK, {"enabled": False}, "skeletons are switched off in the analyzer's configuration"),
        (replace(TASK, containers=(*TASK.containers, "c8")), {}, "16 of 18 endpoints are up"),
    ],
)
def test_reasons_to_stay_on_the_basic_list(task, options, why):
    cloud = Cloud(task, **options)
    cloud.plays()
    cloud.run(400)
    assert (cloud.plan.used, cloud.plan.reason) == (None, why)
    assert cloud.skeletons.to_sample(cloud.now * S) == {}


SIX = Parallelism(4, 6)


def scattered_cloud(name, **placed):
    """Return the plan of a task of 24 containers of which nothing but the traffic is known."""
    work = scatter(
        generate(SIX, seed=1, ticks=400, template=SHORT, disturbance=NOISE),
        Scatter(missing=0.1, **placed), seed=1,
    ).work  # fmt: skip
    series, registry, book = work.series, Registry(), TrafficBook()
    ids = [
        EndpointId(name(container), rail)
        for container, rail in zip(series.container.tolist(), series.rail.tolist(), strict=True)
    ]
    for host in np.unique(series.host).tolist():
        rows = np.flatnonzero(series.host == host)
        own = [endpoint(f"h{host}", ids[row].container, ids[row].rail) for row in rows]
        registry.apply(registration(f"h{host}", *own), EPOCH * S)
        block = TrafficBlock(
            start_ns=EPOCH * S, tick_ns=S, endpoint=np.arange(len(rows)).astype("<u2").tobytes(),
            sent=series.rate[rows].astype("<u8").tobytes(),
        )  # fmt: skip
        summary = Summary(
            host=f"h{host}", instance="one", start_ns=EPOCH * S, width_ns=400 * S,
            endpoints=tuple(ids[row] for row in rows), traffic=(block,),
        )  # fmt: skip
        book.add(summary.host, summary.clock, traffic_of(summary), set(ids), (EPOCH + 400) * S)
    skeletons, now_ns = Skeletons(registry), (EPOCH + 410) * S
    skeletons.refresh((EPOCH - 1) * S)
    for case in skeletons.cases(now_ns):
        skeletons.settle(case, judge(case, book), now_ns=now_ns, took_ns=10**6)
    used = {tuple(sorted((ids[a], ids[b]))) for a, b in work.truth.edges.tolist()}
    return skeletons.plan("train-a"), used


@pytest.mark.parametrize("placed", [{}, {"paired": 0.4}])
@pytest.mark.parametrize(
    "name", ["w{}".format, lambda number: chr(97 + number) * 2], ids=("numbers", "letters")
)
def test_containers_in_no_order_two_on_a_rail_have_a_superset(name, placed):
    plan, used = scattered_cloud(name, **placed)
    assert plan.used is not None
    assert plan.used.skeleton.superset
    assert used <= {tuple(sorted(pair)) for pair in plan.used.pairs}
    assert "all pairs between stages that follow each other" in plan.reason


def test_names_say_the_order_by_their_numbers_or_not_at_all():
    def ordered(*names, listed=()):
        task = Task("train-a", listed, declared=bool(listed))
        members = tuple(endpoint("h", name) for name in names)
        return is_ordered(Case(task, members, None, None, 0, 0, infer=True))

    assert ordered("w-9", "w-10")
    assert ordered("h1-c0", "h0-c1", "h0-c0")
    assert ordered("w-9-x7k2p", "w-10-a", "w-11-3")
    assert not ordered("w-9-x7k2p", "w-11-a")
    assert not ordered("w-9-x7k2p", "w-9-a")
    assert not ordered("3fa9", "b27c")
    assert not ordered("a", "b")
    assert ordered("b", "a", listed=("a", "b"))
    assert not ordered("b", "a", listed=("a", "c"))


def test_an_opt_out_takes_a_skeleton_back():
    cloud = learned()
    cloud.registry.put_task(replace(TASK, skeleton=False), cloud.now * S)
    cloud.run(STEP)
    assert cloud.plan.reason == "the task opted out"
    assert cloud.pairs() == EVERYTHING


def test_a_job_without_rhythm_stays_on_the_basic_list():
    cloud = Cloud()
    cloud.plays()
    cloud.rate = np.random.default_rng(1).random(cloud.rate.shape) * 1e6  # somebody debugs
    cloud.run(400)
    assert cloud.plan.used is None
    assert cloud.plan.reason == "the endpoints have no common rhythm"


def test_a_declared_parallelism_tells_what_no_signal_does():
    order = np.random.default_rng(2).permutation(HOSTS)
    declared = replace(TASK, containers=tuple(f"c{n}" for n in order), parallelism=JOB)
    cloud = Cloud(declared)
    work = cloud.plays()
    rows = np.argsort(order)  # container c_n runs the ranks of its place in the declaration
    cloud.rate = work.series.rate.reshape(HOSTS, 2, -1)[rows].reshape(work.series.rate.shape)
    cloud.run(330)
    place = {int(container): at for at, container in enumerate(order)}
    assert {tuple(sorted((place[a], place[b]))) for a, b in cloud.pairs()} == DP4_PP2


def test_several_tasks_have_plans_of_their_own():
    cloud = Cloud(TASK, Task("train-b", ("x0",), 1, (0,), declared=True))
    cloud.plays()
    cloud.run(330)
    assert cloud.plan.used is not None
    assert cloud.skeletons.plan("train-b").reason == "0 of 1 endpoints are up"
    cloud.registry.delete_task("train-b", cloud.now * S)
    cloud.run(STEP)
    assert cloud.skeletons.plan("train-b") is None


def test_an_answer_that_was_overtaken_changes_nothing():
    cloud = Cloud()
    cloud.plays()
    cloud.run(240)
    now_ns = (cloud.now + 30) * S
    (case,) = cloud.skeletons.cases(now_ns)
    judgement = judge(replace(case, until_ns=case.until_ns - 30 * S), cloud.book)
    cloud.register(0, generation=2, container="other")
    cloud.skeletons.refresh(now_ns)
    assert cloud.skeletons.settle(case, judgement, now_ns=now_ns, took_ns=1) == set()
    assert cloud.plan.used is None


QUICK = Template(period_s=4, plateau_s=2, burst_s=0.5, stage_shift_s=0.4, microbatches=4)
ALL_FINELY = {f"h{n}": FINE_S for n in range(HOSTS)}


def test_iterations_of_seconds_are_learned_from_finer_ticks_which_go_on():
    cloud = Cloud()
    cloud.plays(template=QUICK, tick_s=0.1, ticks=6000)
    cloud.run(2 * STEP)
    assert cloud.skeletons.to_sample(cloud.now * S) == ALL_FINELY
    assert cloud.skeletons.to_sample(cloud.now * S) == {}
    cloud.run(120)
    assert cloud.pairs() == DP4_PP2
    assert cloud.plan.used.tick_ns == S // 10
    assert cloud.skeletons.to_sample(cloud.now * S) == ALL_FINELY


def test_a_job_that_begins_long_after_its_containers_is_sampled_finely_then():
    cloud = Cloud()
    cloud.plays()
    cloud.pause()
    cloud.run(900)
    assert cloud.plan.reason == "it sends next to nothing"
    assert cloud.skeletons.to_sample(cloud.now * S) == {}
    cloud.plays(template=QUICK, tick_s=0.1, ticks=6000)
    cloud.run(60)
    assert cloud.skeletons.to_sample(cloud.now * S) == ALL_FINELY


def test_the_quiet_before_a_job_is_no_history_of_it():
    cloud = Cloud()
    cloud.plays(tick_s=0.1, ticks=2000)
    cloud.rate = np.full_like(cloud.rate, 2e3) * np.random.default_rng(1).random(cloud.rate.shape)
    cloud.run(60)
    cloud.plays(template=QUICK, tick_s=0.1, ticks=6000)
    cloud.run(30)
    assert cloud.plan.used is None
    recent = cloud.skeletons.recent("train-a", cloud.book, S // 10, cloud.now * S)
    assert recent.rate.shape[1] < 300
    cloud.run(60)
    assert cloud.pairs() == DP4_PP2


def test_a_task_of_which_nothing_is_learned_is_seldom_sampled_finely():
    cloud = Cloud()
    cloud.plays(ticks=8000)
    cloud.rate = np.random.default_rng(1).random(cloud.rate.shape) * 1e6
    asked = 0
    for _ in range(2 * 3600 // 60):
        cloud.run(60)
        asked += bool(cloud.skeletons.to_sample(cloud.now * S))
    assert 3 <= asked <= 5


def test_an_opt_out_while_a_task_is_thought_about_counts():
    cloud = Cloud()
    cloud.plays()
    cloud.run(240)
    for _ in range(4):
        cloud.now += STEP
        cloud._send()
    (case,) = cloud.skeletons.cases(cloud.now * S)
    judgement = judge(case, cloud.book)
    assert judgement.used is not None
    cloud.registry.put_task(replace(TASK, skeleton=False), cloud.now * S)
    done = cloud.skeletons.settle(case, judgement, now_ns=cloud.now * S, took_ns=1)
    assert (done, cloud.plan.used) == (set(), None)


def test_traffic_that_is_late_for_all_is_waited_for():
    cloud = learned()
    cloud.rate = np.full_like(cloud.rate, np.nan)
    cloud.run(20)
    assert cloud.plan.used is not None
    cloud.run(300)
    assert cloud.plan.used is None
    assert "missing" in cloud.plan.reason


def test_recent_traffic_is_told_in_the_order_of_ranks():
    cloud = learned()
    recent = cloud.skeletons.recent("train-a", cloud.book, None, cloud.now * S)
    assert recent.tick_s == 1
    assert recent.names[:3] == ("c0/rail0", "c0/rail1", "c1/rail0")
    assert recent.host.tolist() == sorted(recent.host.tolist())
    assert cloud.skeletons.recent("train-a", cloud.book, 7, cloud.now * S) is None
    assert cloud.skeletons.recent("no-such", cloud.book, None, cloud.now * S) is None


def test_names_sort_as_people_count():
    assert sorted(["w10", "w9", "w1a2", "v"], key=natural) == ["v", "w1a2", "w9", "w10"]


def test_a_busy_task_of_which_nothing_can_be_learned_is_looked_at_ever_less_often():
    cloud = Cloud()
    rng = np.random.default_rng(1)
    cloud.rate, cloud.at, cloud.tick_s = np.full((2 * HOSTS, 1000), 10.0), 0, 1.0
    cloud.run(1000)
    cloud.rate, cloud.at = rng.uniform(1e6, 1e7, (2 * HOSTS, 4000)), 0
    at = []

    def settle(case, judgement, **rest):
        at.extend([cloud.now] if case.infer else [])
        return settled(case, judgement, **rest)

    settled, cloud.skeletons.settle = cloud.skeletons.settle, settle
    cloud.run(3000)
    assert cloud.plan.used is None
    gaps = np.diff(at)
    assert gaps[:9].tolist() == [10] * 9  # a job that begins now is learned as soon as it can be
    assert (np.diff(gaps) >= 0).all()
    assert gaps[-1] == 120


# --- what operators state -----------------------------------------------------------------------


def says(cloud, work, *, confident=True, edges=None):
    """Have the task's operators state the true pairs, or others; return whose list changed."""
    members = tuple(cloud.registry.active_endpoints(TASK.id))
    true = work.truth.edges if edges is None else edges
    lack = "" if confident else "the log is not whole"
    said = Skeleton(1.0 if confident else 0.0, lack, 4, 2, 2, 1, {}, true)
    return cloud.skeletons.state(TASK.id, Stated(said, members), cloud.now * S)


def test_lists_follow_what_operators_state_at_once_and_leave_it_when_they_fall_silent():
    cloud = Cloud()
    work = cloud.plays()
    cloud.run(STEP)
    assert says(cloud, work) == {f"h{n}" for n in range(HOSTS)}
    assert (cloud.plan.source, cloud.plan.version) == ("operators", 2)
    assert len(cloud.plan.used.pairs) == 2 * len(work.truth.edges)
    assert says(cloud, work) == set()
    assert cloud.skeletons.used(TASK.id, EndpointId("c0", 0)) is not None
    cloud.touched.clear()
    cloud.run(STATED_NS // S)
    assert (cloud.plan.source, cloud.plan.used, cloud.plan.version) == ("traffic", None, 3)
    assert {f"h{n}" for n in range(HOSTS)} in cloud.touched


def test_what_operators_no_longer_state_is_left_to_the_traffic():
    cloud = Cloud()
    work = cloud.plays()
    cloud.run(STEP)
    says(cloud, work)
    assert says(cloud, work, confident=False) == {f"h{n}" for n in range(HOSTS)}
    assert (cloud.plan.source, cloud.plan.used) == ("traffic", None)


def test_a_task_whose_members_change_has_its_basic_list_whatever_was_stated():
    cloud = Cloud()
    work = cloud.plays()
    cloud.run(STEP)
    says(cloud, work)
    cloud.register(0, generation=2, container="c9")
    cloud.run(STEP)
    assert cloud.plan.used is None
    assert says(cloud, work) == set()


def test_operators_and_traffic_that_agree_follow_the_same_list():
    cloud = Cloud()
    work = cloud.plays()
    cloud.run(1200)
    assert cloud.plan.used is not None
    assert says(cloud, work) == set()
    assert cloud.plan.source == "operators"
    assert cloud.skeletons.quarrel(TASK.id) is None


def test_where_they_contradict_each_other_neither_is_followed_and_that_is_told_once_it_lasts():
    cloud = Cloud()
    work = cloud.plays()
    cloud.run(1200)
    fewer = work.truth.edges[2:]
    assert says(cloud, work, edges=fewer) == {f"h{n}" for n in range(HOSTS)}
    assert cloud.plan.used is None
    assert "leave out 2 that it has" in cloud.plan.reason
    assert cloud.skeletons.quarrel(TASK.id) is None
    for _ in range(LASTS - 1):
        says(cloud, work, edges=fewer)
    assert cloud.skeletons.quarrel(TASK.id).untold == 2
    for _ in range(LASTS - 1):  # it is over when it is over for as long
        says(cloud, work)
        assert cloud.skeletons.quarrel(TASK.id) is not None
    says(cloud, work, edges=fewer)
    for _ in range(LASTS):
        says(cloud, work)
    assert cloud.skeletons.quarrel(TASK.id) is None
    assert cloud.plan.source == "operators"
