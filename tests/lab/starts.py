# SPDX-License-Identifier: Apache-2.0
"""Break a lab that has only just come up, again and again, and count the false accusations.

After a start few paths are traced and no delay is learned: whoever is blamed then is blamed on
little. Each run has a lab of its own. Whatever an incident names at any moment counts, also when
it names the right component a moment later.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tests.lab.demo import Observer, Say
from tests.lab.lab import Bursts, Lab

NAME_WITHIN_S = 45.0
"""Seconds to name the component; endpoints are judged only from their first whole windows on."""
WATCH_S = 15.0
"""Seconds for which what else opens is watched once it is named: three windows."""
FIRST_S = 20.0
"""Seconds for the fault that comes first to be named, and again to recover."""


@dataclass(frozen=True, slots=True)
class Start:
    """What became of one fault soon after a start."""

    fault: str
    after: str | None
    """The fault injected and healed before it."""
    delay_s: float
    """From the end of `up` to the first injection."""
    truth: str
    named_s: float | None
    """From the injection to the truth, or None."""
    others: tuple[str, ...]
    """Whatever else was named since the start."""

    @property
    def right(self) -> bool:
        """Whether the truth was named, and nothing else."""
        return self.named_s is not None and not self.others


def run(
    lab: Lab, say: Say, *, fault: str, after: str | None, delays_s: Iterable[float], runs: int
) -> list[Start]:
    """Return what became of `runs` starts for each delay; a JSON line of each is said."""
    starts = []
    for delay_s in delays_s:
        for _ in range(runs):
            lab.up(traffic=Bursts())
            try:
                starts.append(_start(lab, fault, after, delay_s))
            finally:
                lab.down()
            say(json.dumps(asdict(starts[-1]) | {"right": starts[-1].right}))
    return starts


def _start(lab: Lab, name: str, after: str | None, delay_s: float) -> Start:
    ready_s = time.monotonic() + delay_s
    with lab.services().client() as client:
        observer = Observer(client)
        said: set[str] = set()

        def named() -> set[str]:
            components = {each["component"] or "insufficient evidence" for each in observer.new()}
            said.update(components)
            return components

        def only_look() -> bool:
            named()
            return False

        observer.wait(only_look, timeout_s=ready_s - time.monotonic())
        truths = set()
        if after is not None:
            first = lab.inject(after)
            truths.add(first.truth.component)
            observer.wait(lambda: first.truth.component in named(), timeout_s=FIRST_S)
            lab.heal(first.key)
            observer.wait(lambda: named() and _over(observer), timeout_s=FIRST_S)
        fault = lab.inject(name)
        truth = fault.truth.component
        truths.add(truth)
        began_s = time.monotonic()
        found = observer.wait(lambda: truth in named(), timeout_s=NAME_WITHIN_S)
        named_s = round(time.monotonic() - began_s, 1) if found else None
        observer.wait(only_look, timeout_s=WATCH_S)
    return Start(name, after, delay_s, truth, named_s, tuple(sorted(said - truths)))


def _over(observer: Observer) -> bool:
    return all(each["state"] == "recovered" for each in observer.new())


def lines(starts: Iterable[Start]) -> list[str]:
    """Return how many were right, by delay, as lines of text."""
    by_delay: dict[float, list[Start]] = {}
    for start in starts:
        by_delay.setdefault(start.delay_s, []).append(start)
    return [
        f"{delay_s:3.0f} s after up: {sum(each.right for each in made)} of {len(made)} right"
        for delay_s, made in by_delay.items()
    ]
