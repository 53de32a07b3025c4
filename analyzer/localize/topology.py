# SPDX-License-Identifier: Apache-2.0
"""The fabric as traces show it: which components each direction of each flow crosses.

A trace names the routers up to the destination's leaf. It is known to be complete when its last
router is the one that the destination's own traces begin with. While a path fails, its traces end
early or show other routers; the route in force before is what the lost probes took, so only
complete routes replace a route.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from analyzer.ingest import PathRow
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, link, switch
from netagent.model.topology import DeclaredTopology

UnderlayOf = Callable[[EndpointId], str | None]
"""Address of an endpoint's VTEP; None where it is not known."""


@dataclass(slots=True)
class _Known:
    hops: tuple[str, ...]
    latest: tuple[str, ...]
    outer_port: int
    seen_ns: int


@dataclass(slots=True)
class LearnedTopology:
    """Routes by flow and direction, and what they say of the fabric."""

    declared: DeclaredTopology = field(default_factory=DeclaredTopology)
    _leaf_of: dict[str, str] = field(default_factory=dict)
    """VTEP -> first router of its latest trace."""
    _known: dict[tuple[FlowId, bool], _Known] = field(default_factory=dict)
    _links: Counter[tuple[str, str]] = field(default_factory=Counter)

    def learn(self, rows: Iterable[PathRow], underlay_of: UnderlayOf, *, wall_ns: int = 0) -> bool:
        """Take in the paths of a summary whose window began at `wall_ns`; say if all are whole."""
        rows = [row for row in rows if row.hops]
        for row in rows:
            sender = underlay_of(row.flow.target if row.reply else row.flow.source)
            if sender is not None and row.hops[0]:
                self._leaf_of[sender] = row.hops[0]
        whole = True
        for row in rows:
            receiver = underlay_of(row.flow.source if row.reply else row.flow.target)
            complete = receiver is not None and row.hops[-1] == self.leaf(receiver)
            whole &= complete
            known = self._known.get((row.flow, row.reply))
            if complete:
                self._known[row.flow, row.reply] = _Known(
                    row.hops, row.hops, row.outer_port, wall_ns
                )
                for a, b in pairwise(row.hops):
                    if a and b:
                        self._links[min(a, b), max(a, b)] += 1
            elif known is not None:
                known.latest, known.seen_ns = row.hops, wall_ns
        return whole

    def leaf(self, underlay: str) -> str | None:
        """Return the router that the VTEP's traces begin with; None before the first trace."""
        return self._leaf_of.get(underlay)

    def hops(self, flow: FlowId, *, reply: bool) -> tuple[str, ...] | None:
        """Return the names of the routers of the last complete route; "" where one is silent."""
        known = self._known.get((flow, reply))
        return tuple(map(self.name, known.hops)) if known else None

    def ends_after(self, flow: FlowId, *, reply: bool) -> str | None:
        """Return the last router of a latest trace that ended early; None where it did not."""
        known = self._known.get((flow, reply))
        if known is None or known.latest == known.hops or len(known.latest) >= len(known.hops):
            return None
        return self.name(known.latest[-1])

    def crossed(self, flow: FlowId) -> frozenset[Component] | None:
        """Return switches and links of both directions; None where neither was ever traced."""
        routes = [self.hops(flow, reply=False), self.hops(flow, reply=True)]
        if routes == [None, None]:
            return None
        components: set[Component] = set()
        for route in routes:
            components.update(switch(name) for name in route or () if name)
            components.update(link(a, b) for a, b in pairwise(route or ()) if a and b)
        return frozenset(components)

    def expire(self, *, before_ns: int) -> None:
        """Forget routes of flows that no window since `before_ns` told of."""
        self._known = {k: v for k, v in self._known.items() if v.seen_ns >= before_ns}

    def links(self) -> set[tuple[str, str]]:
        """Return the links that complete routes crossed, as sorted pairs of names."""
        names = ((self.name(a), self.name(b)) for a, b in self._links)
        return {(min(a, b), max(a, b)) for a, b in names}

    def leaves(self) -> dict[str, str]:
        """Return VTEP -> name of its leaf."""
        return {underlay: self.name(leaf) for underlay, leaf in self._leaf_of.items()}

    def undeclared_links(self) -> set[tuple[str, str]]:
        """Return links that were crossed but not declared; empty where no link was declared."""
        return self.links() - self.declared.links if self.declared.links else set()

    def unseen_links(self) -> set[tuple[str, str]]:
        """Return links that were declared, and that no complete route crossed yet."""
        return set(self.declared.links) - self.links()

    def name(self, address: str) -> str:
        """Return the declared name of the router that answers from `address`, or the address."""
        return self.declared.name(address) if address else ""
