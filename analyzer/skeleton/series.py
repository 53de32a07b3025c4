# SPDX-License-Identifier: Apache-2.0
"""The input of skeleton inference: how much each endpoint of a task sent, tick by tick."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from netagent.model.errors import RemoteProtocolError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TrafficSeries:
    """The endpoints of one task; row i of everything is endpoint i.

    Raises RemoteProtocolError where the parts do not fit together.
    """

    rate: Floats
    """(n_endpoints, n_ticks): bytes per tick, NaN where they are not known."""
    tick_s: float
    host: Ints
    """(n_endpoints,): number of the endpoint's host."""
    rail: Ints
    """(n_endpoints,): number of its rail."""
    names: tuple[str, ...] = ()
    """Name of each endpoint; empty where endpoints have none."""
    container: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """(n_endpoints,): number of the endpoint's container; empty: one container on each host."""
    ordered: bool = True
    """Whether hosts are numbered in the order of ranks, as their names say; False: nobody knows."""

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        count = len(self.rate)
        if self.rate.ndim != 2:
            raise RemoteProtocolError(f"rate has {self.rate.ndim} dimensions instead of 2")
        for name in ("host", "rail"):
            if getattr(self, name).shape != (count,):
                raise RemoteProtocolError(f"{name} is not one number for each of {count} endpoints")
        if self.names and len(self.names) != count:
            raise RemoteProtocolError(f"{len(self.names)} names for {count} endpoints")
        if not self.tick_s > 0:
            raise RemoteProtocolError(f"tick_s is {self.tick_s}")
        if np.any(self.rate < 0) or np.any(np.isinf(self.rate)):
            raise RemoteProtocolError("rate has negative or infinite numbers")
        if self.container.size and self.container.shape != (count,):
            raise RemoteProtocolError(f"container is not one number for each of {count} endpoints")
        if self.shared(self.machine):
            what = "of one container on one rail" if self.container.size else "on one rail"
            raise RemoteProtocolError(f"two endpoints are {what} of one host")

    def __len__(self) -> int:
        """Return the number of endpoints."""
        return len(self.rate)

    @property
    def machine(self) -> Ints:
        """Return (n_endpoints,) numbers of what ranks fill one after the other, as containers."""
        if not self.container.size:
            return self.host
        both = np.stack([self.host, self.container])
        found: Ints = np.unique(both, axis=1, return_inverse=True)[1].ravel()
        return found

    def shared(self, machine: Ints) -> bool:
        """Whether two endpoints are on one rail of one machine, whose (n_endpoints,) numbers."""
        return bool(np.unique(np.stack([machine, self.rail]), axis=1).shape[1] < len(self))


def basic_edges(host: Ints, rail: Ints) -> Ints:
    """Return all pairs of one rail on two hosts: (n_edges, 2), smaller row first, sorted."""
    return unique_edges(
        [cliques(np.flatnonzero(rail == number)[None], host, rail) for number in np.unique(rail)]
    )


def cliques(groups: Ints, host: Ints, rail: Ints) -> Ints:
    """Return the pairs within each of (n_groups, size) rows that the network carries."""
    first, second = np.triu_indices(groups.shape[1], 1)
    pairs = np.stack([groups[:, first].ravel(), groups[:, second].ravel()], axis=1)
    return carried(pairs, host, rail)


def carried(pairs: Ints, host: Ints, rail: Ints) -> Ints:
    """Return those of `pairs` that the network carries.

    Traffic within a host takes NVLink, and so does the part of a way that changes the rail
    (SkeletonHunter, section 3.2).
    """
    one, two = pairs[:, 0], pairs[:, 1]
    kept: Ints = pairs[(rail[one] == rail[two]) & (host[one] != host[two])]
    return kept


def unique_edges(parts: Sequence[Ints]) -> Ints:
    """Return each unordered pair of rows once: (n_edges, 2), smaller row first, sorted."""
    pairs = np.concatenate([np.empty((0, 2), np.int64), *parts])
    span = int(pairs.max(initial=0)) + 1
    keys = np.unique(pairs.min(axis=1) * span + pairs.max(axis=1))
    return np.stack([keys // span, keys % span], axis=1)
