# SPDX-License-Identifier: Apache-2.0
"""Which functions are watched, of gloo, torch and NCCL, and what becomes of what they say.

Of NCCL it is the enqueueing by the host that is seen: when a rank asked, not how long it took.

What ranks send each other through gloo is watched where torch asks for it. gloo's own sends and
receives are what its collectives are made of, some hundred in each, and a probe costs its hit also
where a filter drops it. A transfer is asked for (who is the peer), made (which object stands for
it, how large, in which context), and waited for.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

LIBRARIES = ("libgloo.so", "libtorch_cpu.so", "libnccl.so", "librccl.so")
"""Beginnings of the names of libraries that have such functions."""
UNWATCHED = (
    "libnccl.so", "librccl.so", "libtorch_cuda", "libtorch_hip", "libtorch_xpu", "libmpi.so",
    "libmpi_cxx", "libucc.so", "libshmem",
)  # fmt: skip
"""Beginnings of the names of libraries by which a process may wait for others unseen: by what they
do not export, or for what returns at once. What they are to be left out for is who is slow."""
DATATYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""By ncclDataType_t of nccl.h: int8, uint8, int32, uint32, int64, uint64, float16, float32,
float64, bfloat16, float8e4m3, float8e5m2."""
MOST_RANKS = 1 << 20
STALLED_NS = 200_000_000
"""Nanoseconds after which a transfer that was asked for and not made stands for itself. Chosen: it
takes microseconds, unless the peer is gone, or does not take what it is sent."""
MOST_WORKS = 1 << 14
"""Most transfers that nobody waited for yet, of all processes. Chosen: a pipeline has dozens."""
ELEMENT_BYTES = frozenset({1, 2, 4, 8, 16})
"""Sizes that elements have: where gloo's options say another one, they are of another version."""


@dataclass(frozen=True, slots=True)
class Function:
    """One exported function."""

    symbol: str
    op: str
    kind: str = "collective"
    """``collective``, ``send`` or ``recv``."""
    role: str = "call"
    """``call``: all of an operation; of a transfer ``asks``, ``makes`` or ``waits``."""
    hidden: bool = False
    """Whether it returns an object in memory: x86_64 passes where as the first argument."""
    fetched: tuple[tuple[str, str], ...] = ()
    """(what, where): ``group``, ``place`` or ``later`` (rank and size in it), ``count``, ``size``
    or ``datatype``, ``peer``, ``tag``; of a transfer ``owner`` (torch's group), ``work`` (its
    object) and ``context`` (gloo's of its transport). Each is the number of an argument from 0, or
    ``+8(0)``: what is 8 bytes from where the first one points."""

    @property
    def gloo(self) -> bool:
        """Whether its group is a context of gloo's."""
        return self.symbol.startswith("_ZN")

    @property
    def leaves(self) -> bool:
        """Whether its end is watched as well."""
        return self.role in {"call", "waits"}


# A context begins with its rank and size in torch 2.15; in 1.13 (gloo 0.5) a pointer to its virtual
# functions is before them, which has no rank below a size in it.
_GLOO = (("group", "+0(0)"), ("place", "+8(+0(0))"), ("later", "+0(+0(0))"))
_GLOO_SIZES = (("count", "+80(0)"), ("size", "+88(0)"))


def _gloo(symbol: str, op: str, *more: tuple[str, str]) -> Function:
    return Function(symbol, op, fetched=(*_GLOO, *more))


def _nccl(
    name: str, op: str, comm: int | None, count: int = 2, kind: str = "collective"
) -> Function:
    group = (("group", str(comm)),) if comm is not None else ()
    sizes = (("count", str(count)), ("datatype", str(count + 1)))
    peer = (("peer", "3"),) if kind != "collective" else ()
    return Function(name, op, kind, fetched=(*group, *sizes, *peer))


_GROUP = "_ZN4c10d16ProcessGroupGloo"
_TENSORS = "ERSt6vectorIN2at6TensorESaIS3_EE"
_BUFFER = "ERN2at6TensorESt10unique_ptrIN4gloo9transport13UnboundBufferESt14default_deleteIS8_EE"
_WAIT = "4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"
# A buffer has its size behind a pointer to its virtual functions and its memory; gloo's over TCP
# has its context behind that.
_MADE = (("work", "0"), ("bytes", "+16(+0(2))"), ("context", "+24(+0(2))"))


_ASKED = (("owner", "0"), ("peer", "2"), ("tag", "3"))


def _torch(name: str, kind: str, role: str, *fetched: tuple[str, str]) -> Function:
    return Function(
        f"{_GROUP}{name}", kind, kind, role, hidden=role == "asks", fetched=fetched
    )  # fmt: skip


_PLACES = ("later", "place")

FUNCTIONS = (
    _gloo("_ZN4gloo9allreduceERKNS_16AllreduceOptionsE", "all_reduce", *_GLOO_SIZES),
    _gloo("_ZN4gloo9allgatherERNS_16AllgatherOptionsE", "all_gather"),
    _gloo("_ZN4gloo10allgathervERNS_17AllgathervOptionsE", "all_gather"),
    _gloo("_ZN4gloo8alltoallERNS_15AlltoallOptionsE", "all_to_all"),
    _gloo("_ZN4gloo9alltoallvERNS_16AlltoallvOptionsE", "all_to_all"),
    _gloo("_ZN4gloo7barrierERNS_14BarrierOptionsE", "barrier"),
    _gloo("_ZN4gloo9broadcastERNS_16BroadcastOptionsE", "broadcast"),
    _gloo("_ZN4gloo6gatherERNS_13GatherOptionsE", "gather"),
    _gloo("_ZN4gloo7gathervERNS_14GathervOptionsE", "gather"),
    _gloo("_ZN4gloo6reduceERNS_13ReduceOptionsE", "reduce"),
    _gloo("_ZN4gloo7scatterERNS_14ScatterOptionsE", "scatter"),
    _nccl("ncclAllReduce", "all_reduce", 5),
    _nccl("ncclReduce", "reduce", None),  # its communicator is the seventh: on the stack
    _nccl("ncclBroadcast", "broadcast", 5),
    _nccl("ncclAllGather", "all_gather", 4),
    _nccl("ncclReduceScatter", "reduce_scatter", 5),
    _nccl("ncclSend", "send", 4, 1, "send"),
    _nccl("ncclRecv", "recv", 4, 1, "recv"),
    _torch(f"4send{_TENSORS}ii", "send", "asks", *_ASKED),
    _torch(f"4recv{_TENSORS}ii", "recv", "asks", *_ASKED),
    _torch(f"13recvAnysource{_TENSORS}i", "recv", "asks", ("owner", "0"), ("tag", "2")),
    # Torch 2 has numbers of what was asked for.
    *(_torch(f"8SendWorkC1{_BUFFER}{more}", "send", "makes", *_MADE) for more in ("", "m")),
    *(
        _torch(f"8RecvWorkC1{_BUFFER}{more}", "recv", "makes", *_MADE)
        for more in ("PKc", "NS_6OpTypeEmPKc")
    ),
    _torch(f"8SendWork{_WAIT}", "send", "waits", ("work", "0")),
    _torch(f"8RecvWork{_WAIT}", "recv", "waits", ("work", "0")),
)
_WANTED = frozenset(
    (kind, role) for kind in ("send", "recv") for role in ("asks", "makes", "waits")
)
BY_SYMBOL = {each.symbol: each for each in FUNCTIONS}


def has_transfers(symbols: Iterable[str]) -> bool:
    """Return whether these functions of a library show all that it sends and receives."""
    functions = (BY_SYMBOL[each] for each in symbols if each in BY_SYMBOL)
    return {(each.kind, each.role) for each in functions} >= _WANTED


REGISTERS = {
    "x86_64": ("%di", "%si", "%dx", "%cx", "%r8", "%r9"),
    "aarch64": ("%x0", "%x1", "%x2", "%x3", "%x4", "%x5"),
}
"""By machine: where the first six arguments are (System V; AAPCS64)."""


def arguments(function: Function, machine: str) -> str:
    """Return the words by which a uprobe event fetches what is wanted (uprobetracer.rst)."""
    registers = REGISTERS[machine]
    words = []
    for what, where in function.fetched:
        number = where.rstrip(")")[-1]
        register = registers[int(number) + (function.hidden and machine == "x86_64")]
        place = where.replace(f"({number})", f"({register})")
        words.append(f"{what}={place if where != number else register}:u64")
    return " ".join(words)


class Hit(NamedTuple):
    """One time that a probe was hit."""

    time_ns: int
    tgid: int
    tid: int
    function: Function
    enters: bool
    values: tuple[int, ...] = ()
    """Of what is fetched, in that order."""


@dataclass(slots=True)
class Call:
    """What a process takes part in, and when it began."""

    tgid: int
    function: Function
    begun_ns: int
    group: int = 0
    """Address of the group's context or communicator; of a transfer, of the transport's context; 0:
    not known."""
    place: int = -1
    """The process' rank in the group; -1: not known."""
    size: int = 0
    """Ranks in the group; 0: not known."""
    bytes: int = 0
    peer: int = -1
    """Rank in the group; -1: not known, or any."""
    tag: int = 0
    waited_ns: int = 0
    """Since when the process waits for the end; 0: not yet."""
    ended_ns: int = 0
    """0: not yet."""
    lost: bool = False
    """Its end was not seen, and is not known."""
    record: int = 0
    """Its number where it is written down; 0: not yet."""
    written: bool = False
    """Whether its end is."""


def call_of(hit: Hit) -> Call:
    """Return what a hit at a function's beginning says."""
    said = _said(hit)
    size = said.get("size", 0)
    if "datatype" in said:
        number = said["datatype"]
        size = DATATYPE_BYTES[number] if number < len(DATATYPE_BYTES) else 0
    elif size not in ELEMENT_BYTES:
        size = 0
    count = said.get("count", 0)
    whole = count * size if count < 1 << 40 else 0
    places = [(said.get(name, 0) & 0xFFFF_FFFF, said.get(name, 0) >> 32) for name in _PLACES]
    place, members = next((each for each in places if each[0] < each[1] < MOST_RANKS), (0, 0))
    fits = members > 0
    return Call(
        hit.tgid, hit.function, hit.time_ns, said.get("group", 0), place if fits else -1,
        members if fits else 0, whole, _peer(said), waited_ns=hit.time_ns,
    )  # fmt: skip


def transfer_of(asked: Hit, made: Hit) -> Call:
    """Return the transfer that was asked for, and made on the same thread."""
    said, more = _said(asked), _said(made)
    size = more.get("bytes", 0)
    return Call(
        asked.tgid, asked.function, asked.time_ns, more.get("context", 0),
        bytes=size if size < 1 << 40 else 0, peer=_peer(said), tag=said.get("tag", 0) & 0xFFFF,
    )  # fmt: skip


def _said(hit: Hit) -> dict[str, int]:
    return dict(zip((what for what, _ in hit.function.fetched), hit.values, strict=False))


def _peer(said: Mapping[str, int]) -> int:
    peer = said.get("peer", -1) & 0xFFFF_FFFF  # an int: what else the register holds is not of it
    return peer if peer < MOST_RANKS else -1


@dataclass(slots=True)
class Pairing:
    """Joins beginnings and ends; hits come in the order of time."""

    open: dict[int, tuple[Function, Call]] = field(default_factory=dict)
    """By thread: each is in one function at a time."""
    asked: dict[int, Hit] = field(default_factory=dict)
    """By thread: the transfer that it just asked for."""
    stalled: dict[int, Call] = field(default_factory=dict)
    """By thread: the same, long ago."""
    works: dict[tuple[int, int], Call] = field(default_factory=dict)
    """Transfers that nobody has waited for yet, by process and object."""
    contexts: dict[tuple[int, int], int] = field(default_factory=dict)
    """In which context transfers of torch's groups were, by process and group."""

    def take(self, hits: Iterable[Hit]) -> list[Call]:
        """Return what began, was waited for or ended, a call at each of these."""
        changed: list[Call] = []
        for hit in hits:
            changed += self._entered(hit) if hit.enters else self._left(hit)
        return changed

    def _entered(self, hit: Hit) -> Iterator[Call]:
        if hit.function.role == "makes":
            yield from self._made(hit)
            return
        self.asked.pop(hit.tid, None)
        for before in (self.open.pop(hit.tid, (None, None))[1], self.stalled.pop(hit.tid, None)):
            if before is not None:  # it left that one, unseen
                before.lost = True
                yield before
        match hit.function.role:
            case "asks":
                self.asked[hit.tid] = hit
                return
            case "waits":
                # Of one that was asked for unseen it is known that its process waits, and no more.
                work = self.works.pop((hit.tgid, _said(hit)["work"]), None)
                call = work or Call(hit.tgid, hit.function, hit.time_ns)
                call.waited_ns = hit.time_ns
            case _:
                call = call_of(hit)
        self.open[hit.tid] = hit.function, call
        yield call

    def _made(self, hit: Hit) -> Iterator[Call]:
        asked, stalled = self.asked.pop(hit.tid, None), self.stalled.pop(hit.tid, None)
        if asked is not None and asked.function.kind == hit.function.kind:
            made = transfer_of(asked, hit)
            self._learn((hit.tgid, _said(asked)["owner"]), made.group)
        elif stalled is not None:
            made = stalled
        else:
            return
        key = hit.tgid, _said(hit)["work"]
        # Nobody waited for what was at this address before, or for the oldest of very many.
        gone = [self.works.pop(key, None)]
        if len(self.works) >= MOST_WORKS:
            gone.append(self.works.pop(next(iter(self.works))))
        for each in gone:
            if each is not None:
                each.waited_ns = each.ended_ns = hit.time_ns
                yield each
        self.works[key] = made
        yield made

    def _learn(self, owner: tuple[int, int], context: int) -> None:
        if owner not in self.contexts and len(self.contexts) >= MOST_WORKS:
            self.contexts.pop(next(iter(self.contexts)))
        self.contexts[owner] = context

    def stall(self, now_ns: int) -> list[Call]:
        """Return the transfers that were asked for long ago and not made, as by who died of it."""
        found = []
        for tid, asked in list(self.asked.items()):
            if asked.time_ns + STALLED_NS <= now_ns:
                del self.asked[tid]
                said = _said(asked)
                call = self.stalled[tid] = Call(
                    asked.tgid, asked.function, asked.time_ns,
                    self.contexts.get((asked.tgid, said["owner"]), 0), peer=_peer(said),
                    tag=said.get("tag", 0) & 0xFFFF, waited_ns=asked.time_ns,
                )  # fmt: skip
                found.append(call)
        return found

    def _left(self, hit: Hit) -> Iterator[Call]:
        function, call = self.open.pop(hit.tid, (None, None))
        if call is not None and function is hit.function:
            call.ended_ns = hit.time_ns
            yield call

    def lose(self) -> list[Call]:
        """Return the calls that may have ended unseen, as hits were shed."""
        gone = [*(call for _, call in self.open.values()), *self.works.values()]
        gone += self.stalled.values()
        for each in gone:
            each.lost = True
        self.open.clear()
        self.asked.clear()
        self.stalled.clear()
        self.works.clear()
        return gone
