# SPDX-License-Identifier: Apache-2.0
"""Looking a packet up in one flow table, as Open vSwitch's classifier does (`lib/classifier.c`).

Flows with the same mask form a subtable: a hash table by the masked fields, so a lookup costs one
probe per mask and not one comparison per flow (tuple space search). Subtables are tried from the
highest priority down, each stage by stage: metadata, L2, L3, L4. What was looked at on the way is
noted, bit by bit, for it decides how Open vSwitch words its datapath actions.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .actions import Conjunction, Plain
from .fields import FIELDS, applies, read
from .flow import Flow, Term
from .heap import only_growing
from .packet import SLOTS, STAGES, Header, Slots

_PREFIXES = ("ip_dst", "ip_src")
"""Fields with a prefix tree in every table, unless configured otherwise."""

_CONJ_ID, _PRESENT = SLOTS["conj_id"], SLOTS["tun_present"]
_TP_SRC, _TP_DST = SLOTS["tp_src"], SLOTS["tp_dst"]

Key = tuple[int, ...]


@dataclass(slots=True)
class Subtable:
    """Flows that share one mask."""

    mask: tuple[tuple[int, int], ...]
    """(slot, mask), in the order of slots."""

    ends: tuple[int, ...]
    """How many of `mask` each stage but the last covers; stages that add nothing are left out."""

    prefixes: tuple[int, ...]
    """For each field of `_PREFIXES` the length of the mask's prefix; 0 if it is none."""

    flows: dict[Key, list[Flow]] = field(default_factory=dict)
    """Flows by masked values; highest priority first."""

    stages: tuple[set[Key], ...] = ()
    top: int = -1
    """The highest priority in it."""

    ports_mask: int = 0
    """What of both L4 ports the mask covers, as one number of 32 bits."""

    ports: "Trie | None" = None


class Trie:
    """Which prefixes of one field a table has, to rule subtables out by few bits."""

    __slots__ = ("root", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.root: list[object] = [None, None, 0]
        """[child for bit 0, child for bit 1, number of flows that end here]."""

    def add(self, value: int, length: int) -> None:
        """Add a prefix of `length` bits."""
        node = self.root
        for n in range(length):
            bit = value >> (self.width - 1 - n) & 1
            if node[bit] is None:
                node[bit] = [None, None, 0]
            node = node[bit]  # type: ignore[assignment]
        node[2] += 1  # type: ignore[operator]

    def look_up(self, value: int) -> tuple[int, frozenset[int]]:
        """Return (bits that decide which prefixes match, lengths of those that do)."""
        node, lengths = self.root, set()
        if node[0] is None and node[1] is None:
            return 0, frozenset()
        for n in range(self.width):
            bit = value >> (self.width - 1 - n) & 1
            if node[2] and n:
                lengths.add(n)
            child = node[bit]
            if child is None:
                leaf = node[not bit] is None
                return (n if leaf else n + 1), frozenset(lengths)
            node = child  # type: ignore[assignment]
        if node[2]:
            lengths.add(self.width)
        return self.width, frozenset(lengths)


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup found."""

    flow: Flow | None
    """The flow that matches; None for a miss."""

    doubt: str = ""
    """Why that is uncertain; empty if it is not."""

    parts: tuple[Flow, ...] = ()
    """The flows that are the conditions of a conjunctive match; empty for other matches."""


@dataclass(slots=True)
class _Prefix:
    """What one prefix tree says of a packet; asked once per lookup."""

    bits: int
    lengths: frozenset[int]
    everything: bool


class Table:
    """The flows of one table, indexed."""

    def __init__(self, flows: Iterable[Flow] = ()) -> None:
        self.flows: list[Flow] = []
        self._subtables: dict[tuple[tuple[int, int], ...], Subtable] = {}
        self._order: list[Subtable] | None = None
        self._tries = tuple(Trie(32) for _ in _PREFIXES)
        self._doubtful: list[Flow] = []
        with only_growing():
            for flow in flows:
                self.add(flow)

    @property
    def subtables(self) -> list[Subtable]:
        """All subtables, the one with the highest priority first."""
        if self._order is None:
            self._order = sorted(self._subtables.values(), key=lambda table: -table.top)
        return self._order

    def add(self, flow: Flow) -> None:
        """Add one flow."""
        self.flows.append(flow)
        if flow.match.unknown:
            self._doubtful.append(flow)
            return
        tests = flow.match.tests
        mask = tuple((slot, bits) for slot, _, bits in tests)
        subtable = self._subtables.get(mask)
        if subtable is None:
            subtable = self._subtables[mask] = _subtable(mask)
            self._order = None
        key = tuple(value for _, value, _ in tests)
        same = subtable.flows.get(key)
        if same is None:
            subtable.flows[key] = [flow]
        else:
            same.append(flow)
            same.sort(key=lambda one: -one.priority)
        for stage, end in zip(subtable.stages, subtable.ends, strict=True):
            stage.add(key[:end])
        if flow.priority > subtable.top:
            subtable.top = flow.priority
            self._order = None
        self._add_prefixes(subtable, key)

    def _add_prefixes(self, subtable: Subtable, key: Key) -> None:
        for trie, slot, length in zip(self._tries, _TRIE_SLOTS, subtable.prefixes, strict=True):
            if length:
                position = next(n for n, (at, _) in enumerate(subtable.mask) if at == slot)
                trie.add(key[position], length)
        if subtable.ports is not None:
            subtable.ports.add(_ports(subtable, key), _ports_length(subtable.ports_mask))

    def look_up(self, flow: Slots | Header, looked: Slots | None = None) -> Found:
        """Find the flow of highest priority that matches; note in `looked` the bits that decided.

        Of two flows of one priority Open vSwitch takes that whose mask it looks at first, and it
        dumps masks in that order. A field that is not understood may or may not match: a doubt.
        """
        found = self._look_up(
            flow if isinstance(flow, list) else list(flow), looked, conjunctive=True
        )
        best = found.flow.priority if found.flow else -1
        for doubtful in self._doubtful:
            if doubtful.priority >= best and _holds(doubtful, flow):
                what = doubtful.match.unknown[0]
                reason = f"field not understood (column {what.column}): {what.text}"
                return Found(doubtful, reason)
        return found

    def matching(self, packet: Slots | Header) -> list[Flow]:
        """Return every flow whose match the packet meets, the highest priority first."""
        found = [
            flow
            for subtable in self.subtables
            for flow in subtable.flows.get(
                tuple([packet[slot] & bits for slot, bits in subtable.mask]), ()
            )
        ]
        return sorted(found, key=lambda flow: -flow.priority)

    def _look_up(self, flow: Slots, looked: Slots | None, *, conjunctive: bool) -> Found:
        hard: Flow | None = None
        soft: list[list[Flow]] = []
        prefixes: list[_Prefix | None] = [None] * len(_PREFIXES)
        for subtable in self.subtables:
            if hard and subtable.top <= hard.priority:
                break
            same = self._find(subtable, flow, looked, prefixes)
            if not same or (hard and same[0].priority <= hard.priority):
                continue
            if not is_condition(same[0]):
                hard = same[0]
            elif conjunctive:
                soft.append(same)
        if soft:
            found = self._conjunction(flow, looked, soft, hard)
            if found is not None:
                return found
        return Found(hard)

    def _find(
        self,
        subtable: Subtable,
        flow: Slots,
        looked: Slots | None,
        prefixes: list[_Prefix | None],
    ) -> list[Flow] | None:
        """Find in one subtable the flows, highest priority first, whose match `flow` meets."""
        mask = subtable.mask
        key = tuple([flow[slot] & bits for slot, bits in mask])
        if looked is None:
            return subtable.flows.get(key)
        start = 0
        for stage, end in zip(subtable.stages, subtable.ends, strict=True):
            if self._ruled_out(subtable, start, end, flow, looked, prefixes):
                _note(looked, mask, start)
                return None
            start = end
            if key[:end] not in stage:
                _note(looked, mask, end)
                return None
        if self._ruled_out(subtable, start, len(mask), flow, looked, prefixes):
            _note(looked, mask, start)
            return None
        same = subtable.flows.get(key)
        if same is None and subtable.ports is not None:
            _note_ports(subtable, key, looked)
            return None
        _note(looked, mask, len(mask))
        return same

    def _ruled_out(
        self,
        subtable: Subtable,
        start: int,
        end: int,
        flow: Slots,
        looked: Slots,
        prefixes: list[_Prefix | None],
    ) -> bool:
        """Tell whether the prefix trees say that no flow of the subtable can match."""
        for n, (slot, length) in enumerate(zip(_TRIE_SLOTS, subtable.prefixes, strict=True)):
            if not length or not any(at == slot for at, _ in subtable.mask[start:end]):
                continue
            known = prefixes[n]
            if known is None:
                known = prefixes[n] = self._prefix(n, flow)
            if known.everything or length in known.lengths:
                continue
            bits = (1 << 32) - (1 << 32 - known.bits)
            if known.bits <= length:
                looked[slot] |= bits
                return True
            if looked[slot] & bits == bits:
                return True
        return False

    def _prefix(self, n: int, flow: Slots) -> _Prefix:
        if not applies(FIELDS[_PREFIXES[n]], flow):
            return _Prefix(0, frozenset(), everything=True)
        bits, lengths = self._tries[n].look_up(flow[_TRIE_SLOTS[n]])
        return _Prefix(bits, lengths, everything=False)

    def _conjunction(
        self, flow: Slots, looked: Slots | None, soft: list[list[Flow]], hard: Flow | None
    ) -> Found | None:
        """Look for conjunctive matches among the conditions that hold, highest priority first."""
        floor = hard.priority if hard else -1
        while soft := [same for same in soft if same and same[0].priority > floor]:
            top = max(same[0].priority for same in soft)
            at_top = [same[0] for same in soft if same[0].priority == top]
            for number in _complete(at_top):
                saved, flow[_CONJ_ID] = flow[_CONJ_ID], number
                found = self._look_up(flow, looked, conjunctive=False)
                flow[_CONJ_ID] = saved
                if found.flow:
                    parts = [one for one in at_top if any(c.id == number for c in _conditions(one))]
                    return Found(found.flow, found.doubt, tuple(parts))
            soft = [same[1:] if same[0].priority == top else same for same in soft]
            for same in soft:
                if same and not is_condition(same[0]) and same[0].priority > floor:
                    hard, floor = same[0], same[0].priority
        return Found(hard) if hard else None


def _subtable(mask: tuple[tuple[int, int], ...]) -> Subtable:
    ends: list[int] = []
    for boundary in STAGES:
        end = sum(slot < boundary for slot, _ in mask)
        if end > (ends[-1] if ends else 0):
            ends.append(end)
    if ends and ends[-1] == len(mask):
        ends.pop()  # the last stage's fields are those of the whole
    by_slot = dict(mask)
    prefixes = tuple(_prefix_length(by_slot.get(slot, 0)) for slot in _TRIE_SLOTS)
    ports = by_slot.get(_TP_SRC, 0) << 16 | by_slot.get(_TP_DST, 0)
    trie = Trie(32) if ports else None
    stages = tuple(set[Key]() for _ in ends)
    return Subtable(mask, tuple(ends), prefixes, stages=stages, ports_mask=ports, ports=trie)


_TRIE_SLOTS = tuple(FIELDS[name].parts[0].slot for name in _PREFIXES)


def _prefix_length(mask: int) -> int:
    """Return the length of a mask that is a prefix of 32 bits, 0 for any other."""
    inverted = ~mask & 0xFFFFFFFF
    return 32 - inverted.bit_length() if not inverted & inverted + 1 else 0


def _ports_length(mask: int) -> int:
    return 32 - ((mask & -mask).bit_length() - 1)


def _ports(subtable: Subtable, key: Key) -> int:
    values = {slot: key[n] for n, (slot, _) in enumerate(subtable.mask)}
    return values.get(_TP_SRC, 0) << 16 | values.get(_TP_DST, 0)


def _note(looked: Slots, mask: Sequence[tuple[int, int]], end: int) -> None:
    for slot, bits in mask[:end]:
        looked[slot] |= bits


def _note_ports(subtable: Subtable, key: Key, looked: Slots) -> None:
    """Note only as many bits of the ports as show that no flow has them."""
    bits = subtable.ports.look_up(_ports(subtable, key))[0] if subtable.ports else 0
    ports = subtable.ports_mask & (1 << 32) - (1 << 32 - bits)
    before = looked[_TP_SRC], looked[_TP_DST]
    _note(looked, subtable.mask, len(subtable.mask))
    looked[_TP_SRC], looked[_TP_DST] = before[0] | ports >> 16, before[1] | ports & 0xFFFF


def _conditions(flow: Flow) -> list[Conjunction]:
    return [action for action in flow.actions if isinstance(action, Conjunction)]


def covers(one: Flow, other: Flow) -> bool:
    """Tell whether `one`, being of higher priority, leaves `other` no packet."""
    if one.priority <= other.priority or one.match.unknown or is_condition(one):
        return False
    tests = {slot: (value, mask) for slot, value, mask in other.match.tests}
    return all(
        slot in tests and tests[slot][1] & mask == mask and tests[slot][0] & mask == value
        for slot, value, mask in one.match.tests
    )


def is_condition(flow: Flow) -> bool:
    """Tell whether a flow is a condition of a conjunctive match rather than a match."""
    return "conjunction(" in flow.text and bool(_conditions(flow))


def _complete(flows: Sequence[Flow]) -> Iterator[int]:
    """Yield the conjunctions of which every clause holds, in the order in which they do.

    Where several hold Open vSwitch takes the first, in the order of the masks as it dumps them.
    """
    clauses: dict[int, set[int]] = {}
    for flow in flows:
        for condition in _conditions(flow):
            if condition.clauses > len(flows):
                continue
            held = clauses.setdefault(condition.id, set())
            held.add(condition.clause)
            if len(held) == condition.clauses:
                yield condition.id
                break


def _holds(flow: Flow, packet: Slots | Header) -> bool:
    return all(packet[slot] & mask == value for slot, value, mask in flow.match.tests)


# --- which came nearest --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Near:
    """A flow that does not match, and the fields that it fails by."""

    flow: Flow
    failed: tuple[str, ...]


def nearest(flows: Iterable[Flow], packet: Slots | Header) -> Near | None:
    """Return the flow that fails by the fewest fields, of these the one of highest priority.

    Flows that match everything come near everything; they are passed over, as those that match. A
    flow that drops is seldom what a packet was meant for: it comes after those that do not.
    """
    best: Near | None = None
    rank = (1 << 30, True, 0)
    for flow in flows:
        failed = tuple(term.field for term in flow.match.terms if not _term_holds(term, packet))
        if failed and (mine := (len(failed), _drops(flow), -flow.priority)) < rank:
            best, rank = Near(flow, failed), mine
    return best


def _drops(flow: Flow) -> bool:
    return all(action == _DROP for action in flow.actions)


_DROP = Plain("drop")


def _term_holds(term: Term, packet: Slots | Header) -> bool:
    what = FIELDS[term.field]
    is_there = packet[_PRESENT] & what.present == what.present  # an absent option is not zero
    return is_there and read(what, packet) & term.mask == term.value
