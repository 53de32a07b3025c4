# SPDX-License-Identifier: Apache-2.0
"""How an agent follows its ping list: who is in its groups, as differences from what it has.

A group is the endpoints of one task on one rail: those that may probe each other. An agent keeps
its groups and makes its list of them; so an endpoint that comes costs each host of its task one
member, and no list. What an agent has is named by its content (`digest`): an analyzer that restarts
needs no memory of it, and an agent that restarts begins with nothing.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Annotated

from msgspec import Meta, Struct

from netagent.model.endpoint import Endpoint, RdmaAddress
from netagent.model.ids import EndpointId
from netagent.wire.codec import encode
from netagent.wire.messages import SCHEMA, Peer

DIGEST_BYTES = 16
"""Bytes of a digest. Chosen: chance makes no two contents alike."""
KEY_BYTES = 16
"""Bytes of a group's key. Chosen: nobody tries 2^128 of them."""
MAX_HELD = 4096
"""Most groups, or tasks, that an agent asks after. Chosen: those of five hundred containers."""
MAX_FOLLOW_BYTES = 1 << 19
"""Most bytes of such a question, which the analyzer keeps while it waits. Chosen: MAX_HELD groups
with names of a hundred bytes."""

Digest = Annotated[bytes, Meta(max_length=DIGEST_BYTES)]
Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]


class Member(Struct, frozen=True, array_like=True):
    """An endpoint of a group that may be probed; the rail is the group's."""

    container: str
    host: str
    address: str
    """Overlay address, IPv4 or IPv6."""
    underlay: str
    """VTEP of the endpoint's rail."""
    rdma: RdmaAddress | None = None
    """None: it answers UDP."""


class Group(Struct, frozen=True, array_like=True):
    """Which endpoints: those of a task on a rail."""

    task: str
    rail: int


class Source(Struct, frozen=True, array_like=True):
    """An endpoint of the host that probes others, and its group."""

    endpoint: EndpointId
    task: str
    used: tuple[EndpointId, ...] | None = None
    """The members that its task uses; the others are rare. None: every one counts as used."""


class HeldGroup(Struct, frozen=True, array_like=True):
    """A group as the agent has it."""

    group: Group
    digest: Digest


class HeldTask(Struct, frozen=True, array_like=True):
    """A task's hosts and containers as the agent has them."""

    task: str
    hosts: Digest
    """Digest of its hosts."""
    containers: Digest
    """Digest of the containers that were declared of it."""


class Follow(Struct, frozen=True, kw_only=True):
    """Ask what changed since what the agent has."""

    schema: int = SCHEMA
    version: int = 0
    """Of the agent's list; 0 before the first."""
    wait_s: Annotated[float, Meta(ge=0, le=60)] = 0.0
    """Seconds to wait for a change, at most."""
    groups: Annotated[tuple[HeldGroup, ...], Meta(max_length=MAX_HELD)] = ()
    tasks: Annotated[tuple[HeldTask, ...], Meta(max_length=MAX_HELD)] = ()


class GroupChange(Struct, frozen=True, kw_only=True):
    """A group that differs from what the agent has."""

    group: Group
    whole: bool
    """`put` is all of it; what the agent has is forgotten."""
    put: bytes
    """Members that are new or different: a msgpack array of `Member`. Bytes here, so that it is
    encoded once for all hosts of a task."""
    gone: tuple[str, ...] = ()
    """Containers whose member is no more."""


class TaskChange(Struct, frozen=True, kw_only=True):
    """A task whose hosts or containers differ from what the agent has."""

    task: str
    whole: bool
    """`put` is all of its hosts."""
    put: bytes
    """Hosts that are new or have another address: a msgpack array of `Peer`."""
    gone: tuple[str, ...] = ()
    """Hosts that hold none of its endpoints any more."""
    containers: tuple[str, ...] | None = None
    """The containers that were declared of it, in the order of ranks; None: as the agent has."""


class Update(Struct, frozen=True, kw_only=True):
    """What changed. Groups and tasks that no source has any more are forgotten."""

    version: int
    """Names the content of the list, in 63 bits: not the order of changes."""
    rare_share: float
    sources: tuple[Source, ...]
    """All endpoints of the host that may be probed, by container and rail."""
    groups: tuple[GroupChange, ...] = ()
    tasks: tuple[TaskChange, ...] = ()
    keys: tuple[Key, ...] = ()
    """For each of `sources` the key of its group, by which probes within it are sealed."""


def member_of(endpoint: Endpoint) -> Member:
    """Return what a group has of an endpoint."""
    return Member(
        endpoint.id.container, endpoint.host, endpoint.address, endpoint.underlay, endpoint.rdma
    )


def digest_of(entry: Member | Peer | tuple[str, ...]) -> bytes:
    """Return the digest of one entry."""
    return blake2b(encode(entry), digest_size=DIGEST_BYTES).digest()


def digest_of_all(digests: Iterable[bytes]) -> bytes:
    """Return the digest of a set of entries, of theirs in ascending order.

    A sum would cost less, but whoever chooses entries finds others of the same sum in seconds.
    """
    return blake2b(b"".join(digests), digest_size=DIGEST_BYTES).digest()


def named(content: tuple[object, ...]) -> int:
    """Return a name of `content` in 63 bits; 0 for none."""
    if not content:
        return 0
    digest = blake2b(encode(content), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1 or 1
