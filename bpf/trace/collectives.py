# SPDX-License-Identifier: Apache-2.0
"""Which functions of gloo and NCCL are watched, what their arguments say, and what becomes of it.

Of NCCL it is the enqueueing by the host that is seen: when a rank asked, not how long it took.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

LIBRARIES = ("libgloo.so", "libtorch_cpu.so", "libnccl.so", "librccl.so")
"""Beginnings of the names of libraries that have such functions."""
DATATYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""By ncclDataType_t of nccl.h: int8, uint8, int32, uint32, int64, uint64, float16, float32,
float64, bfloat16, float8e4m3, float8e5m2."""
MOST_RANKS = 1 << 20
ELEMENT_BYTES = frozenset({1, 2, 4, 8, 16})
"""Sizes that elements have: where gloo's options say another one, they are of another version."""


@dataclass(frozen=True, slots=True)
class Function:
    """One exported function."""

    symbol: str
    op: str
    kind: str = "collective"
    """``collective``, ``send`` or ``recv``."""
    fetched: tuple[tuple[str, str], ...] = ()
    """(what, where): ``group``, ``place`` or ``later`` (rank and size in it), ``count``, ``size``
    or ``datatype``, ``peer``; each is the number of an argument from 0, or ``+8(0)``: what is 8
    bytes from where the first one points."""


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
    return Function(name, op, kind, (*group, *sizes, *peer))


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
)
BY_SYMBOL = {each.symbol: each for each in FUNCTIONS}

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
        place = where.replace(f"({number})", f"({registers[int(number)]})")
        words.append(f"{what}={place if where != number else registers[int(number)]}:u64")
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
    """A call that began."""

    tgid: int
    function: Function
    begun_ns: int
    group: int = 0
    """Address of the group's context or communicator; 0: not known."""
    place: int = -1
    """The process' rank in the group; -1: not known."""
    size: int = 0
    """Ranks in the group; 0: not known."""
    bytes: int = 0
    peer: int = -1
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
    said = dict(zip((what for what, _ in hit.function.fetched), hit.values, strict=False))
    size = said.get("size", 0)
    if "datatype" in said:
        number = said["datatype"]
        size = DATATYPE_BYTES[number] if number < len(DATATYPE_BYTES) else 0
    elif size not in ELEMENT_BYTES:
        size = 0
    count = said.get("count", 0)
    whole = count * size if count < 1 << 40 else 0
    peer = said.get("peer", -1)
    places = [(said.get(name, 0) & 0xFFFF_FFFF, said.get(name, 0) >> 32) for name in _PLACES]
    place, members = next((each for each in places if each[0] < each[1] < MOST_RANKS), (0, 0))
    fits = members > 0
    return Call(
        hit.tgid, hit.function, hit.time_ns, said.get("group", 0), place if fits else -1,
        members if fits else 0, whole, peer if -1 <= peer < MOST_RANKS else -1,
    )  # fmt: skip


@dataclass(slots=True)
class Pairing:
    """Joins beginnings and ends; hits come in the order of time."""

    open: dict[int, Call] = field(default_factory=dict)
    """By thread: each is in one function at a time."""

    def take(self, hits: Iterable[Hit]) -> list[Call]:
        """Return what began or ended, a call at each of the two."""
        changed = []
        for hit in hits:
            before = self.open.pop(hit.tid, None)
            if hit.enters:
                if before is not None:  # it left that one, unseen
                    before.lost = True
                    changed.append(before)
                call = self.open[hit.tid] = call_of(hit)
                changed.append(call)
            elif before is not None and before.function is hit.function:
                before.ended_ns = hit.time_ns
                changed.append(before)
        return changed

    def lose(self) -> list[Call]:
        """Return the calls that may have ended unseen, as hits were shed."""
        gone = list(self.open.values())
        for each in gone:
            each.lost = True
        self.open.clear()
        return gone
