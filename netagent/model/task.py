# SPDX-License-Identifier: Apache-2.0
"""A training job and its containers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """One training task, as a scheduler declared it or as agents discovered it."""

    id: str
    containers: tuple[str, ...] = ()
    """Container ids expected, in rank order; may be empty when the task was learned."""
    rnics_per_container: int = 0
    rails: tuple[int, ...] = ()
    declared: bool = False
    """Submitted through the API, not only learned from what agents discovered."""
