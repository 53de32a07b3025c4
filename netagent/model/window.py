# SPDX-License-Identifier: Apache-2.0
"""Aligned intervals of the wall clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """Half-open wall-clock interval ``[start_ns, start_ns + width_ns)``."""

    start_ns: int
    """Nanoseconds since the Unix epoch; always a multiple of `width_ns`."""

    width_ns: int
    """Nanoseconds; one value per cluster, so windows of two hosts line up."""

    @property
    def end_ns(self) -> int:
        """First nanosecond after the window."""
        return self.start_ns + self.width_ns

    @classmethod
    def covering(cls, at_ns: int, *, width_ns: int) -> "Window":
        """Return the aligned window that contains `at_ns`."""
        return cls(at_ns - at_ns % width_ns, width_ns)
