# SPDX-License-Identifier: Apache-2.0
"""The door of libibverbs, through pyverbs (Debian's `python3-pyverbs`; PyPI's needs a compiler).

What pyverbs does badly is mended here: its objects know no file descriptors, so that those that the
kernel made are found in /proc; a read of an event blocks the whole interpreter, so those
descriptors never block; it never frees a work request, so that requests are made once and closed
once; it raises errors of its own, which leave here as OSError. Memory is ours (mmap), so that
frames are read and written without a call into pyverbs.
"""

import ctypes
import errno
import mmap
import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

from netagent.model.errors import CapabilityMissing
from netagent.probing.rdma.gids import Gid, canonical_gid, verbose_gid

REMEDY = "install python3-pyverbs of the distribution, with a venv that sees system site packages"
PORT = 1
"""Number of the port in use. Chosen: RoCE devices have one each, and dual-port cards show up as two
devices."""
ROCE_V2 = 2
"""GID type of RoCE v2: enum ibv_gid_type_sysfs and ibv_gid_type of libibverbs/verbs.h."""
FLUSHED = 5
"""Status IBV_WC_WR_FLUSH_ERR of libibverbs/verbs.h."""
GRH_BYTES = 40
"""Bytes before the payload of a UD receive, whether or not the packet had a GRH (InfiniBand
Architecture Specification)."""
LOOK_EVERY_NS = 5_000_000
"""Nanoseconds a stamped completion waits to be looked at. Chosen: nothing is late for it, since it
is stamped (docs/rdma.md)."""
PAGE_BYTES = mmap.PAGESIZE
HOP_LIMIT = 64
"""Hop limit of packets sent. Chosen: the kernel's default for IPv4 (IPDEFTTL)."""
_MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
"""enum ibv_mtu of libibverbs/verbs.h -> bytes."""
_PORT_ACTIVE = 4
"""Port state IBV_PORT_ACTIVE of libibverbs/verbs.h."""
_EVENTS_AT_ONCE = 64
"""Device events taken in one go. Chosen: a driver that floods does not hold up the agent."""
_MODULES = ("addr", "cq", "device", "enums", "fork", "mr", "pd", "pyverbs_error", "qp", "wr")
_opening = threading.Lock()


@cache
def load() -> SimpleNamespace:
    """Import pyverbs; raises CapabilityMissing where it is not installed."""
    try:
        modules = SimpleNamespace(**{m: import_module(f"pyverbs.{m}") for m in _MODULES})
    except ImportError as error:
        raise CapabilityMissing("RDMA", REMEDY) from error
    # The agent starts processes: a page of ours that a device writes to must not be copied away
    # by a fork (man 3 ibv_fork_init; kernels since 5.13 do not need it).
    with suppress(modules.pyverbs_error.PyverbsError):
        modules.fork.fork_init()
    return modules


@contextmanager
def _as_os_error(what: str) -> Iterator[None]:
    try:
        yield
    except load().pyverbs_error.PyverbsError as error:
        code = getattr(error, "error_code", None)
        number = code if isinstance(code, int) and code > 0 else errno.EIO
        raise OSError(number, f"{what}: {error}") from error


class Completion(Protocol):
    """What a completion queue gives back."""

    @property
    def wr_id(self) -> int:
        """The request's id."""

    @property
    def status(self) -> int:
        """0: done, FLUSHED: the queue pair is in error; see enum ibv_wc_status."""

    @property
    def byte_len(self) -> int:
        """Bytes received."""

    @property
    def src_qp(self) -> int:
        """Queue pair that sent what was received."""


class StampedCompletion(NamedTuple):
    """A completion with the wall clock of the device, in nanoseconds."""

    wr_id: int
    status: int
    byte_len: int
    src_qp: int
    wall_ns: int


class Device:
    """An open device: the context that everything else hangs on."""

    def __init__(self, name: str) -> None:
        modules = load()
        self.name = name
        with _opening:
            before = _event_descriptors()
            with _as_os_error(f"open {name}"):
                self.context = modules.device.Context(name=name)
            self.event_fd = _new_descriptor(before)
        node = os.fstat(self.context.cmd_fd).st_rdev
        self._sysfs = Path(f"/sys/dev/char/{os.major(node)}:{os.minor(node)}")
        with _as_os_error(f"query {name}"):
            self.vendor_id = int(self.context.query_device().vendor_id)

    def present(self) -> bool:
        """Return whether the device still exists.

        Soft-RoCE of kernel 6.1 sends its users no event when it is removed, and the removal waits
        until all have closed it: so they must look.
        """
        return self._sysfs.exists()

    def gids(self) -> list[Gid]:
        """Return the port's GID table, without empty entries."""
        with _as_os_error(f"GIDs of {self.name}"):
            length = self.context.query_port(PORT).gid_tbl_len
            entries = self.context.query_gid_table(length)
        return [
            Gid(int(e.gid_index), canonical_gid(e.gid_str()), int(e.gid_type), int(e.ndev_ifindex))
            for e in entries
            if e.port_num == PORT
        ]

    def active(self) -> bool:
        """Return whether the port is active."""
        with _as_os_error(f"port of {self.name}"):
            return bool(self.context.query_port(PORT).state == _PORT_ACTIVE)

    def mtu(self) -> int:
        """Return how many bytes one packet of the port carries after BTH and DETH."""
        with _as_os_error(f"port of {self.name}"):
            return _MTU_BYTES[self.context.query_port(PORT).active_mtu]

    def events(self) -> list[str]:
        """Return the events that wait, such as ``PORT_ERR``; never wait for one."""
        modules, names = load(), list[str]()
        waiting = select.poll()
        waiting.register(self.event_fd, select.POLLIN)
        while len(names) < _EVENTS_AT_ONCE and waiting.poll(0):
            try:
                event = self.context.get_async_event()
            except modules.pyverbs_error.PyverbsError:
                break
            names.append(_event_name(event.event_type))
            event.ack()
        return names

    def close(self) -> None:
        """Close it; what hangs on it must be closed before."""
        _close(self.context)


def _event_name(number: int) -> str:
    enums = vars(load().enums)
    prefix = "IBV_EVENT_"
    found = (n for n, v in enums.items() if n.startswith(prefix) and v == number)
    return next(found, f"{prefix}{number}").removeprefix(prefix)


def _event_descriptors() -> set[int]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself is gone by now
            if str(entry.readlink()) == "anon_inode:[infinibandevent]":
                found.add(int(entry.name))
    return found


def _new_descriptor(before: set[int]) -> int:
    (made,) = _event_descriptors() - before
    os.set_blocking(made, False)
    return made


def _close(*things: Any) -> None:
    # A device that is gone answers EIO; what it held is freed all the same.
    for thing in things:
        with suppress(load().pyverbs_error.PyverbsError):
            thing.close()


class Memory:
    """A protection domain and one registered region of ours."""

    def __init__(self, device: Device, length: int) -> None:
        modules = load()
        self.view = mmap.mmap(-1, length)
        self._anchor = ctypes.c_char.from_buffer(self.view)
        self._base = ctypes.addressof(self._anchor)
        with _as_os_error(f"memory of {device.name}"):
            self.domain = modules.pd.PD(device.context)
            try:
                self._region = modules.mr.MR(
                    self.domain, length, modules.enums.IBV_ACCESS_LOCAL_WRITE, address=self._base
                )
            except modules.pyverbs_error.PyverbsError:
                _close(self.domain)
                raise

    def piece(self, offset: int, length: int) -> Any:
        """Return a scatter-gather element; it must be closed once requests have copied it."""
        return load().wr.SGE(self._base + offset, length, self._region.lkey)

    def handle(self, gid_index: int, gid: str, *, label: int = 0) -> "Handle":
        """Make an address handle for `gid`; OSError where its neighbour does not answer.

        Resolves the neighbour, which takes a second where it is silent and holds up the whole
        interpreter: see `netagent.adapters.rdma.resolver`. `label` is the flow label, 20 bits.
        """
        modules = load()
        with _as_os_error(f"address handle for {gid}"):
            route = modules.addr.GlobalRoute(
                dgid=modules.addr.GID(verbose_gid(gid)),
                sgid_index=gid_index,
                hop_limit=HOP_LIMIT,
                flow_label=label,
            )
            attributes = modules.addr.AHAttr(gr=route, is_global=1, port_num=PORT)
            return Handle(modules.addr.AH(self.domain, attr=attributes))

    def close(self) -> None:
        """Unregister and unmap; queue pairs and handles must be closed before."""
        _close(self._region, self.domain)
        del self._anchor
        self.view.close()


class Handle:
    """An address handle."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def close(self) -> None:
        """Destroy it; no request that was posted with it may still wait."""
        _close(self.raw)


class CompletionQueue:
    """A completion queue, and a descriptor that is readable when it is time to poll it."""

    def __init__(
        self, device: Device, entries: int, *, waited_for: bool, stamped: bool = False
    ) -> None:
        """Raise OSError, also if `stamped` is set and the device has no timestamps."""
        modules = load()
        self.entries = entries
        self.stamped = stamped
        self._bell: _Channel | _Timer | None = None
        if waited_for:
            self._bell = _Timer() if stamped else _Channel(device)
        self.fd = self._bell.fd if self._bell else -1
        channel = self._bell.raw if isinstance(self._bell, _Channel) else None
        try:
            with _as_os_error(f"completion queue of {device.name}"):
                if stamped:
                    self.raw = _stamped_queue(device.context, entries)
                else:
                    self.raw = modules.cq.CQ(device.context, entries, None, channel, 0)
        except OSError:
            if self._bell is not None:
                self._bell.close()
            raise
        self.poll: Callable[[int], Sequence[Completion]]
        """Return what is complete, oldest first, at most the given number."""
        self.poll = self._poll_stamped if stamped else self._poll_plain

    def _poll_plain(self, limit: int) -> Sequence[Completion]:
        completions: Sequence[Completion] = self.raw.poll(limit)[1]
        return completions

    def _poll_stamped(self, limit: int) -> Sequence[Completion]:
        raw, found = self.raw, list[StampedCompletion]()
        if raw.start_poll(None):
            return found
        try:
            while True:
                wall_ns = raw.read_completion_wallclock_ns()
                found.append(
                    StampedCompletion(
                        raw.wr_id, raw.status, raw.read_byte_len(), raw.read_src_qp(), wall_ns
                    )
                )
                if len(found) >= limit or raw.poll_next():
                    return found
        finally:
            raw.end_poll()  # it holds a spin lock until then

    def hush(self) -> None:
        """Quieten the descriptor until `arm` and then an arrival."""
        if self._bell is not None:
            self._bell.hush(self.raw)

    def arm(self) -> None:
        """Have the descriptor report the next completion; poll afterwards. Raises OSError."""
        if self._bell is not None:
            self._bell.arm(self.raw)

    def close(self) -> None:
        """Destroy it; queue pairs must be closed before."""
        _close(self.raw)
        if self._bell is not None:
            self._bell.close()


class _Channel:
    """Rings when a completion arrives."""

    def __init__(self, device: Device) -> None:
        with _opening, _as_os_error(f"completion channel of {device.name}"):
            before = _event_descriptors()
            self.raw = load().cq.CompChannel(device.context)
            self.fd = _new_descriptor(before)
        self._error = load().pyverbs_error.PyverbsError

    # Plain try statements: these run once per wake-up.

    def hush(self, queue: Any) -> None:
        try:
            self.raw.get_cq_event(queue)
        except self._error:
            return  # none waits
        queue.ack_events(1)

    def arm(self, queue: Any) -> None:
        try:
            queue.req_notify()
        except self._error as error:
            raise OSError(errno.EIO, f"completion channel: {error}") from error

    def close(self) -> None:
        _close(self.raw)


class _Timer:
    """Rings some time after it was armed, whether or not something arrived.

    pyverbs (44 to 59) cannot wait for the extended completion queues that carry timestamps: no
    `req_notify`, and a channel is refused. What waits in one is late for nobody: it is stamped.
    """

    def __init__(self) -> None:
        # time.CLOCK_MONOTONIC is 1; TFD_NONBLOCK | TFD_CLOEXEC are O_NONBLOCK | O_CLOEXEC.
        self.fd = _libc().timerfd_create(1, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def hush(self, _queue: Any) -> None:
        with suppress(BlockingIOError):
            os.read(self.fd, 8)

    def arm(self, _queue: Any) -> None:
        once = (ctypes.c_long * 4)(0, 0, 0, LOOK_EVERY_NS)  # struct itimerspec
        _libc().timerfd_settime(self.fd, 0, ctypes.byref(once), None)

    def close(self) -> None:
        os.close(self.fd)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _stamped_queue(context: Any, entries: int) -> Any:
    modules = load()
    wanted = (
        modules.enums.IBV_WC_EX_WITH_BYTE_LEN
        | modules.enums.IBV_WC_EX_WITH_SRC_QP
        | modules.enums.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
    )
    return modules.cq.CQEX(context, modules.cq.CqInitAttrEx(cqe=entries, wc_flags=wanted))


class QueuePair:
    """A UD queue pair, ready to send."""

    def __init__(
        self,
        memory: Memory,
        queues: tuple[CompletionQueue, CompletionQueue],
        *,
        qkey: int,
        send_slots: int,
        receive_slots: int,
    ) -> None:
        modules = load()
        self._qkey = qkey
        """Which a sender must know."""
        capacity = modules.qp.QPCap(
            max_send_wr=send_slots,
            max_recv_wr=receive_slots,
            max_send_sge=2,
            max_recv_sge=2,
        )
        kind = modules.enums.IBV_QPT_UD
        with _as_os_error("queue pair"):
            # Only requests that ask for a completion get one.
            initial = modules.qp.QPInitAttr(
                qp_type=kind, scq=queues[0].raw, rcq=queues[1].raw, cap=capacity, sq_sig_all=0
            )
            self.raw = modules.qp.QP(memory.domain, initial, self._ready())
        self.qpn = int(self.raw.qp_num)
        self.post: Callable[[Any], None] = self.raw.post_send
        """Post a request that `address` made ready; raises a `refusal`."""

    def _ready(self) -> Any:
        attributes = load().qp.QPAttr(port_num=PORT)
        attributes.qkey, attributes.pkey_index, attributes.sq_psn = self._qkey, 0, 0
        return attributes

    def receive(self, chain: Sequence[Any]) -> None:
        """Post a chain of receive requests; raises OSError."""
        with _as_os_error("receive"):
            self.raw.post_recv(chain[0])

    def healthy(self) -> bool:
        """Return whether it can send and receive."""
        enums = load().enums
        with _as_os_error("query"):
            state = self.raw.query(enums.IBV_QP_STATE)[0].qp_state
        return bool(state == enums.IBV_QPS_RTS)

    def fail(self) -> None:
        """Put it into the error state, as a fault would."""
        self._move(load().enums.IBV_QPS_ERR)

    def reset(self) -> None:
        """Make it ready again from any state; what was posted is forgotten. Raises OSError."""
        self._move(load().enums.IBV_QPS_RESET)
        with _as_os_error("reset"):
            self.raw.to_rts(self._ready())

    def _move(self, state: int) -> None:
        modules = load()
        with _as_os_error("modify"):
            self.raw.modify(modules.qp.QPAttr(qp_state=state), modules.enums.IBV_QP_STATE)

    def close(self) -> None:
        """Destroy it."""
        _close(self.raw)


def refusal() -> type[Exception]:
    """Return what `QueuePair.post` raises where the device refuses."""
    error: type[Exception] = load().pyverbs_error.PyverbsError
    return error


def address(request: Any, handle: Handle, qpn: int, qkey: int) -> None:
    """Make `request` go to queue pair `qpn` behind `handle`."""
    request.set_wr_ud(handle.raw, qpn, qkey)


def send_request(wr_id: int, pieces: Sequence[Any], *, signalled: bool) -> Any:
    """Make a send request of `pieces`; close it exactly once."""
    modules = load()
    flags = modules.enums.IBV_SEND_SIGNALED if signalled else 0
    return modules.wr.SendWR(wr_id=wr_id, num_sge=len(pieces), sg=list(pieces), send_flags=flags)


def receive_chain(requests: Sequence[tuple[int, Sequence[Any]]]) -> list[Any]:
    """Make receive requests of (id, pieces), linked in order; close each exactly once."""
    modules, chain = load(), list[Any]()
    for wr_id, pieces in reversed(requests):
        following = chain[-1] if chain else None
        chain.append(
            modules.wr.RecvWR(wr_id=wr_id, num_sge=len(pieces), sg=list(pieces), next_wr=following)
        )
    return chain[::-1]
