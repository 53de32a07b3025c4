# SPDX-License-Identifier: Apache-2.0
"""Finds the container's namespace at the other end of a veth, and notices when it is gone.

The kernel knows it by an id (`Link.netnsid`) only. Candidates are the namespaces with a name and
those of processes; none is held open, for that would keep a dead one and its devices alive.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

from netagent.adapters.host.netlink import nsid_of, query_socket
from netagent.host.facts import Namespace

NAMED = ("/run/netns", "/run/docker/netns")
"""Folders of bind-mounted namespaces."""

RETRY_NS = (100_000_000, 5_000_000_000)
"""First and longest wait before another search for an id that no candidate has."""


class Namespaces:
    """Remembers which namespace each id belongs to. Lookups may run in a thread of their own."""

    def __init__(self) -> None:
        self.found: dict[int, Namespace] = {}
        """Namespaces by id."""
        self._retry: dict[int, tuple[int, int]] = {}  # id -> when to try again, wait before that

    def wanted(self, nsids: AbstractSet[int], *, now_ns: int) -> frozenset[int]:
        """Return which of `nsids` are to be looked for now; forget what is not in `nsids`."""
        self.found = {nsid: kept for nsid, kept in self.found.items() if nsid in nsids}
        self._retry = {nsid: kept for nsid, kept in self._retry.items() if nsid in nsids}
        missing = nsids - self.found.keys()
        return frozenset(n for n in missing if self._retry.get(n, (0, 0))[0] <= now_ns)

    def learn(self, asked: AbstractSet[int], found: dict[int, Namespace], *, now_ns: int) -> None:
        """Take in what `locate(asked)` found."""
        self.found.update(found)
        for nsid in asked:
            first, longest = RETRY_NS
            wait = min(longest, 2 * self._retry.get(nsid, (0, first // 2))[1])
            if nsid in found:
                self._retry.pop(nsid, None)
            else:
                self._retry[nsid] = (now_ns + wait, wait)

    def drop(self, nsids: AbstractSet[int]) -> None:
        """Forget `nsids`: their namespaces died, and the ids may be given anew."""
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
