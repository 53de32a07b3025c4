# SPDX-License-Identifier: Apache-2.0
"""Jobs as clusters really place them: hosts in no order, of unequal rails, some of which lack.

`scatter` takes a regular job apart. What talks is kept by position (the RNICs of one tensor
parallel group): two positions that exchange gradients or tokens, or that follow each other in a
pipeline, use all pairs of their RNICs that are on one rail of two hosts.
"""

from dataclasses import dataclass, replace

import numpy as np

from analyzer.operators.log import UNKNOWN, Group, GroupKind, Kind, Log, Place, log_of
from analyzer.simulate.workload import Truth, Workload, truth_of
from analyzer.skeleton.series import Floats, Ints, TrafficSeries, basic_edges
from netagent.model.errors import LocalProtocolError


@dataclass(frozen=True, slots=True)
class Scatter:
    """How a job's hosts differ from each other. Shares are of its hosts, but for `missing`."""

    missing: float = 0.1
    """Share of the RNICs of which nothing is known."""
    shared: float = 0.0
    """Share that have an RNIC for each two ranks. Needs tensor parallelism."""
    paired: float = 0.0
    """Share that carry two containers, with a function on each rail for both."""
    shuffled: bool = True
    """Whether hosts are numbered by chance, and nobody says that they are in order."""


@dataclass(frozen=True, slots=True)
class Scattered:
    """A job on unequal hosts, and what its operators say."""

    work: Workload
    log: Log


def scatter(work: Workload, how: Scatter, *, seed: int, rnics_per_host: int = 8) -> Scattered:
    """Return a job of the same traffic on unequal hosts.

    Raises LocalProtocolError where ranks of two positions would share an RNIC.
    """
    job, rng = work.truth.parallelism, np.random.default_rng(seed)
    if how.shared and job.tp < 2:
        raise LocalProtocolError(f"{job}: ranks of two positions would share an RNIC")
    rank = np.arange(job.ranks)
    machine, rail = rank // rnics_per_host, rank % rnics_per_host
    machines = int(machine.max()) + 1
    shares = rng.random(machines) < how.shared
    rail = np.where(shares[machine], rail // 2, rail)
    first = np.unique(np.stack([machine, rail]), axis=1, return_index=True)[1]
    first = first[rng.random(len(first)) >= how.missing]
    if not len(first):
        raise LocalProtocolError(f"{job}: no RNIC is left")
    host = _hosts(machines, how, rng)[machine]
    mixed = rng.permutation(first) if how.shuffled else np.sort(first)
    rate = _sums(work.series.rate, shares[machine])[mixed]
    number = rng.permutation(machines) if how.shuffled else np.arange(machines)
    names = tuple(f"c{number[machine[each]]}/rail{rail[each]}" for each in mixed)
    series = TrafficSeries(
        rate, work.series.tick_s, host[mixed], rail[mixed], names,
        number[machine[mixed]], ordered=not how.shuffled,
    )  # fmt: skip
    truth = replace(work.truth, groups={}, edges=_edges(series, mixed, work.truth))
    known = dict(zip(mixed.tolist(), names, strict=True))
    # A rank that shares an RNIC with the one before is at that one's endpoint.
    at = {each: known.get(each - int(shares[machine[each]]) * (each % 2)) for each in rank.tolist()}
    log = _log(
        truth, {each: (at[each], f"h{host[each]}") for each in rank.tolist()}, rnics_per_host
    )
    return Scattered(Workload(series, truth, work.stage[mixed]), log)


def _hosts(machines: int, how: Scatter, rng: np.random.Generator) -> Ints:
    """Return the host of each machine; where two share one, those of neighbouring ranks."""
    pairs = rng.random(machines) < how.paired
    pairs[1::2] = pairs[: machines - machines % 2 : 2]
    pairs[machines - machines % 2 :] = False
    host = np.arange(machines)
    host[1::2] -= pairs[1::2]
    return rng.permutation(machines)[host] if how.shuffled else host


def _sums(rate: Floats, shares: np.ndarray) -> Floats:
    """Return what RNICs send: where two ranks share one, both ranks' traffic."""
    both = rate.reshape(-1, 2, rate.shape[1]).sum(axis=1)
    return np.where(shares[:, None], np.repeat(both, 2, axis=0), rate)


def _edges(series: TrafficSeries, rank: Ints, truth: Truth) -> Ints:
    """Return the pairs of one rail on two hosts whose positions exchange something."""
    job = truth.parallelism
    stage = rank // (job.tp * job.ep) % job.pp
    expert, replica = rank // job.tp % job.ep, rank // (job.tp * job.ep * job.pp)
    pairs = basic_edges(series.host, series.rail)
    one, two = pairs[:, 0], pairs[:, 1]
    alike = stage[one] == stage[two]
    steps = np.abs(stage[one] - stage[two])
    wraps = truth.wrap and job.pp > 2
    follows = (steps == 1) | (wraps & (steps == job.pp - 1))
    same_expert, same_replica = expert[one] == expert[two], replica[one] == replica[two]
    used = (alike & (same_expert | same_replica)) | (follows & same_expert & same_replica)
    kept: Ints = pairs[used]
    return kept


def _log(truth: Truth, at: dict[int, tuple[str | None, str]], rnics_per_host: int) -> Log:
    """Return the log that every rank of a job would write: its groups, and whom it sends to."""
    job = truth.parallelism
    ranks = np.arange(job.ranks).reshape(job.dp, job.pp, job.ep, job.tp)
    named = truth_of(job, rnics_per_host=rnics_per_host).groups
    named["tp"] = ranks.reshape(-1, job.tp).tolist() if job.tp > 1 else []
    groups = tuple(
        Group(f"{kind}{number}", GroupKind(kind), tuple(sorted(members)))
        for kind, each in named.items()
        for number, members in enumerate(each)
    )
    steps = [(ranks[:, :-1], ranks[:, 1:])]
    if truth.wrap and job.pp > 2:
        steps.append((ranks[:, -1:], ranks[:, :1]))
    source, target = (np.concatenate([pair[n].ravel() for pair in steps]) for n in (0, 1))
    index = {rank: np.unravel_index(rank, ranks.shape) for rank in at}
    places = {
        rank: Place(
            host, (name,) if name is not None else (),
            *(int(index[rank][axis]) for axis in (0, 1, 3, 2)),
        )
        for rank, (name, host) in at.items()
    }  # fmt: skip
    columns = {
        "rank": source, "peer": target, "kind": np.full(len(source), Kind.SEND),
        "group": np.full(len(source), UNKNOWN),
    }  # fmt: skip
    return log_of(columns, groups=groups, places=places, world=job.ranks, source="simulated")
