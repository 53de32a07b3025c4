# SPDX-License-Identifier: Apache-2.0
import random
import struct

from tests.lab.flooder import burst

MAC = bytes.fromhex("02000001000b")


def test_each_burst_goes_to_another_destination_from_the_endpoint_s_own_addresses() -> None:
    chance = random.Random(1)
    frames = [burst(MAC, "10.0.0.11", chance)[10:] for _ in range(50)]
    assert len({frame[:6] for frame in frames}) == 50
    assert {frame[6:14] for frame in frames} == {MAC + b"\x08\x00"}
    assert {frame[26:30] for frame in frames} == {bytes([10, 0, 0, 11])}


def test_a_burst_is_one_ip_packet_that_the_kernel_cuts_into_hundreds() -> None:
    made = burst(MAC, "10.0.0.11", random.Random(1))
    _, kind, headers, segment, checksum_at, _ = struct.unpack_from("=BBHHHH", made)
    frame = made[10:]
    assert (kind, headers, checksum_at) == (1, 54, 34)
    assert struct.unpack_from("!H", frame, 16)[0] == len(frame) - 14 <= 65_535
    assert (len(frame) - headers) / segment > 500
