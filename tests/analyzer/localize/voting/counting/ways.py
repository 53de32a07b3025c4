# SPDX-License-Identifier: Apache-2.0
"""A small fabric, and what hosts counted on its ways."""

from collections.abc import Sequence
from itertools import pairwise

from analyzer.localize.topology import LearnedTopology
from analyzer.localize.voting.counting.counts import Count, Wanted, counted_on
from analyzer.localize.voting.election import Election
from analyzer.simulate.fabric import Fabric
from netagent.model.ids import FlowId
from netagent.model.path import link
from netagent.model.topology import DeclaredTopology, Uplink
from netagent.model.verdict import Suspect
from netagent.wire.messages import PathAnswer

US = 1_000
FABRIC = Fabric(seed=1)
FLOW = next(f for f in FABRIC.flows if len(FABRIC.routes[f, False]) == 3)
NEAR, SPINE, FAR = FABRIC.routes[FLOW, False]
HOST = FABRIC.endpoints[FLOW.source]
ANOTHER = next(
    f for f in FABRIC.flows
    if FABRIC.leaf(f.source) == NEAR and FABRIC.leaf(f.target) == FAR
    and FABRIC.endpoints[f.source].host != HOST.host
)  # fmt: skip


def answered(*reached: int, flow: FlowId = FLOW) -> list[Count]:
    """Return what was counted on the traced way of a flow, of a hundred packets to each router."""
    answer = PathAnswer(source_port=0, outer_port=1, sent=100, answered=reached)
    return [counted_on(Wanted(flow), answer, FABRIC.topology())]


BACK = next(f for f in FABRIC.flows if FABRIC.routes[f, False] == (FAR, SPINE, NEAR) and f != FLOW)
UNTRACED = LearnedTopology(
    DeclaredTopology(
        links=frozenset(
            (min(a, b), max(a, b)) for route in FABRIC.routes.values() for a, b in pairwise(route)
        ),
        uplinks=tuple(
            Uplink(end.host, end.rnic, FABRIC.leaf(end.id)) for end in FABRIC.endpoints.values()
        ),
    )
)
SPINES = sorted({route[1] for route in FABRIC.routes.values() if len(route) > 1})
TIE = Election(
    tuple(Suspect(link(NEAR, spine), 0.5, 9, 90) for spine in SPINES), (), pairs=4, evidence=50.0
)


def way(spine: str, *reached: int, flow: FlowId = FLOW, rtt_us: Sequence[int] = ()) -> Count:
    """Return what was counted on a way that a host found, of fifty packets to each router."""
    answer = PathAnswer(
        source_port=0, outer_port=int(spine.rpartition("-")[2]), hops=(NEAR, spine, FAR), sent=50,
        answered=reached, rtt_ns=tuple(us * US for us in rtt_us),
    )  # fmt: skip
    return counted_on(Wanted(flow, len(SPINES)), answer, UNTRACED)
