# SPDX-License-Identifier: Apache-2.0
"""Traced paths into the learned topology: of each host's, those that say something new."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import ClassVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.paths import PathBase, PathTable, joined
from analyzer.intake.places import met
from analyzer.localize.topology import LearnedTopology
from analyzer.roster.registry import Registry
from netagent.model.ids import EndpointId

RELEARN_NS = 300_000_000_000
"""Nanoseconds after which unchanged paths of endpoints that did not move are learned again. Chosen:
half of the time after which what nothing shows is forgotten; learning costs time."""

_NAME = attrgetter("container", "rail")
"""What is looked up in a fifth of the time that an `EndpointId` takes."""


@dataclass(slots=True)
class Learned:
    """What was learned of hosts' paths, as their summaries said it last."""

    FORGOTTEN: ClassVar[frozenset[str]] = frozenset({"_laid", "_awaits", "_quiet"})
    """What no recording holds: it follows from the rest."""

    _whole: dict[str, tuple[PathTable, NDArray[np.bool_]]] = field(default_factory=dict)
    """Host -> its paths, and which of them (n_paths,) were learned to their end."""
    _since_ns: dict[str, int] = field(default_factory=dict)
    """Host -> start of the window that all of its paths were learned in."""
    _base: dict[str, tuple[int, PathTable]] = field(default_factory=dict)
    """Host -> start of the newest window that had all of its paths, and these."""
    _newest_ns: dict[str, int] = field(default_factory=dict)
    """Host -> start of the newest window that was learned from."""
    _laid: dict[str, PathBase] = field(default_factory=dict)
    """Cache: host -> those paths, ready for what differs from them."""
    _awaits: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Cache: host -> which of its paths (n_paths,) tell nothing until their receiver's leaf is
    known. When thousands of hosts begin, that is most of what is not learned to its end."""
    _quiet: dict[str, tuple[PathTable, int, int]] = field(default_factory=dict)
    """Cache: host whose paths were all learned -> what it said that differs, moves of endpoints
    until then, and when its paths are learned again."""
    _underlays: dict[str, tuple[int, dict[EndpointId, str | None]]] = field(default_factory=dict)
    """Host -> moves of endpoints until its table was last looked at, and their VTEPs then."""

    def all_of(self, host: str, paths: PathTable, *, wall_ns: int) -> PathTable:
        """Return all paths that a host had in a window which began at `wall_ns`.

        Only what it said, where the paths are not known from which those differ.
        """
        if not paths.whole_ns:
            if wall_ns >= self._base.get(host, (0, paths))[0]:
                self._base[host] = wall_ns, paths
                self._laid.pop(host, None)
            return paths
        base_ns, base = self._base.get(host, (0, paths))
        if base_ns != paths.whole_ns:
            return paths
        laid = self._laid.get(host)
        if laid is None:
            laid = self._laid[host] = PathBase(base)
        return laid.with_news(paths) or paths

    def is_past(self, host: str, wall_ns: int, *, now_ns: int) -> bool:
        """Return whether a later window of a host was learned from before.

        One of the future does not count: that was of a clock which went back since.
        """
        newest_ns = self._newest_ns.get(host, wall_ns)
        newest_ns = newest_ns if newest_ns <= now_ns else wall_ns
        self._newest_ns[host] = max(newest_ns, wall_ns)
        return wall_ns < newest_ns

    def is_quiet(self, host: str, said: PathTable, *, moves: int, wall_ns: int) -> bool:
        """Return whether a window says of a host's paths what the one before did, and no more.

        `moves` are those of all endpoints. Of thousands of hosts most are quiet, and to look at
        each would take longer than to decode its flows.
        """
        known = self._quiet.pop(host, None)
        if known is None:
            return False
        before, moves_then, again_ns = known
        is_quiet = moves_then == moves and wall_ns < again_ns and before.says_as(said)
        if is_quiet:
            self._quiet[host] = known
        return is_quiet

    def keep_quiet(self, host: str, said: PathTable, *, moves: int) -> None:
        """Note that of what a window said of a host's paths nothing had to be learned."""
        if said.whole_ns and host not in self._awaits:
            self._quiet[host] = said, moves, self._since_ns[host] + RELEARN_NS

    def set_back(self, now_ns: int) -> None:
        """Let windows that begin from now on be learned from, whatever began later before."""
        self._newest_ns = {host: min(each, now_ns) for host, each in self._newest_ns.items()}

    def news(
        self,
        host: str,
        paths: PathTable,
        *,
        wall_ns: int,
        moved: bool = False,
        is_leaf_known: Callable[[EndpointId], bool] = lambda _: True,
    ) -> NDArray[np.int64]:
        """Return the rows that a window which began at `wall_ns` has to be learned from.

        That are all where an endpoint of the table has `moved`. Of an endpoint, `is_leaf_known`
        says whether traces showed behind which leaf it is.
        """
        since_ns = self._since_ns.get(host)
        if since_ns is not None and not moved and wall_ns < since_ns + RELEARN_NS:
            before, whole = self._whole[host]
            awaits = self._still(host, before, is_leaf_known)
            if paths is not before:
                laid = self._laid.get(host)
                at = paths.found_in(before) if laid is None else laid.found(paths, before)
                whole = _carried(whole, at)
                awaits = None if awaits is None else _carried(awaits, at)
                self._keep(host, paths, whole, awaits)
            return np.flatnonzero(~(whole if awaits is None else whole | awaits))
        # Without the difference all hosts would be learned again in one and the same window.
        early_ns = crc32(host.encode()) * RELEARN_NS >> 32 if since_ns is None else 0
        self._since_ns[host] = wall_ns - early_ns
        self._keep(host, paths, np.zeros(len(paths), np.bool_), None)
        return np.arange(len(paths))

    def _still(
        self, host: str, paths: PathTable, is_leaf_known: Callable[[EndpointId], bool]
    ) -> NDArray[np.bool_] | None:
        """Return which of a host's paths (n_paths,) wait for a leaf; None where none does."""
        awaits = self._awaits.get(host)
        if awaits is None:
            return None
        rows = np.flatnonzero(awaits)
        source, target, _, reply = (each[rows] for each in paths.key[:4])
        asked, place = met(np.where(reply != 0, source, target), len(paths.endpoints))
        known = [is_leaf_known(paths.endpoints[each]) for each in asked.tolist()]
        awaits[rows] = ~np.array(known, np.bool_)[place]
        return awaits

    def has_moved(self, host: str, paths: PathTable, roster: Registry) -> bool:
        """Return whether endpoints of a host's paths have another VTEP than when it last asked.

        One that was not among them then may have moved since.
        """
        moves, before = self._underlays.get(host, (-1, {}))
        if moves == roster.moves:
            return False
        vteps = list(map(roster.vtep, paths.endpoints))
        self._underlays[host] = roster.moves, dict(zip(paths.endpoints, vteps, strict=True))
        if not before:  # as after a start, of every host
            return any(each is not None for each in vteps)
        return any(
            before.get(each) != vtep for each, vtep in zip(paths.endpoints, vteps, strict=True)
        )

    def take(
        self,
        host: str,
        paths: PathTable,
        news: NDArray[np.int64],
        whole: NDArray[np.bool_],
        awaits: NDArray[np.bool_],
    ) -> None:
        """Remember which of the news were learned to their end, or wait for a leaf.

        All else was learned, or waits, as before.
        """
        known = self._whole[host][1].copy()
        known[news] = whole
        waiting = self._awaits.get(host)
        waiting = np.zeros(len(paths), np.bool_) if waiting is None else waiting
        waiting[news] = awaits
        self._keep(host, paths, known, waiting)

    def _keep(
        self,
        host: str,
        paths: PathTable,
        whole: NDArray[np.bool_],
        awaits: NDArray[np.bool_] | None,
    ) -> None:
        self._whole[host] = paths, whole
        if awaits is not None and awaits.any():
            self._awaits[host] = awaits
        else:
            self._awaits.pop(host, None)


def _carried(of: NDArray[np.bool_], at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return (n,) what `of` says of the rows `at` which these were before; False at NOWHERE."""
    carried: NDArray[np.bool_] = np.append(of, False)[at]  # which NOWHERE is the place of
    return carried


@dataclass(frozen=True, slots=True)
class News:
    """Paths of a host that have to be learned."""

    host: str
    wall_ns: int
    """Start of their window."""
    paths: PathTable
    rows: NDArray[np.int64]
    """(n,) of the table."""
    mine: NDArray[np.bool_]
    """(n,) which of these the host's own endpoints sent; of the others, nothing is learned."""

    @property
    def parts(self) -> int:
        """Return the most flows, endpoints, routes and routers that become known by them."""
        routes = self.paths.route[self.rows[self.mine]].tolist()
        return sum(4 + len(self.paths.routes[each]) for each in routes)


def news_of(
    learned: Learned,
    topology: LearnedTopology,
    roster: Registry,
    host: str,
    paths: PathTable,
    *,
    wall_ns: int,
    now_ns: int,
) -> News | None:
    """Return what a window that began at `wall_ns` says anew of a host's paths; None: nothing.

    So of a window that comes after later ones, as from a spool: it says where flows went.
    """
    if learned.is_past(host, wall_ns, now_ns=now_ns):
        return None
    if learned.is_quiet(host, paths, moves=roster.moves, wall_ns=wall_ns):
        return None
    said, paths = paths, learned.all_of(host, paths, wall_ns=wall_ns)
    moved = learned.has_moved(host, paths, roster)

    def is_leaf_known(endpoint: EndpointId) -> bool:
        vtep = roster.vtep(endpoint)
        return vtep is not None and topology.leaf(vtep) is not None

    rows = learned.news(host, paths, wall_ns=wall_ns, moved=moved, is_leaf_known=is_leaf_known)
    if not len(rows):
        learned.keep_quiet(host, said, moves=roster.moves)
        return None
    # A host traces what its own endpoints send: probes of its flows, replies to others'.
    # Behind a VTEP that another host has nobody is believed, of its leaf least of all.
    own = {
        _NAME(record.endpoint.id)
        for record in roster.endpoints_of(host)
        if not roster.is_at(record.endpoint.underlay, besides=host)
    }
    source, target, _, reply = (each[rows] for each in paths.key[:4])
    senders, place = met(np.where(reply != 0, target, source), len(paths.endpoints))
    names = (_NAME(paths.endpoints[each]) for each in senders.tolist())
    mine = np.array([each in own for each in names], np.bool_)[place]
    return News(host, wall_ns, paths, rows, mine)


def learn(
    learned: Learned, topology: LearnedTopology, roster: Registry, every: Sequence[News]
) -> None:
    """Take news of hosts' paths into the topology.

    Those of several hosts, each of which is there once, are of one window; they cost a part of what
    they do one by one, and lead to the same, as long as none `shows_leaf`.
    """
    if not every:
        return
    parts = [each.rows[each.mine] for each in every]
    paths, rows = every[0].paths, parts[0]
    if len(every) > 1:
        paths = joined([each.paths for each in every], parts)
        rows = np.arange(len(paths))
    whole = topology.learn(paths, roster.vtep, which=rows, wall_ns=every[0].wall_ns)
    awaits = ~whole
    if awaits.any():
        awaits[awaits] = topology.awaits(paths, rows[awaits], roster.vtep)
    first = 0
    for each, part in zip(every, parts, strict=True):
        own = slice(first, first + len(part))
        first += len(part)
        # Of what others send, nothing is learned however often it comes.
        done, waits = ~each.mine, np.zeros(len(each.mine), np.bool_)
        done[each.mine], waits[each.mine] = whole[own], awaits[own]
        learned.take(each.host, each.paths, each.rows, done, waits)
