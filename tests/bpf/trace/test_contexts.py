# SPDX-License-Identifier: Apache-2.0
import struct

import pytest

from bpf.trace.contexts import WHOLE, context

TRANSPORT, VECTOR, PAIRS, VIRTUAL = 0x10000, 0x20000, 0x30000, 0x7F0000
PAIR_BYTES = 0x400


class Process:
    """Memory of a process with one context of gloo, laid out as gloo does."""

    def __init__(self, place=0, size=2, mutex=40, number=-1):
        self.pieces = {}
        self.place, self.size = place, size
        self.put(TRANSPORT, struct.pack("<Qii", VIRTUAL, place, size).ljust(80, b"\0"))
        self.vector_at = TRANSPORT + 16 + (mutex or 40)
        self.put(self.vector_at, struct.pack("<QQ", VECTOR, VECTOR + 8 * size))
        self.put(VECTOR, bytes(8 * size))
        self.mutex, self.number = mutex, number

    def put(self, at, data):
        for n, each in enumerate(data):
            self.pieces[at + n] = each

    def connect(self, other, mine, its):
        """Have a pair to a place; `mine` and `its` are addresses of sockets."""
        at = PAIRS + other * PAIR_BYTES
        self.put(VECTOR + 8 * other, struct.pack("<Q", at))
        self.put(at, bytes(0x300))
        self.put(at + 24, struct.pack("<QQii", TRANSPORT, 1, other, 4))
        for where, socket in ((80, mine), (80 + 144 + self.mutex, its)):
            address = struct.pack("<Q", VIRTUAL + 8) + socket.ljust(128, b"\0")
            self.put(at + where, address + struct.pack("<q", self.number))

    def read(self, at, size):
        held = bytearray()
        for n in range(size):
            if at + n not in self.pieces:
                break
            held.append(self.pieces[at + n])
        return bytes(held)


def inet(port, host=1):
    return struct.pack("<H", 2) + struct.pack(">H", port) + bytes((10, 0, 0, host))


def inet6(port, host=1):
    return struct.pack("<H", 10) + struct.pack(">H", port) + bytes(4) + bytes((host,) * 16)


@pytest.mark.parametrize("socket", [inet, inet6])
@pytest.mark.parametrize("mutex", [0, 40, 48])
def test_who_connected_knows_the_address_at_which_the_other_one_listened(socket, mutex):
    one, other = Process(0, mutex=mutex), Process(1, mutex=mutex)
    one.connect(1, socket(7, 1), socket(8, 2))
    other.connect(0, socket(8, 2), socket(9, 1))  # or 7, whichever it heard of last
    first, second = context(one.read, TRANSPORT), context(other.read, TRANSPORT)
    assert (first.place, first.size, second.place) == (0, 2, 1)
    assert first.ends[1][1] == second.ends[0][0] > 0
    assert len({*first.ends[1], *second.ends[0]}) == 3


def test_connections_of_one_port_are_told_apart_by_their_numbers():
    numbers = set()
    for number in (1, 2):
        process = Process(number=number)
        process.connect(1, inet(7), inet(8))
        numbers |= {*context(process.read, TRANSPORT).ends[1]}
    assert len(numbers) == 4


@pytest.mark.parametrize("head", [struct.pack("<Qii", 0x99, 1, 2), struct.pack("<iiQ", 1, 2, 0x99)])
def test_a_groups_context_leads_to_its_transports(head):
    process = Process(1)
    process.connect(0, inet(7), inet(8))
    process.put(0x500, head + struct.pack("<QQQQ", 4, 3, 0x11, TRANSPORT) + bytes(64))
    assert context(process.read, 0x500) == context(process.read, TRANSPORT)


def test_a_transports_context_of_another_rank_is_not_a_groups():
    process = Process(1)
    process.put(0x500, struct.pack("<Qii", 0x99, 0, 2) + struct.pack("<Q", TRANSPORT) + bytes(80))
    assert context(process.read, 0x500) is None


def test_what_is_no_context_is_none():
    process = Process()
    assert context(process.read, 0xDEAD) is None
    process.put(0x500, bytes(100))
    assert context(process.read, 0x500) is None
    process.put(process.vector_at + 8, struct.pack("<Q", VECTOR + 24))  # of another size
    assert context(process.read, TRANSPORT) is None


def broken(at, data):
    process = Process()
    process.connect(1, inet(7), inet(8))
    process.put(at, data)
    return context(process.read, TRANSPORT).ends


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (VECTOR + 8, bytes(8)),  # not connected yet
        (VECTOR + 8, struct.pack("<Q", 0x999)),
        (PAIRS + PAIR_BYTES + 24, struct.pack("<Q", 0x99)),  # of another context
        (PAIRS + PAIR_BYTES + 40, struct.pack("<i", 2)),  # or rank
        (PAIRS + PAIR_BYTES + 80, struct.pack("<Q", 0x99)),  # another layout
        (PAIRS + PAIR_BYTES + 88, struct.pack("<H", 1)),  # no address of the internet
        (PAIRS + PAIR_BYTES + 90, bytes(2)),
    ],
)
def test_a_pair_that_is_not_as_it_should_be_is_left_out(at, data):
    assert broken(at, data) == {}


def test_of_a_large_group_as_many_connections_are_told_as_join_it():
    size = 8 * WHOLE
    seen = set()
    for place in (0, 5):
        process = Process(place, size)
        for other in range(size):
            if other != place:
                process.connect(other, inet(1 + place), inet(1 + other))
        told = context(process.read, TRANSPORT).ends
        assert len(told) < 20
        seen |= {other - place for other in told}
    assert {1, -1 + size, 4} <= seen
