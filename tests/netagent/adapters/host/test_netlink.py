# SPDX-License-Identifier: Apache-2.0
import asyncio
import errno
import json
import secrets
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netagent.adapters.host import netlink
from netagent.adapters.host.namespaces import leads_to, locate
from netagent.adapters.host.netlink import (
    AddressDuplicate,
    AddressGone,
    AddressSeen,
    LinkGone,
    LinkMonitor,
    LinkSeen,
    NamespaceGone,
    apply,
    dump,
    own_nsid,
    parse,
)
from netagent.adapters.host.setns import call_in_namespace
from netagent.host.facts import Link, Namespace
from netagent.model.errors import CapabilityMissing
from tests.conftest import NETNS, require
from tests.waiting import until

INDEX = st.integers(1, 3)
ADDRESS = st.sampled_from(["10.0.0.1", "10.0.0.2"])
FACTS = st.one_of(
    st.builds(lambda i, up: LinkSeen(Link(i, f"d{i}", up=up)), INDEX, st.booleans()),
    st.builds(LinkGone, INDEX),
    st.builds(AddressSeen, INDEX, ADDRESS),
    st.builds(AddressGone, INDEX, ADDRESS),
    st.builds(AddressDuplicate, INDEX, ADDRESS),
    st.builds(NamespaceGone, INDEX),
)


@given(st.lists(FACTS, max_size=30))
def test_a_table_is_what_its_facts_made_of_it(facts):
    table: dict[int, Link] = {}
    addresses: dict[int, set[str]] = {}
    duplicates: dict[int, set[str]] = {}
    for fact in facts:
        before = dict(table)
        assert apply(table, fact) == (table != before)
        match fact:
            case LinkSeen(link):
                addresses.setdefault(link.index, set())
                duplicates.setdefault(link.index, set())
                assert table[link.index].up == link.up
            case LinkGone(index):
                addresses.pop(index, None)
                duplicates.pop(index, None)
            case AddressSeen(index, address) if index in addresses:
                addresses[index].add(address)
                duplicates[index].discard(address)
            case AddressDuplicate(index, address) if index in addresses:
                addresses[index].discard(address)
                duplicates[index].add(address)
            case AddressGone(index, address) if index in addresses:
                addresses[index].discard(address)
                duplicates[index].discard(address)
        assert {i: set(link.addresses) for i, link in table.items()} == addresses
        assert {i: set(link.duplicates) for i, link in table.items()} == duplicates


def test_of_a_device_with_very_many_addresses_those_that_came_first_are_kept():
    table = {1: Link(1, "lo")}
    first = [f"10.0.9.{n}" for n in range(netlink._MAX_ADDRESSES)]
    for fact in (AddressSeen, AddressDuplicate):
        for address in [*first, *(f"10.0.{i}.{n}" for i in range(4) for n in range(256))]:
            apply(table, fact(1, address))
        held = (table[1].addresses, table[1].duplicates)
        assert held[fact is AddressDuplicate] == tuple(sorted(first))


# --- from bytes ---------------------------------------------------------------------------------

ERROR, DONE = 2, 3
NEWLINK, DELLINK, NEWADDR, DELADDR, NEWNSID, DELNSID = 16, 17, 20, 21, 88, 89


def attribute(kind: int, value: bytes) -> bytes:
    padded = value + b"\0" * (-len(value) % 4)
    return struct.pack("=HH", 4 + len(value), kind) + padded


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def link(kind: int = NEWLINK, *, family: int = 0, flags: int = 1, **more: bytes) -> bytes:
    known = {
        "name": attribute(3, b"rnic0\0"),
        "mac": attribute(1, bytes(range(2, 8))),
        "mtu": attribute(4, struct.pack("=I", 1450)),
        "peer": attribute(5, struct.pack("=I", 7)),
        "operstate": attribute(16, b"\x06"),
        "info": attribute(18 | 0x8000, attribute(1, b"veth\0")),
        "carrier": attribute(33, b"\x01"),
        "changes": attribute(35, struct.pack("=I", 5)),
        "netnsid": attribute(37, struct.pack("=i", 3)),
        **more,
    }
    return message(kind, struct.pack("=BxHiII", family, 1, 2, flags, 0) + b"".join(known.values()))


def address(kind: int = NEWADDR, *, family: int = 2, scope: int = 0, **attributes: bytes) -> bytes:
    known = attributes or {"a": attribute(2, b"\x0a\0\0\x0a")}
    head = struct.pack("=BBBBI", family, 24, 0, scope, 2)
    return message(kind, head + b"".join(known.values()))


def address_6(kind: int = NEWADDR, *, flags: int = 0, scope: int = 0) -> bytes:
    held = attribute(1, socket.inet_pton(socket.AF_INET6, "fd00::10"))
    said = attribute(8, struct.pack("=I", flags))
    return address(kind, family=socket.AF_INET6, scope=scope, a=held, f=said)


def nsid(kind: int, value: int) -> bytes:
    return message(kind, b"\0\0\0\0" + attribute(1, struct.pack("=i", value)))


def only(data: bytes):
    (one,) = parse(data)
    return one


def test_a_link_message_holds_its_facts():
    facts = only(link()).link
    assert (facts.index, facts.name, facts.kind, facts.mtu) == (2, "rnic0", "veth", 1450)
    assert (facts.mac, facts.operstate) == ("02:03:04:05:06:07", "up")
    assert (facts.up, facts.carrier, facts.carrier_changes) == (True, True, 5)
    assert (facts.peer, facts.netnsid, facts.master) == (7, 3, None)


def test_a_representor_says_which_port_of_the_nic_it_stands_for():
    """As `rtnl_phys_port_name_fill` of the kernel's rtnetlink.c writes it."""
    facts = only(link(info=b"", netnsid=b"", peer=b"", port=attribute(38, b"pf0vf3\0"))).link
    assert (facts.switch_port, facts.kind, facts.netnsid) == ("pf0vf3", None, None)
    assert only(link()).link.switch_port == ""


def test_hardware_says_which_function_of_a_bus_it_belongs_to():
    """As `rtnl_fill_ifinfo` of the kernel's rtnetlink.c writes IFLA_PARENT_DEV_NAME since 5.14."""
    assert only(link(parent=attribute(56, b"0000:08:00.2\0"))).link.parent == "0000:08:00.2"
    assert only(link(parent=attribute(56, b"mlx5_core.sf.4\0"))).link.parent == "mlx5_core.sf.4"
    assert only(link()).link.parent == ""


def test_what_a_driver_leaves_out_is_told_from_the_flags():
    facts = only(link(flags=0x10000, carrier=b"", operstate=attribute(16, b"\x63"))).link
    assert (facts.up, facts.carrier, facts.operstate) == (False, True, "unknown")
    assert only(link(carrier=attribute(33, b"\0"))).link.carrier is False


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def nested(kind: int, *inside: bytes) -> bytes:
    return attribute(kind, b"".join(inside))  # without NLA_F_NESTED, as rtnetlink.c does here


def test_a_bond_says_by_which_member_it_sends_and_what_it_holds_of_each():
    """As `bond_fill_info` and `bond_fill_slave_info` of the kernel's bond_netlink.c write it."""
    mode, miimon = attribute(1, b"\x01"), u32(3, 100)
    data = nested(2, mode, u32(2, 7), miimon, u32(11, 6))
    bond = only(link(info=nested(18, attribute(1, b"bond\0"), data))).link
    assert (bond.kind, bond.active, bond.primary) == ("bond", 7, 6)
    for status, held in ((0, False), (1, False), (2, True), (3, False)):
        state = nested(5, attribute(1, b"\x01"), attribute(2, bytes([status])), u32(3, 4))
        info = nested(18, attribute(1, b"veth\0"), attribute(4, b"bond\0"), state)
        member = only(link(info=info, master=u32(10, 9))).link
        assert (member.kind, member.master, member.held_down) == ("veth", 9, held)
        assert (member.active, member.primary) == (None, None)


def test_what_another_kind_of_device_says_of_itself_is_nothing_of_a_bond():
    data = nested(2, u32(2, 7), u32(11, 6))
    vlan = only(link(info=nested(18, attribute(1, b"vlan\0"), data))).link
    assert (vlan.active, vlan.primary, vlan.held_down) == (None, None, False)


def test_a_name_need_not_be_text():
    assert only(link(name=attribute(3, b"rnic\xff\0"))).link.name == "rnic\ufffd"


def test_links_go_and_bridges_views_of_them_are_others():
    assert only(link(DELLINK)) == LinkGone(2)
    assert list(parse(link(family=7))) == []
    assert list(parse(link(name=b""))) == []


def test_addresses_come_and_go():
    assert only(address()) == AddressSeen(2, "10.0.0.10")
    assert only(address(DELADDR)) == AddressGone(2, "10.0.0.10")
    far = {"peer": attribute(1, b"\x0a\0\0\x01"), "own": attribute(2, b"\x0a\0\0\x02")}
    assert only(address(**far)) == AddressSeen(2, "10.0.0.2")
    assert list(parse(address(family=7))) == []


@pytest.mark.parametrize(("flags", "fact"), [
    (0x80, AddressSeen),  # permanent
    (0x20, AddressSeen),  # deprecated
    (0xC0, AddressGone),  # tentative
    (0x44, AddressSeen),  # optimistic
    (0xC8, AddressDuplicate),
])  # fmt: skip
def test_an_address_of_ipv6_is_there_once_nobody_else_answered_for_it(flags, fact):
    assert only(address_6(flags=flags)) == fact(2, "fd00::10")
    assert only(address_6(DELADDR, flags=flags)) == AddressGone(2, "fd00::10")


def test_addresses_of_one_link_alone_are_passed_over():
    assert list(parse(address_6(scope=253) + address_6(scope=254))) == []


def test_ids_go_and_other_messages_say_nothing():
    assert only(nsid(DELNSID, 3)) == NamespaceGone(3)
    assert list(parse(nsid(NEWNSID, 3) + message(99, b"") + message(DONE, b"\0\0\0\0"))) == []


def test_several_messages_share_a_datagram():
    kinds = [type(each) for each in parse(link() + address() + nsid(DELNSID, 1))]
    assert kinds == [LinkSeen, AddressSeen, NamespaceGone]


@pytest.mark.parametrize(
    "torn", [link()[:-1], link()[:10], b"\x01\0\0\0" + b"\0" * 12, message(DELLINK, b"\0" * 8)]
)
def test_what_is_torn_is_skipped(torn):
    assert list(parse(torn)) == []
    assert list(parse(address() + torn)) == [AddressSeen(2, "10.0.0.10")]


@given(st.binary(max_size=200))
def test_no_bytes_raise(data):
    list(parse(data))


@given(
    st.binary(max_size=120),
    st.sampled_from([NEWLINK, DELLINK, NEWADDR, DELADDR, NEWNSID, DELNSID, ERROR, DONE]),
)
@example(struct.pack("=i", -(2**31)) + link()[:32], ERROR)  # no such errno
@example(struct.pack("=i", -13) + link()[:32], ERROR)  # quotes a torn request
def test_no_body_raises(body, kind):
    assert len(list(parse(message(kind, body)))) <= 1


ATTRIBUTES = st.builds(attribute, st.integers(0, 70), st.binary(max_size=24))


@given(st.lists(ATTRIBUTES, max_size=8), st.sampled_from([NEWLINK, NEWADDR, DELNSID]))
def test_no_attributes_raise(attributes, kind):
    header = {NEWLINK: struct.pack("=BxHiII", 0, 1, 2, 1, 0), NEWADDR: b"\2" + b"\0" * 7}
    body = header.get(kind, b"\0" * 4) + b"".join(attributes)
    assert len(list(parse(message(kind, body)))) <= 1


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


def shown_by_ip(name: str) -> dict[int, Link]:
    """Return what iproute2 says of the devices of a namespace."""
    words = ["ip", "-n", name, "-json", "-details", "addr", "show"]
    shown = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    index = {each["ifname"]: each["ifindex"] for each in shown}
    return {
        each["ifindex"]: Link(
            index=each["ifindex"],
            name=each["ifname"],
            kind=each.get("linkinfo", {}).get("info_kind"),
            mac=each["address"],
            mtu=each["mtu"],
            up="UP" in each["flags"],
            carrier="LOWER_UP" in each["flags"],
            operstate=each["operstate"].lower(),
            master=index.get(each.get("master")),
            peer=each.get("link_index", index.get(each.get("link"))),
            netnsid=each.get("link_netnsid"),
            addresses=tuple(
                sorted(
                    a["local"]
                    for a in each["addr_info"]
                    if a["family"] == "inet" or a["scope"] == "global"
                )
            ),
        )
        for each in shown
    }


@pytest.mark.netns
def test_a_dump_agrees_with_iproute2(wire):
    ip("-n", wire.host, "link", "set", "lo", "up")
    ip("-n", wire.host, "link", "add", "br0", "type", "bridge")
    ip("-n", wire.host, "link", "set", "v0", "master", "br0")
    ip("-n", wire.host, "link", "add", "v1", "type", "veth", "peer", "v2")
    ip("-n", wire.host, "addr", "add", "10.0.0.1", "peer", "10.0.0.2", "dev", "v1")
    ip("-n", wire.host, "addr", "add", "10.0.0.3/24", "dev", "v1")
    ip("-n", wire.host, "addr", "add", "fd00::3/64", "dev", "v1", "nodad")
    ours = call_in_namespace(wire.path, dump)
    assert named(ours, "v0").netnsid is not None
    assert all(link.carrier_changes is not None for link in ours.values())
    untold = {index: replace(link, carrier_changes=None) for index, link in ours.items()}
    assert untold == shown_by_ip(wire.host)


@pytest.mark.netns
def test_a_dump_of_a_namespace_that_is_not_there_is_refused(wire):
    with pytest.raises(OSError, match="Invalid argument"):
        call_in_namespace(wire.path, lambda: dump(4242))


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
        await until(condition, rest=self._next)

    async def _next(self, _: float) -> None:
        await self.changed.wait()
        self.changed.clear()

    @property
    def host(self) -> dict[str, Link]:
        return {link.name: link for link in self.monitor.host}

    def follow_inside(self) -> int:
        """Follow the namespace of the other end of v0; return its id."""
        nsid = self.host["v0"].netnsid
        assert nsid is not None
        self.monitor.follow({nsid})
        return nsid


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
        nsid = following.follow_inside()

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
def test_an_event_inside_tells_of_the_other_end_by_our_id_as_a_dump_does(wire):
    """The kernel fills in the id by which the device's own namespace knows the other one."""

    async def story(following: Following) -> None:
        # Another namespace that the inner one knows first, so that the ids differ.
        ip("-n", wire.inside, "link", "add", "x0", "type", "veth", "peer", "x1")
        nsid = following.follow_inside()
        ip("-n", wire.host, "link", "add", "mv0", "link", "v0", "type", "macvlan")
        ip("-n", wire.host, "link", "set", "mv0", "netns", wire.inside)

        def inside() -> Link | None:
            table = following.monitor.view({}).inside[nsid]
            return next((link for link in table.values() if link.name == "mv0"), None)

        await following.until(inside)
        own = own_nsid()
        assert own is not None
        assert (inside().peer, inside().netnsid) == (following.host["v0"].index, own)
        ip("-n", wire.inside, "link", "set", "mv0", "mtu", "1300")
        await following.until(lambda: inside().mtu == 1300)
        assert inside().netnsid == own

    follow(wire, story)


@pytest.mark.netns
def test_an_address_that_another_device_has_is_a_duplicate(wire):
    async def story(following: Following) -> None:
        nsid = following.follow_inside()

        def inside() -> Link:
            return named(following.monitor.view({}).inside[nsid], "eth0")

        ip("-n", wire.host, "addr", "add", "fd00::1/64", "dev", "v0", "nodad")
        ip("-n", wire.inside, "addr", "add", "fd00::1/64", "dev", "eth0")
        ip("-n", wire.inside, "addr", "add", "fd00::2/64", "dev", "eth0")
        await following.until(lambda: inside().duplicates == ("fd00::1",))
        await following.until(lambda: inside().addresses == ("10.0.0.10", "fd00::2"))
        assert dump(nsid)[inside().index] == inside()
        ip("-n", wire.inside, "addr", "del", "fd00::1/64", "dev", "eth0")
        await following.until(lambda: inside().duplicates == ())

    follow(wire, story)


@pytest.mark.netns
def test_a_burst_is_heard_to_its_end(wire):
    async def story(following: Following) -> None:
        monitor = following.monitor
        calls = []
        monitor._on_change = lambda: (calls.append(1), following.changed.set())
        for i in range(netlink._BATCH):
            ip("-n", wire.host, "link", "add", f"p{i}", "type", "veth", "peer", f"q{i}")
        last = f"p{netlink._BATCH - 1}"
        await following.until(lambda: last in following.host)
        assert len(calls) > 1
        assert monitor.overruns == 0

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
        self.socket = self

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


def test_events_that_say_too_little_have_their_namespace_read_once_in_a_while(monkeypatch):
    """A container may make such events without end, and a dump is work for the event loop."""
    reads: list[float] = []

    async def story() -> None:
        loop, changed, monitor = asyncio.get_running_loop(), asyncio.Event(), LinkMonitor()
        monkeypatch.setattr(netlink, "_REREAD_S", 0.1)
        monkeypatch.setattr(netlink, "dump", lambda _: reads.append(loop.time()) or {})
        monitor._on_change = changed.set
        monitor.follow({4})
        assert len(reads) == 1
        for times in (2, 3):
            for _ in range(50):
                assert not monitor._heard(link(), 4)
            assert len(reads) == times - 1
            await changed.wait()
            changed.clear()
            assert len(reads) == times
        monitor._heard(link(), 4)
        monitor.close()
        monitor.follow(set())

    asyncio.run(story())
    _, first, second = reads
    assert second - first >= 0.1


def test_without_the_right_to_hear_of_other_namespaces_the_remedy_is_told(monkeypatch):
    class Refusing(netlink.IPRSocket):
        def setsockopt(self, *_):
            raise PermissionError

    monkeypatch.setattr(netlink, "IPRSocket", Refusing)
    with pytest.raises(CapabilityMissing, match="CAP_NET_BROADCAST"):
        LinkMonitor().start(lambda: None)


def test_a_path_that_is_no_namespace_has_no_id(tmp_path):
    with netlink.query_socket() as query, pytest.raises(OSError):
        netlink.nsid_of(query, str(tmp_path))


def test_a_namespace_that_takes_long_to_read_is_read_seldom(monkeypatch):
    async def main():
        loop, now = asyncio.get_running_loop(), [1000.0]
        monkeypatch.setattr(loop, "time", lambda: now[0])

        def slow(_nsid):
            now[0] += 0.5
            return {}

        monkeypatch.setattr("netagent.adapters.host.netlink.dump", slow)
        monitor = LinkMonitor()
        monitor.follow({7})
        due = []
        for _ in range(2):
            monitor._read_soon(7)
            due.append(monitor._rereads[7].when() - now[0])
            monitor._rereads[7].cancel()
            monitor._reread(7)
        monitor.close()
        return due

    # 20 times half a second, but for what it took itself, and a second
    assert asyncio.run(main()) == [0, 10.5]
