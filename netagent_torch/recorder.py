# SPDX-License-Identifier: Apache-2.0
"""Records what torch.distributed is asked for, by stepping into its process groups' methods.

All of torch.distributed's functions, of any version, end in a method of `ProcessGroup` that takes
tensors and returns a `Work`. So these are what is wrapped: also who imported a function by name
before is seen. Not seen is what C++ asks of a group by itself, as DistributedDataParallel's reducer
does.

There is as little code on the way of an operation as can be; what it costs:
`python -m tests.bench operators-cost`.
"""

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

from netagent_torch import form, names
from netagent_torch.ring import Ring

NOTHING = -1
COLLECTIVES = {
    "allreduce": ("all_reduce", 0),
    "allreduce_coalesced": ("all_reduce_coalesced", 0),
    "allgather": ("all_gather", 1),
    "allgather_coalesced": ("all_gather_coalesced", 1),
    "_allgather_base": ("all_gather_into_tensor", 1),
    "allgather_into_tensor_coalesced": ("all_gather_into_tensor_coalesced", 1),
    "reduce": ("reduce", 0),
    "reduce_scatter": ("reduce_scatter", 1),
    "_reduce_scatter_base": ("reduce_scatter_tensor", 1),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor_coalesced", 1),
    "broadcast": ("broadcast", 0),
    "gather": ("gather", 1),
    "scatter": ("scatter", 0),
    "alltoall": ("all_to_all", 1),
    "alltoall_base": ("all_to_all_single", 1),
    "all_gather_single": ("all_gather_into_tensor", 1),  # torch 2.15's names
    "all_gather_single_coalesced": ("all_gather_into_tensor_coalesced", 1),
    "reduce_scatter_single": ("reduce_scatter_tensor", 1),
    "reduce_scatter_single_coalesced": ("reduce_scatter_tensor_coalesced", 1),
    "all_to_all_single": ("all_to_all_single", 1),
    "gather_single": ("gather", 1),
    "barrier": ("barrier", NOTHING),
}
"""A group's methods, what torch.distributed calls them, and which argument is what a rank gives (of
a scatter what it gets, as only one rank gives)."""
PEERS = {"send": form.SEND, "recv": form.RECV, "recv_anysource": form.RECV}

MOST_OPEN = 4096
"""Most operations that nobody waited for yet; of older ones the end stays unknown. Chosen: a
pipeline has some dozens."""
MOST_MEMBERS = 8192
"""Most members of a group that are named. Chosen: they fit into a ring's lines."""
MOST_NAMES = 256
"""Most names of operations and spans; all others are one. Chosen: as many as agents take."""
OTHERS = "other"
COLLECTION_NS = 1_000_000
"""Nanoseconds from which on a collection of garbage is recorded. Chosen: young generations take
less, and delay nobody."""

_MISSING: Any = object()
"""An argument that was not given."""
_Known = tuple[int, dict[int, int], tuple[int, ...]]
"""A group's number, what was counted in it so far, and its members."""


class Recorder:
    """Between torch and a ring, from `install` to `remove`."""

    def __init__(self, ring: Ring, *, job: str = "job", every: int = 1) -> None:
        """Record one of `every` operations; the others are counted."""
        self.ring = ring
        self.step = form.NONE
        self._job, self._every = job, every
        self._groups: dict[int, _Known] = {}
        self._kept: dict[int, Any] = {}
        self._ops: dict[str, int] = {}
        self._open: dict[int, int] = {}
        self._before: list[tuple[Any, str, Any]] = []
        self._collecting_ns = 0
        self._introduced = 0

    def install(self) -> None:
        """Step into torch.distributed; groups made before or later are seen alike."""
        from torch.distributed import distributed_c10d  # noqa: PLC0415 - the job's own

        self._c10d: Any = distributed_c10d
        owner = self._c10d.ProcessGroup
        for method, (op, place) in COLLECTIVES.items():
            if hasattr(owner, method):
                made = self._collective(getattr(owner, method), self._op(op), place)
                self._set(owner, method, made)
        for method, kind in PEERS.items():
            number = self._op("send" if kind == form.SEND else "recv")
            self._set(owner, method, self._peer(getattr(owner, method), number, kind))
        work = self._c10d.Work
        self._set(work, "wait", self._waiting(work.wait))
        gc.callbacks.append(self._collected)

    def remove(self) -> None:
        """Leave torch as it was."""
        while self._before:
            owner, name, value = self._before.pop()
            setattr(owner, name, value)
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def describe(self, group: Any, kind: str) -> None:
        """Say what a group is for: ``dp``, ``pp``, ``tp``, ``ep``."""
        number = (self._groups.get(id(group)) or self._introduce(group))[0]
        if number < form.NO_GROUP:
            self.ring.say({"group": number, "kind": names.tidy(kind)})

    def span(self, name: str, kind: int, begun_ns: int, ended_ns: int, tag: int = 0) -> None:
        """Record something that is no communication; times are of the monotonic clock."""
        op = self._op(name)
        number = self._begin(begun_ns, 0, 0, form.NONE, op, form.NO_GROUP, kind, tag)
        self._end(number, begun_ns, ended_ns)

    def _op(self, name: str) -> int:
        number = self._ops.get(name)
        if number is None and len(self._ops) >= MOST_NAMES and name != OTHERS:
            return self._op(OTHERS)
        if number is None:
            number = self._ops[name] = len(self._ops)
            self.ring.say({"op": number, "name": names.tidy(name)})
        return number

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    # --- on the way of each operation ------------------------------------------------------

    def _begin(
        self, begun: int, nbytes: int, sequence: int, peer: int, op: int, group: int, kind: int,
        tag: int,
    ) -> int:  # fmt: skip
        return self.ring.add(
            form.Record(0, begun, 0, 0, nbytes, sequence, self.step, peer, op, group, kind, tag)
        )

    def _end(self, number: int, waited_ns: int, ended_ns: int) -> None:
        if number > self.ring.written - self.ring.capacity:  # its place is still its own
            at = self.ring.word_of(number) + form.WAITED_AT // 8
            self.ring.words[at] = waited_ns
            self.ring.words[at + 1] = ended_ns

    def _collective(self, inner: Callable[..., Any], op: int, place: int) -> Callable[..., Any]:
        # All that it needs is at hand as a local name, and what never changes is packed already:
        # a lookup costs as much as a write.
        groups, opened, now, ring = self._groups, self._open, time.monotonic_ns, self.ring
        introduce, every, leave_out = self._introduce, self._every, self.ring.leave_out
        nothing = _MISSING
        pack, target, words = form.BEGUN.pack_into, self.ring.map, self.ring.words
        capacity, start, size = ring.capacity, ring.records_at, form.RECORD_BYTES
        number_of, written, tails = ring.numbers.__next__, form.WRITTEN_AT // 8, dict[int, bytes]()
        of_first, most = place == 0, form.MOST_SEQUENCE

        def issue(
            group: Any, first: Any = nothing, second: Any = nothing, third: Any = nothing,
            *rest: Any, **named: Any,
        ) -> Any:  # fmt: skip
            begun = now()
            known = groups.get(id(group)) or introduce(group)
            counted = known[1]
            sequence = counted[-1] = counted[-1] + 1 & most
            if every > 1 and sequence % every:
                leave_out()
                return inner(group, *_given(first, second, third), *rest, **named)
            tensors = first if of_first else second if place > 0 else nothing
            try:  # nearly always a list of one tensor
                tensor = tensors[0]
                nbytes = (
                    tensor.numel() * tensor.element_size()
                    if tensors.__class__ is list and len(tensors) == 1
                    else _bytes(tensors)
                )
            except (AttributeError, TypeError, IndexError):
                nbytes = _bytes(tensors)
            tail = tails.get(known[0]) or tails.setdefault(
                known[0], form.TAIL.pack(form.NONE, op, known[0], form.COLLECTIVE, 0)
            )
            number = number_of()
            at = start + (number - 1) % capacity * size
            pack(target, at, number, begun, nbytes, sequence, self.step, tail)
            words[written] = ring.written = number
            if rest or named or second is nothing:
                work = inner(group, *_given(first, second, third), *rest, **named)
            elif third is nothing:
                work = inner(group, first, second)
            else:
                work = inner(group, first, second, third)
            if len(opened) > MOST_OPEN:
                opened.clear()
            opened[id(work)] = number
            return work

        return issue

    def _peer(self, inner: Callable[..., Any], op: int, kind: int) -> Callable[..., Any]:
        begin, groups, opened, now = self._begin, self._groups, self._open, time.monotonic_ns
        introduce, receives = self._introduce, kind == form.RECV

        def issue(group: Any, tensors: Any, *given: Any) -> Any:
            begun = now()
            number, counted, members = groups.get(id(group)) or introduce(group)
            place = given[0] if len(given) > 1 else -1  # from anybody: the tag alone
            peer = members[place] if 0 <= place < len(members) else -1
            key = 2 * peer + 2 + receives
            sequence = counted[key] = counted.get(key, 0) + 1 & form.MOST_SEQUENCE
            made = begin(
                begun, _bytes(tensors), sequence, peer, op, number, kind, given[-1] & 0xFFFF
            )
            work = inner(group, tensors, *given)
            if len(opened) > MOST_OPEN:
                opened.clear()
            opened[id(work)] = made
            return work

        return issue

    def _waiting(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        close, now, ring, words = self._open.pop, time.monotonic_ns, self.ring, self.ring.words
        capacity, size = ring.capacity, form.RECORD_BYTES // 8
        start = ring.word_of(1) + form.WAITED_AT // 8

        def wait(work: Any, *given: Any, **named: Any) -> Any:
            number = close(id(work), 0)
            if not number:
                return inner(work, *given, **named)
            waited = now()
            # What raises has no end.
            result = inner(work, *given, **named) if given or named else inner(work)
            if number > ring.written - capacity:  # its place is still its own
                at = start + (number - 1) % capacity * size
                words[at] = waited
                words[at + 1] = now()
            return result

        return wait

    # --- what happens once -----------------------------------------------------------------

    def _introduce(self, group: Any) -> _Known:
        c10d = self._c10d
        members = tuple(_members(c10d, group))
        rank, world = c10d.get_rank(), c10d.get_world_size()
        if not self._groups:
            self.ring.say({"job": self._job, "rank": rank, "world": world, "netns": names.netns()})
        number, key = min(self._introduced, form.NO_GROUP), id(group)
        self._introduced += 1
        known: _Known = (number, {-1: 0}, members)
        name = names.group_name(_number_of(c10d, group), members, world)
        told = {"group": number, "name": name, "size": len(members)}
        if number < form.NO_GROUP and not self.ring.say(
            {**told, "members": members[:MOST_MEMBERS]}
        ):
            self.ring.say(told)
        self._groups[key] = known
        # No reference of ours may keep a group that the job destroyed.
        self._kept[key] = weakref.ref(group, lambda _: self._groups.pop(key, None))
        return known

    def _collected(self, phase: str, _info: dict[str, int]) -> None:
        now_ns = time.monotonic_ns()
        if phase == "start":
            self._collecting_ns = now_ns
        elif self._collecting_ns and now_ns - self._collecting_ns >= COLLECTION_NS:
            self.span("garbage-collection", form.OTHER, self._collecting_ns, now_ns)


def _given(*values: Any) -> "tuple[Any, ...]":
    """Return the arguments that were given."""
    return tuple(each for each in values if each is not _MISSING)


def _bytes(tensors: Any) -> int:
    """Return the size of a tensor, or of those in lists of lists; 0 of anything else."""
    try:
        if tensors.__class__ is list and len(tensors) == 1:  # nearly always
            tensors = tensors[0]
        return tensors.numel() * tensors.element_size()  # type: ignore[no-any-return]
    except AttributeError:
        return _size(tensors)


def _size(tensor: Any) -> int:
    if isinstance(tensor, (list, tuple)):
        return sum(map(_size, tensor))
    try:
        return int(tensor.numel() * tensor.element_size())
    except (AttributeError, TypeError):  # what is to come
        return 0


def _members(c10d: Any, group: Any) -> list[int]:
    """Return a group's ranks in the world, by their rank in the group."""
    listing = getattr(c10d, "get_process_group_ranks", None)
    if listing is not None:
        return list(listing(group))
    by_rank = c10d._pg_group_ranks.get(group)  # noqa: SLF001 - torch 1 has no other way
    if not by_rank:
        return list(range(group.size()))
    return sorted(by_rank, key=by_rank.__getitem__)


def _number_of(c10d: Any, group: Any) -> str:
    """Return what torch itself calls a group; "" where it does not say."""
    held = getattr(c10d, "_pg_names", None)
    if held is None:
        held = getattr(getattr(c10d, "_world", None), "pg_names", {})
    try:
        return str(held.get(group, ""))
    except TypeError:
        return ""
