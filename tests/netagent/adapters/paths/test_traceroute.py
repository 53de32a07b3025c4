# SPDX-License-Identifier: Apache-2.0
import struct

from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters.paths import traceroute


def answer(kind, code, ident, *, port=4789, protocol=17):
    quoted = struct.pack("!BBHHHBBH", 0x45, 0, 32, ident, 0x4000, 1, protocol, 0) + bytes(8)
    quoted += struct.pack("!HHHH", 51000, port, 12, 0)
    outside = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, 64, 1, 0) + bytes(8)
    return outside + struct.pack("!BBHI", kind, code, 0, 0) + quoted


@given(st.integers(1, 0xFFFF), st.sampled_from([(11, 0), (3, 0), (3, 1)]))
def test_a_routers_answer_names_our_packet(ident, kind):
    assert traceroute.parse(answer(*kind, ident), {4789}) == ident
    assert traceroute.parse(answer(*kind, ident, port=6081), {4789, 6081}) == ident


@given(st.integers(0, 255), st.integers(0, 255))
def test_other_messages_are_no_answer(kind, code):
    said = traceroute.parse(answer(kind, code, 7), {4789})
    assert (said is not None) == (kind == 11 or (kind, code) in {(3, 0), (3, 1)})


def test_others_packets_quoted_are_no_answer():
    assert traceroute.parse(answer(11, 0, 7, port=53), {4789}) is None
    assert traceroute.parse(answer(11, 0, 7, protocol=6), {4789}) is None


@given(st.binary(max_size=120))
def test_any_bytes_give_an_identification_or_nothing(data):
    said = traceroute.parse(data, {4789})
    assert said is None or 0 <= said <= 0xFFFF
