# SPDX-License-Identifier: Apache-2.0
"""Whether the analyzer's own disk takes what it is given, and since when it does not. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Disk:
    """What became of the newest write of each kind: a small one may fit where a large one fails."""

    refused: Callable[[int], None]
    """Is told of each refusal, at Unix nanoseconds: what agents cannot deliver is not their fault.
    """
    since_ns: int | None = None
    """When it began to refuse; None while it takes all."""
    refusals: int = 0
    """How often it refused since the start."""
    _errors: dict[str, str] = field(default_factory=dict)
    """Kind of what is refused -> why."""

    @property
    def takes(self) -> bool:
        """Whether the newest write of each kind was taken."""
        return not self._errors

    @property
    def error(self) -> str:
        """Why it refuses; empty while it takes all."""
        return next(iter(self._errors.values()), "")

    def failed(self, kind: str, error: str, now_ns: int) -> bool:
        """Note a refusal; return whether everything was taken before."""
        first = not self._errors
        self.refusals += 1
        if first:
            self.since_ns = now_ns
        self._errors[kind] = error
        self.refused(now_ns)
        return first

    def worked(self, kind: str) -> bool:
        """Note that something was written; return whether nothing is refused any more."""
        was_refused = self._errors.pop(kind, None) is not None
        if not self._errors:
            self.since_ns = None
        return was_refused and not self._errors
