# SPDX-License-Identifier: Apache-2.0
"""The ping lists: which targets each host probes.

The basic list is the full mesh of a task minus pairs that cross rails (they share no leaf) and
pairs on one host (they cross no fabric). Activation then takes from it what is registered and up: a
target is probed once its container is there, never before. RDMA and UDP endpoints do not answer
each other, nor do those with IPv4 and IPv6 addresses: such pairs are left out.

Where a task's skeleton is known, pairs that it leaves out become rare: they are still probed, at a
share of the rate, so that no list ever has a gap and an unused path's failure is still found.
"""

from collections.abc import Callable, Iterable, Sequence

from netagent.model.endpoint import Endpoint, may_answer
from netagent.model.ids import EndpointId
from netagent.model.pinglist import Expected, Target

Group = Callable[[str, int], Iterable[Endpoint]]
"""The active endpoints of a task on a rail."""

Used = Callable[[str, EndpointId], tuple[EndpointId, ...] | None]
"""Function that returns which endpoints a task's endpoint exchanges with; None where unknown."""


def unknown(_task: str, _source: EndpointId) -> None:
    """Return None: of no task it is known what it uses."""


def active(
    host: str, endpoints: Sequence[Endpoint], group: Group, used: Used = unknown
) -> tuple[Target, ...]:
    """Return the targets of `host`, in order, given its own active `endpoints`.

    It is what the host's agent makes of what it follows (`netagent.probing.roster`).
    """
    exchanges = {mine.id: used(mine.task, mine.id) for mine in endpoints}
    targets = [
        Target(
            mine.id,
            theirs.id,
            theirs.address,
            theirs.underlay,
            theirs.rdma,
            rare=(often := exchanges[mine.id]) is not None and theirs.id not in often,
            host=theirs.host,
        )
        for mine in endpoints
        if mine.task
        for theirs in group(mine.task, mine.id.rail)
        if theirs.host != host and may_answer(mine, theirs)
    ]
    targets.sort(key=_order)
    return tuple(targets)


def expected(
    endpoints: Iterable[Endpoint], declared: Callable[[str], Sequence[str]]
) -> tuple[Expected, ...]:
    """Return the containers, by task, that a host's own active `endpoints` may later probe."""
    sources: dict[str, list[EndpointId]] = {}
    for mine in endpoints:
        sources.setdefault(mine.task, []).append(mine.id)
    return tuple(
        Expected(tuple(sorted(ids)), tuple(containers))
        for task, ids in sorted(sources.items())
        if (containers := declared(task))
    )


# Plain tuples: comparing the dataclasses themselves is what a large list would spend its time on.
def _order(target: Target) -> tuple[str, int, str, int]:
    return (
        target.source.container,
        target.source.rail,
        target.target.container,
        target.target.rail,
    )
