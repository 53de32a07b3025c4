# SPDX-License-Identifier: Apache-2.0
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators import stalls
from analyzer.detect.operators.iterations import iterations
from analyzer.detect.operators.slow import judge
from analyzer.detect.operators.stalls import stalled
from analyzer.detect.operators.verdict import Holdup, Who
from analyzer.operators.log import Group, GroupKind, Kind, Place, log_of
from analyzer.operators.rows import Rows
from analyzer.simulate.operators.clockwork import run
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.harm import harm, step_us
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS, log_of_run
from tests.analyzer.detect.operators.jobs import NAMELESS, SOURCES, case_of, logged

JOB = Job(data=4, stages=4, tensor=2, steps=24)
LOSSY = Injected(Fault.LOSSY, 9, 0.25, share=0.06)
US = 1000


def _found(log):
    found = iterations(log)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        rows, case = Rows.of(log, found.step, found.steps), case_of(log)
        own = np.nan_to_num(np.nanmedian(case.own_us / case.step_us[:, None], axis=0))
        hosts = [case.host(rank) for rank in rows.ranks.tolist()]
        return stalled(rows, log.groups, case.step_us, own, hosts)


@pytest.mark.parametrize("source", ["hooks", "all"])
@pytest.mark.parametrize("rank", [9, 14, 22])
def test_an_uplink_that_loses_packets_is_named_by_whom_all_its_stalls_are_with(rank, source):
    log = logged(JOB, replace(LOSSY, rank=rank), source=SOURCES[source])
    (found,) = _found(log)
    assert found.ranks == (rank,)
    assert 3 <= found.steps < 24
    verdict = judge(log)
    assert (verdict.holdup, verdict.innocent) == (Holdup.SLOW_COMMUNICATION, False)
    assert [(each.kind, each.ranks, each.network) for each in verdict.culprits] == [
        (Who.RANK, (rank,), True)
    ]
    assert "began in time" in verdict.summary


@pytest.mark.parametrize(
    "faults", [(), (Injected(Fault.SEQUENCES, 0, 0.5),), (Injected(Fault.GC_RANDOM, 0, 0.4),),
               (Injected(Fault.GC_ALL, 0, 0.3),), (Injected(Fault.CHECKPOINT, 0, 1.0),),
               (Injected(Fault.OFTEN_SLOW, 9, 2.0, 0.4),), (Injected(Fault.LOADER, 1, 0.4),)]
)  # fmt: skip
def test_what_ranks_do_by_themselves_stalls_nothing(faults):
    assert _found(logged(JOB, *faults, source=HOOKS)) == []


def test_where_times_begin_anew_in_each_step_nothing_is_told():
    assert _found(logged(JOB, LOSSY)) != []
    assert _found(logged(JOB, LOSSY, source=NAMELESS)) == []


def test_a_log_that_is_larger_than_is_looked_at_tells_nothing(monkeypatch):
    log = logged(JOB, LOSSY, source=HOOKS)
    monkeypatch.setattr(stalls, "MOST_ROWS", len(log) // 2)
    assert _found(log) == []


def test_a_rank_that_is_not_logged_is_not_named_and_its_partners_are_not_either():
    log = logged(JOB, LOSSY, source=HOOKS)
    assert _found(log.take(log.rank != 9)) == []


# --- four ranks that hand on in a ring and meet at the end of a step ----------------------------

STEPS, WORK_US, SMALL_US, RANKS = 60, 10_000, 100, 6


class _Ring:
    """Steps of ranks each of which works, sends to the next one, receives, and meets all."""

    def __init__(self):
        self.rows, self.now, self.rng = [], [0] * RANKS, np.random.default_rng(1)

    def step(self, number, *, sending=None, working=None, leaving=None, inside=None, short=False):
        """Do one: the keyword names who has a long send, work, exit, or wait inside a pair."""
        late = SMALL_US * (8 if short else 50)
        begins = [now + 7 * each for each, now in enumerate(self.now)]
        worked = [at + WORK_US + (late if each == working else 0) + int(self.rng.integers(20))
                  for each, at in enumerate(begins)]  # fmt: skip
        got = []
        for each in range(RANKS):
            self._row(each, number, Kind.COMPUTE, "pass", begins[each], worked[each])
            before = (each - 1) % RANKS
            arrives = worked[before] + SMALL_US + (late if before == sending else 0)
            done = max(arrives, worked[each])
            after = (each + 1) % RANKS
            self._row(each, number, Kind.SEND, "send", worked[each], worked[each] + 1, after)
            self._row(each, number, Kind.RECV, "recv", worked[each] + 2, done + 2, before)
            got.append(done + 2)
        pairs = [max(got[each], got[each ^ 1]) for each in range(RANKS)]
        out = [at + SMALL_US + (late if inside is not None and each // 2 == inside // 2 else 0)
               for each, at in enumerate(pairs)]  # fmt: skip
        for each in range(RANKS):
            self._row(each, number, Kind.COLLECTIVE, "all_reduce", got[each], out[each], group=1)
        end = max(out) + SMALL_US
        for each in range(RANKS):
            left = end + (late if each == leaving else 0)
            self._row(each, number, Kind.COLLECTIVE, "all_reduce", out[each], left, group=0)
            self.now[each] = left

    def _row(self, rank, step, kind, op, start, end, peer=-1, group=-1):
        offset = 10**9 * rank  # of clocks
        group = group if group < 1 else 1 + rank // 2
        self.rows.append((rank, step, kind, op, peer, group, (offset + start) * US,
                          (offset + end) * US))  # fmt: skip

    def log(self, kind="dp"):
        names = ("rank", "step", "kind", "op", "peer", "group", "started_ns", "ended_ns")
        columns = dict(zip(names, map(list, zip(*self.rows, strict=True)), strict=True))
        ops = ("pass", "send", "recv", "all_reduce")
        columns["op"] = [ops.index(each) for each in columns["op"]]
        pairs = [Group(f"{kind}{n}", GroupKind(kind), (n, n + 1)) for n in range(0, RANKS, 2)]
        world = Group("world", GroupKind.WORLD, tuple(range(RANKS)))
        return log_of(columns, ops=ops, groups=(world, *pairs))


def _ring(at=(), *, kind="dp", **who):
    made = _Ring()
    for number in range(STEPS):
        made.step(number, **(who if number in at else {}))
    return made.log(kind)


OFTEN = range(3, 57, 5)


def test_an_edge_that_stalls_is_named_with_its_sender_first():
    (found,) = _found(_ring(OFTEN, sending=2))
    assert (found.ranks, found.edge, found.steps) == ((2, 3), True, len(OFTEN))
    assert 4500 < found.late_us < 5500
    assert found.effect == pytest.approx(len(OFTEN) * 5000 / (STEPS * 10_300), rel=0.15)


def test_a_group_that_stalls_is_named_as_one():
    (found,) = _found(_ring(OFTEN, inside=2))
    assert (found.ranks, found.edge) == ((2, 3), False)


@pytest.mark.parametrize("at", [(), (9,), (9, 20)])
def test_what_stalls_once_or_twice_names_nobody(at):
    assert _found(_ring(at, sending=2)) == []


def test_a_rank_that_works_longer_at_times_is_no_stall_of_what_it_sends():
    assert _found(_ring(OFTEN, working=2)) == []


def test_a_rank_that_leaves_a_step_late_does_not_accuse_what_it_sends_in_the_next():
    """By its own clock it begins the next step in time; whoever waits for it knows better."""
    assert _found(_ring(OFTEN, leaving=2)) == []


def test_a_rank_that_also_stalls_inside_its_host_waits_for_a_processor():
    made = _Ring()
    for number in range(STEPS):
        made.step(number, **({"sending": 2} if number in OFTEN else {}),
                  **({"inside": 2} if number - 1 in OFTEN else {}))  # fmt: skip
    assert [each.ranks for each in _found(made.log("dp"))] == [(2, 3)]
    assert _found(made.log("tp")) == []


@pytest.mark.parametrize("also", [2, 3])
def test_where_either_end_of_an_edge_is_late_by_itself_too_it_waits_for_a_processor(also):
    made = {}
    for working in (None, also):
        made[working] = _Ring()
        for number in range(STEPS):
            sending = 2 if number in OFTEN else None
            long = working if number - 1 in OFTEN[::2] else None
            made[working].step(number, sending=sending, working=long)
    assert [each.ranks for each in _found(made[None].log())] == [(2, 3)]
    assert _found(made[also].log()) == []


def test_steps_in_which_a_rank_does_something_else_are_left_out():
    log = _ring(OFTEN, sending=2)
    drop = (log.rank == 3) & (log.step == OFTEN[0]) & (log.kind == Kind.SEND)
    (found,) = _found(log.take(~drop))
    assert found.steps == len(OFTEN) - 1


def test_one_stray_stall_elsewhere_does_not_take_the_blame_from_a_starved_rank():
    """The partner has two transfers that stall then, and works well."""
    made = _Ring()
    for number in range(STEPS):
        sending = 2 if number in OFTEN else 3 if number == STEPS - 1 else None
        made.step(number, sending=sending, working=2 if number - 1 in OFTEN[::2] else None)
    assert _found(made.log()) == []


@pytest.mark.parametrize("short", [False, True])
def test_a_stall_that_is_longer_than_what_ranks_do_to_each_other_tells_them_apart(short):
    """Two of three steps in which something stalls are of others, who stall for a short time."""
    made = _Ring()
    for number in range(STEPS):
        other = (0, 1, 3, 4, 5)[number // 2 % 5] if number % 2 else None
        at = number in OFTEN
        made.step(number, sending=2 if at else other, short=short or not at)
    assert [each.ranks for each in _found(made.log())] == ([] if short else [(2, 3)])


@pytest.mark.parametrize("who", [{"sending": 2}, {"inside": 2}])
def test_what_never_leaves_a_host_is_no_network_whatever_it_is_for(who):
    log = _ring(OFTEN, kind="?", **who)
    assert [each.ranks for each in _found(log)] == [(2, 3)]
    there = {rank: Place(f"host{rank // 2}") for rank in range(RANKS)}
    assert _found(replace(log, places=there)) == []


def test_stalls_of_steps_in_a_row_are_one_that_lasted():
    assert _found(_ring(range(10, 10 + len(OFTEN)), sending=2)) == []


def test_a_group_that_reduces_more_at_times_is_not_compared_with_when_it_reduces_less():
    log = _ring(OFTEN, inside=2)
    large = np.isin(log.step, OFTEN) & (log.group == 2)
    assert [each.ranks for each in _found(log)] == [(2, 3)]
    assert _found(replace(log, bytes=np.where(large, 50_000_000, 1_000_000))) == []


def test_a_transfer_that_is_late_within_its_slack_holds_nobody_up():
    rows, now, rng = [], 0, np.random.default_rng(1)
    for number in range(STEPS):
        worked = [now + WORK_US + int(rng.integers(20)) for _ in range(RANKS)]
        end = max(worked) + SMALL_US
        for rank in range(RANKS):
            late = WORK_US // 2 if rank == 3 and number in OFTEN else 0
            got = now + 1000 + late + int(rng.integers(20))
            rows += [
                (rank, number, Kind.SEND, 1, (rank + 1) % RANKS, -1, now + 5, now + 6),
                (rank, number, Kind.RECV, 2, (rank - 1) % RANKS, -1, now + 7, got),
                (rank, number, Kind.COMPUTE, 0, -1, -1, now + 10, worked[rank]),
                (rank, number, Kind.COLLECTIVE, 3, -1, 0, worked[rank], end),
            ]
        now = end
    names = ("rank", "step", "kind", "op", "peer", "group", "started_ns", "ended_ns")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    for name in names[-2:]:
        columns[name] = [each * US for each in columns[name]]
    world = Group("world", GroupKind.WORLD, tuple(range(RANKS)))
    log = log_of(columns, ops=("pass", "send", "recv", "all_reduce"), groups=(world,))
    assert _found(log) == []


def test_how_late_a_rank_is_of_which_a_step_is_not_logged_is_not_made_up():
    """Rank 1 is late at times; its partner in tensor parallel, rank 0, hands that on to rank 8.

    Of rank 0 a step is missing, and the next one is long for all. Taken for one that was as usual,
    it would have rank 0 early from then on, and what it sends late though it began in time.
    """
    job, rng = Job(data=4, stages=4, tensor=2, steps=40), np.random.default_rng(1)
    made = harm(job, (), rng)
    made.stall_us[0][rng.random(job.steps) < 0.2, 0, 1] = 0.08 * step_us(job)
    made.stalled.add(0)
    for stopped in made.stop_us:
        stopped[10] = 0.5 * step_us(job)
    log = log_of_run(run(job, made, rng), replace(HOOKS, steps=True), rng)
    step = np.searchsorted(np.unique(log.step), log.step)
    assert judge(log.take((log.rank != 0) | (step != 9))).innocent


def test_steps_of_very_different_length_make_no_table_of_all():
    """Rank 0 does thousands of operators in one step, rank 1 one in each of thousands."""
    count, rows = 3000, []
    rows += [(0, 0, 10 * n, 10 * n + 8) for n in range(count)]
    rows += [(1, n, 10 * n, 10 * n + 8) for n in range(count)]
    names = ("rank", "step", "started_ns", "ended_ns")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    log = log_of(columns | {"kind": [Kind.COLLECTIVE] * len(rows)}, ops=("all_reduce",))
    found = iterations(log)
    tracemalloc.start()
    rows_of = Rows.of(log, found.step, found.steps)
    assert stalled(rows_of, (), np.ones(count), np.ones(2), (None, None)) == []
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


def test_who_is_not_listed_in_a_group_takes_no_part_in_it():
    log = _ring(OFTEN, inside=2)
    others = replace(log.groups[2], members=(4, 500))
    groups = (*log.groups[:2], others, *log.groups[3:])
    assert _found(replace(log, groups=groups)) == []


def test_who_left_the_first_logged_step_late_is_unknown_until_he_is_in_time():
    took = np.full((5, 3), 100.0)
    took[:2, 2] = 150.0, 50.0  # as late as the second step begins, which he then ends in time
    step, place = (each.reshape(-1) for each in np.indices(took.shape))
    found = stalls._carried(took.reshape(-1), place, step, took.shape)
    assert np.isnan(found[:3, 2]).all()
    assert (found[3:, 2] == 0).all()
    assert (found[1:, :2] == 0).all()
