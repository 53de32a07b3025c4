# SPDX-License-Identifier: Apache-2.0
"""Run the campaign: `python -m tests.campaign --help`."""

import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.campaign import journal, options
from tests.campaign.apart import NoRoomError
from tests.campaign.episode import Cluster, Outcome, episode, types_of
from tests.campaign.figures import draw
from tests.campaign.journal import Journal, JournalError, version
from tests.campaign.options import Manner, Options
from tests.campaign.report import lines, plain
from tests.campaign.score import score

_cluster: Cluster | None = None


@dataclass(frozen=True)
class Task:
    """An episode to run."""

    seed: int
    numbers: tuple[int, ...]
    """Types of its failures."""
    windows: int


def tasks_of(options: Options) -> list[Task]:
    """Return all episodes of a campaign."""
    failing = [options.seed + n for n in range(options.episodes)]
    healthy = [options.seed + options.episodes + n for n in range(options.healthy)]

    def types(seed: int) -> tuple[int, ...]:
        return types_of(seed, most=options.most, among=options.among, same=options.same)

    return [
        *(Task(seed, types(seed), options.windows) for seed in failing),
        *(Task(seed, (), options.windows) for seed in healthy),
    ]


def _one(task: Task) -> Outcome:
    assert _cluster is not None
    gc.disable()  # the process ends with the episode
    outcome = episode(_cluster, task.seed, task.numbers, windows=task.windows)
    return replace(outcome, version=version())


def _outcomes(tasks: list[Task], jobs: int) -> Iterator[Outcome]:
    # Each episode begins from the same warmed state: a process forked for it alone.
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_one, tasks)


def _run(options: Options, manner: Manner) -> list[Outcome]:
    """Run the episodes that are not in the output file yet; return all."""
    book = Journal(manner.output, options, resume=manner.resume) if manner.output else None
    outcomes = list(book.outcomes) if book else []
    done = {each.seed for each in outcomes if not each.warming}
    tasks = [task for task in tasks_of(options) if task.seed not in done]
    if done:
        print(f"{len(done)} episodes ran before, {len(tasks)} are left", file=sys.stderr)

    def keep(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if book:
            book.add(outcome)

    # A version warms up alike each time that a run goes on.
    if tasks and (warmed := _warm(options)) not in outcomes:
        keep(warmed)
    began_s = time.monotonic()
    for n, outcome in enumerate(_outcomes(tasks, manner.jobs) if tasks else (), start=1):
        keep(outcome)
        if n % 20 == 0 or n == len(tasks):
            rate = (time.monotonic() - began_s) / n
            print(f"{n} of {len(tasks)} episodes, {rate:.1f} s each", file=sys.stderr)
    if book:
        book.close()
    return outcomes


def _warm(options: Options) -> Outcome:
    global _cluster  # noqa: PLW0603 - what forked processes share
    began_s = time.monotonic()
    _cluster = Cluster(
        options.shape, options.seed, not options.untraced, options.noise, options.bursts,
        options.spray, options.churn, options.rehash, options.rotate,
    )  # fmt: skip
    warmed = replace(_cluster.warm(options.warm), version=version())
    print(f"warmed in {time.monotonic() - began_s:.0f} s", file=sys.stderr)
    gc.collect()
    gc.freeze()  # what children share stays shared
    return warmed


def _tell(options: Options, manner: Manner, outcomes: Sequence[Outcome]) -> int:
    """Print the score; return the exit status."""
    outcomes = sorted(outcomes, key=lambda each: each.seed)
    result = score(outcomes)
    if manner.figure:
        draw(manner.figure, result)
    if manner.json:
        print(json.dumps(plain(result, outcomes, rnics=options.rnics), indent=2))
    else:
        print("\n".join(lines(result, outcomes, rnics=options.rnics)))
    return 1 if result.broken else 0


def main() -> int:
    """Run the campaign, or score what an earlier one left; return the exit status."""
    wanted, manner = options.read()
    try:
        if manner.score:
            return _tell(*_of_file(manner))
        return _tell(wanted, manner, _run(wanted, manner))
    except (JournalError, NoRoomError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _of_file(manner: Manner) -> tuple[Options, Manner, list[Outcome]]:
    assert manner.score is not None
    before, outcomes = journal.read(manner.score)
    return before, manner, outcomes


if __name__ == "__main__":
    sys.exit(main())
