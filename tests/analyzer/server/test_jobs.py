# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest
from msgspec import structs

from analyzer.detect.held import STUCK_NS
from analyzer.detect.operators.pauses import FIRST_NS, MOST_NS
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.operators.keeper import Keeper, Reported, Row, Told
from analyzer.operators.log import Group, GroupKind, Kind
from analyzer.replay import records
from analyzer.roster.registry import Registry
from analyzer.server.jobs import HEARD_NS, MOST_ENDS, PATIENCE_NS, SMALL, Jobs, choose, without
from analyzer.skeleton.logged import Disagreement
from analyzer.skeleton.plans import Skeletons
from netagent.model.errors import RemoteProtocolError, Unreachable
from netagent.wire.columns import pack
from netagent.wire.operators import OperatorGroup, OperatorProcess, OperatorsReply
from tests.analyzer.cluster import SECOND, endpoint, registration

RANKS = 4
START_NS = 10**18
DP = Group("dp0", GroupKind.DATA, tuple(range(RANKS)))


class World:
    """A job of one rank a host, its hosts' answers, and time."""

    def __init__(self):
        self.now_ns, self.given, self.asked = START_NS, [], []
        self.keeper, registry = Keeper(), Registry()
        self.registry = registry
        for rank in range(RANKS):
            of = endpoint(f"h{rank}", f"a{rank}")
            registry.apply(registration(f"h{rank}", of), START_NS)
        self.late: dict[int, float] = {}
        """Rank -> seconds that it computes longer in each step."""
        self.skeletons, self.replanned = Skeletons(registry), []
        self.jobs = Jobs(
            self.keeper, registry, self.ask, self.given.append, lambda: self.now_ns,
            self.skeletons, lambda _ends, _since_ns, _until_ns: 1.0, self.replanned.append,
        )  # fmt: skip

    def say(self, begun, *, ended=(), of=range(RANKS), job="train-a", container="a{}"):
        """Have hosts report which collective each rank began last, and which ended."""
        for rank in of:
            process = OperatorProcess(
                job=job, rank=rank, world=RANKS, pid=1, container=container.format(rank)
            )
            last = ended[rank] if ended else begun[rank] - 1
            told = Told(1, 64, 10, 10, 10, begun[rank], last, 0)
            row = Row(DP, "all_reduce", Kind.COLLECTIVE, told)
            self.keeper.take(f"h{rank}", (Reported(process, (row,)),), self.now_ns)

    async def ask(self, host, request):
        self.asked.append(host)
        (rank,) = request.ranks
        if host == "h9":
            raise Unreachable(host, "gone")
        return records_of(rank, self.late)

    def step(self):
        asyncio.run(self.jobs.step())
        return self.jobs.latest("train-a")


def records_of(rank, late, steps=24):
    """Return what a rank recorded: a collective, then it computes, then another collective."""
    slowest = max(late.values(), default=0.0)
    begun, ended = [], []
    for step in range(steps):
        for came, went in ((0.1, 0.11), (0.3 + late.get(rank, 0.0), 0.31 + slowest)):
            begun.append(round((1000 + step + came) * 1e9))
            ended.append(round((1000 + step + went) * 1e9))
    count, members = len(begun), list(range(RANKS))
    of = {"job": "train-a", "name": "dp0", "kind": "dp", "size": RANKS}
    group = pack(OperatorGroup, members=members, **of)
    return pack(
        OperatorsReply,
        processes=(
            OperatorProcess(job="train-a", rank=rank, world=RANKS, pid=1, container=f"a{rank}"),
        ),
        groups=(group,), ops=("all_reduce",),
        process=[0] * count, group=[0] * count, op=[0] * count,
        kind=[int(Kind.COLLECTIVE)] * count, step=[n // 2 for n in range(count)],
        peer=[0xFFFF_FFFF] * count,
        tag=[0] * count, bytes=[1 << 20] * count, sequence=list(range(1, count + 1)),
        begun_ns=begun, ended_ns=ended,
    )  # fmt: skip


def test_a_rank_that_is_late_again_and_again_is_told_with_its_endpoint():
    world = World()
    world.late = {2: 0.4}
    world.say([5] * RANKS)
    told = world.step()
    assert told.verdict.holdup is Holdup.SLOW_RANK
    assert [each.ranks for each in told.verdict.culprits] == [(2,)]
    assert [str(key) for key in told.endpoints[2]] == ["a2/rail0"]
    (given,) = world.given
    assert isinstance(given, records.HeldUp)
    assert given.jobs == (told,)


def test_of_a_job_that_is_well_nobody_is_named():
    world = World()
    world.say([5] * RANKS)
    assert world.step().verdict.culprits == ()
    assert world.asked == ["h0", "h1", "h2", "h3"]
    assert world.jobs.asked_bytes > 48 * RANKS


def test_what_operators_state_is_what_is_probed(monkeypatch):
    world = World()
    world.skeletons.refresh(world.now_ns)
    world.say([5] * RANKS)
    world.step()
    assert "all ranks exchange" in world.skeletons.plan("train-a").reason or not world.replanned
    monkeypatch.setattr("analyzer.skeleton.stated.FOR_PEOPLE", 1 << 20)
    monkeypatch.setattr("analyzer.skeleton.logged._tells", lambda *_: True)
    world.step()
    plan = world.skeletons.plan("train-a")
    assert (plan.source, len(plan.used.pairs)) == ("operators", RANKS * (RANKS - 1))


def quarrel(world, text="the operators' groups use 2 pairs that the traffic's leave out"):
    world.skeletons.quarrel = lambda _task: Disagreement(text, ("used by operators: a - b",), 2, 0)


def test_a_job_whose_traffic_and_operators_contradict_each_other_is_a_verdict_that_names_nobody():
    world = World()
    quarrel(world)
    world.say([5] * RANKS)
    told = world.step().verdict
    assert (told.holdup, told.culprits, told.innocent) == (Holdup.DISAGREEMENT, (), False)
    assert told.summary.startswith("sources disagree: the operators' groups use 2 pairs")
    world.late = {2: 0.4}
    told = world.step().verdict
    assert [each.ranks for each in told.culprits] == [(2,)]
    assert any(each.startswith("sources disagree") for each in told.evidence)


def _seen_to_go_on(world, begun, looks):
    """Have hooks see a job stand still, and probes rank 2 go on; return what is said of it."""
    for number in range(looks):
        world.say(begun, ended=[6] * 4)
        process = OperatorProcess(
            job="train-a", rank=2, world=RANKS, pid=7, container="a2", source="uprobes"
        )
        told = Told(1, 64, 10, 10, 10, 100 + number, 99 + number, 0)
        row = Row(DP, "allreduce", Kind.COLLECTIVE, told)
        world.keeper.take("h2", (Reported(process, (row,)),), world.now_ns)
        found = world.step()
        world.now_ns += STUCK_NS // 2
    return found.verdict


def test_a_rank_that_probes_see_go_on_does_not_hang_whatever_hooks_say():
    found = _seen_to_go_on(World(), [7, 7, 6, 7], 4)
    assert (found.holdup, found.culprits) == (Holdup.DISAGREEMENT, ())
    assert found.evidence == ("rank 2: hooks see it stand still for 67 s, uprobes see it go on",)
    found = _seen_to_go_on(World(), [7, 7, 6, 7], 3 + 2 * MOST_NS // STUCK_NS)
    assert (found.holdup, found.culprits) == (Holdup.INSUFFICIENT, ())


def test_a_host_whose_sources_disagree_does_not_hide_another_ones_hang_for_ever():
    found = _seen_to_go_on(World(), [7, 6, 7, 7], 4)
    assert (found.holdup, found.culprits) == (Holdup.DISAGREEMENT, ())
    found = _seen_to_go_on(World(), [7, 6, 7, 7], 3 + 2 * MOST_NS // STUCK_NS)
    assert [each.ranks for each in found.culprits] == [(1,)]
    assert any("rank 2: hooks see it stand still" in each for each in found.missing)


@pytest.mark.parametrize(("late", "named"), [(1, [(1,)]), (3, [])])
def test_a_host_that_says_it_goes_on_does_not_hide_another_ones_hang_for_ever(late, named):
    """One alone may go on by itself: in a group that it is in with nobody else. It is not named."""
    world, begun, found = World(), [7] * RANKS, []
    begun[late] = 6
    own = Group("own", GroupKind.DATA, (3,))
    for number in range(3 + 2 * MOST_NS // STUCK_NS):
        world.say(begun, ended=[6] * RANKS)
        process = OperatorProcess(job="train-a", rank=3, world=RANKS, pid=1, container="a3")
        told = Told(1, 64, 10, 10, 10, 100 + number, 100 + number, 0)
        row = Row(own, "all_reduce", Kind.COLLECTIVE, told)
        world.keeper.take("h3", (Reported(process, (row,)),), world.now_ns)
        found.append(world.step().verdict)
        world.now_ns += STUCK_NS // 2
    assert found[len(found) // 2].culprits == ()
    assert [each.ranks for each in found[-1].culprits] == named


def test_a_collector_that_lags_has_nobody_blamed():
    world = World()
    for _ in range(2):
        world.say([5000, 5000, 6, 5000], ended=[4999, 4999, 6, 4999])
        told = world.step().verdict
        world.now_ns += STUCK_NS
    assert (told.holdup, told.culprits) == (Holdup.INSUFFICIENT, ())
    assert any("of which others ended 4999" in each for each in told.missing)


def test_whether_a_job_goes_on_is_not_known_before_it_was_seen_to_move():
    world = World()
    world.say([5] * RANKS)
    assert world.step().verdict.holdup is Holdup.INSUFFICIENT
    world.say([6] * RANKS)
    assert world.step().verdict.holdup is Holdup.NOTHING


def test_a_job_that_stands_still_waits_for_who_never_came():
    world = World()
    world.say([7, 7, 6, 7], ended=[6] * 4)
    world.step()
    world.now_ns += STUCK_NS
    world.say([7, 7, 6, 7], ended=[6] * 4)
    told = world.step()
    assert told.verdict.holdup is Holdup.HANG_RANK
    assert [each.ranks for each in told.verdict.culprits] == [(2,)]


def _stands_still(world, late, numbers):
    """Have all wait for a rank for `STUCK_NS` and a second, and return what is said of it then."""
    begun = [numbers] * RANKS
    begun[late] -= 1
    world.say(begun, ended=[numbers - 1] * RANKS)
    world.step()
    world.now_ns += STUCK_NS + 10**9
    world.say(begun, ended=[numbers - 1] * RANKS)
    return world.step().verdict


def test_rank_0_has_time_to_write_a_checkpoint_and_is_named_after():
    world = World()
    told = _stands_still(world, 0, 7)
    assert (told.holdup, told.culprits) == (Holdup.INSUFFICIENT, ())
    assert "rank 0 goes on within 254 s" in told.missing[-1]
    world.now_ns += FIRST_NS - STUCK_NS
    world.say([6, 7, 7, 7], ended=[6] * RANKS)
    assert [each.ranks for each in world.step().verdict.culprits] == [(0,)]


def test_who_went_on_by_itself_before_has_time_again():
    world = World()
    assert [each.ranks for each in _stands_still(world, 2, 7).culprits] == [(2,)]
    told = _stands_still(world, 2, 9)
    assert (told.holdup, told.culprits) == (Holdup.INSUFFICIENT, ())
    assert "did so for 46 s before, and went on" in told.summary
    assert [each.ranks for each in _stands_still(world, 1, 11).culprits] == [(1,)]


def test_a_process_that_ended_has_no_time():
    world = World()
    world.say([6, 7, 7, 7], ended=[6] * RANKS)
    world.step()
    world.now_ns += STUCK_NS
    world.say([6, 7, 7, 7], ended=[6] * RANKS)
    (own,) = [each for each in world.keeper.processes("train-a") if each.process.rank == 0]
    own.process = structs.replace(own.process, gone=True)
    assert [each.ranks for each in world.step().verdict.culprits] == [(0,)]


def test_a_process_that_ended_takes_no_time_from_who_is_that_rank_now():
    """Agents tell of a job's former processes for a quarter of an hour after it began anew."""
    world = World()
    former = OperatorProcess(
        job="train-a", rank=0, world=RANKS, pid=9, container="a0", gone=True
    )  # fmt: skip
    for _ in range(2):
        world.say([6, 7, 7, 7], ended=[6] * RANKS)
        world.keeper.take("h0", (Reported(former, ()),), world.now_ns)
        told = world.step().verdict
        world.now_ns += STUCK_NS
    assert (told.holdup, told.culprits) == (Holdup.INSUFFICIENT, ())
    assert "may write a checkpoint" in told.summary


def test_a_job_that_made_its_groups_anew_after_a_hang_goes_on():
    """As those do that begin again within their processes: groups have their names again."""
    world = World()
    world.say([7000, 7000, 6999, 7000], ended=[6999] * RANKS)
    world.step()
    for number in range(2, 9):
        world.now_ns += STUCK_NS // 2
        world.say([number] * RANKS)
        told = world.step().verdict
    assert (told.holdup, told.culprits) == (Holdup.NOTHING, ())


def test_a_job_whose_ranks_all_wait_in_one_collective_accuses_the_network():
    world = World()
    world.say([7] * RANKS)
    world.step()
    world.now_ns += STUCK_NS
    world.say([7] * RANKS)
    told = world.step().verdict
    assert told.holdup is Holdup.HANG_COMMUNICATION
    assert not told.innocent


def test_of_collectives_whose_end_is_never_seen_nobody_says_that_the_last_one_hangs():
    """As where jobs wait for them by a future, not by `Work.wait`, and then evaluate for long."""
    world = World()
    for _ in range(2):
        world.say([7] * RANKS, ended=[0] * RANKS)
        told = world.step().verdict
        world.now_ns += STUCK_NS
    assert (told.holdup, told.culprits) == (Holdup.INSUFFICIENT, ())
    assert "no end was ever seen" in told.summary


def test_a_jobs_first_collective_that_does_not_end_accuses_the_network():
    world = World()
    for _ in range(2):
        world.say([1] * RANKS)
        told = world.step().verdict
        world.now_ns += STUCK_NS
    assert told.holdup is Holdup.HANG_COMMUNICATION


def test_a_host_that_is_not_heard_is_no_hang():
    world = World()
    world.say([7] * RANKS)
    world.step()
    world.now_ns += STUCK_NS
    world.say([8] * 3, of=range(3))
    assert world.step().verdict.culprits == ()
    world.now_ns += HEARD_NS
    before = world.jobs.latest("train-a")
    assert world.step() is before


@pytest.mark.parametrize(
    "wrong", [{"job": "train-b"}, {"container": "b{}"}], ids=["no task", "another's container"]
)
def test_what_a_process_claims_of_another_task_is_not_heard(wrong):
    world = World()
    world.late = {2: 0.4}
    world.say([5] * RANKS, **wrong)
    assert world.step() is None
    assert world.asked == []


def test_a_process_of_no_container_is_not_heard_beside_others_tasks():
    world = World()
    of = endpoint("h2", "b2", task="train-b"), endpoint("h2", "a2")
    world.jobs.registry.apply(registration("h2", *of), START_NS)
    world.say([5] * RANKS, container="")
    world.late = {2: 0.4}
    world.step()
    assert world.asked == ["h0", "h1", "h3"]


def claimed(world, host, rank, begun):
    """Have another host claim a rank, with a group of its own making."""
    process = OperatorProcess(
        job="train-a", rank=rank, world=RANKS, pid=9, container="a" + host.removeprefix("h")
    )
    row = Row(DP, "all_reduce", Kind.COLLECTIVE, Told(1, 64, 10, 10, 10, begun, begun, 0))
    world.keeper.take(host, (Reported(process, (row,)),), world.now_ns)


def test_a_host_that_claims_another_hosts_rank_blames_nobody():
    world = World()
    for _ in range(2):
        world.say([7] * RANKS, ended=[6] * 4)
        claimed(world, "h0", 2, 5)
        told = world.step()
        world.now_ns += STUCK_NS
    assert told.verdict.holdup is Holdup.INSUFFICIENT
    assert told.verdict.culprits == ()
    assert "rank 2 is claimed on h0 and h2: which of them it is" in told.verdict.missing


def test_what_another_task_says_of_a_rank_does_not_hide_it():
    world = World()
    world.jobs.registry.apply(registration("g0", endpoint("g0", "b0", task="train-b")), START_NS)
    for _ in range(2):
        world.say([7, 7, 6, 7], ended=[6] * 4)
        process = OperatorProcess(job="train-a", rank=2, world=RANKS, pid=1, container="b0")
        row = Row(DP, "all_reduce", Kind.COLLECTIVE, Told(1, 64, 10, 10, 10, 9, 9, 0))
        world.keeper.take("g0", (Reported(process, (row,)),), world.now_ns)
        told = world.step()
        world.now_ns += STUCK_NS
    assert [each.ranks for each in told.verdict.culprits] == [(2,)]


def test_who_answers_for_ranks_of_others_is_left_out():
    world = World()
    world.late = {2: 0.4}
    honest = world.ask

    async def ask(host, request):
        if host == "h0":  # as if rank 2 were its own, and well
            return records_of(2, {})
        return await honest(host, request)

    world.jobs.ask = ask
    world.say([5] * RANKS)
    assert [each.ranks for each in world.step().verdict.culprits] == [(2,)]


def test_an_answer_without_sense_is_left_out():
    world = World()
    world.late = {2: 0.4}
    honest = world.ask

    async def ask(host, request):
        told = await honest(host, request)
        return structs.replace(told, kind=b"\xff" * len(told.kind)) if host == "h0" else told

    world.jobs.ask = ask
    world.say([5] * RANKS)
    assert [each.ranks for each in world.step().verdict.culprits] == [(2,)]


def test_a_job_that_cannot_be_judged_keeps_no_other_from_being_judged():
    world = World()
    world.jobs.registry.apply(registration("g0", endpoint("g0", "b0", task="train-Z")), START_NS)
    world.say([5] * RANKS)
    for host, job, container in (("g0", "train-Z", "b0"),):
        process = OperatorProcess(job=job, rank=0, world=1, pid=1, container=container)
        world.keeper.take(host, (Reported(process, ()),), world.now_ns)
    honest = world.ask

    async def ask(host, request):
        if host == "g0":
            raise ValueError("as a judge may")
        return await honest(host, request)

    world.jobs.ask = ask
    assert world.step() is not None
    assert world.jobs.failed == 1
    assert world.jobs.latest("train-Z").verdict.holdup is Holdup.INSUFFICIENT


def test_a_host_that_does_not_answer_is_nobodys_fault():
    world = World()

    async def gone(host, request):
        raise Unreachable(host, "gone")

    world.jobs.ask = gone
    world.say([5] * RANKS)
    assert world.step().verdict.culprits == ()
    assert world.jobs.unanswered == RANKS
    assert world.jobs.latest("train-a").verdict.holdup is Holdup.INSUFFICIENT


def test_a_host_that_lets_one_job_wait_lets_no_other_job_wait():
    world, asked = World(), []
    both = (endpoint("h0", "a0"), endpoint("h0", "b0", task="train-b"))
    world.registry.apply(registration("h0", *both, generation=2), START_NS)

    async def never(host, request):
        asked.append(host)
        raise Unreachable(host, "timeout")

    world.jobs.ask = never
    for number in (1, 2):
        world.say([5 + number] * RANKS)
        world.say([5 + number], of=[0], job="train-b", container="b{}")
        world.step()
        assert asked.count("h0") == number
    assert world.jobs.unanswered == 2 * (RANKS + 1)


def test_of_a_large_job_only_the_groups_of_suspects_are_asked():
    keeper = Keeper()
    for rank in range(2 * SMALL):
        group = Group(f"dp{rank % 2}", GroupKind.DATA, ())
        waits = 10 if rank == 4 else 1000 + rank
        row = Row(group, "all_reduce", Kind.COLLECTIVE, Told(1, 64, waits, 10, 10, 3, 2, 0))
        process = OperatorProcess(job="j", rank=rank, world=2 * SMALL, pid=rank)
        keeper.take(f"h{rank}", (Reported(process, (row,)),), START_NS + SECOND)
    assert choose(keeper.processes("j")) == set(range(0, 2 * SMALL, 2))


@pytest.mark.parametrize("refuses", [False, True])
def test_a_host_that_answers_slowly_holds_no_other_job_up_for_longer_than_one_that_does_not(
    refuses,
):
    world, asked = World(), []
    both = (endpoint("h0", "a0"), endpoint("h0", "b0", task="train-b"))
    world.registry.apply(registration("h0", *both, generation=2), START_NS)
    honest = world.ask

    async def slow(host, request):
        asked.append(host)
        world.now_ns += PATIENCE_NS + 1 if host == "h0" else 0
        if refuses and host == "h0":
            raise RemoteProtocolError("no")
        return await honest(host, request)

    world.jobs.ask = slow
    world.say([5] * RANKS)
    world.say([5], of=[0], job="train-b", container="b{}")
    world.step()
    assert asked.count("h0") == 1
    assert world.jobs.unanswered == 1 + refuses


def test_of_a_rank_whose_container_has_very_many_endpoints_some_are_looked_at():
    world = World()
    world.late = {2: 0.4}
    rails = [endpoint("h2", "a2", rail) for rail in range(3 * MOST_ENDS)]
    world.registry.apply(registration("h2", *rails, generation=2), START_NS)
    world.say([5] * RANKS)
    assert [len(each) for each in world.step().endpoints.values()] == [MOST_ENDS]


def test_of_which_rank_nothing_can_be_told_hides_no_other_culprit():
    one, other = (Culprit(Who.RANK, (rank,), 0.9, f"rank {rank} is late") for rank in (1, 2))
    both = Verdict(Holdup.SLOW_RANK, "rank 1 is late", (one, other), evidence=("rank 1 waits",))
    left = without(both, {1: "rank 1 is claimed twice"})
    assert (left.culprits, left.summary, left.evidence) == ((other,), other.why, ())
    assert left.missing == ("rank 1 is claimed twice",)
    none = without(both, {1: "?", 2: "?"})
    assert (none.holdup, none.culprits) == (Holdup.INSUFFICIENT, ())
