# SPDX-License-Identifier: Apache-2.0
"""Whether the analyzer's own disk takes what it is given, and since when it does not. Pure."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Disk:
    """What became of the newest writes."""

    refused: Callable[[int], None]
    """Is told of each refusal, at Unix nanoseconds: what agents cannot deliver is not their fault.
    """
    since_ns: int | None = None
    """When it began to refuse; None while it takes all."""
    error: str = ""

    @property
    def takes(self) -> bool:
        """Whether the newest write was taken."""
        return self.since_ns is None

    def failed(self, error: str, now_ns: int) -> bool:
        """Note a refusal; return whether it is the first in a row."""
        first = self.since_ns is None
        self.since_ns = now_ns if self.since_ns is None else self.since_ns
        self.error = error
        self.refused(now_ns)
        return first

    def worked(self) -> bool:
        """Note that something was written; return whether the write before was refused."""
        before, self.since_ns, self.error = self.since_ns, None, ""
        return before is not None
