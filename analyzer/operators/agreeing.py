# SPDX-License-Identifier: Apache-2.0
"""Of which ranks what is recorded cannot be whole, or contradicts itself: nobody may blame those.

Several sources may watch one process: hooks in it, probes of its libraries. A source that is silent
proves nothing, since whatever collects may lag, be switched off, or see only a part. One that sees
a rank go on proves that it does.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median_high, median_low

from analyzer.operators.keeper import PROBES, Key, Known

FEWEST = 3
"""Fewest hosts of which one may be alone. Chosen: of two neither is believed before the other."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a process came on, as one source sees it."""

    progress: Mapping[str, tuple[int, int]]
    moved_ns: int
    """When that was seen to change last, or was seen first."""
    has_moved: bool = False
    """Whether it was ever seen to change."""


def paces(before: Mapping[Key, Pace], recent: Iterable[Known], now_ns: int) -> dict[Key, Pace]:
    """Return how each process that is heard came on, after what was known of it before."""
    found = {}
    for each in recent:
        was = before.get(each.key)
        if was is None or was.progress != each.progress:
            found[each.key] = Pace(dict(each.progress), now_ns, has_moved=was is not None)
        else:
            found[each.key] = was
    return found


def quarrels(
    recent: Iterable[Known], of: Mapping[Key, Pace], now_ns: int, still_ns: int
) -> dict[int, str]:
    """Return the ranks that stand still for one source, and go on for another one; and why.

    Only where the source that is used sees them stand still for `still_ns`: of others too little
    may be seen at any time.
    """
    by_place: dict[tuple[int, tuple[str, str]], list[Known]] = defaultdict(list)
    for each in recent:
        if each.process.rank >= 0 and not each.process.gone:
            by_place[each.process.rank, each.place].append(each)
    found = {}
    for (rank, _), many in sorted(by_place.items()):
        used = min(many, key=lambda each: (each.process.source, each.first_ns))
        stands = now_ns - of[used.key].moved_ns >= still_ns
        moving = [
            each.process.source
            for each in many
            if of[each.key].has_moved and now_ns - of[each.key].moved_ns < still_ns
        ]
        if stands and moving:
            found[rank] = (
                f"rank {rank}: {used.process.source} see it stand still for"
                f" {(now_ns - of[used.key].moved_ns) // 10**9} s, {moving[0]} see it go on"
            )
    return found


def alone(
    heard: Iterable[Known], of: Mapping[Key, Pace], now_ns: int, still_ns: int
) -> dict[int, str]:
    """Return the ranks of the only host that goes on, where others stand still; and why.

    It may do so by itself, or say so: either way it proves nothing of what others wait for.
    """
    every = tuple(heard)
    moved: dict[str, int] = {}
    for each in every:
        moved[each.host] = max(moved.get(each.host, 0), of[each.key].moved_ns)
    if len(moved) < FEWEST or now_ns - sorted(moved.values())[-2] < still_ns:
        return {}
    last = max(moved, key=lambda host: moved[host])
    return {
        each.process.rank: f"rank {each.process.rank}: it goes on by itself: what it waits for"
        for each in every
        if each.host == last
    }


def partial(known: Mapping[int, Known]) -> dict[int, str]:
    """Return the ranks whose records cannot be whole, and why; of a job that stands still.

    Nobody ends a collective that another member has not begun. So who has not begun what most
    others ended was recorded in part, as was who ended what most others have not begun. Others are
    those that a rank itself says are in its group: anybody may claim to be.
    """
    said: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for rank, each in known.items():
        for name, numbers in each.progress.items():
            said[name][rank] = numbers
    usual: dict[tuple[str, int], tuple[int, int]] = {}  # by group: to compare members takes long
    found = {}
    for rank, each in sorted(known.items()):
        for name, (first, last) in sorted(each.progress.items()):
            group = each.groups.get(name)
            members = group.members if group is not None and rank in group.members else ()
            key = name, id(group) if members else 0
            if key not in usual:
                usual[key] = _usual(said[name], members)
            least, most = usual[key]
            if first < most:
                found[rank] = (
                    f"rank {rank}: {first} of {name} are recorded, of which others ended {most}"
                )
            elif last > least:
                found[rank] = (
                    f"rank {rank}: {last} of {name} are recorded as over, of which others began"
                    f" {least}"
                )
            elif each.process.source == PROBES and first > last:
                # They are counted from when it was watched on, so only that it waits is sure.
                found[rank] = f"rank {rank}: it waits in {name}, and where is not known"
    return found


def unended(still: Iterable[Known]) -> set[str]:
    """Return the groups that all came equally far in, and of which nobody saw anything end.

    Where several have begun, ends are not seen, as of what is waited for past `Work.wait`. Then
    who is behind tells something, and that the last one has not ended nothing.
    """
    said: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for each in still:
        for name, numbers in each.progress.items():
            said[name].add(numbers)
    return {
        name
        for name, numbers in said.items()
        if len(numbers) == 1 and all(begun > 1 and not ended for begun, ended in numbers)
    }


def _usual(said: Mapping[int, tuple[int, int]], members: Iterable[int]) -> tuple[int, int]:
    """Return what most of a group began at least, and ended at most; of no members, all."""
    among = [said[rank] for rank in members or said if rank in said]
    return median_low(first for first, _ in among), median_high(last for _, last in among)
