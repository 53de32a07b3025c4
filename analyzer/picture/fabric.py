# SPDX-License-Identifier: Apache-2.0
"""Switches, links and hosts with what crossed them, as few as fit a screen, the worst of them.

A probe crosses a link in the direction of its way there, or of its reply's. Which of the two was
lost is not known, so each counts what it may have lost. Between a host and its leaf both directions
are crossed by the same probes. Ways are the newest whole ones that traces showed. All is summed in
arrays, and only what is drawn becomes an object: a large fabric has a hundred thousand links.
"""

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from analyzer.picture.asked import Fabric
from analyzer.picture.crossings import Crossings
from analyzer.picture.scene import UNKNOWN, Floats, Ints, Mask, Scene
from analyzer.picture.sums import LOST, SENT, mean_ns, summed

MAX_NODES, MAX_LINKS, MAX_UPPER = 400, 1_500, 150
"""Most nodes, links, and switches that are no leaves. Chosen: what a browser draws at once, and a
person sees; half of a leaf's links lead up."""
MAX_MISSED = 64
"""Leaves that did not fit after which no smaller one is looked for. Chosen: bounds the time."""

Plain = dict[str, Any]


def fabric(scene: Scene, crossings: Crossings, asked: Fabric) -> Generator[None, None, Plain]:
    """Return nodes and links, piece by piece. What did not fit is counted in `omitted`."""
    mask = scene.seen(asked.tasks)
    declared = scene.topology.declared.links if asked.tasks is None else frozenset()
    links = yield from _links(scene, crossings, mask, declared)
    leaves = _Leaves(scene, asked, mask)
    yield
    drawing = _Drawing(leaves, links, asked)
    drawing.draw()
    return {
        "at_ns": scene.start_ns,
        "window_ns": scene.start_ns,
        "width_ns": scene.width_ns,
        **drawing.told(),
    }


@dataclass(slots=True)
class _Links:
    """Links between switches: their ends as places in `names`, and what crossed them."""

    names: list[str]
    ends: Ints
    """(2, n_links), the lesser place first."""
    sums: Floats
    """(2, 4, n_links) from the first end to the second, and back."""

    def __len__(self) -> int:
        return len(self.ends[0])

    @property
    def lost(self) -> Floats:
        """(n_links,) probes lost, either way."""
        found: Floats = self.sums[:, LOST].sum(axis=0)
        return found


class _Drawing:
    """What was chosen so far."""

    def __init__(self, leaves: "_Leaves", links: _Links, asked: Fabric) -> None:
        self._leaves, self._between, self._apart = leaves, links, set(asked.apart)
        self._nodes: dict[str, Plain] = {}
        self._links: list[Plain] = []
        self._drawn = np.zeros(len(links), np.bool_)
        self._place = {name: place for place, name in enumerate(links.names)}
        self._lost = dict(leaves.lost)
        """Switch -> probes lost that crossed it."""
        of_ends = [np.bincount(each, links.lost, len(links.names)) for each in links.ends]
        for name, lost in zip(links.names, sum(of_ends, np.zeros(len(links.names))), strict=True):
            self._lost[name] = self._lost.get(name, 0.0) + float(lost)
        self._tier = self._tiers()
        self._is_whole = (
            len(self._lost) + leaves.hosts <= MAX_NODES and len(links) + leaves.links <= MAX_LINKS
        )
        every = links.ends.reshape(-1)
        self._by_end = np.argsort(every, kind="stable")
        self._begins = np.searchsorted(every[self._by_end], np.arange(len(links.names) + 1))

    def draw(self) -> None:
        """Choose the switches that no host is at, then leaves whole, then links of the rest."""
        leaves = self._leaves.lost.keys()
        for name in sorted(self._lost.keys() - leaves, key=self._worst)[:MAX_UPPER]:
            self._nodes[name] = self._switch(name, None)
        missed = 0
        for leaf in sorted(leaves, key=self._worst):
            missed += not self._draw_leaf(leaf)
            if missed > MAX_MISSED:
                break
        is_there = np.array([name in self._nodes for name in self._between.names], np.bool_)
        rest = np.flatnonzero(is_there[self._between.ends].all(axis=0) & ~self._drawn)
        rest = rest[np.argsort(-self._between.lost[rest], kind="stable")]
        for link in rest[: MAX_LINKS - len(self._links)].tolist():
            self._draw_link(link)

    def told(self) -> Plain:
        """Return what was chosen, and how much was not."""
        nodes, uplinks = self._nodes.values(), (each for each in self._links if each["is_uplink"])
        shown = sum(each["members"] for each in nodes)
        return {
            "nodes": list(nodes),
            "links": self._links,
            "omitted": {
                "nodes": len(self._lost) + self._leaves.hosts - shown,
                "links": int((~self._drawn).sum())
                + self._leaves.links - sum(each["members"] for each in uplinks),
            },
            "aggregated": not self._is_whole,
        }  # fmt: skip

    def _draw_leaf(self, leaf: str) -> bool:
        """Draw a leaf with its hosts and links, unless that is too much; return whether it was."""
        members = self._leaves.members(leaf, grouped=not self._is_whole)
        up = [link for link in self._at(leaf) if self._may(link, leaf)]
        nodes = 1 + sum(each.id not in self._nodes for each in members)
        if (
            len(self._nodes) + nodes > MAX_NODES
            or len(self._links) + len(members) + len(up) > MAX_LINKS
        ):
            return False
        self._nodes[leaf] = self._switch(leaf, self._leaves.rail(leaf))
        for each in members:
            self._nodes.setdefault(each.id, each.node())
            self._links.append(each.link(leaf))
        for link in up:
            self._draw_link(link)
        return True

    def _at(self, name: str) -> list[int]:
        """Return the links at a switch."""
        place = self._place.get(name)
        if place is None:
            return []
        mine = self._by_end[self._begins[place] : self._begins[place + 1]]
        found: list[int] = (mine % max(1, len(self._between))).tolist()
        return found

    def _may(self, link: int, leaf: str) -> bool:
        """Return whether a link at a leaf is not drawn yet, and its other end is."""
        ends = (self._between.names[place] for place in self._between.ends[:, link].tolist())
        return not self._drawn[link] and all(end == leaf or end in self._nodes for end in ends)

    def _draw_link(self, link: int) -> None:
        self._drawn[link] = True
        a, b = (self._between.names[place] for place in self._between.ends[:, link].tolist())
        there, back = self._between.sums[:, :, link]
        if back[SENT] and not there[SENT]:
            a, b, there, back = b, a, back, there
        self._links.append(
            {
                "a": a, "b": b, **_told(there), "back": _told(back) if back[SENT] else None,
                "members": 1, "is_uplink": False,
            }
        )  # fmt: skip

    def _worst(self, name: str) -> tuple[bool, float, str]:
        return name not in self._apart, -self._lost[name], name

    def _tiers(self) -> dict[str, int]:
        """Return tiers of switches, from leaves (1) on; those that no leaf is beside have none."""
        names = self._between.names
        tier = dict.fromkeys((leaf for leaf in self._leaves.lost if leaf != UNKNOWN), 1)
        is_leaf = np.array([name in tier for name in names], np.bool_)
        a, b = self._between.ends
        beside = np.union1d(b[is_leaf[a]], a[is_leaf[b]]).tolist()
        return {names[place]: 2 for place in beside} | tier

    def _switch(self, name: str, rail: int | None) -> Plain:
        kind = {1: "leaf", 2: "spine"}.get(self._tier.get(name, 0), "router")
        return _node(name, kind, rail, self._tier.get(name), 1)


@dataclass(slots=True)
class _Member:
    """Hosts of a leaf that are drawn as one."""

    id: str
    hosts: int
    sums: Floats
    """(4,) of what they and the leaf exchanged."""
    is_group: bool

    def node(self) -> Plain:
        return _node(self.id, "group" if self.is_group else "host", None, 0, self.hosts)

    def link(self, leaf: str) -> Plain:
        return {
            "a": self.id, "b": leaf, **_told(self.sums), "back": None,
            "members": self.hosts, "is_uplink": True,
        }  # fmt: skip


class _Leaves:
    """Hosts by leaf, with what they and their leaf exchanged."""

    def __init__(self, scene: Scene, asked: Fabric, mask: Mask) -> None:
        known, leaves = scene.known, scene.leaves
        self._names, self._leaf_names, self._apart = known.hosts.names, leaves.names, asked.apart
        visible = np.flatnonzero(scene.visible(asked.tasks))
        count = len(known.hosts.names)
        key = leaves.of * count + known.hosts.of
        met, place = np.unique(key[visible], return_inverse=True)
        at = np.full(len(key), -1)
        at[visible] = place.reshape(-1)
        ends, columns = at[scene.ends], scene.columns
        if not mask.all():
            ends, columns = ends[:, mask], columns[:, mask]
        self._sums = summed(ends[0], columns, len(met)) + summed(ends[1], columns, len(met))
        within = np.flatnonzero(ends[0] == ends[1])  # crossed once
        self._sums -= summed(ends[0][within], columns[:, within], len(met))
        self._leaf, self._host = np.divmod(met, max(1, count))
        self._group = _groups(self._host, self._leaf, count, len(leaves.names))
        is_apart = np.isin(np.arange(count), [n for n, name in enumerate(self._names)
                                              if name in set(asked.apart)])  # fmt: skip
        self._is_apart = is_apart
        there = np.unique(self._host)
        groups, many = np.unique(self._group[there[~is_apart[there]]], return_counts=True)
        self._size = dict(zip(groups.tolist(), many.tolist(), strict=True))
        self.hosts, self.links = len(there), len(met)
        lost = np.bincount(self._leaf, self._sums[LOST], len(leaves.names))
        self.lost = {leaves.names[n]: float(lost[n]) for n in np.unique(self._leaf).tolist()}
        """Leaf -> probes lost of its hosts."""
        self._rails: dict[str, set[int]] = defaultdict(set)
        for each in np.unique(leaves.of[visible] << 16 | known.rails[visible]).tolist():
            self._rails[leaves.names[each >> 16]].add(each & 0xFFFF)

    def rail(self, leaf: str) -> int | None:
        """Return the rail of a leaf; None where it has several."""
        rails = self._rails[leaf]
        return next(iter(rails)) if len(rails) == 1 else None

    def members(self, leaf: str, *, grouped: bool) -> list[_Member]:
        """Return the hosts of a leaf, those of the same leaves together where `grouped`."""
        alone: list[_Member] = []
        groups: dict[int, list[int]] = defaultdict(list)
        place = self._leaf_names.index(leaf)
        first, last = np.searchsorted(self._leaf, [place, place + 1]).tolist()
        for n, host in zip(range(first, last), self._host[first:last].tolist(), strict=True):
            group = int(self._group[host])
            if grouped and not self._is_apart[host] and self._size[group] > 1:
                groups[group].append(n)
            else:
                alone.append(_Member(self._names[host], 1, self._sums[:, n], is_group=False))
        for rows in groups.values():
            name = f"{self._names[self._host[rows[0]]]} and {len(rows) - 1} more"
            alone.append(_Member(name, len(rows), self._sums[:, rows].sum(axis=1), is_group=True))
        return alone


def _groups(host: Ints, leaf: Ints, hosts: int, leaves: int) -> Ints:
    """Return (n_hosts,) one number for hosts of the same leaves."""
    # A sum of random numbers tells sets apart, but for one chance in 2**40.
    random = np.random.default_rng(1).integers(1 << 40, size=leaves)
    total = np.zeros(hosts, np.int64)
    np.add.at(total, host, random[leaf])
    return total


def _links(
    scene: Scene, crossings: Crossings, mask: Mask, declared: frozenset[tuple[str, str]]
) -> Generator[None, None, _Links]:
    """Return what crossed each link between switches; none crossed those declared alone."""
    columns, ways = scene.columns, scene.ways
    if not mask.all():
        columns, ways = columns[:, mask], ways[:, mask]
    yield from crossings.cover(scene.routes)
    sums = yield from crossings.sums(ways, columns)
    there = np.flatnonzero(sums[SENT] > 0)
    met, place = np.unique(crossings.ends[:, there], return_inverse=True)
    names = [scene.routes.routers.names[each] for each in met.tolist()]
    a, b = place.reshape(2, -1)
    return _joined(names, a, b, sums[:, there], declared)


def _joined(
    names: list[str], a: Ints, b: Ints, sums: Floats, declared: frozenset[tuple[str, str]]
) -> _Links:
    """Return links of directed ones, and of those that are declared."""
    place = {name: n for n, name in enumerate(names)}
    named, ends = _ends(declared)
    more = np.array([place.setdefault(name, len(place)) for name in named], np.int64)
    both = np.concatenate([np.stack([a, b]), more[ends]], axis=1)
    low, high = both.min(axis=0), both.max(axis=0)
    key = low << 32 | high
    met, link = np.unique(key, return_inverse=True)
    made = np.zeros((2, len(sums), len(met)))
    crossed = link.reshape(-1)[: len(a)]
    made[(a > b).astype(np.int64), :, crossed] = sums.T
    return _Links(list(place), np.stack([met >> 32, met & 0xFFFF_FFFF]), made)


@lru_cache(maxsize=2)
def _ends(declared: frozenset[tuple[str, str]]) -> tuple[tuple[str, ...], Ints]:
    """Return names of routers, and (2, n) links as places in these."""
    place: dict[str, int] = {}
    ends = [[place.setdefault(end, len(place)) for end in pair] for pair in sorted(declared)]
    return tuple(place), np.array(ends, np.int64).reshape(-1, 2).T


def _node(name: str, kind: str, rail: int | None, tier: int | None, members: int) -> Plain:
    return {
        "id": name, "kind": kind, "rail": rail, "tier": tier, "members": members,
        "suspects": [], "state": "well",
    }  # fmt: skip


def _told(sums: Floats) -> Plain:
    sent, lost, count, ln = sums.tolist()
    return {"sent": int(sent), "lost": int(lost), "rtt_ns": mean_ns(count, ln)}
