# SPDX-License-Identifier: Apache-2.0
"""What one packet's way through one host was, as values that travel between hosts."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from netagent.model.errors import RemoteProtocolError

from .flow import Flow
from .notation import format_header
from .packet import BRIDGE_LOCAL, Header
from .parse import MalformedLine, parse_header

_NO_HEADER = Header()

EndKind = Literal["output", "tunnelled", "controller", "dropped", "missed", "loop", "cannot_tell"]

_PRECEDENCE: Mapping[str, int] = {
    "tunnelled": 0,
    "output": 0,
    "cannot_tell": 1,
    "loop": 2,
    "controller": 3,
    "dropped": 4,
    "missed": 4,
}


@dataclass(frozen=True, slots=True)
class Quote:
    """A flow, quoted as evidence."""

    bridge: str
    table: int
    priority: int
    cookie: int
    n_packets: int | None
    n_bytes: int | None
    text: str

    @classmethod
    def of(cls, bridge: str, flow: Flow) -> "Quote":
        """Quote `flow` of `bridge`."""
        counters = (flow.n_packets, flow.n_bytes)
        return cls(bridge, flow.table, flow.priority, flow.cookie, *counters, flow.text)

    @property
    def place(self) -> str:
        """Where the flow is: `br-int/table=40`."""
        return f"{self.bridge}/table={self.table}"


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the tree that shows a walk to humans."""

    level: int
    where: str
    """`br-int/table=40`, or empty for a remark on the flow above."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """What became of one copy of the packet."""

    kind: EndKind
    bridge: str
    table: int
    reason: str
    """One sentence for humans."""

    header: Header = _NO_HEADER
    """The packet as it was there."""

    port: str = ""
    """`output`, `tunnelled`: the port it left by."""

    flow: Quote | None = None
    """The flow that did it; None for a miss."""

    nearest: Quote | None = None
    """`missed`, or dropped by a table's default flow: the flow that came nearest to matching."""

    field: str = ""
    """The fields in which the nearest flow differs, comma-separated."""

    cycle: tuple[Quote, ...] = ()
    """`loop`: the flows that lead back to the first of them."""

    tun_id: int = 0
    tun_src: str = ""
    tun_dst: str = ""
    """`tunnelled`: the encapsulation. Addresses are text, empty if routing chooses."""

    tun_id_by: Quote | None = None
    tun_dst_by: Quote | None = None
    """`tunnelled`: the flow that the value comes from; None for the tunnel port's own settings."""

    case: str = ""
    """What is assumed of state that no snapshot holds; empty if nothing is, or nothing depends."""

    shadowed: Quote | None = None
    """The flow that would have matched, and never does: `flow` matches all that it does."""


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
            return end.bridge, end.port, end.tun_dst, end.tun_src, end.tun_id, sent
        case "dropped" | "missed":
            return "lost"
        case _:
            return end.kind


def _outcome(end: End) -> str:
    at = f" by {end.flow.place}" if end.flow and end.kind == "dropped" else ""
    to = f" to {end.tun_dst} with VNI {end.tun_id}" if end.kind == "tunnelled" else ""
    return f"{end.kind}{f' {end.port}' if end.port else ''}{to}{at}"


OpinionKind = Literal["agrees", "differs", "unanswered"]


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
        """Return the end that is wanted, else one that is uncertain, else the one that counts."""

        def choose(ends: Sequence[End]) -> End:
            uncertain = (end for end in ends if end.kind == "cannot_tell")
            return next(filter(wanted, ends), None) or next(uncertain, None) or _weightiest(ends)

        return self._leading(choose)

    def _leading(self, choose: Callable[[Sequence[End]], End]) -> End:
        """Return what `choose` returns in every case.

        Where it depends on state that no snapshot holds, it cannot be told, and each case is named.
        """
        chosen = {case: choose(ends) for case, ends in self.cases.items()}
        first = next(iter(chosen.values()))
        if len({_fate(end) for end in chosen.values()}) == 1:
            return first
        said = "; ".join(f"{case}: {_outcome(end)}" for case, end in chosen.items())
        return End("cannot_tell", "", -1, f"it depends: {said}", first.header)

    @property
    def cases(self) -> Mapping[str, tuple[End, ...]]:
        """The ends by what is assumed; those that depend on nothing belong to every case."""
        names = dict.fromkeys(end.case for end in self.ends)
        leaves = [n for n in names if not any(_within(other, n) for other in names if other != n)]
        return {name: tuple(end for end in self.ends if _within(name, end.case)) for name in leaves}

    def to_data(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and small integers, fit for JSON or msgpack."""
        return {
            "host": self.host,
            "bridge": self.bridge,
            "port": self.port,
            "ends": [_end_data(end) for end in self.ends],
            "steps": [[step.level, step.where, step.text] for step in self.steps],
            "opinion": asdict(self.opinion) if self.opinion else None,
        }

    @classmethod
    def from_data(cls, data: Any) -> "LocalWalk":
        """Return the walk that `to_data` described.

        Raises
        ------
        RemoteProtocolError
            Where `data` cannot have come from `to_data`. Keys of a newer version are passed over.
        """
        try:
            return cls(
                _text(data["host"]),
                _text(data["bridge"]),
                _text(data["port"]),
                tuple(_end(end) for end in _list(data["ends"])) or _nothing(),
                tuple(_step(step) for step in _list(data["steps"])),
                _opinion(data.get("opinion")),
            )
        except (KeyError, TypeError, ValueError, AttributeError, MalformedLine) as e:
            raise RemoteProtocolError(f"no walk through a vSwitch: {e!r}"[:200]) from e


_QUOTES = ("flow", "nearest", "shadowed", "tun_id_by", "tun_dst_by")
_INTEGERS = ("table", "tun_id")


def _quote_data(quote: Quote) -> dict[str, Any]:
    return {column.name: getattr(quote, column.name) for column in fields(quote)}


def _end_data(end: End) -> dict[str, Any]:
    data: dict[str, Any] = {"header": format_header(end.header)}
    for column in fields(end):
        value = getattr(end, column.name)
        if isinstance(value, Quote):
            data[column.name] = _quote_data(value)
        elif column.name == "cycle":
            data["cycle"] = [_quote_data(quote) for quote in value]
        elif column.name != "header" and value is not None:
            data[column.name] = value
    return data


def _end(data: Any) -> End:
    known = {column.name for column in fields(End)}
    values = {key: _value(key, value) for key, value in data.items() if key in known}
    if values["kind"] not in _PRECEDENCE:
        raise ValueError(f"unknown end {values['kind'][:40]!r}")
    return End(**values)


def _value(key: str, value: Any) -> Any:
    if key == "header":
        return parse_header(_text(value))
    if key == "cycle":
        return tuple(_quote(quote) for quote in _list(value))
    if key in _QUOTES:
        return _quote(value)
    return _int(value) if key in _INTEGERS else _text(value)


def _quote(data: Any) -> Quote:
    table, priority, cookie = (_int(data[key]) for key in ("table", "priority", "cookie"))
    packets, octets = (_optional(data.get(key)) for key in ("n_packets", "n_bytes"))
    text = _text(data["text"])
    return Quote(_text(data["bridge"]), table, priority, cookie, packets, octets, text)


def _step(data: Any) -> Step:
    level, where, text = _list(data)
    return Step(_int(level), _text(where), _text(text))


def _opinion(data: Any) -> Opinion | None:
    if data is None:
        return None
    kind, ours, theirs = (_text(data[key]) for key in ("kind", "ours", "theirs"))
    match kind:
        case "agrees" | "differs" | "unanswered":
            return Opinion(kind, ours, theirs)
    raise ValueError(f"unknown opinion {kind[:40]!r}")


def _nothing() -> tuple[End, ...]:
    raise ValueError("a walk without an end")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {type(value).__name__}")
    return value


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 1 << 64:
        raise TypeError(f"integer of 64 bits expected, not {str(value)[:40]!r}")
    return value


def _list(value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"list expected, not {type(value).__name__}")
    return value


def _optional(value: Any) -> int | None:
    return None if value is None else _int(value)
