# SPDX-License-Identifier: Apache-2.0
"""Summaries whose tables of endpoints are read by what was seen of them before.

Each host names some eighty endpoints in each window, and all hosts together the same few over and
over. To make an object of each costs more than all else that a summary holds. So a table is cut
into its endpoints as bytes, and those are looked up. Where a host names the same ones as before, in
the same order, it is the same table. So are its routes, which it says whole once a minute.

Routers of paths are names, and all hosts together have the same few of those, too: of 40,000 RNICs'
four million hops, each a name of its own, they would be a third of a gigabyte.
"""

from functools import lru_cache
from typing import Annotated

from msgspec import Meta, Raw
from msgspec.structs import force_setattr

from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.codec import array, decode, encode
from netagent.wire.messages import MAX_TABLE, PathColumns, Summary

HEAD = b"\x82\xa9container"
"""What each endpoint of a table begins with, in msgpack: two items, of which the name of the first.
Another form of the same is read all the same, and not remembered."""
MOST_KNOWN = 1 << 18
"""Most endpoints remembered; beyond, all are forgotten. Chosen: six times 40,000, in 60 MB."""
MOST_BYTES = 128
"""Most bytes of one that is remembered. Chosen: containers' names have 64."""

MOST_ROUTERS = 1 << 16
"""The same of routers, in 15 MB. Chosen: one has 64 ports and more, and there are two tiers of them
or three."""
MOST_HOSTS = 1 << 15
"""The same of hosts. Chosen: six times 5,000, with a few kilobytes each."""
MOST_WAYS = 4_096
"""Most routes of a host that are remembered. Chosen: ten times those of eight endpoints that probe
nine others each from four ports."""

_Table = Annotated[tuple[EndpointId, ...], Meta(max_length=MAX_TABLE)]


class _Packed(Summary, frozen=True, kw_only=True):
    """A summary with its table as it came."""

    endpoints: Raw = Raw(b"\x90")  # type: ignore[assignment]  # replaced before anybody sees it


class Tables:
    """What endpoints look like, each once: whoever names the same one gets the same object."""

    def __init__(self) -> None:
        self._known: dict[bytes, EndpointId] = {}
        """What follows HEAD -> the endpoint."""
        self._newest: dict[str, tuple[bytes, tuple[EndpointId, ...]]] = {}
        """Host -> its newest table, as it came and as it was read."""
        self._ways: dict[bool, dict[str, tuple[tuple[str, ...], ...]]] = {True: {}, False: {}}
        """Host -> the routes of its newest summary that had all of its paths, or what differs: that
        it says in each window until the minute's end."""
        self._routers: dict[str, str] = {}
        """A router's name -> the same, once."""

    def read(self, body: bytes) -> Summary:
        """Return the summary that `body` holds; RemoteProtocolError where it holds none."""
        made = decode(body, _Packed)
        packed = bytes(made.endpoints)
        before, table = self._newest.get(made.host, (b"", ()))
        if packed != before:
            table = self._table(packed)
            if len(self._newest) >= MOST_HOSTS:
                self._newest.clear()
            self._newest[made.host] = packed, table
        force_setattr(made, "endpoints", table)
        if made.paths.routes:
            force_setattr(made.paths, "routes", self._routes(made.host, made.paths))
        return made

    def _routes(self, host: str, paths: PathColumns) -> tuple[tuple[str, ...], ...]:
        ways = self._ways[not paths.whole_ns]
        before = ways.get(host, ())
        if paths.routes == before:
            return before
        routers = set().union(*paths.routes)
        short = {each for each in routers if len(each) <= MOST_BYTES}
        if len(short) > MOST_ROUTERS:
            return paths.routes
        if len(self._routers) + len(short - self._routers.keys()) > MOST_ROUTERS:
            self._routers.clear()
        # Nobody keeps what may be a megabyte.
        once = {
            each: self._routers.setdefault(each, each) if each in short else each
            for each in routers
        }
        routes = tuple([tuple(map(once.__getitem__, hops)) for hops in paths.routes])
        if len(routes) <= MOST_WAYS and len(short) == len(routers):
            if len(ways) >= MOST_HOSTS:
                ways.clear()
            ways[host] = routes
        return routes

    def _table(self, packed: bytes) -> tuple[EndpointId, ...]:
        # Where each part is what follows HEAD in a whole endpoint, and as many are announced, all
        # of them are read as those are, wherever else the bytes of HEAD may stand.
        if packed.count(HEAD) > MAX_TABLE:
            raise RemoteProtocolError(f"more than {MAX_TABLE} endpoints in a summary")
        head, *parts = packed.split(HEAD)
        known = tuple(map(self._known.get, parts))
        if head == _announced(len(parts)) and all(known):
            return known  # type: ignore[return-value]  # none of them is None
        found = decode(packed, _Table)
        if len(found) == len(parts):
            return tuple(map(self._kept, parts, found))
        return found

    def _kept(self, part: bytes, found: EndpointId) -> EndpointId:
        known = self._known.get(part)
        if known is not None and known == found:
            return known
        if len(part) <= MOST_BYTES and encode(found) == HEAD + part:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[part] = found
        return found


@lru_cache(1_024)
def _announced(count: int) -> bytes:
    """Return what an array of so many begins with."""
    return array([b""] * count)
