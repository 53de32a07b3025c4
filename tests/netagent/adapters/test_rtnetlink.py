# SPDX-License-Identifier: Apache-2.0
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters import rtnetlink
from netagent.adapters.rtnetlink import (
    AddressGone,
    AddressSeen,
    Failed,
    Finished,
    LinkGone,
    LinkSeen,
    NamespaceId,
    parse,
)


def attribute(kind: int, value: bytes) -> bytes:
    padded = value + b"\0" * (-len(value) % 4)
    return struct.pack("=HH", 4 + len(value), kind) + padded


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def link(kind: int = rtnetlink.NEWLINK, *, family: int = 0, flags: int = 1, **more: bytes) -> bytes:
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


def address(kind: int = rtnetlink.NEWADDR, *, family: int = 2, **attributes: bytes) -> bytes:
    known = attributes or {"a": attribute(2, b"\x0a\0\0\x0a")}
    return message(kind, struct.pack("=BBBBI", family, 24, 0, 0, 2) + b"".join(known.values()))


def only(data: bytes) -> object:
    (one,) = parse(data)
    return one


def test_a_link_message_holds_its_facts():
    seen = only(link())
    assert isinstance(seen, LinkSeen)
    facts = seen.link
    assert (facts.index, facts.name, facts.kind, facts.mtu) == (2, "rnic0", "veth", 1450)
    assert (facts.mac, facts.operstate) == ("02:03:04:05:06:07", "up")
    assert (facts.up, facts.carrier, facts.carrier_changes) == (True, True, 5)
    assert (facts.peer, facts.netnsid, facts.master) == (7, 3, None)


def test_what_a_driver_leaves_out_is_told_from_the_flags():
    facts = only(link(flags=0x10000, carrier=b"", operstate=attribute(16, b"\x63"))).link
    assert (facts.up, facts.carrier, facts.operstate) == (False, True, "unknown")
    assert only(link(carrier=attribute(33, b"\0"))).link.carrier is False


def test_links_go_and_bridges_views_of_them_are_others():
    assert only(link(rtnetlink.DELLINK)) == LinkGone(2)
    assert list(parse(link(family=7))) == []
    assert list(parse(link(name=b""))) == []


def test_addresses_come_and_go():
    assert only(address()) == AddressSeen(2, "10.0.0.10")
    assert only(address(rtnetlink.DELADDR)) == AddressGone(2, "10.0.0.10")
    far = {"peer": attribute(1, b"\x0a\0\0\x01"), "own": attribute(2, b"\x0a\0\0\x02")}
    assert only(address(**far)) == AddressSeen(2, "10.0.0.2")
    assert list(parse(address(family=10))) == []


def test_ids_errors_and_ends_are_told():
    nsid = b"\0\0\0\0" + attribute(1, struct.pack("=i", -1))
    assert only(message(rtnetlink.NEWNSID, nsid)) == NamespaceId(-1)
    assert only(message(rtnetlink.DELNSID, nsid)) == NamespaceId(-1, gone=True)
    assert only(message(rtnetlink.ERROR, struct.pack("=i", -13))) == Failed(13)
    assert only(message(rtnetlink.DONE, b"\0\0\0\0")) == Finished()
    assert only(message(rtnetlink.DONE, struct.pack("=i", -22))) == Failed(22)
    assert list(parse(message(99, b""))) == []


def test_several_messages_share_a_datagram():
    kinds = [type(each) for each in parse(link() + address() + message(rtnetlink.DONE, b""))]
    assert kinds == [LinkSeen, AddressSeen, Finished]


@pytest.mark.parametrize("torn", [link()[:-1], link()[:10], b"\x01\0\0\0" + b"\0" * 12])
def test_a_torn_message_is_skipped(torn):
    assert list(parse(torn)) == []


@given(st.binary(max_size=200))
def test_no_bytes_raise(data):
    list(parse(data))


@given(st.binary(max_size=120), st.sampled_from([16, 17, 20, 21, 88, 89, 2, 3]))
def test_no_body_raises(body, kind):
    assert len(list(parse(message(kind, body)))) <= 1


def test_requests_are_as_the_kernel_wants_them():
    request = rtnetlink.dump_links(7, nsid=3)
    length, kind, flags, sequence, _ = struct.unpack_from("=IHHII", request)
    assert (length, kind, flags, sequence) == (len(request), rtnetlink.GETLINK, 0x301, 7)
    assert request.endswith(attribute(46, struct.pack("=i", 3)))
    assert rtnetlink.dump_addresses(1, nsid=3).endswith(attribute(10, struct.pack("=i", 3)))
    assert len(rtnetlink.dump_addresses(1)) == 24
    assert rtnetlink.ask_nsid(1, 5).endswith(attribute(3, struct.pack("=I", 5)))
