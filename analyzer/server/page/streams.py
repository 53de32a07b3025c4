# SPDX-License-Identifier: Apache-2.0
"""How many streams of events are open."""

from collections import Counter

from netagent.model.errors import CapabilityMissing

MAX_STREAMS, MAX_OF_NAME = 256, 64
"""Most streams, and of one name. Chosen: fifty people with some tabs; connections are bounded, too.
"""


class Streams:
    """Counts them."""

    def __init__(self) -> None:
        self._of: Counter[str | None] = Counter()

    def check(self, name: str | None) -> None:
        """Raise CapabilityMissing where one more of a name would be too many."""
        if self._of.total() >= MAX_STREAMS or self._of[name] >= MAX_OF_NAME:
            raise CapabilityMissing("another stream of events", "close some, then come again")

    def begin(self, name: str | None) -> None:
        """Count one more."""
        self._of[name] += 1

    def end(self, name: str | None) -> None:
        """Count it no more."""
        self._of[name] -= 1
        if not self._of[name]:
            del self._of[name]
