# SPDX-License-Identifier: Apache-2.0
"""What can hold a simulated job up, and who is at fault then.

Of some nobody is: work that is dealt unevenly by chance, garbage collection, checkpoints.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analyzer.detect.operators.verdict import Who
from analyzer.simulate.operators.job import Job


class Fault(StrEnum):
    """What holds a job up."""

    SLOW_RANK = "slow rank"
    OFTEN_SLOW = "rank slow in some steps"
    SLOW_BACKWARD = "rank slow in one operation"
    LOADER = "slow data loader"
    HOST = "slow host"
    NIC = "slow uplink of a rank"
    LOSSY = "uplink of a rank that loses packets"
    LINK = "slow link between two stages"
    RING = "slow link in a ring"
    LAST_STAGE = "slow last stage"
    SEQUENCES = "sequences of unequal length"
    EXPERTS = "experts of unequal load"
    GC_ALL = "garbage collection of all"
    GC_RANDOM = "garbage collection here and there"
    CHECKPOINT = "checkpoints"


NOBODY = frozenset(
    {Fault.SEQUENCES, Fault.EXPERTS, Fault.GC_ALL, Fault.GC_RANDOM, Fault.CHECKPOINT}
)
"""Of these nobody is at fault."""
NETWORK = frozenset({Fault.NIC, Fault.LOSSY, Fault.LINK, Fault.RING})


@dataclass(frozen=True, slots=True)
class Injected:
    """One fault of a job."""

    fault: Fault
    rank: int = 0
    """The one concerned; of a host any of its ranks; of a link the sender of activations."""
    strength: float = 1.5
    """How many times as long things take; of sequences and experts the standard deviation of a
    logarithm; of what stalls its share of a step."""
    share: float = 1.0
    """In which share of the steps; of an uplink that loses packets, of the transfers."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Who is at fault: what a verdict has to name."""

    kind: Who
    ranks: frozenset[int]


def blame(job: Job, each: Injected) -> Blame | None:
    """Return who is at fault; None where nobody is."""
    stage, data, tensor = job.where(each.rank)
    match each.fault:
        case Fault.HOST:
            first = each.rank // job.per_host * job.per_host
            return Blame(Who.HOST, frozenset(range(first, min(first + job.per_host, job.world))))
        case Fault.LINK:
            return Blame(Who.EDGE, frozenset({each.rank, job.rank(stage + 1, data, tensor)}))
        case Fault.RING:
            members = (job.rank(stage, other, tensor) for other in range(job.data))
            return Blame(Who.GROUP, frozenset(members))
        case Fault.LAST_STAGE:
            last = job.world // job.stages * (job.stages - 1)
            return Blame(Who.GROUP, frozenset(range(last, job.world)))
        case _ if each.fault in NOBODY:
            return None
    return Blame(Who.RANK, frozenset({each.rank}))


def draw(job: Job, faults: Sequence[Fault], rng: np.random.Generator) -> list[Injected]:
    """Return faults of this kind at random places and of random strength, at different ranks."""
    return [_drawn(job, fault, rng) for fault in faults]


def _drawn(job: Job, fault: Fault, rng: np.random.Generator) -> Injected:
    low, high = _STRENGTHS[fault]
    strength = float(rng.uniform(low, high))
    among: Iterable[int] = range(job.world)
    if fault is Fault.LOADER:
        among = range(job.data * job.tensor)
    if fault is Fault.LINK:
        among = range(job.world - job.data * job.tensor)
    share = float(rng.uniform(*_SHARES[fault])) if fault in _SHARES else 1.0
    return Injected(fault, int(rng.choice(np.asarray(among))), strength, share)


_SHARES = {Fault.OFTEN_SLOW: (0.35, 0.7), Fault.LOSSY: (0.02, 0.1)}
_STRENGTHS = {
    Fault.SLOW_RANK: (1.25, 2.2),
    Fault.OFTEN_SLOW: (1.4, 2.5),
    Fault.SLOW_BACKWARD: (1.4, 2.5),
    Fault.LOADER: (0.15, 0.5),
    Fault.HOST: (1.25, 2.0),
    Fault.NIC: (6.0, 20.0),
    Fault.LOSSY: (0.1, 0.4),
    Fault.LINK: (20.0, 60.0),
    Fault.RING: (4.0, 10.0),
    Fault.LAST_STAGE: (1.3, 1.9),
    Fault.SEQUENCES: (0.3, 0.6),
    Fault.EXPERTS: (0.3, 0.6),
    Fault.GC_ALL: (0.1, 0.4),
    Fault.GC_RANDOM: (0.1, 0.4),
    Fault.CHECKPOINT: (0.3, 2.0),
}
