# SPDX-License-Identifier: Apache-2.0
"""The ping lists: which targets each host probes.

The basic list is the full mesh of a task minus pairs that cross rails (they share no leaf) and
pairs on one host (they cross no fabric). Activation then takes from it what is registered and up: a
target is probed once its container is there, never before. RDMA and UDP endpoints do not answer
each other: such pairs are left out.

Where a task's skeleton is known, pairs that it leaves out become rare: they are still probed, at a
share of the rate, so that no list ever has a gap and an unused path's failure is still found.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.pinglist import Expected, PingList, Target

Group = Callable[[str, int], Iterable[Endpoint]]
"""The active endpoints of a task on a rail."""


Uses = Callable[[str, EndpointId, EndpointId], bool]
"""Function that returns whether a task uses a pair of its endpoints; True where unknown."""


def all_used(_task: str, _source: EndpointId, _target: EndpointId) -> bool:
    """Return True: every pair of the basic list counts as used."""
    return True


def active(
    host: str, endpoints: Iterable[Endpoint], group: Group, uses: Uses = all_used
) -> tuple[Target, ...]:
    """Return the targets of `host`, in order, given its own active `endpoints`."""
    targets = [
        Target(
            mine.id,
            theirs.id,
            theirs.address,
            theirs.underlay,
            theirs.rdma,
            rare=not uses(mine.task, mine.id, theirs.id),
            host=theirs.host,
        )
        for mine in endpoints
        if mine.task
        for theirs in group(mine.task, mine.id.rail)
        if theirs.host != host and (mine.rdma is None) == (theirs.rdma is None)
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


@dataclass(frozen=True, slots=True)
class ListVersion:
    """What the store keeps of a host's list, so that no restart reuses a version."""

    host: str
    version: int
    digest: bytes
    """Digest of the targets; by it an unchanged list keeps its version over a restart."""


class PingLists:
    """The current list of each host. Reads no clock: `wall_ns` is Unix time.

    A list's version is the millisecond in which it changed, or one more than the last: it grows
    with each change of content and with nothing else, over restarts too.
    """

    def __init__(self, known: Iterable[ListVersion] = (), *, rare_share: float = 0.1) -> None:
        self._rare_share = rare_share
        self._lists: dict[str, PingList] = {}
        self._versions = {version.host: version for version in known}

    def update(
        self,
        host: str,
        targets: tuple[Target, ...],
        wall_ns: int,
        expected: tuple[Expected, ...] = (),
    ) -> ListVersion | None:
        """Give `host` these targets; return its new version, or None where nothing changed."""
        current = self._lists.get(host)
        if current is not None and (current.targets, current.expected) == (targets, expected):
            return None
        digest = _digest(targets, expected, self._rare_share)
        nothing = _digest((), (), self._rare_share)
        last = self._versions.get(host, ListVersion(host, 0, nothing))
        changed = last.digest != digest
        if changed:
            last = ListVersion(host, max(last.version + 1, wall_ns // 10**6), digest)
            self._versions[host] = last
        self._lists[host] = PingList(last.version, targets, self._rare_share, expected)
        return last if changed else None

    def get(self, host: str) -> PingList:
        """Return the list of `host`; of one never heard of, version 0 without targets."""
        return self._lists.get(host, PingList(0))


# Plain tuples: comparing the dataclasses themselves is what a large list would spend its time on.
def _order(target: Target) -> tuple[str, int, str, int]:
    return (
        target.source.container,
        target.source.rail,
        target.target.container,
        target.target.rail,
    )


def _digest(
    targets: tuple[Target, ...], expected: tuple[Expected, ...], rare_share: float
) -> bytes:
    listed = [(*_order(t), t.address, t.underlay, t.rdma, t.rare, t.host) for t in targets]
    content = repr((listed, expected, rare_share))
    return blake2b(content.encode(), digest_size=16).digest()
