# SPDX-License-Identifier: Apache-2.0
"""Finds the container's namespace at the other end of a port, and notices when it is gone.

Of a veth the kernel knows it by an id (`Link.netnsid`) only. Of a representor it knows nothing, and
the device with the container's hardware address is looked for. Candidates are the namespaces with a
name and those of processes; none is held open, for that would keep a dead one and its devices
alive.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from netagent.adapters.host.netlink import assign_nsid, dump, nsid_of, query_socket
from netagent.adapters.host.setns import call_in_namespace
from netagent.host.facts import Namespace

NAMED = ("/run/netns", "/run/docker/netns")
"""Folders of bind-mounted namespaces."""

RETRY_NS = (100_000_000, 5_000_000_000)
"""First and longest wait before another search for an id that no candidate has."""
SEEK_NS = 30_000_000_000
"""Longest wait before another search for a hardware address. Chosen: each reads the devices of all
namespaces of the host, some milliseconds for ten of them."""


K = TypeVar("K", int, str)
"""What a namespace is looked for by: an id, the hardware address of a device in it, or a path."""


class Namespaces(Generic[K]):
    """Remembers which namespace each key leads to. Lookups may run in a thread of their own."""

    def __init__(self, longest_ns: int = RETRY_NS[1]) -> None:
        self.found: dict[K, Namespace] = {}
        """Namespaces by key."""
        self._retry: dict[K, tuple[int, int]] = {}  # key -> when to try again, wait before that
        self._longest_ns = longest_ns

    def wanted(self, nsids: AbstractSet[K], *, now_ns: int) -> frozenset[K]:
        """Return which of the keys are to be looked for now; forget what is not among them."""
        self.found = {nsid: kept for nsid, kept in self.found.items() if nsid in nsids}
        self._retry = {nsid: kept for nsid, kept in self._retry.items() if nsid in nsids}
        missing = nsids - self.found.keys()
        return frozenset(n for n in missing if self._retry.get(n, (0, 0))[0] <= now_ns)

    def learn(self, asked: AbstractSet[K], found: dict[K, Namespace], *, now_ns: int) -> None:
        """Take in what a search for what was asked found."""
        self.found.update(found)
        for nsid in asked:
            first, longest = RETRY_NS[0], self._longest_ns
            wait = min(longest, 2 * self._retry.get(nsid, (0, first // 2))[1])
            if nsid in found:
                self._retry.pop(nsid, None)
            else:
                self._retry[nsid] = (now_ns + wait, wait)

    def drop(self, nsids: AbstractSet[K]) -> None:
        """Forget keys: their namespaces died, and ids may be given anew."""
        for nsid in nsids:
            self.found.pop(nsid, None)
            self._retry.pop(nsid, None)

    def drop_lost(self) -> bool:
        """Forget namespaces that their path does not lead to any more; say whether any was."""
        lost = {nsid for nsid, each in self.found.items() if not leads_to(each)}
        self.drop(lost)
        return bool(lost)

    def retry_ns(self) -> int | None:
        """Return when an id is to be looked for again."""
        return min((when for when, _ in self._retry.values()), default=None)


def leads_to(namespace: Namespace) -> bool:
    """Whether the namespace's path still opens that very namespace."""
    try:
        return Path(namespace.path).stat().st_ino == namespace.inode
    except OSError:
        return False


def locate(nsids: AbstractSet[int]) -> dict[int, Namespace]:
    """Return the namespaces that this one knows by the ids `nsids`, as far as they are found.

    Takes about 50 us per candidate and does not need an event loop.
    """
    found: dict[int, Namespace] = {}
    with query_socket() as query:
        for path in _candidates():
            if found.keys() >= nsids:
                break
            with suppress(OSError):  # it ended between the listing and now
                nsid, inode = nsid_of(query, path)
                if nsid in nsids:
                    found[nsid] = Namespace(path, inode)
    return found


def seek(macs: AbstractSet[str]) -> dict[str, tuple[int, Namespace]]:
    """Return where devices with these hardware addresses are: ids of namespaces, and these.

    Of several with one address hardware comes first: any container may make a device with another
    one's. A namespace without an id that has such a device is given one, by which the kernel tells
    of its changes. Takes about a millisecond per candidate and does not need an event loop.
    """
    found: dict[str, tuple[int, Namespace]] = {}
    hardware = set[str]()
    with query_socket() as query:
        for path in _candidates():
            with suppress(OSError):  # it ended between the listing and now, or is not to be read
                nsid, inode = nsid_of(query, path)
                table = dump(nsid) if nsid >= 0 else call_in_namespace(path, dump, inode=inode)
                real = {link.mac for link in table.values() if link.kind is None} & macs - hardware
                here = real | {link.mac for link in table.values()} & macs - found.keys()
                if here and nsid < 0:
                    nsid = assign_nsid(query, path)
                hardware |= real
                found.update(dict.fromkeys(here, (nsid, Namespace(path, inode))))
    return found


def at_paths(paths: AbstractSet[str]) -> dict[str, tuple[int, Namespace]]:
    """Return the namespaces at paths that somebody named: their ids, and these.

    One without an id is given one, by which the kernel tells of its changes.
    """
    found: dict[str, tuple[int, Namespace]] = {}
    with query_socket() as query:
        for path in paths:
            with suppress(OSError):  # there is none yet, or not any more
                nsid, inode = nsid_of(query, path)
                if nsid < 0:
                    nsid = assign_nsid(query, path)
                found[path] = (nsid, Namespace(path, inode))
    return found


def _candidates() -> Iterator[str]:
    """Yield named namespaces first: their paths outlive the processes."""
    seen: set[int] = set()
    for folder in NAMED:
        with suppress(OSError):
            yield from sorted(str(path) for path in Path(folder).iterdir())
    with suppress(OSError):
        seen.add(Path("/proc/self/ns/net").stat().st_ino)
    for process in Path("/proc").iterdir():
        path = process / "ns" / "net"
        with suppress(OSError):
            inode = path.stat().st_ino if process.name.isdecimal() else None
            if inode is not None and inode not in seen:
                seen.add(inode)
                yield str(path)
