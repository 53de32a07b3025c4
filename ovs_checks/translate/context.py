# SPDX-License-Identifier: Apache-2.0
"""The state of one translation, and what every part of it does to that state.

Follows `struct xlate_ctx` of Open vSwitch's `ofproto-dpif-xlate.c`, whose order of events decides
what comes out. The flow, the base (the packet as the datapath has it so far) and the mask of what
was looked at are lists by slot; `commit` closes the gap between the first two.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from netagent.model.walk import EndKind
from ovs_checks.openflow.actions import Action, Nat, ToController
from ovs_checks.openflow.flow import Flow
from ovs_checks.openflow.packet import (
    ETH_DST,
    ETH_IPV6,
    IPV6_DST,
    NO_TARGET,
    NW_DST,
    SLOTS,
    Header,
    Slots,
    dl_type,
)
from ovs_checks.switch.snapshot import Bridge, Features, Port, Snapshot

from .datapath import Step, size_of
from .ends import End, Quote

MAX_DEPTH = 64
"""Lookups within lookups at which Open vSwitch drops the packet (`MAX_DEPTH`,
ofproto-dpif-xlate.c)."""
MAX_RESUBMITS = 4096
"""Lookups of one packet at which Open vSwitch drops it (`MAX_RESUBMITS`, ofproto-dpif-xlate.c)."""

MAX_COPIES = 8192
"""Copies of a packet that fit into the 64 KiB that Open vSwitch allows for its datapath actions, at
eight bytes each."""

MAX_STACK_BYTES = 65536
"""Bytes of the stack of `push` at which Open vSwitch drops the packet
(`xlate_resubmit_resource_check()`)."""
MAX_STEPS_BYTES = 65535
"""Bytes of datapath actions beyond which Open vSwitch stops looking up
(`xlate_resubmit_resource_check()`)."""

NodeKind = Literal["bridge", "table", "action", "detail", "warn", "error", "bucket", "thaw"]


@dataclass(slots=True)
class Node:
    """A line of the tree that shows what happened."""

    kind: NodeKind
    text: str
    flow: Flow | None = None
    inner: "list[Node]" = field(default_factory=list)

    @property
    def terminal(self) -> bool:
        """Whether the line says what was done, rather than where."""
        return self.kind not in {"bridge", "table", "thaw"}


class UnknownMet(Exception):
    """Something decides that is not understood; nothing after it is certain."""

    def __init__(self, end: End) -> None:
        super().__init__(end.reason)
        self.end = end


@dataclass(frozen=True, slots=True)
class Frozen:
    """What a packet takes along when the datapath looks it up again."""

    bridge: str
    table: int
    flow: Header
    stack: tuple[tuple[int, int], ...]
    actions: tuple[Action, ...]
    action_set: tuple[Action, ...]
    conntracked: bool
    was_mpls: bool
    mirrors: frozenset[str]


@dataclass(frozen=True, slots=True)
class Recirculation:
    """A packet that comes back from the datapath."""

    id: int
    kind: Literal["conntrack", "hash", "mpls", "bond"]
    flow: Header
    state: Frozen
    zone: int = 0
    nat: Nat | None = None
    group: int = -1
    """`hash`: the group that asked for one."""

    case: str = ""
    """What is assumed where it was put aside: how long the packet is."""


@dataclass(slots=True)
class Numbers:
    """Counts up recirculations of one question; Open vSwitch's own depend on its history."""

    recirculations: int = 0

    def take(self) -> int:
        """Return the next number."""
        self.recirculations += 1
        return self.recirculations


@dataclass(frozen=True, slots=True)
class Go:
    """The parts of a translation that any other may ask to go on; they call one another."""

    execute: "Callable[[Context, Sequence[Action], bool], None]"
    """Do a list of actions; the flag says that nothing follows."""

    output: "Callable[..., None]"
    """`ports.compose_output`."""


@dataclass(slots=True)
class Context:
    """The state of a translation."""

    snapshot: Snapshot
    bridge: Bridge
    flow: Slots
    base: Slots
    looked: Slots
    numbers: Numbers
    go: "Go" = field(repr=False)

    steps: list[Step] = field(default_factory=list)
    stack: list[tuple[int, int]] = field(default_factory=list)
    """(value, width in bits) of what was pushed."""

    action_set: list[Action] = field(default_factory=list)
    action_set_has_group: bool = False
    in_action_set: bool = False

    table: int = 0
    rule: Flow | None = None
    cookie: int = (1 << 64) - 1
    depth: int = 0
    resubmits: int = 0
    exit: bool = False
    error: str = ""
    slow: set[str] = field(default_factory=set)

    freezing: bool = False
    frozen: list[Action] = field(default_factory=list)
    hash: tuple[int, int] | None = None
    """(algorithm, basis) of the hash that the datapath computes when the packet is frozen."""

    hash_group: int = -1
    pause: ToController | None = None
    was_mpls: bool = False
    conntracked: bool = False
    nat: Nat | None = None

    mirrors: frozenset[str] = frozenset()
    """Mirrors that have their copy already."""

    copying: bool = False
    """Whether the copy that is being sent out is a mirror's."""

    snaplen: int = 0
    arrived_at: tuple[int, int] = (0, 0)
    """Addresses (IPv4, IPv6) at which the packet came in by a tunnel."""

    priority: int = 0
    """The queue that the packet came in with."""

    thawed: bool = False
    carried: bool = False
    """Whether there is a packet, and not only its headers."""

    named: bool = False
    """Whether datapath actions name ports, rather than number them."""

    trace: list[Node] = field(default_factory=list)
    recirculations: list[Recirculation] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    why_not: tuple[str, str] | None = None
    """Why a copy did not leave, and by which port, in the flow at work."""

    picks: tuple[int, ...] | None = None
    """What a hash selects, an index per choice, and the first in further choices; None: that is not
    known."""

    choices: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    """What a hash may have selected, and which of it was taken."""

    origins: dict[int, Flow] = field(default_factory=dict)
    """For each slot that a flow wrote: the flow its value comes from."""

    visiting: list[tuple[object, Quote]] = field(default_factory=list)
    """States of the lookups that led here, and what they found."""

    @property
    def features(self) -> Features:
        """What the bridge's datapath can do."""
        return self.snapshot.features.get(self.bridge.datapath_type, _DEFAULT_FEATURES)

    @property
    def header(self) -> Header:
        """The packet as it is now."""
        return Header._make(self.flow)

    @property
    def in_port(self) -> int:
        """OpenFlow number of the port it came in by."""
        return self.flow[IN_PORT]

    def port(self, number: int) -> Port | None:
        """Return a port of the bridge by its OpenFlow number."""
        return self.bridge.by_number.get(number)

    # --- reporting -------------------------------------------------------------------------------

    def tell(self, kind: NodeKind, text: str, flow: Flow | None = None) -> Node:
        """Add a line to the tree."""
        node = Node(kind, text, flow)
        self.trace.append(node)
        return node

    @contextmanager
    def below(self, node: Node) -> Iterator[None]:
        """Add the lines that are made within as children of `node`."""
        outside, self.trace = self.trace, node.inner
        try:
            yield
        finally:
            self.trace = outside

    def quote(self) -> Quote | None:
        """Quote the flow being executed."""
        return Quote.of(self.bridge.name, self.rule) if self.rule else None

    def end(self, kind: EndKind, reason: str, port: str = "", **more: object) -> End:
        """Return an end at the flow being executed."""
        end = End(kind, self.bridge.name, self.table, reason, self.header, port, self.quote())
        if kind in {"output", "tunnelled"}:
            ip_dst = IPV6_DST if dl_type(self.flow) == ETH_IPV6 else NW_DST
            for name, slot in (("eth_dst_by", ETH_DST), ("nw_dst_by", ip_dst)):
                writer = self.origins.get(slot)
                if writer is not None:
                    more = {**more, name: Quote.of(self.bridge.name, writer)}
        return replace(end, **more) if more else end  # type: ignore[arg-type]

    def excuse(self, reason: str, port: str = "") -> None:
        """Note why a copy did not leave; it counts if nothing else comes of the flow."""
        self.why_not = reason, port

    def finish(self, end: End) -> None:
        """Note what became of a copy of the packet."""
        if len(self.ends) < MAX_COPIES or end.kind == "loop":
            self.ends.append(end)
        elif len(self.ends) == MAX_COPIES:  # later ones are in the datapath actions only
            self.ends.append(self.end("cannot_tell", f"over {MAX_COPIES} copies"))

    def give_up(self, reason: str, flow: Flow | None = None) -> UnknownMet:
        """Return what to raise where something decides that is not understood."""
        quote = Quote.of(self.bridge.name, flow) if flow else self.quote()
        header = self.header
        return UnknownMet(
            End("cannot_tell", self.bridge.name, self.table, reason, header, flow=quote)
        )

    def choose(self, names: Sequence[str]) -> int:
        """Return which of several the datapath's hash selects; no snapshot knows by itself."""
        if len(names) == 1:
            return 0
        if self.picks is None:
            raise self.give_up(f"which is selected by a hash: {', '.join(names)}")
        made = len(self.choices)
        pick = self.picks[made] if made < len(self.picks) else 0
        self.choices.append((tuple(names), pick))
        return pick

    # --- limits ----------------------------------------------------------------------------------

    def exceeded(self) -> str:
        """Report and return the limit that forbids another lookup; return "" if none does."""
        if self.depth >= MAX_DEPTH:
            self._fail(f"over max translation depth {MAX_DEPTH}", "Recursion too deep")
            return f"{MAX_DEPTH} lookups deep"
        if self.resubmits >= MAX_RESUBMITS:
            self._fail(f"over {MAX_RESUBMITS} resubmit actions", "Too many resubmits")
            return f"{MAX_RESUBMITS} lookups"
        if size_of(self.steps) > MAX_STEPS_BYTES:
            self.tell("error", "resubmits yielded over 64 kB of actions")
            self.exit = True
            return "64 kB of actions"
        if sum(-(-width // 8) + 1 for _, width in self.stack) >= MAX_STACK_BYTES:
            self._fail("resubmits yielded over 64 kB of stack", "Stack too deep")
            return "64 kB of stack"
        return ""

    def _fail(self, text: str, error: str) -> None:
        self.tell("error", text)
        self.error = error

    # --- freezing --------------------------------------------------------------------------------

    def freeze(self, *, hash_by: tuple[int, int] | None = None, group: int = -1) -> None:
        """Stop here; go on when the datapath has looked the packet up again."""
        self.exit = self.freezing = True
        self.hash, self.hash_group = hash_by, group

    def cancel_freeze(self) -> None:
        """Forget what was to be done after freezing."""
        self.freezing, self.hash, self.pause = False, None, None
        self.frozen.clear()

    def state(self, table: int) -> Frozen:
        """Return what the packet takes along."""
        return Frozen(
            self.bridge.name,
            table,
            self.header,
            tuple(self.stack),
            tuple(self.frozen),
            tuple(self.action_set),
            self.conntracked,
            self.was_mpls,
            self.mirrors,
        )


_DEFAULT_FEATURES = Features()
IN_PORT = SLOTS["in_port"]
METADATA = SLOTS["metadata"]
ACTSET_OUTPUT = SLOTS["actset_output"]
UNSET = NO_TARGET
