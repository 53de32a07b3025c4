# SPDX-License-Identifier: Apache-2.0
"""A training job and its containers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Degrees of a job: of data, pipeline, tensor and expert parallelism."""

    dp: int
    pp: int = 1
    tp: int = 8
    ep: int = 1

    @property
    def ranks(self) -> int:
        """How many GPUs it takes, and RNICs."""
        return self.dp * self.pp * self.tp * self.ep

    def __str__(self) -> str:
        """Return such as ``DP8 PP8 TP8``."""
        expert = f" EP{self.ep}" if self.ep > 1 else ""
        return f"DP{self.dp} PP{self.pp} TP{self.tp}{expert}"


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
    skeleton: bool = True
    """Whether its traffic may decide what is probed; False opts out: the basic list stays."""
    parallelism: Parallelism | None = None
    """What its owner says of it: a hint, held against the traffic."""
    hosts: tuple[str, ...] = ()
    """Where each of `containers` runs, "" where that is not said; or empty: nothing is said."""
    awaited: tuple[tuple[str, int], ...] = ()
    """Declared containers that never registered, and when each was declared (Unix ns)."""
    begun_ns: int | None = None
    """When the first of its containers was seen after its declaration; None before."""
    source: str = ""
    """Who declared it: ``kubernetes``, or "" for whoever calls the API."""
