# SPDX-License-Identifier: Apache-2.0
"""What one packet's way through one host was, as values."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from netagent.model.walk import EndKind, OpinionKind
from ovs_checks.openflow.packet import BRIDGE_LOCAL
from ovs_checks.translate.ends import End

_PRECEDENCE: Mapping[EndKind, int] = {
    "tunnelled": 0,
    "output": 0,
    "cannot_tell": 1,
    "loop": 2,
    "controller": 3,
    "dropped": 4,
    "missed": 4,
}


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the tree that shows a walk to humans."""

    level: int
    where: str
    """`br-int/table=40`, or empty for a remark on the flow above."""

    text: str
    host: str = ""
    """Whose table it is, where two hosts' walks are joined; empty in the walk of one."""


def _weightiest(ends: Sequence[End]) -> End:
    rank = min(_PRECEDENCE[end.kind] for end in ends)
    found = [end for end in ends if _PRECEDENCE[end.kind] == rank]
    return found[-1] if rank == _PRECEDENCE["missed"] else found[0]


def _within(case: str, wider: str) -> bool:
    """Tell whether what is assumed in `case` includes all that `wider` assumes."""
    return not wider or case == wider or case.startswith(f"{wider}, ")


_UNSENT = dict.fromkeys(
    (*BRIDGE_LOCAL, "recirc_id", "dp_hash", "conj_id", "skb_priority", "pkt_mark", "in_port"), 0
)
"""What does not leave the host with a packet."""


def _fate(end: End) -> object:
    """Return what is the same for ends that make no difference to whoever waits for the packet."""
    match end.kind:
        case "output":
            return end.bridge, end.port
        case "tunnelled":
            sent = end.header._replace(**_UNSENT)
            outer = end.tun_dst, end.tun_src, end.tun_id, end.options
            return end.bridge, end.port, outer, sent
        case "dropped" | "missed":
            return "lost"
        case _:
            return end.kind


def _outcome(end: End) -> str:
    at = f" by {end.flow.place}" if end.flow and end.kind == "dropped" else ""
    to = f" to {end.tun_dst} with VNI {end.tun_id}" if end.kind == "tunnelled" else ""
    return f"{end.kind}{f' {end.port}' if end.port else ''}{to}{at}"


@dataclass(frozen=True, slots=True)
class Opinion:
    """What Open vSwitch itself says of the packet (`ofproto/trace`), beside what a walk says."""

    kind: OpinionKind
    ours: str
    """Datapath actions by the tables as dumped."""

    theirs: str
    """Datapath actions by the live switch; if it did not answer, why."""

    def __str__(self) -> str:
        if self.kind == "agrees":
            return f"ofproto/trace agrees: {self.theirs}"
        if self.kind == "differs":
            return f"ofproto/trace says {self.theirs}, the tables as dumped say {self.ours}"
        return f"ofproto/trace did not answer: {self.theirs}"


@dataclass(frozen=True, slots=True)
class LocalWalk:
    """A packet's way through one host: how every copy ended, and the steps for humans."""

    host: str
    bridge: str
    port: str
    """The port it came in by; empty if no port would take it."""

    ends: tuple[End, ...]
    steps: tuple[Step, ...]
    opinion: Opinion | None = None
    """None where Open vSwitch was not asked."""

    @property
    def end(self) -> End:
        """The end that counts: deliveries first, then what is uncertain, then the last failure."""
        return self._leading(_weightiest)

    @property
    def tunnelled(self) -> End | None:
        """The end that leaves by a tunnel; None if none does, or not alike in every case."""
        end = self.towards(lambda end: end.kind == "tunnelled")
        return end if end.kind == "tunnelled" else None

    def tunnelled_to(self, addresses: Container[str]) -> End | None:
        """Return the end that leaves by a tunnel, to one of `addresses` rather than elsewhere."""
        end = self.towards(lambda end: end.kind == "tunnelled" and end.tun_dst in addresses)
        return end if end.kind == "tunnelled" else None

    def towards(self, wanted: Callable[[End], bool]) -> End:
        """Return an end that `wanted` accepts, else an uncertain one, else the weightiest."""

        def choose(ends: Sequence[End]) -> End:
            uncertain = (end for end in ends if end.kind == "cannot_tell")
            return next(filter(wanted, ends), None) or next(uncertain, None) or _weightiest(ends)

        return self._leading(choose)

    def _leading(self, choose: Callable[[Sequence[End]], End]) -> End:
        """Return what `choose` returns in every case.

        Where the cases differ, return a `cannot_tell` that names each case.
        """
        chosen = {case: choose(ends) for case, ends in self.cases.items()}
        first = next(iter(chosen.values()))
        if len({_fate(end) for end in chosen.values()}) == 1:
            return first
        said = "; ".join(f"{case}: {_outcome(end)}" for case, end in chosen.items())
        return End("cannot_tell", "", -1, f"it depends: {said}", first.header)

    @property
    def cases(self) -> Mapping[str, tuple[End, ...]]:
        """The ends by the case that they assume; ends that assume nothing belong to every case."""
        names = dict.fromkeys(end.case for end in self.ends)
        leaves = [n for n in names if not any(_within(other, n) for other in names if other != n)]
        return {name: tuple(end for end in self.ends if _within(name, end.case)) for name in leaves}
