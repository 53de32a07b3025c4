# SPDX-License-Identifier: Apache-2.0
"""Switches, links and hosts with what crossed them, as few as fit a screen, the worst of them.

A probe crosses a link in the direction of its way there, or of its reply's. Which of the two was
lost is not known, so each counts what it may have lost. Between a host and its leaf both directions
are crossed by the same probes. Ways are the newest whole ones that traces showed.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzer.localize.routes import NO_ROUTE
from analyzer.picture.asked import Fabric
from analyzer.picture.scene import UNKNOWN, Floats, Ints, Mask, Scene
from analyzer.picture.sums import LOST, SENT, mean_ns, summed

MAX_NODES, MAX_LINKS, MAX_UPPER = 400, 1_500, 150
"""Most nodes, links, and switches that are no leaves. Chosen: what a browser draws at once, and a
person sees; half of a leaf's links lead up."""
DENSE = 1 << 24
"""Most pairs of routers that are counted by their place. Chosen: 128 MB of sums."""

Plain = dict[str, Any]


@dataclass(slots=True)
class _Links:
    """Directed links between switches: (n,) ends, and (4, n) sums."""

    names: list[str]
    a: Ints
    b: Ints
    sums: Floats


Pair = tuple[str, str]
Both = list[Floats | None]
"""What crossed a link from its first end to the other, and back; None: nothing."""


def fabric(scene: Scene, asked: Fabric) -> Plain:
    """Return nodes and links. What did not fit is counted in `omitted`."""
    mask = scene.seen(asked.tasks)
    joined = _joined(_switch_links(scene, mask))
    if asked.tasks is None:  # what nobody crosses is there, too
        for a, b in scene.topology.declared.links:
            joined.setdefault((a, b) if a < b else (b, a), [None, None])
    drawing = _Drawing(_Leaves(scene, asked, mask), joined, asked)
    drawing.draw()
    return {
        "at_ns": scene.start_ns,
        "window_ns": scene.start_ns,
        "width_ns": scene.width_ns,
        **drawing.told(),
    }


class _Drawing:
    """What was chosen so far."""

    def __init__(self, leaves: "_Leaves", joined: dict[Pair, Both], asked: Fabric) -> None:
        self._leaves, self._joined, self._apart = leaves, joined, set(asked.apart)
        self._nodes: dict[str, Plain] = {}
        self._links: list[Plain] = []
        self._drawn: set[Pair] = set()
        self._tier = _tiers(leaves, joined)
        self._names = {*leaves.hosts_of, *(end for pair in joined for end in pair)}
        self._is_whole = (
            len(self._names) + len(leaves.hosts) <= MAX_NODES
            and len(joined) + leaves.links <= MAX_LINKS
        )
        self._lost: dict[str, float] = defaultdict(float)
        """Switch -> probes lost that crossed it."""
        self._up: dict[str, list[Pair]] = defaultdict(list)
        """Leaf -> its links to other switches."""
        for pair, both in joined.items():
            lost = _lost(both)
            for end in pair:
                self._lost[end] += lost
                if end in leaves.hosts_of:
                    self._up[end].append(pair)

    def draw(self) -> None:
        """Choose the switches that no host is at, then leaves whole, then links of the rest."""
        leaves = self._leaves.hosts_of
        for name in sorted(self._names - leaves.keys(), key=self._worst)[:MAX_UPPER]:
            self._nodes[name] = self._switch(name, None)
        for leaf in sorted(leaves, key=self._worst):
            self._draw_leaf(leaf)
        rest = [pair for pair in self._joined if self._may(pair)]
        rest.sort(key=lambda pair: -_lost(self._joined[pair]))
        for pair in rest[: MAX_LINKS - len(self._links)]:
            self._draw_link(pair)

    def told(self) -> Plain:
        """Return what was chosen, and how much was not."""
        nodes, uplinks = self._nodes.values(), (each for each in self._links if each["is_uplink"])
        shown = sum(each["members"] for each in nodes)
        return {
            "nodes": list(nodes),
            "links": self._links,
            "omitted": {
                "nodes": len(self._names) + len(self._leaves.hosts) - shown,
                "links": len(self._joined) - len(self._drawn)
                + self._leaves.links - sum(each["members"] for each in uplinks),
            },
            "aggregated": not self._is_whole,
        }  # fmt: skip

    def _draw_leaf(self, leaf: str) -> None:
        """Draw a leaf with its hosts and links, unless that is too much."""
        members = self._leaves.members(leaf, grouped=not self._is_whole)
        there = self._nodes.keys() | {leaf}
        up = [pair for pair in self._up[leaf] if pair not in self._drawn and there >= set(pair)]
        nodes = 1 + sum(each.id not in self._nodes for each in members)
        if (
            len(self._nodes) + nodes > MAX_NODES
            or len(self._links) + len(members) + len(up) > MAX_LINKS
        ):
            return
        self._nodes[leaf] = self._switch(leaf, self._leaves.rail(leaf))
        for each in members:
            self._nodes.setdefault(each.id, each.node())
            self._links.append(each.link(leaf))
        for pair in up:
            self._draw_link(pair)

    def _draw_link(self, pair: Pair) -> None:
        self._drawn.add(pair)
        self._links.append(_link(pair, self._joined[pair]))

    def _may(self, pair: Pair) -> bool:
        return pair not in self._drawn and all(end in self._nodes for end in pair)

    def _worst(self, name: str) -> tuple[bool, float, str]:
        return name not in self._apart, -self._lost[name], name

    def _switch(self, name: str, rail: int | None) -> Plain:
        kind = {1: "leaf", 2: "spine"}.get(self._tier.get(name, 0), "router")
        return _node(name, kind, rail, self._tier.get(name), 1)


@dataclass(slots=True)
class _Member:
    """Hosts of a leaf that are drawn as one."""

    id: str
    hosts: tuple[str, ...]
    sums: Floats
    """(4,) of what they and the leaf exchanged."""
    is_group: bool

    def node(self) -> Plain:
        kind = "group" if self.is_group else "host"
        return _node(self.id, kind, None, 0, len(self.hosts))

    def link(self, leaf: str) -> Plain:
        return {
            "a": self.id, "b": leaf, **_told(self.sums), "back": None,
            "members": len(self.hosts), "is_uplink": True,
        }  # fmt: skip


class _Leaves:
    """Hosts by leaf, with what they and their leaf exchanged."""

    def __init__(self, scene: Scene, asked: Fabric, mask: Mask) -> None:
        known, leaves = scene.known, scene.leaves
        self._apart = set(asked.apart)
        self._rails: dict[str, set[int]] = defaultdict(set)
        self.hosts_of: dict[str, dict[str, Floats]] = defaultdict(dict)
        """Leaf -> host -> (4,) sums."""
        visible = np.flatnonzero(scene.visible(asked.tasks))
        count = len(leaves.names)
        key = known.hosts.of * count + leaves.of
        met, place = np.unique(key[visible], return_inverse=True)
        at = np.full(len(key), -1)
        at[visible] = place.reshape(-1)
        ends, columns = at[scene.ends[:, mask]], scene.columns[:, mask]
        sums = summed(ends[0], columns, len(met))
        apart = ends[0] != ends[1]
        sums += summed(ends[1][apart], columns[:, apart], len(met))
        leaf_of_host: dict[str, list[str]] = defaultdict(list)
        for n, each in enumerate(met.tolist()):
            host, leaf = known.hosts.names[each // count], leaves.names[each % count]
            self.hosts_of[leaf][host] = sums[:, n]
            leaf_of_host[host].append(leaf)
        self.hosts = leaf_of_host.keys()
        self.links = len(met)
        first = np.unique(leaves.of[visible] << 16 | known.rails[visible])
        for each in first.tolist():
            self._rails[leaves.names[each >> 16]].add(each & 0xFFFF)
        self._group = {host: tuple(each) for host, each in leaf_of_host.items()}
        """Host -> its leaves: hosts that have the same are one group."""
        self._size: dict[tuple[str, ...], int] = defaultdict(int)
        for host, of in self._group.items():
            self._size[of] += host not in self._apart

    def rail(self, leaf: str) -> int | None:
        """Return the rail of a leaf; None where it has several."""
        rails = self._rails[leaf]
        return next(iter(rails)) if len(rails) == 1 else None

    def members(self, leaf: str, *, grouped: bool) -> list[_Member]:
        """Return the hosts of a leaf, those of the same leaves together where `grouped`."""
        alone: list[_Member] = []
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        of = self.hosts_of[leaf]
        for host, sums in of.items():
            if grouped and host not in self._apart and self._size[self._group[host]] > 1:
                groups[self._group[host]].append(host)
            else:
                alone.append(_Member(host, (host,), sums, is_group=False))
        for hosts in groups.values():
            total = np.sum([of[host] for host in hosts], axis=0)
            name = f"{hosts[0]} and {len(hosts) - 1} more"
            alone.append(_Member(name, tuple(hosts), total, is_group=True))
        return alone


def _switch_links(scene: Scene, mask: Mask) -> _Links:
    """Return what crossed each directed link between switches."""
    routes = scene.routes
    columns = scene.columns[:, mask]
    total = np.zeros((len(columns), len(routes)))
    for way in scene.ways[:, mask]:
        known = way != NO_ROUTE
        total += summed(way[known], columns[:, known], len(routes))
    rows = np.flatnonzero(total[SENT] > 0)
    lengths, hops = routes.routers_of(rows)
    of = np.repeat(np.arange(len(rows)), lengths)
    beside = (of[1:] == of[:-1]) & (hops[1:] > 0) & (hops[:-1] > 0) & (hops[1:] != hops[:-1])
    a, b, of = hops[:-1][beside].astype(np.int64), hops[1:][beside].astype(np.int64), of[1:][beside]
    met = np.unique(np.concatenate([a, b]))
    place = np.zeros(int(met.max(initial=0)) + 1, np.int64)
    place[met] = np.arange(len(met))
    key, size = place[a] * len(met) + place[b], len(met) ** 2
    if size > DENSE:
        there, key = np.unique(key, return_inverse=True)
        key, size = key.reshape(-1), len(there)
    else:
        there = np.arange(size)
    sums = summed(key, total[:, rows[of]], size)
    crossed = np.flatnonzero(sums[SENT] > 0)
    names = [routes.routers.names[each] for each in met.tolist()]
    first, second = np.divmod(there[crossed], max(1, len(met)))
    return _Links(names, first, second, sums[:, crossed])


def _joined(links: _Links) -> dict[Pair, Both]:
    """Return links by their ends, in order of these, with the sums of both directions."""
    found: dict[Pair, Both] = {}
    for n, (a, b) in enumerate(zip(links.a.tolist(), links.b.tolist(), strict=True)):
        one, other = links.names[a], links.names[b]
        pair = (one, other) if one < other else (other, one)
        found.setdefault(pair, [None, None])[pair[0] != one] = links.sums[:, n]
    return found


def _tiers(leaves: _Leaves, joined: dict[Pair, Both]) -> dict[str, int]:
    """Return tiers of switches, from leaves (1) on; those that no leaf is beside have none."""
    tier = dict.fromkeys((leaf for leaf in leaves.hosts_of if leaf != UNKNOWN), 1)
    above = {
        other
        for a, b in joined
        for one, other in ((a, b), (b, a))
        if one in tier and other not in tier
    }
    return tier | dict.fromkeys(above, 2)


def _lost(both: Both) -> float:
    return sum(float(each[LOST]) for each in both if each is not None)


def _node(name: str, kind: str, rail: int | None, tier: int | None, members: int) -> Plain:
    return {
        "id": name, "kind": kind, "rail": rail, "tier": tier, "members": members,
        "suspects": [], "state": "well",
    }  # fmt: skip


def _link(pair: Pair, both: Both) -> Plain:
    there, back = both
    swapped = there is None and back is not None
    a, b = pair[::-1] if swapped else pair
    first, second = (back, None) if swapped else (there, back)
    return {
        "a": a, "b": b, **_told(first), "back": _told(second) if second is not None else None,
        "members": 1, "is_uplink": False,
    }  # fmt: skip


def _told(sums: Floats | None) -> Plain:
    sent, lost, count, ln = (0, 0, 0, 0) if sums is None else sums.tolist()
    return {"sent": int(sent), "lost": int(lost), "rtt_ns": mean_ns(count, ln)}
