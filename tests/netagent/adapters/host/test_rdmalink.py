# SPDX-License-Identifier: Apache-2.0
import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters.host import rdmalink
from netagent.adapters.host.rdmalink import RdmaLink, RdmaQuery, RdmaSystem
from netagent.model.errors import RemoteProtocolError

DONE, ERROR = 3, 2
NLDEV = 5 << 10


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def u64(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=Q", value))


def message(kind: int, body: bytes, *, sequence: int = 1) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, sequence, 0) + body


def done(sequence: int = 1, error: int = 0) -> bytes:
    return message(DONE, struct.pack("=i", error), sequence=sequence)


RXE0 = u32(1, 0) + attribute(2, b"rxe0\0")
# As Linux 6.1 answered for a Soft-RoCE device on v0 (seen by its own namespace).
PORT = RXE0 + u32(3, 1) + attribute(12, b"\4") + attribute(13, b"\5") + u32(50, 3)
PORT += attribute(51, b"v0\0")


class Kernel:
    """Answers in the given order, whatever it is asked."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.asked: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.asked.append(bytes(data))

    def recv(self, _: int) -> bytes:
        return self.answers.pop(0)

    def settimeout(self, _: float) -> None:
        pass

    def close(self) -> None:
        self.answers = []


@pytest.fixture
def query(monkeypatch):
    def made(*answers: bytes) -> tuple[RdmaQuery, Kernel]:
        kernel = Kernel(*answers)
        monkeypatch.setattr(rdmalink, "_open", lambda _: kernel)
        return RdmaQuery(), kernel

    return made


def test_ports_are_asked_of_every_device(query):
    asking, kernel = query(
        message(NLDEV | 1, RXE0) + done(),
        message(NLDEV | 5, PORT, sequence=2),
        done(sequence=2),
    )
    assert asking.links() == (RdmaLink(0, "rxe0", 1, "ACTIVE", "LinkUp", "v0", 3),)
    assert [struct.unpack_from("=HH", each, 4) for each in kernel.asked] == [
        (NLDEV | 1, 0x301),
        (NLDEV | 5, 0x301),
    ]
    assert kernel.asked[1][16:24] == u32(1, 0)


def test_a_netdev_in_another_namespace_is_not_told(query):
    body = RXE0 + u32(3, 1) + attribute(12, b"\1") + attribute(13, b"\x63")
    asking, _ = query(
        message(NLDEV | 1, RXE0) + done(), message(NLDEV | 5, body, sequence=2) + done(2)
    )
    assert asking.links() == (RdmaLink(0, "rxe0", 1, "DOWN", "99"),)


def test_statistics_are_a_table_of_counters(query):
    entries = b"".join(
        attribute(81 | 0x8000, attribute(82, name) + u64(83, value))
        for name, value in ((b"sent_pkts\0", 1000), (b"link_downed\0", 2**64 - 1))
    )
    body = RXE0 + u32(3, 1) + attribute(80 | 0x8000, entries)
    asking, kernel = query(message(NLDEV | 17, body))
    assert asking.statistics(0, 1) == {"sent_pkts": 1000, "link_downed": 2**64 - 1}
    assert kernel.asked[0][16:] == u32(1, 0) + u32(3, 1)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_device_that_counts_nothing_has_no_statistics(query, code):
    asking, _ = query(message(ERROR, struct.pack("=i", -code) + bytes(16)))
    assert asking.statistics(7, 1) == {}


def test_a_refusal_is_an_error_of_the_system(query):
    asking, _ = query(done(error=-errno.EPERM))
    with pytest.raises(PermissionError):
        asking.resources()
    asking, _ = query(message(ERROR, struct.pack("=i", -errno.EBUSY) + bytes(16)))
    with pytest.raises(OSError, match="busy") as caught:
        asking.statistics(0, 1)
    assert caught.value.errno == errno.EBUSY


def test_resources_are_counted_by_kind(query):
    entries = b"".join(
        attribute(16, attribute(17, name) + u64(18, value)) for name, value in ((b"qp\0", 3),)
    )
    asking, _ = query(message(NLDEV | 9, RXE0 + attribute(15, entries)) + done())
    assert asking.resources() == {"rxe0": {"qp": 3}}


@pytest.mark.parametrize(
    ("body", "system"),
    [
        (attribute(66, b"\1") + attribute(96, b"\0"), RdmaSystem("shared", monitor=False)),
        (attribute(66, b"\0") + attribute(103, b"\1"), RdmaSystem("exclusive", monitor=True)),
    ],
)
def test_the_system_says_how_namespaces_share_devices(query, body, system):
    asking, _ = query(message(NLDEV | 6, body))
    assert asking.system() == system


def test_answers_to_other_questions_are_passed_over(query):
    asking, _ = query(
        message(NLDEV | 6, attribute(66, b"\0"), sequence=9) + done(9),
        message(NLDEV | 6, attribute(66, b"\1")),
    )
    assert asking.system().mode == "shared"


def test_a_message_without_what_it_must_have_is_refused(query):
    asking, _ = query(message(NLDEV | 1, attribute(2, b"rxe0\0")) + done())
    with pytest.raises(RemoteProtocolError, match="DEV_INDEX"):
        asking.links()


@given(st.data())
def test_torn_or_altered_answers_are_typed_errors_or_values(data):
    body = RXE0 + u32(3, 1) + attribute(80, attribute(81, attribute(82, b"x\0") + u64(83, 1)))
    whole = bytearray(message(NLDEV | 17, body) + done())
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    torn = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        for _, content in rdmalink.parse(torn, 1):
            if content is not None:
                rdmalink._table([content], "STAT_HWCOUNTERS", "STAT_HWCOUNTER_ENTRY", "VALUE")
    except (RemoteProtocolError, OSError):
        return


@given(st.binary(max_size=200))
def test_any_bytes_are_typed_errors_or_values(data):
    try:
        list(rdmalink.parse(data, 1))
    except (RemoteProtocolError, OSError):
        return
