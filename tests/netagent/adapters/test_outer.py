# SPDX-License-Identifier: Apache-2.0
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters import outer
from netagent.model.errors import RemoteProtocolError
from netagent.probing.tracing import OuterFlow
from netagent.wire import frame

PORTS = st.integers(0, 0xFFFF)


def ipv4(source, target, payload, options=b""):
    ihl = 5 + len(options) // 4
    length = ihl * 4 + len(payload)
    addresses = socket.inet_aton(source) + socket.inet_aton(target)
    return (
        struct.pack("!BBHHHBBH", 0x40 | ihl, 0, length, 0, 0, 64, 17, 0)
        + addresses
        + options
        + payload
    )


def udp(source, target, payload):
    return struct.pack("!HHHH", source, target, 8 + len(payload), 0) + payload


def packet(outer_port, vni, source_port, target_port, probe, options=b""):
    inner = (
        bytes(12) + b"\x08\0" + ipv4("10.0.0.1", "10.0.0.2", udp(source_port, target_port, probe))
    )
    vxlan = struct.pack("!II", 0x08000000, vni << 8) + inner
    outside = ipv4("172.30.0.1", "172.30.0.2", udp(outer_port, 4789, vxlan), options)
    return bytes(12) + b"\x08\0" + outside


@given(PORTS, st.integers(0, 0xFFFFFF), PORTS, PORTS, st.sampled_from([b"", bytes(4), bytes(40)]))
def test_both_headers_are_read_whatever_the_outer_options(outer_port, vni, a, b, options):
    probe = frame.Frame(7, 9, flags=frame.MARKED)
    seen = outer.parse(packet(outer_port, vni, a, b, frame.encode(probe), options))
    assert seen == outer.Sighting(
        OuterFlow("172.30.0.1", "172.30.0.2", outer_port), vni, "10.0.0.1", "10.0.0.2", a, b, probe
    )


@given(st.binary(max_size=200))
def test_any_bytes_give_a_sighting_or_a_typed_error(data):
    try:
        assert isinstance(outer.parse(data), outer.Sighting)
    except RemoteProtocolError:
        assert frame.MAGIC.to_bytes(4, "big") not in data[60:64]


@given(st.integers(0, 120))
def test_a_cut_packet_is_refused(cut):
    whole = packet(1, 2, 3, 4, frame.encode(frame.Frame(1, 2)))
    with pytest.raises(RemoteProtocolError):
        outer.parse(whole[: min(cut, len(whole) - 1)])


def test_the_kernel_program_ends_with_accept_and_refuse_and_jumps_stay_inside():
    program = outer._program()
    steps = [struct.unpack_from("@HBBI", program, 8 * n) for n in range(len(program) // 8)]
    assert [step[0] for step in steps[-2:]] == [outer._RET, outer._RET]
    assert (steps[-2][3], steps[-1][3]) == (outer._SNAP_BYTES, 0)
    for n, (code, _, missed, _) in enumerate(steps):
        if code in {outer._JEQ, outer._JSET}:
            assert n + 1 + missed == len(steps) - 1
