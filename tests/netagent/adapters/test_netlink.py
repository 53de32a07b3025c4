# SPDX-License-Identifier: Apache-2.0
import asyncio
import errno
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters import netlink
from netagent.adapters.namespace import call_in_namespace
from netagent.adapters.namespaces import leads_to, locate
from netagent.adapters.netlink import LinkMonitor, apply, dump
from netagent.adapters.rtnetlink import AddressGone, AddressSeen, Finished, LinkGone, LinkSeen
from netagent.collect.hostfacts import Link, Namespace
from netagent.model.errors import CapabilityMissing
from tests.conftest import NETNS, require

INDEX = st.integers(1, 3)
ADDRESS = st.sampled_from(["10.0.0.1", "10.0.0.2"])
MESSAGES = st.one_of(
    st.builds(lambda i, up: LinkSeen(Link(i, f"d{i}", up=up)), INDEX, st.booleans()),
    st.builds(LinkGone, INDEX),
    st.builds(AddressSeen, INDEX, ADDRESS),
    st.builds(AddressGone, INDEX, ADDRESS),
    st.just(Finished()),
)


@given(st.lists(MESSAGES, max_size=30))
def test_a_table_is_what_its_messages_made_of_it(messages):
    table: dict[int, Link] = {}
    addresses: dict[int, set[str]] = {}
    for message in messages:
        before = dict(table)
        assert apply(table, message) == (table != before)
        match message:
            case LinkSeen(link):
                addresses.setdefault(link.index, set())
                assert table[link.index].up == link.up
            case LinkGone(index):
                addresses.pop(index, None)
            case AddressSeen(index, address) if index in addresses:
                addresses[index].add(address)
            case AddressGone(index, address) if index in addresses:
                addresses[index].discard(address)
        assert {i: set(link.addresses) for i, link in table.items()} == addresses


# --- on the kernel ------------------------------------------------------------------------------


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass
class Wire:
    """A veth between two namespaces of a test's own."""

    host: str
    inside: str

    @property
    def path(self) -> str:
        return f"/run/netns/{self.host}"


@pytest.fixture
def wire() -> Iterator[Wire]:
    require(NETNS)
    tag = secrets.token_hex(3)
    made = Wire(f"na-{tag}-h", f"na-{tag}-c")
    for name in (made.host, made.inside):
        ip("netns", "add", name)
    ip("-n", made.host, "link", "add", "v0", "type", "veth", "peer", "eth0", "netns", made.inside)
    ip("-n", made.inside, "addr", "add", "10.0.0.10/24", "dev", "eth0")
    ip("-n", made.inside, "link", "set", "eth0", "up")
    ip("-n", made.host, "link", "set", "v0", "up")
    yield made
    for name in (made.host, made.inside):
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def named(table: dict[int, Link], name: str) -> Link:
    return next(link for link in table.values() if link.name == name)


@pytest.mark.netns
def test_a_dump_agrees_with_pyroute2(wire):
    from pyroute2 import IPRoute  # noqa: PLC0415 - the oracle, 10 MB

    def ask() -> tuple[dict[int, Link], list[Link]]:
        with IPRoute() as ipr:
            addresses = {}
            for each in ipr.get_addr(family=2):
                addresses.setdefault(each["index"], []).append(each.get("IFA_LOCAL"))
            links = [
                Link(
                    index=each["index"],
                    name=each.get("ifname"),
                    kind=each.get("linkinfo", {}).get("attrs", [(None, None)])[0][1]
                    if each.get("linkinfo")
                    else None,
                    mac=each.get("address"),
                    mtu=each.get("mtu"),
                    up=bool(each["flags"] & 1),
                    carrier=bool(each.get("carrier")),
                    operstate=each.get("operstate").lower(),
                    master=each.get("master"),
                    peer=each.get("link"),
                    netnsid=each.get("link_netnsid"),
                    carrier_changes=each.get("carrier_changes"),
                    addresses=tuple(sorted(addresses.get(each["index"], []))),
                )
                for each in ipr.get_links()
            ]
        return dump(), links

    ours, theirs = call_in_namespace(wire.path, ask)
    assert sorted(ours.values(), key=lambda link: link.index) == theirs
    assert named(ours, "v0").netnsid is not None


@pytest.mark.netns
def test_a_namespace_is_read_and_found_by_its_id_without_entering_it(wire):
    def ask() -> tuple[Link, dict[int, Link], dict[int, Namespace]]:
        outside = named(dump(), "v0")
        assert outside.netnsid is not None
        return outside, dump(outside.netnsid), locate({outside.netnsid})

    outside, inside, found = call_in_namespace(wire.path, ask)
    assert outside.peer is not None
    assert inside[outside.peer].name == "eth0"
    assert inside[outside.peer].addresses == ("10.0.0.10",)
    (namespace,) = found.values()
    assert namespace.path == f"/run/netns/{wire.inside}"
    assert namespace.inode == Path(namespace.path).stat().st_ino
    assert leads_to(namespace)
    assert not leads_to(replace(namespace, inode=1))


@pytest.mark.netns
def test_a_namespace_without_a_name_is_found_through_its_process():
    require(NETNS)
    tag = f"na-{secrets.token_hex(3)}"
    ip("netns", "add", tag)
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; read x"], stdin=-1, stdout=-1)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        ip("-n", tag, "link", "add", "v0", "type", "veth", "peer", "e0", "netns", str(holder.pid))

        def ask() -> dict[int, Namespace]:
            nsid = named(dump(), "v0").netnsid
            assert nsid is not None
            return locate({nsid})

        (namespace,) = call_in_namespace(f"/run/netns/{tag}", ask).values()
        assert namespace.path == f"/proc/{holder.pid}/ns/net"
    finally:
        holder.communicate(b"\n")
        ip("netns", "del", tag)
    assert not leads_to(namespace)


class Following:
    """A LinkMonitor at work inside a test's namespace."""

    def __init__(self) -> None:
        self.monitor = LinkMonitor()
        self.changed = asyncio.Event()

    async def until(self, condition) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await self.changed.wait()
                self.changed.clear()

    @property
    def host(self) -> dict[str, Link]:
        return {link.name: link for link in self.monitor.host}


def follow(wire: Wire, story) -> None:
    async def main() -> None:
        following = Following()
        following.monitor.start(following.changed.set)
        try:
            await story(following)
        finally:
            following.monitor.close()
            following.monitor.close()

    call_in_namespace(wire.path, lambda: asyncio.run(main()))


@pytest.mark.netns
def test_changes_here_and_inside_are_heard_until_the_namespace_dies(wire):
    async def story(following: Following) -> None:
        nsid = following.host["v0"].netnsid
        assert nsid is not None
        following.monitor.follow({nsid})

        def inside() -> Link:
            return named(following.monitor.view({}).inside[nsid], "eth0")

        assert inside().addresses == ("10.0.0.10",)
        ip("-n", wire.inside, "addr", "add", "10.0.0.11/24", "dev", "eth0")
        await following.until(lambda: inside().addresses == ("10.0.0.10", "10.0.0.11"))
        ip("-n", wire.inside, "link", "set", "eth0", "down")
        await following.until(lambda: not inside().up and not following.host["v0"].carrier)
        ip("netns", "del", wire.inside)
        await following.until(lambda: "v0" not in following.host and nsid in following.monitor.gone)
        assert following.monitor.view({}).inside == {}

    follow(wire, story)


@pytest.mark.netns
def test_what_is_not_followed_any_more_is_forgotten_and_the_unreadable_left_out(wire):
    async def story(following: Following) -> None:
        nsid = following.host["v0"].netnsid
        assert nsid is not None
        following.monitor.follow({nsid, 4242})
        assert set(following.monitor.view({}).inside) == {nsid}
        following.monitor.follow(set())
        assert following.monitor.view({}).inside == {}

    follow(wire, story)


class Overrun:
    """An event socket whose buffer was too small."""

    def __init__(self, error: int) -> None:
        self._error = error

    def recvmsg(self, *_):
        raise OSError(self._error, "")


@pytest.mark.netns
def test_an_overrun_reads_everything_anew(wire):
    async def story(following: Following) -> None:
        monitor = following.monitor
        nsid = following.host["v0"].netnsid
        assert nsid is not None
        monitor.follow({nsid})
        monitor._host.clear()
        events, monitor._events = monitor._events, Overrun(errno.ENOBUFS)
        monitor._receive()
        assert following.changed.is_set()
        assert (monitor.overruns, monitor.gone) == (1, {nsid})
        assert "v0" in following.host
        monitor._events = Overrun(errno.EBADF)
        with pytest.raises(OSError):
            monitor._receive()
        monitor._events = events

    follow(wire, story)


def test_without_the_right_to_hear_of_other_namespaces_the_remedy_is_told(monkeypatch):
    class Refusing:
        def __init__(self, *_):
            self.closed = False

        def setsockopt(self, *_):
            raise PermissionError

        def close(self):
            self.closed = True

    monkeypatch.setattr(netlink.socket, "socket", Refusing)
    with pytest.raises(CapabilityMissing, match="CAP_NET_BROADCAST"):
        LinkMonitor().start(lambda: None)


def test_a_path_that_is_no_namespace_has_no_id(tmp_path):
    with netlink.query_socket() as query, pytest.raises(OSError):
        netlink.nsid_of(query, str(tmp_path))
