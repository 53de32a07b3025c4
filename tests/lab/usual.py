# SPDX-License-Identifier: Apache-2.0
"""What a training job does at times that is no training, and no fault: what a rank does in a step.

Rank 0 saves what all have, and seldom all of it, while the others wait; each rank collects its
garbage when it has some; the model is evaluated, which has no backward passes.
"""

from dataclasses import dataclass

COLLECTS_APART = 7
"""Steps between two ranks' collections, so that they are at different times."""


@dataclass(frozen=True, slots=True)
class Usual:
    """How often, in steps (0: never), and for how long, in seconds."""

    save_every: int = 0
    save_s: float = 3.0
    full_every: int = 0
    """A checkpoint of all; of the same steps as another one it takes the place."""
    full_s: float = 75.0
    evaluate_every: int = 0
    collect_every: int = 0
    collect_s: float = 0.15

    def saves_s(self, rank: int, step: int) -> float:
        """Return for how long a rank saves at the end of a step: rank 0 does, for all."""
        if rank:
            return 0.0
        if _is_time(self.full_every, step):
            return self.full_s
        return self.save_s if _is_time(self.save_every, step) else 0.0

    def collects_s(self, rank: int, step: int) -> float:
        """Return for how long a rank collects garbage in a step."""
        own = step + COLLECTS_APART * rank
        return self.collect_s if _is_time(self.collect_every, own) else 0.0

    def evaluates(self, step: int) -> bool:
        """Return whether a step evaluates the model, of all ranks, before it trains."""
        return _is_time(self.evaluate_every, step)


def _is_time(every: int, step: int) -> bool:
    return every > 0 and step > 0 and step % every == 0
