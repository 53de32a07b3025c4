# SPDX-License-Identifier: Apache-2.0
"""What needs no device: a host without pyverbs, and completions with timestamps."""

import errno
import os
import select
from pathlib import Path
from types import SimpleNamespace

import pytest

from netagent.adapters.rdma import verbs
from netagent.model.errors import CapabilityMissing


class FakeError(Exception):
    def __init__(self, text, code=None):
        super().__init__(text)
        self.error_code = code


class FakeQueue:
    """An extended completion queue, as pyverbs has it."""

    def __init__(self, completions):
        self._waiting = list(completions)
        self._now = None
        self.locked = False

    def start_poll(self, attributes):
        assert not self.locked
        assert attributes is None
        if not self._waiting:
            return errno.ENOENT
        self.locked = True
        self._now = self._waiting.pop(0)
        return 0

    def poll_next(self):
        assert self.locked
        if not self._waiting:
            return errno.ENOENT
        self._now = self._waiting.pop(0)
        return 0

    def end_poll(self):
        assert self.locked
        self.locked = False

    wr_id = property(lambda self: self._now[0])
    status = property(lambda self: self._now[1])

    def read_byte_len(self):
        return self._now[2]

    def read_src_qp(self):
        return self._now[3]

    def read_completion_wallclock_ns(self):
        return self._now[4]


@pytest.fixture
def library(monkeypatch):
    made = SimpleNamespace(
        pyverbs_error=SimpleNamespace(PyverbsError=FakeError),
        enums=SimpleNamespace(
            IBV_EVENT_PORT_ERR=10,
            IBV_WC_EX_WITH_BYTE_LEN=1,
            IBV_WC_EX_WITH_SRC_QP=4,
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK=2048,
        ),
        cq=SimpleNamespace(CqInitAttrEx=lambda **how: how),
    )
    monkeypatch.setattr(verbs, "load", lambda: made)
    return made


def stamped(library, completions, *, waited_for=False):
    raw = FakeQueue(completions)
    library.cq.CQEX = lambda context, attributes: raw
    device = SimpleNamespace(name="mlx5_0", context=None)
    return verbs.CompletionQueue(device, 64, waited_for=waited_for, stamped=True), raw


def test_a_host_without_pyverbs_lacks_a_capability(monkeypatch):
    def absent(name):
        raise ImportError(name)

    verbs.load.cache_clear()
    monkeypatch.setattr(verbs, "import_module", absent)
    with pytest.raises(CapabilityMissing) as caught:
        verbs.Device("mlx5_0")
    assert caught.value.capability == "RDMA"
    assert "python3-pyverbs" in caught.value.remedy
    verbs.load.cache_clear()


def test_stamped_completions_are_taken_in_batches(library):
    rows = [(n, 0, 64 + n, 17, 1000 + n) for n in range(5)]
    queue, raw = stamped(library, rows)
    assert list(queue.poll(2)) == rows[:2]
    assert list(queue.poll(64)) == rows[2:]
    assert list(queue.poll(64)) == []
    assert not raw.locked


def test_a_stamped_queue_lets_its_lock_go_whatever_happens(library):
    queue, raw = stamped(library, [(0, 0, 64, 17, 1000)])
    raw.read_byte_len = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        queue.poll(1)
    assert not raw.locked


def test_a_stamped_queue_rings_by_the_clock(library):
    queue, raw = stamped(library, [], waited_for=True)
    raw.close = lambda: None
    assert select.select([queue.fd], [], [], 0)[0] == []
    queue.arm()
    assert select.select([queue.fd], [], [], 30)[0] == [queue.fd]
    queue.hush()
    queue.hush()  # nothing rang: it does not wait
    assert select.select([queue.fd], [], [], 0)[0] == []
    queue.close()
    with pytest.raises(OSError):
        os.fstat(queue.fd)


def test_a_device_without_timestamps_says_so_and_leaves_no_descriptor(library):
    def refuse(context, attributes):
        raise FakeError("no", errno.EOPNOTSUPP)

    library.cq.CQEX = refuse
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError) as caught:
        verbs.CompletionQueue(
            SimpleNamespace(name="rxe0", context=None), 64, waited_for=True, stamped=True
        )
    assert caught.value.errno == errno.EOPNOTSUPP
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_errors_of_pyverbs_leave_as_os_errors(library):
    with pytest.raises(OSError, match="what: no") as caught, verbs._as_os_error("what"):
        raise FakeError("no", errno.ENOMEM)
    assert caught.value.errno == errno.ENOMEM
    with pytest.raises(OSError) as caught, verbs._as_os_error("what"):
        raise FakeError("no", -1)
    assert caught.value.errno == errno.EIO


def test_events_have_the_names_of_ibverbs(library):
    assert verbs._event_name(10) == "PORT_ERR"
    assert verbs._event_name(99) == "99"
