# SPDX-License-Identifier: Apache-2.0
"""Which directed links between switches each route crosses, kept from one window to the next.

A large fabric has as many routes as flows, and few of them are new in a window. Whoever sums over
all of them does it a block at a time, and may do something else between two.
"""

from collections.abc import Generator, Iterator

import numpy as np

from analyzer.localize.incidence import grown
from analyzer.localize.routes import NO_ROUTE, Numbers, RouteTable, Rows
from analyzer.picture.scene import Floats, Ints
from analyzer.picture.sums import COUNT, LN, LOST, SENT

BLOCK = 1 << 17
"""Routes, or rows, that are looked at at once. Chosen: some milliseconds, and what they need stays
in the cache."""
DENSE = 1 << 12
"""Most routers, and addresses of theirs, whose links are looked up by place instead of by search,
which takes ten times as long. Chosen: 64 MB."""


class Crossings:
    """Links by route. Numbers of links are places in `ends`, in no order."""

    def __init__(self) -> None:
        self._routes: RouteTable | None = None
        self._forget(None)

    def _forget(self, routes: RouteTable | None) -> None:
        self._routes, self._size = routes, 0
        self._begins = np.zeros(1025, np.int64)
        self._links = np.zeros(4096, np.int32)
        """Links of one route after the other."""
        self._keys = np.zeros(0, np.int64)
        """Links sorted: the numbers of two routers' names, as one."""
        self._numbers = np.zeros(0, np.int32)
        """Of each of these, its link."""
        self._dense = np.zeros((0, 0), np.int32)
        """The same by the numbers of the two names, where there are few of these."""
        self.ends = np.zeros((2, 0), np.int64)
        """(2, n_links) numbers of the names of the routers that a link leads from and to."""

    def cover(self, routes: RouteTable) -> Iterator[None]:
        """Have all rows of `routes`, block by block."""
        if self._routes is not routes:
            self._forget(routes)
        while self._routes is routes and self._size < len(routes):
            first = self._size  # it may have grown meanwhile, by another who covers these
            self._enter(routes, np.arange(first, min(len(routes), first + BLOCK)))
            yield

    def _enter(self, routes: RouteTable, rows: Ints) -> None:
        lengths, hops = routes.routers_of(rows)
        of = np.repeat(np.arange(len(rows)), lengths)
        beside = (of[1:] == of[:-1]) & (hops[1:] > 0) & (hops[:-1] > 0) & (hops[1:] != hops[:-1])
        links = self._numbered(hops[:-1][beside], hops[1:][beside], len(routes.routers.names))
        first, size = int(self._begins[self._size]), self._size + len(rows)
        self._links = grown(self._links, first + len(links))
        self._links[first : first + len(links)] = links
        self._begins = grown(self._begins, size + 1)
        counts = np.bincount(of[1:][beside], minlength=len(rows))
        self._begins[self._size + 1 : size + 1] = first + np.cumsum(counts)
        self._size = size

    def _numbered(self, a: Numbers, b: Numbers, routers: int) -> Numbers:
        """Return (n,) the links from routers to others; those not met before get numbers."""
        if routers > DENSE:
            keys = a.astype(np.int64) << 32 | b
            self._meet(np.setdiff1d(keys, self._keys))
            return self._numbers[np.searchsorted(self._keys, keys)]
        if routers > len(self._dense):
            self._dense = np.full((min(DENSE, 2 * routers),) * 2, NO_ROUTE, np.int32)
            self._dense[*self.ends] = np.arange(self.ends.shape[1])
        found = self._dense[a, b]
        if (new := found == NO_ROUTE).any():
            self._meet(np.unique(a[new].astype(np.int64) << 32 | b[new]))
            self._dense[*self.ends] = np.arange(self.ends.shape[1])
            found = self._dense[a, b]
        return found

    def _meet(self, new: Ints) -> None:
        """Give numbers to links that were not met before."""
        known = len(self._keys)
        keys = np.concatenate([self._keys, new])
        order = np.argsort(keys)
        numbers = np.arange(known, len(keys), dtype=np.int32)
        self._keys, self._numbers = keys[order], np.concatenate([self._numbers, numbers])[order]
        self.ends = np.concatenate([self.ends, np.stack([new >> 32, new & 0xFFFF_FFFF])], axis=1)

    def sums(self, ways: Rows, columns: Floats) -> Generator[None, None, Floats]:
        """Return (4, n_links) sums of `columns` (4, n_rows) by link, block by block.

        `ways` (2, n_rows) are routes there and back, of those covered, or NO_ROUTE.
        """
        size = self.ends.shape[1]
        sums = np.zeros((len(columns), size))
        # Most rows lost nothing, and all that they sent came back.
        odd = np.flatnonzero((columns[LOST] != 0) | (columns[COUNT] != columns[SENT]))
        less = columns[COUNT, odd] - columns[SENT, odd]
        for way in ways:
            for first in range(0, len(way), BLOCK):
                links, lengths = self._crossed(way[first : first + BLOCK])
                for n in (SENT, LN):
                    of = np.repeat(columns[n, first : first + BLOCK], lengths)
                    sums[n] += np.bincount(links, of, size)
                yield
            links, lengths = self._crossed(way[odd])
            sums[LOST] += np.bincount(links, np.repeat(columns[LOST, odd], lengths), size)
            sums[COUNT] += np.bincount(links, np.repeat(less, lengths), size)
            yield
        sums[COUNT] += sums[SENT]
        return sums

    def _crossed(self, way: Rows) -> tuple[Ints, Ints]:
        """Return the links that ways cross, one after the other, and (n,) how many each."""
        is_known = way != NO_ROUTE
        begins = self._begins[way]
        lengths = np.where(is_known, self._begins[way + 1] - begins, 0)
        before = np.cumsum(lengths) - lengths
        place = np.arange(int(lengths.sum())) + np.repeat(begins - before, lengths)
        return self._links[place].astype(np.int64), lengths
