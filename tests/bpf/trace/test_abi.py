# SPDX-License-Identifier: Apache-2.0
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bpf
from bpf.trace import abi
from netagent.model.errors import RemoteProtocolError
from tests.conftest import CC, require

HEADER = Path(bpf.__file__).parent / "include/abi.h"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> list[str]:
    """Return what a C program that includes the header says of it."""
    require(CC)
    folder = tmp_path_factory.mktemp("abi")
    lines = []
    for name, fields in abi.FIELDS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        lines += [
            f'printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));'
            for field, _ in fields
        ]
    for prefix, names, end in (
        ("STAGE_", abi.STAGES, "STAGES"),
        ("COUNTER_", abi.COUNTERS, "COUNTERS"),
    ):
        lines += [f'printf("{prefix}{n} %d\\n", {prefix}{n.upper()});' for n in names]
        lines.append(f'printf("{end} %d\\n", {end});')
    lines.append('printf("BUCKETS %d\\nNAME_BYTES %d\\n", BUCKETS, NAME_BYTES);')
    program = f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{'
    (folder / "abi.c").write_text(program + "\n".join(lines) + "return 0; }\n")
    built = [
        "cc",
        "-Wall",
        "-Wextra",
        "-Wpadded",
        "-Werror",
        "-o",
        folder / "abi",
        folder / "abi.c",
    ]
    subprocess.run(built, check=True)
    return subprocess.run(
        [folder / "abi"], check=True, capture_output=True, text=True
    ).stdout.split("\n")[:-1]


def test_the_header_and_its_mirror_agree_on_every_byte(compiled):
    expected = []
    for name, fields in abi.FIELDS.items():
        expected.append(f"{name} {abi.size(name)}")
        at = 0
        for field, form in fields:
            expected.append(f"{name}.{field} {at}")
            at += struct.calcsize(f"<{form}")
    for prefix, names, end in (
        ("STAGE_", abi.STAGES, "STAGES"),
        ("COUNTER_", abi.COUNTERS, "COUNTERS"),
    ):
        expected += [f"{prefix}{name} {index}" for index, name in enumerate(names)]
        expected.append(f"{end} {len(names)}")
    expected += [f"BUCKETS {abi.BUCKETS}", f"NAME_BYTES {abi.NAME_BYTES}"]
    assert compiled == expected


def test_a_filter_is_in_network_order_and_its_names_end():
    packed = abi.Filter(
        netns=7,
        source=abi.MAPPED | 0x0A00000A,
        source_mask=(1 << 128) - (1 << 8),
        target=0xFD00 << 112 | 0xC,
        target_mask=(1 << 128) - 1,
        version=6,
        target_port=4791,
        vni=0,
        in_port="a-name-of-more-than-fifteen",
    ).pack()
    mapped = bytes(10) + b"\xff\xff\x0a\0\0\0"
    assert packed[:32] == mapped + b"\xff" * 15 + b"\0"  # the host part is masked away
    assert packed[32:64] == b"\xfd" + bytes(14) + b"\x0c" + b"\xff" * 16
    assert packed[64:80] == b"a-name-of-more-\0"
    assert packed[96:100] == b"\7\0\0\0"
    assert packed[114:116] == b"\x12\xb7"
    assert packed[119:122] == b"\6\1\0"  # VNI 0 is a VNI
    assert abi.Filter(netns=7).pack()[119:122] == b"\0\0\0"
    assert abi.Filter(netns=7, geneve=True).pack()[121] == 1


def test_what_the_kernel_tells_is_read():
    mapped = bytes(10) + b"\xff\xff"
    flow = mapped + bytes([10, 0, 0, 10]) + mapped + bytes([10, 0, 0, 12])
    flow += bytes([0x9C, 0x40, 0x12, 0xB7, 17, 4, 0, 0])
    name = b"vxlan_sys_4789\0\0"
    key = abi.FlowKey(abi.MAPPED | 0x0A00000A, abi.MAPPED | 0x0A00000C, 40000, 4791, 17, 4)
    assert abi.FlowKey.unpack(flow) == key
    event = struct.pack("<QQQ40sIIIHH16s", 5, 6, 7, flow, 3, 100, 44, 0x1234, 0, name)
    read = abi.Event.unpack(event)
    assert (read.at_ns, read.journey, read.location, read.flow) == (5, 6, 7, key)
    assert (read.stage, read.vni, read.reason) == ("port_receive", 100, 44)
    assert (read.outer_port, read.device) == (0x3412, "vxlan_sys_4789")
    outer = flow + mapped + bytes([172, 30, 0, 10]) + b"\xfd" + bytes(14) + b"\x0b"
    outer += struct.pack("<I", 100)
    read_outer = abi.OuterKey.unpack(outer + b"\xe7\x08\1\0")
    assert (read_outer.inner, read_outer.source_port) == (key, 0xE708)
    ends = [abi.address_text(end) for end in (read_outer.source, read_outer.target)]
    assert ends == ["172.30.0.10", "fd00::b"]
    assert (read_outer.vni, read_outer.transmitted) == (100, True)
    drop = abi.DropKey.unpack(struct.pack("<QII16s", 9, 2, len(abi.STAGES), name))
    assert (drop.location, drop.reason, drop.after) == (9, 2, "")
    assert abi.UpcallKey.unpack(struct.pack("<Ii", 1, -11)) == abi.UpcallKey(1, -11)
    roce = abi.RoceKey.unpack(struct.pack("<II16s", 1, 0, name))
    assert roce == abi.RoceKey(transmitted=True, encapsulated=False, device="vxlan_sys_4789")
    port = abi.PortKey.unpack(struct.pack("<II16s", 5, 100, bytes(16)))
    assert port == abi.PortKey("lookup", 100, "")


def test_totals_of_all_cpus_add_up():
    cpu = struct.pack("<4Q", 1, 2, 3, 4) + struct.pack("<128Q", *range(128))
    total = abi.NOTHING + abi.Totals.unpack(cpu) + abi.Totals.unpack(cpu)
    assert (total.packets, total.octets, total.repeats, total.foreign) == (2, 4, 6, 8)
    assert total.buckets[127] == 254


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(data):
    for kind in (abi.Event, abi.PortKey, abi.DropKey, abi.UpcallKey, abi.OuterKey, abi.RoceKey):
        try:
            kind.unpack(data)
        except RemoteProtocolError:
            continue
        assert len(data) == abi.size("event" if kind is abi.Event else _struct_of(kind))


def _struct_of(kind: type) -> str:
    return kind.__name__.replace("Key", "_key").lower()
