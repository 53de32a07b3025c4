# SPDX-License-Identifier: Apache-2.0
"""Which targets of a preloaded list are up: incremental activation in the data plane. Pure.

The analyzer sends a host its list when a task is declared, with whom to expect, and seldom after
that (section 5.1 of SkeletonHunter). When a container comes up, its own agent informs the agents of
those that expect it; so the analyzer has a constant number of messages per container. An
agent announces what the analyzer has acknowledged: every later list of the analyzer has it, so an
announcement counts until then and no longer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from netagent.model.endpoint import Endpoint, EndpointState, may_answer, oddity
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList, Target
from netagent.wire.messages import SCHEMA, Announcement

MAX_HOSTS = 4096
"""Hosts whose announcements are remembered; the oldest go first. Chosen: it bounds memory."""


@dataclass(frozen=True, slots=True)
class _Heard:
    said: Announcement
    at_ns: int
    superseded: bool = False
    """The list knows it, or better."""


class Activation:
    """A list and what was announced since. `now_ns` is monotonic."""

    def __init__(self) -> None:
        self._list = PingList(0)
        self._heard: dict[str, _Heard] = {}

    @property
    def version(self) -> int:
        """Version of the list that came last."""
        return self._list.version

    def use(self, pinglist: PingList | None, *, asked_ns: int) -> None:
        """Take what the analyzer answered to a question of `asked_ns`; None: the list is as was."""
        if pinglist is not None:
            self._list = pinglist
        self._heard = {
            host: replace(heard, superseded=heard.superseded or heard.at_ns < asked_ns)
            for host, heard in self._heard.items()
        }

    def hear(self, said: Announcement, *, now_ns: int) -> bool:
        """Take an announcement; return whether it was news.

        Raises RemoteProtocolError where it speaks for others, or is of a later schema.
        """
        if said.schema > SCHEMA:
            raise RemoteProtocolError(f"schema {said.schema}; this agent speaks up to {SCHEMA}")
        for each in said.endpoints:
            if each.host != said.host:
                raise RemoteProtocolError(f"{said.host} announces endpoints of another host")
            if odd := oddity(each):
                raise RemoteProtocolError(f"{each.id}: {odd}")
        before = self._heard.pop(said.host, None)
        if before is not None and _later(before.said, said):
            self._heard[said.host] = before
            return False
        self._heard[said.host] = _Heard(said, now_ns)
        while len(self._heard) > MAX_HOSTS:
            del self._heard[next(iter(self._heard))]
        return True

    def active(self, own: Iterable[Endpoint]) -> PingList:
        """Return the list as it is now, given the endpoints of this host."""
        said = {host: h.said for host, h in self._heard.items() if not h.superseded}
        targets = [each for each in self._list.targets if each.host not in said]
        listed = {(each.source, each.target): each for each in self._list.targets}
        mine = {each.id: each for each in own}
        # Who is another host's is not for this one to announce.
        kept = {(host, each.id) for host, one in said.items() for each in one.endpoints}
        owner = {
            each.target: each.host
            for each in self._list.targets
            if each.host not in said or (each.host, each.target) in kept
        }
        for source, theirs in _expected(self._list, said, listed, owner):
            is_theirs = owner.get(theirs.id, theirs.host) == theirs.host
            if source in mine and is_theirs and _may_probe(mine[source], theirs):
                known = listed.get((source, theirs.id))
                targets.append(_target(source, theirs, rare=known is not None and known.rare))
        targets.sort(key=lambda each: (each.source, each.target))
        return replace(self._list, targets=tuple(targets))


def _later(one: Announcement, other: Announcement) -> bool:
    return one.instance == other.instance and one.generation > other.generation


def _expected(
    pinglist: PingList,
    said: Mapping[str, Announcement],
    listed: Mapping[tuple[EndpointId, EndpointId], Target],
    owner: Mapping[EndpointId, str],
) -> Iterator[tuple[EndpointId, Endpoint]]:
    """Yield endpoints that were announced, with the sources that may probe them."""
    by_id: dict[EndpointId, Endpoint] = {}
    for announcement in said.values():
        for each in announcement.endpoints:
            if owner.get(each.id) == each.host:
                by_id[each.id] = each
            by_id.setdefault(each.id, each)  # who claims it first has it, until the list decides
    pairs = {pair for pair in listed if pair[1] in by_id}
    for group in pinglist.expected:
        containers = set(group.containers)
        there = [each for each in by_id.values() if each.id.container in containers]
        pairs |= {
            (source, each.id)
            for each in there
            for source in group.sources
            if source.rail == each.id.rail
        }
    for source, target in sorted(pairs):
        yield source, by_id[target]


def _may_probe(mine: Endpoint, theirs: Endpoint) -> bool:
    return (
        theirs.state is EndpointState.UP and theirs.host != mine.host and may_answer(mine, theirs)
    )


def _target(source: EndpointId, theirs: Endpoint, *, rare: bool) -> Target:
    return Target(
        source, theirs.id, theirs.address, theirs.underlay, theirs.rdma, rare, theirs.host
    )
