# SPDX-License-Identifier: Apache-2.0
import secrets
import select
import socket
import struct
import subprocess
from contextlib import closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters.host.setns import call_in_namespace
from netagent.adapters.paths import outer
from netagent.model.encapsulation import GENEVE, VXLAN, Encapsulation
from netagent.model.errors import RemoteProtocolError
from netagent.probing.paths import OuterFlow
from netagent.wire import frame
from tests.conftest import NETNS, require

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


def ipv6(source, target, payload, label=0):
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(
        socket.AF_INET6, target
    )
    return struct.pack("!IHBB", 6 << 28 | label, len(payload), 17, 64) + addresses + payload


def ethernet(six, addresses, payload, **more):
    kind, header = (b"\x86\xdd", ipv6) if six else (b"\x08\0", ipv4)
    return bytes(12) + kind + header(*addresses[six], payload, **more)


OUTER = {False: ("172.30.0.1", "172.30.0.2"), True: ("fd00:30::1", "fd00:30::2")}
INNER = {False: ("10.0.0.1", "10.0.0.2"), True: ("fd00:10::1", "fd00:10::2")}


def udp(source, target, payload):
    return struct.pack("!HHHH", source, target, 8 + len(payload), 0) + payload


def packet(
    outer_port, vni, source_port, target_port, probe, options=b"", tunnel=VXLAN, words=0,
    six=(False, False), label=0,
):  # fmt: skip
    """Return a probe in a tunnel; `words` are those of Geneve's options, `six` out and in."""
    inner = ethernet(six[1], INNER, udp(source_port, target_port, probe))
    if tunnel.kind == "geneve":
        head = struct.pack("!BBHI", words, 0, 0x6558, vni << 8) + bytes(4 * words)
    else:
        head = struct.pack("!II", 0x08000000, vni << 8)
    more = {"label": label} if six[0] else {"options": options}
    return ethernet(six[0], OUTER, udp(outer_port, tunnel.port, head + inner), **more)


SIX = st.tuples(st.booleans(), st.booleans())


TUNNELS = st.sampled_from(
    [(VXLAN, 0), (Encapsulation("vxlan", 8472), 0), (GENEVE, 0), (GENEVE, 2), (GENEVE, 63)]
)


@given(
    PORTS, st.integers(0, 0xFFFFFF), PORTS, PORTS, st.sampled_from([b"", bytes(4), bytes(40)]),
    TUNNELS, SIX, st.integers(0, 0xFFFFF),
)  # fmt: skip
def test_both_headers_are_read_whatever_the_options(
    outer_port, vni, a, b, options, tunnelled, six, label
):
    probe, (tunnel, words) = frame.Frame(7, 9, flags=frame.MARKED), tunnelled
    payload = bytes(20 if b == 4791 else 0) + frame.encode(probe)
    sent = packet(outer_port, vni, a, b, payload, options, tunnel, words, six, label)
    flow = OuterFlow(*OUTER[six[0]], outer_port, tunnel.port, label if six[0] else 0)
    assert outer.parse(sent, tunnel) == outer.Sighting(flow, vni, *INNER[six[1]], a, b, probe)


KINDS = st.sampled_from([b"\x08\0", b"\x86\xdd", b"\x08\x06"])


@given(st.binary(max_size=250), KINDS, KINDS, st.sampled_from([VXLAN, GENEVE]))
def test_any_bytes_give_a_sighting_or_a_typed_error(data, out, inside, tunnel):
    at = 14 + (40 if out == b"\x86\xdd" else 20) + 16
    data = data[:12] + out + data[14 : at + 12] + inside + data[at + 14 :]
    with suppress(RemoteProtocolError):
        assert isinstance(outer.parse(data, tunnel), outer.Sighting)


@given(st.integers(0, 160), SIX)
def test_a_cut_packet_is_refused(cut, six):
    whole = packet(1, 2, 3, 4, frame.encode(frame.Frame(1, 2)), six=six)
    with pytest.raises(RemoteProtocolError):
        outer.parse(whole[: min(cut, len(whole) - 1)], VXLAN)


ARITHMETIC = {
    outer._ADD: lambda a, x, k: (a + k, x),
    outer._TXA: lambda a, x, k: (x, x),
    outer._LDX_IMM: lambda a, x, k: (a, k),
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
            if k >= len(data):
                return 0
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
@pytest.mark.parametrize("options", [b"", bytes(40)])
@pytest.mark.parametrize(("tunnel", "words"), [(VXLAN, 0), (GENEVE, 0), (GENEVE, 2), (GENEVE, 63)])
@pytest.mark.parametrize("six", [(o, i) for o in (False, True) for i in (False, True)])
def test_the_kernel_program_lets_in_marked_probes_on_their_way_out(
    port, headers, options, tunnel, words, six
):
    def sent(probe):
        payload = headers + frame.encode(probe)
        return packet(1, 2, 40000, port, payload, options, tunnel, words, six)

    marked = frame.Frame(7, 9, flags=frame.MARKED | frame.REPLY)
    assert accepts(sent(marked), tunnel=tunnel) == outer._SNAP_BYTES
    assert outer.parse(sent(marked)[: outer._SNAP_BYTES], tunnel).frame == marked
    assert not accepts(sent(marked), outgoing=False, tunnel=tunnel)
    assert not accepts(sent(frame.Frame(7, 9, flags=frame.REPLY)), tunnel=tunnel)
    assert not accepts(sent(marked)[:90], tunnel=tunnel)
    others = {VXLAN, GENEVE, Encapsulation(tunnel.kind, 5000)} - {tunnel}
    assert not any(accepts(sent(marked), tunnel=other) for other in others)


@pytest.mark.parametrize("six", [(o, i) for o in (False, True) for i in (False, True)])
def test_the_kernel_program_looks_at_what_follows_each_header(six):
    whole = packet(1, 2, 3, 4, frame.encode(frame.Frame(7, 9, flags=frame.MARKED)), six=six)
    protocols = [14 + (6 if six[0] else 9), 14 + (40 if six[0] else 20) + 30 + (6 if six[1] else 9)]
    for at in protocols:
        assert whole[at] == 17
        assert not accepts(whole[:at] + b"\x06" + whole[at + 1 :])


@given(st.binary(max_size=500), KINDS, st.sampled_from([VXLAN, GENEVE]))
def test_the_kernel_program_lets_in_nothing_else(data, kind, tunnel):
    assert not accepts(data[:12] + kind + data[14:], tunnel=tunnel)


@pytest.fixture
def cable():
    """Return the path of a namespace with both ends of a cable."""
    require(NETNS)
    name = f"na-{secrets.token_hex(3)}-c"
    try:
        for words in (
            ("netns", "add", name),
            ("-n", name, "link", "add", "rnic0", "type", "veth", "peer", "name", "leaf"),
            ("-n", name, "link", "set", "rnic0", "mtu", "1600", "up"),
            ("-n", name, "link", "set", "leaf", "mtu", "1600", "up"),
        ):
            subprocess.run(["ip", *words], check=True)
        yield f"/run/netns/{name}"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.netns
@pytest.mark.parametrize("tunnel", [VXLAN, GENEVE])
def test_the_kernel_runs_the_program_over_every_mix_of_versions(cable, tunnel):
    def opened():
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sender.bind(("rnic0", 0))
        return sender, outer.open_uplink("rnic0", tunnel)

    sender, uplink = call_in_namespace(cable, opened)
    marked, plain = frame.Frame(7, 9, flags=frame.MARKED), frame.Frame(7, 10)
    mixes = [(o, i) for o in (False, True) for i in (False, True)]
    with closing(sender), closing(uplink):
        for six in mixes:
            for probe in (marked, plain):
                for port, headers in ((18515, b""), (4791, ROCE)):
                    payload = headers + frame.encode(probe)
                    sent = packet(5, 2, 4000, port, payload, tunnel=tunnel, six=six, label=3)
                    sender.send(sent)
        poll = select.poll()
        poll.register(uplink, select.POLLIN)
        seen = []
        while len(seen) < 2 * len(mixes) and poll.poll(5000):
            seen += outer.drain(uplink, tunnel)
    assert [(each.outer, each.source, each.target_port) for each in seen] == [
        (
            OuterFlow(*OUTER[out], 5, tunnel.port, 3 if out else 0),
            INNER[inside][0],
            port,
        )
        for out, inside in mixes
        for port in (18515, 4791)
    ]
    assert {each.frame for each in seen} == {marked}
