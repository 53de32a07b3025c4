# SPDX-License-Identifier: Apache-2.0
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters.paths import outer
from netagent.model.encapsulation import GENEVE, VXLAN, Encapsulation
from netagent.model.errors import RemoteProtocolError
from netagent.probing.paths import OuterFlow
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


def packet(outer_port, vni, source_port, target_port, probe, options=b"", tunnel=VXLAN, words=0):
    """Return a probe in a tunnel; `words` are those of Geneve's options."""
    inner = (
        bytes(12) + b"\x08\0" + ipv4("10.0.0.1", "10.0.0.2", udp(source_port, target_port, probe))
    )
    if tunnel.kind == "geneve":
        head = struct.pack("!BBHI", words, 0, 0x6558, vni << 8) + bytes(4 * words)
    else:
        head = struct.pack("!II", 0x08000000, vni << 8)
    outside = ipv4("172.30.0.1", "172.30.0.2", udp(outer_port, tunnel.port, head + inner), options)
    return bytes(12) + b"\x08\0" + outside


TUNNELS = st.sampled_from(
    [(VXLAN, 0), (Encapsulation("vxlan", 8472), 0), (GENEVE, 0), (GENEVE, 2), (GENEVE, 63)]
)


@given(
    PORTS, st.integers(0, 0xFFFFFF), PORTS, PORTS, st.sampled_from([b"", bytes(4), bytes(40)]),
    TUNNELS,
)  # fmt: skip
def test_both_headers_are_read_whatever_the_options(outer_port, vni, a, b, options, tunnelled):
    probe, (tunnel, words) = frame.Frame(7, 9, flags=frame.MARKED), tunnelled
    sent = packet(outer_port, vni, a, b, frame.encode(probe), options, tunnel, words)
    flow = OuterFlow("172.30.0.1", "172.30.0.2", outer_port, tunnel.port)
    assert outer.parse(sent, tunnel) == outer.Sighting(
        flow, vni, "10.0.0.1", "10.0.0.2", a, b, probe
    )


@given(st.binary(max_size=200), st.sampled_from([VXLAN, GENEVE]))
def test_any_bytes_give_a_sighting_or_a_typed_error(data, tunnel):
    try:
        assert isinstance(outer.parse(data, tunnel), outer.Sighting)
    except RemoteProtocolError:
        assert frame.MAGIC.to_bytes(4, "big") not in data[60:64]


@given(st.integers(0, 120))
def test_a_cut_packet_is_refused(cut):
    whole = packet(1, 2, 3, 4, frame.encode(frame.Frame(1, 2)))
    with pytest.raises(RemoteProtocolError):
        outer.parse(whole[: min(cut, len(whole) - 1)], VXLAN)


ARITHMETIC = {
    outer._AND: lambda a, x, k: (a & k, x),
    outer._LSH: lambda a, x, k: (a << k, x),
    outer._ADD_X: lambda a, x, k: (a + x, x),
    outer._TAX: lambda a, x, k: (a, a),
}


def accepts(data, *, outgoing=True, tunnel=VXLAN):
    """Interpret the program on a packet, as the kernel does; return how many bytes it lets in."""
    program = outer._program(tunnel)
    steps = [struct.unpack_from("@HBBI", program, 8 * n) for n in range(len(program) // 8)]
    a = x = at = 0
    while True:
        code, taken, missed, k = steps[at]
        at += 1
        if code == outer._RET:
            return k
        if code in {outer._JEQ, outer._JSET}:
            at += taken if (a == k if code == outer._JEQ else a & k) else missed
            continue
        if code == outer._LDX_MSH:
            x = (data[k] & 0xF) * 4
            continue
        if code in ARITHMETIC:
            a, x = ARITHMETIC[code](a, x, k)
            continue
        if k == outer._SKF_AD_PKTTYPE:
            a = outer._PACKET_OUTGOING if outgoing else 0
            continue
        width = {outer._LDB_ABS: 1, outer._LDB_IND: 1, outer._LDH_ABS: 2, outer._LDH_IND: 2}
        size = width.get(code, 4)
        start = k + (x if code in {outer._LDB_IND, outer._LDH_IND, outer._LD_IND} else 0)
        if start + size > len(data):
            return 0  # the kernel drops what is too short to look at
        a = int.from_bytes(data[start : start + size], "big")


ROCE = bytes(outer._ROCE_HEADERS)


@pytest.mark.parametrize(("port", "headers"), [(18515, b""), (4791, ROCE)])
@pytest.mark.parametrize("options", [b"", bytes(8)])
@pytest.mark.parametrize(("tunnel", "words"), [(VXLAN, 0), (GENEVE, 0), (GENEVE, 2), (GENEVE, 63)])
def test_the_kernel_program_lets_in_marked_probes_on_their_way_out(
    port, headers, options, tunnel, words
):
    def sent(probe):
        payload = headers + frame.encode(probe)
        return packet(1, 2, 40000, port, payload, options, tunnel, words)

    marked = frame.Frame(7, 9, flags=frame.MARKED | frame.REPLY)
    assert accepts(sent(marked), tunnel=tunnel) == outer._SNAP_BYTES
    assert outer.parse(sent(marked)[: outer._SNAP_BYTES], tunnel).frame == marked
    assert not accepts(sent(marked), outgoing=False, tunnel=tunnel)
    assert not accepts(sent(frame.Frame(7, 9, flags=frame.REPLY)), tunnel=tunnel)
    assert not accepts(sent(marked)[:90], tunnel=tunnel)
    others = {VXLAN, GENEVE, Encapsulation(tunnel.kind, 5000)} - {tunnel}
    assert not any(accepts(sent(marked), tunnel=other) for other in others)


@given(st.binary(max_size=500), st.sampled_from([VXLAN, GENEVE]))
def test_the_kernel_program_lets_in_nothing_else(data, tunnel):
    assert not accepts(data, tunnel=tunnel)
