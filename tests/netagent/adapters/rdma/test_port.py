# SPDX-License-Identifier: Apache-2.0
"""When a port says that packets arrived, on a completion queue that is made up."""

from itertools import accumulate
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters.rdma import port as module
from netagent.adapters.rdma.port import CHUNK, RdmaPort
from netagent.probing.rdma.rings import ReceiveRing

SLOTS = 256
BATCH = module._BATCH


class Bell:
    """A completion queue; every look at the clock or at the queue takes a nanosecond."""

    entries = SLOTS

    def __init__(self) -> None:
        self.now_ns = 1000
        self.waiting: list[tuple[int, int]] = []
        """(arrival, status)."""
        self.due: list[tuple[int, int]] = []
        self.is_armed, self.rings = True, False
        self.slot = 0

    def tick(self) -> int:
        self.now_ns += 1
        while self.due and self.due[0][0] <= self.now_ns:
            self.waiting.append(self.due.pop(0))
            self.rings, self.is_armed = self.rings or self.is_armed, False
        return self.now_ns

    def poll(self, limit: int) -> list[SimpleNamespace]:
        self.tick()
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        found = []
        for _, status in taken:
            found.append(SimpleNamespace(wr_id=self.slot, status=status, byte_len=64, src_qp=1))
            self.slot = (self.slot + 1) % SLOTS
        return found

    def hush(self) -> None:
        self.tick()
        self.rings = False

    def arm(self) -> None:
        self.tick()
        self.is_armed = True


@pytest.fixture
def port(monkeypatch) -> RdmaPort:
    return made(Bell(), monkeypatch)


def made(bell: Bell, monkeypatch) -> RdmaPort:
    port = object.__new__(RdmaPort)
    port.arrivals = bell
    port.broken, port.active = None, False
    port._receive_slots, port._packets, port._view = SLOTS, 0, bytes(SLOTS * 128)
    port._backlog, port._spent, port._suspects = [], False, False
    queue = SimpleNamespace(
        index=0, failed=False, mended_ns=0, receives=ReceiveRing(SLOTS, chunk=CHUNK),
        chains=list(range(SLOTS // CHUNK)), pair=SimpleNamespace(receive=lambda _: None),
    )  # fmt: skip
    port._queues = [queue]
    monkeypatch.setattr(module, "wall_ns", bell.tick)
    monkeypatch.setattr(module, "now_ns", bell.tick)
    return port


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from([0, 0, 0, module.verbs.FLUSHED])),
        max_size=40,
    )
)
def test_no_stamp_is_earlier_than_its_arrival(gaps):
    with pytest.MonkeyPatch.context() as monkeypatch:
        bell = Bell()
        port = made(bell, monkeypatch)
        gaps_ns, statuses = [gap_ns for gap_ns, _ in gaps], [status for _, status in gaps]
        due_ns = [bell.now_ns + total_ns for total_ns in accumulate(gaps_ns)]
        bell.due = list(zip(due_ns, statuses, strict=True))
        arrivals = [at for at, status in bell.due if status == 0]
        stamped = []
        while bell.due or bell.waiting or bell.rings:
            if not bell.rings:
                bell.tick()
                continue
            stamped += [each.wall_ns for each in port.read(bell.tick())]
        assert all(stamp >= at for stamp, at in zip(stamped, arrivals, strict=True))


def test_what_rang_is_stamped_with_the_wake_up_and_the_rest_as_it_is_polled(port):
    bell = port.arrivals
    bell.due = [(bell.now_ns + 1, 0), (bell.now_ns + 2, 0)]
    bell.tick()
    woken_ns = bell.tick()
    first, second = (each.wall_ns for each in port.read(woken_ns))
    assert first == woken_ns
    assert second > woken_ns


def test_a_bell_that_rings_for_what_was_taken_stamps_nothing(port):
    bell = port.arrivals
    bell.due = [(bell.now_ns + 1, 0)]
    bell.tick()
    port.take()  # of one who polls: the bell still rings
    assert bell.rings
    woken_ns = bell.tick()
    bell.due = [(woken_ns + 1, 0)]
    (late,) = port.read(woken_ns)
    assert late.wall_ns > woken_ns


def test_a_flood_loses_nothing_that_was_polled(port):
    bell = port.arrivals
    bell.waiting = [(bell.now_ns, 0)] * (20 * BATCH)
    taken = 0
    for _ in range(20):
        taken += len(port.take())
        assert taken == 20 * BATCH - len(bell.waiting)
