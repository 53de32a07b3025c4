# SPDX-License-Identifier: Apache-2.0
import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.probing.rdma import gids as g

PACKED = st.binary(min_size=16, max_size=16)
SPARSE = st.lists(st.sampled_from([0, 0, 0, 1, 255]), min_size=16, max_size=16).map(bytes)
PREFIXED = st.tuples(
    st.sampled_from([bytes(12), bytes(10) + b"\xff\xff"]), st.binary(min_size=4, max_size=4)
).map(b"".join)
WORDS = st.sampled_from(["", "0", "1", "00ff", "ffff", "12345", "g", "1.2.3.4", "01.2.3.4", "%e"])


@given(PACKED)
def test_a_gid_survives_every_way_of_writing_it(packed):
    text = str(ipaddress.IPv6Address(packed))
    assert g.packed_gid(text) == packed
    assert g.packed_gid(g.canonical_gid(text)) == packed
    assert g.packed_gid(g.verbose_gid(text)) == packed
    assert g.canonical_gid(g.verbose_gid(text)) == g.canonical_gid(text)


@given(PACKED | SPARSE | PREFIXED)
def test_a_gid_is_written_as_the_c_library_writes_it(packed):
    assert g.canonical_gid(packed.hex(":", 2)) == socket.inet_ntop(socket.AF_INET6, packed)


@given(st.lists(WORDS, max_size=10).map(":".join))
def test_what_the_c_library_reads_is_read(text):
    kind = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        packed = socket.inet_pton(kind, text)
    except OSError:
        with pytest.raises(ValueError, match="is no GID"):
            g.packed_gid(text)
    else:
        assert g.packed_gid(text)[-len(packed) :] == packed


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_the_gid_that_roce_v2_makes_of_it(address):
    gid = g.canonical_gid(str(address))
    assert gid == f"::ffff:{address}"
    assert g.address_of(gid) == str(address)


def test_the_two_forms():
    assert g.verbose_gid("::ffff:10.0.0.2") == "0000:0000:0000:0000:0000:ffff:0a00:0002"
    assert g.canonical_gid("0000:0000:0000:0000:0000:ffff:0a00:0002") == "::ffff:10.0.0.2"
    assert g.address_of("fe80::1") == "fe80::1"


@pytest.mark.parametrize("text", ["", "mlx5_0", "10.0.0", ":::", "10.0.0.256", "1:2"])
def test_what_is_no_gid_is_refused(text):
    with pytest.raises(ValueError, match="is no GID"):
        g.packed_gid(text)


def test_a_gid_is_chosen_by_type_address_and_netdev():
    table = [
        g.Gid(0, "fe80::1", 1, 2),
        g.Gid(1, "::ffff:10.0.0.1", 1, 2),
        g.Gid(5, "::ffff:10.0.0.1", 2, 7),
        g.Gid(9, "::ffff:10.0.0.1", 2, 8),
    ]
    assert g.choose_gid(table, 2, "10.0.0.1") == 5
    assert g.choose_gid(table, 2, "::ffff:a00:1", ifindex=8) == 9
    assert g.choose_gid(table, 1, "::ffff:10.0.0.1") == 1
    assert g.choose_gid(table, 2, "10.0.0.2") is None
    assert g.choose_gid(table, 2, "10.0.0.1", ifindex=3) is None


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.binary(min_size=20, max_size=20))
def test_the_sender_of_an_ipv4_packet(sender, own, undefined):
    header = b"\x45" + bytes(11) + sender.packed + own.packed
    mine = g.packed_gid(str(own))
    assert g.sender_of(undefined + header, mine) == g.packed_gid(str(sender))
    other = g.packed_gid(str(ipaddress.IPv4Address(int(own) ^ 1)))
    assert g.sender_of(undefined + header, other) is None
    assert g.sender_of(undefined + b"\x60" + header[1:], mine) is None


@given(PACKED, PACKED)
def test_the_sender_of_an_ipv6_packet(sender, own):
    own = b"\xfe" + own[1:]
    assert g.sender_of(bytes(8) + sender + own, own) == sender
    assert g.sender_of(bytes(8) + sender + own, b"\xfd" + own[1:]) is None
