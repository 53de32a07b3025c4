# SPDX-License-Identifier: Apache-2.0
"""How much of what could be tried is tried: some of it at every push, all by make test-thorough.

Seeds and examples that each push tries anew and alike find what is wrong with the first few of
them, or hardly ever.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
"""Name of the profile of Hypothesis, which `tests.conftest` has."""


def some(whole: Sequence[T], count: int) -> Sequence[T]:
    """Return `count` of these, evenly spread and the first among them; all, where all are tried."""
    if PROFILE != "ci" or count >= len(whole):
        return whole
    return [whole[number * len(whole) // count] for number in range(count)]
