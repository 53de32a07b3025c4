# SPDX-License-Identifier: Apache-2.0
"""A diagnosis in mid-life as bytes, so that a recording need not begin when the analyzer did.

A graph of our own values is written down node by node: containers, arrays, enumerations, and
objects of the classes of a few pure packages, attribute by attribute. What two attributes share is
written once, and shared again. Reading makes such objects and nothing else: no code comes out of a
recording.
"""

import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzer.diagnosis.engine import Diagnosis
from analyzer.replay.frames import MAX_BYTES
from analyzer.roster.registry import Registry
from netagent.model.errors import LocalProtocolError, RemoteProtocolError
from netagent.model.topology import DeclaredTopology
from netagent.wire.codec import decode, encode

PACKAGES = (
    "analyzer.detect.",
    "analyzer.diagnosis.",
    "analyzer.intake.",
    "analyzer.intent.",
    "analyzer.localize.",
    "analyzer.questions",
    "bpf.trace.journey",
    "netagent.model.",
    "netagent.wire.",
    "ovs_checks.openflow.",
    "ovs_checks.translate.",
    "ovs_checks.walk.",
)
"""Whose classes a state may hold."""
MOVED = {
    "analyzer.detect.latency:Baseline": "analyzer.detect.latency.step:Baseline",
    "analyzer.detect.latency:LatencyBaselines": "analyzer.detect.latency.step:LatencyBaselines",
    "analyzer.detect.latency:ShiftFloor": "analyzer.detect.latency.floors:Floor",
    "analyzer.detect.latency:Slowness": "analyzer.detect.latency.slowness:Slowness",
    "analyzer.localize.topology:_Known": "analyzer.localize.traced:Known",
    "analyzer.localize.routes:RouteRows": "analyzer.localize.routes:RouteTable",
}
"""Classes by the names that earlier versions wrote -> where they are now."""
NEWER = {
    "_arrival", "_closing_ns", "_dead_before", "_delay", "_impaired_until_ns", "_learned",
    "_masked", "_rhythms", "_stepped_ns", "_arrived_ns", "_ingested_ns", "_new_flows",
    "_differed", "_held", "_hurried_until_ns",
}  # fmt: skip
"""Attributes of a diagnosis that earlier versions had not: they begin anew."""
FORGOTTEN = {"observer", "_observed_ns", "_late", "_holders", "_to_learn"}
"""Attributes that no recording holds: who looks on is no part of a verdict, and what waits to be
learned is learned before."""
OLDER = {"_paths", "_reports"}
"""Attributes that earlier versions had and nothing reads any more."""
FACTORIES: Mapping[str, type] = {"dict": dict, "int": int, "list": list, "set": set}
DTYPES = {"<f8", "<f4", "<i8", "<i4", "<u8", "<u4", "<u2", "|u1", "|b1"}
SEQUENCES: Mapping[str, type] = {
    "frozenset": frozenset,
    "list": list,
    "set": set,
    "tuple": tuple,
}
SCALARS = (bool, int, float, str, bytes)
ROSTER = "roster"
"""Stands for the registry, which a recording holds by itself."""


def freeze(diagnosis: Diagnosis) -> bytes | None:
    """Return the state of `diagnosis`; None while it judges a window.

    Raises LocalProtocolError where it holds something that cannot be written down: a bug.
    """
    if diagnosis.judging:
        return None
    diagnosis.learn_waiting()
    writer = _Writer()
    kept = {name: value for name, value in vars(diagnosis).items() if name not in FORGOTTEN}
    root = writer.value(kept)
    return encode([writer.nodes, root])


def thaw(state: bytes, roster: Registry) -> Diagnosis:
    """Return the diagnosis that `freeze` wrote down, over `roster`.

    Raises RemoteProtocolError for what is no such state.
    """
    try:
        nodes, root = decode(state, list[Any], max_bytes=MAX_BYTES)
        attributes = dict(_Reader(nodes, roster).value(root))
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"no state of a diagnosis: {error!r}"[:200]) from error
    attributes = {name: value for name, value in attributes.items() if name not in OLDER}
    diagnosis = Diagnosis(roster, DeclaredTopology())
    odd = (attributes.keys() ^ (vars(diagnosis).keys() - FORGOTTEN)) - NEWER
    if odd:
        raise RemoteProtocolError(f"no state of this version's diagnosis: {', '.join(sorted(odd))}")
    vars(diagnosis).update(attributes)
    return diagnosis


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[list[Any] | None] = []
        self._index: dict[int, int] = {}
        self._alive: list[object] = []  # an id is one object's only while it lives

    def value(self, of: Any) -> Any:
        """Return a scalar as it is, all else as [number of its node]."""
        if of is None or type(of) in SCALARS:
            return of
        known = self._index.get(id(of))
        if known is None:
            known = self._index[id(of)] = len(self.nodes)
            self._alive.append(of)
            self.nodes.append(None)
            self.nodes[known] = self._node(of)
        return [known]

    def _node(self, of: Any) -> list[Any]:
        kind = type(of)
        if isinstance(of, Registry):
            return [ROSTER]
        if isinstance(of, Enum):
            return ["enum", _name(kind), of.value]
        if isinstance(of, np.ndarray):
            return ["array", of.dtype.str, list(of.shape), of.tobytes()]
        return self._container(kind, of) or ["object", _name(kind), self._pairs(_attributes(of))]

    def _container(self, kind: type, of: Any) -> list[Any] | None:
        if kind in SEQUENCES.values():
            return [kind.__name__, self._all(of)]
        if kind is deque:
            return ["deque", of.maxlen, self._all(of)]
        if kind is defaultdict:
            return ["defaultdict", of.default_factory.__name__, self._pairs(of.items())]
        if isinstance(of, Mapping):
            return ["counter" if kind is Counter else "dict", self._pairs(of.items())]
        return ["named", _name(kind), self._all(of)] if isinstance(of, tuple) else None

    def _all(self, values: Iterable[Any]) -> list[Any]:
        return [self.value(each) for each in values]

    def _pairs(self, items: Iterable[tuple[Any, Any]]) -> list[Any]:
        return [[self.value(key), self.value(each)] for key, each in items]


def _attributes(of: Any) -> list[tuple[str, Any]]:
    if isinstance(of, msgspec.Struct):
        return [(name, getattr(of, name)) for name in of.__struct_fields__]
    if is_dataclass(of):
        kept = {each.name for each in fields(of)} - getattr(type(of), "FORGOTTEN", set())
        return [(each.name, getattr(of, each.name)) for each in fields(of) if each.name in kept]
    return list(vars(of).items())


def _name(kind: type) -> str:
    if not kind.__module__.startswith(PACKAGES):
        raise LocalProtocolError(f"a diagnosis holds a {kind.__module__}.{kind.__qualname__}")
    return f"{kind.__module__}:{kind.__qualname__}"


class _Reader:
    def __init__(self, nodes: list[list[Any]], roster: Registry) -> None:
        self._nodes, self._roster = nodes, roster
        self._made: dict[int, Any] = {}

    def value(self, of: Any) -> Any:
        if not isinstance(of, list):
            return of
        (number,) = of
        if number not in self._made:
            self._made[number] = self._make(*self._nodes[number])
        return self._made[number]

    def _make(self, kind: str, *parts: Any) -> Any:
        if kind == ROSTER:
            return self._roster
        if kind in SEQUENCES:
            return SEQUENCES[kind](self._all(*parts))
        makers: Mapping[str, Callable[..., Any]] = {
            "array": _array,
            "counter": lambda pairs: Counter(self._pairs(pairs)),
            "defaultdict": lambda of, pairs: defaultdict(FACTORIES[of], self._pairs(pairs)),
            "deque": lambda maxlen, items: deque(self._all(items), maxlen),
            "dict": self._pairs,
            "enum": lambda name, value: _class(name, Enum)(value),
            "named": lambda name, items: _class(name, tuple)(*self._all(items)),
            "object": lambda name, pairs: _object(_class(name, object), self._pairs(pairs)),
        }
        return makers[kind](*parts)

    def _all(self, items: list[Any]) -> list[Any]:
        return [self.value(each) for each in items]

    def _pairs(self, pairs: list[Any]) -> dict[Any, Any]:
        return {self.value(key): self.value(each) for key, each in pairs}


def _array(dtype: str, shape: list[int], data: bytes) -> NDArray[Any]:
    if dtype not in DTYPES:
        raise ValueError(f"no array of ours holds {dtype}")
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _object(kind: type, attributes: Mapping[str, Any]) -> Any:
    if issubclass(kind, msgspec.Struct):
        return msgspec.convert(attributes, kind, from_attributes=True)
    made = kind.__new__(kind)
    if hasattr(kind, "upgraded"):
        attributes = kind.upgraded(attributes)
    forgotten: frozenset[str] = getattr(kind, "FORGOTTEN", frozenset())
    attributes = {name: value for name, value in attributes.items() if name not in forgotten}
    allowed = {each.name for each in fields(kind)} if is_dataclass(kind) else None
    for name, value in attributes.items():
        if (allowed is not None and name not in allowed) or name.startswith("__"):
            raise ValueError(f"{kind.__name__} has no {name}")
        object.__setattr__(made, name, value)
    for name, value in _defaults(kind, attributes.keys()):
        object.__setattr__(made, name, value)
    return made


def _defaults(kind: type, known: Container[str]) -> Iterator[tuple[str, Any]]:
    """Yield what a field is that an earlier version did not have; ValueError if nobody says."""
    for each in fields(kind) if is_dataclass(kind) else ():
        if each.name in known:
            continue
        if each.default_factory is not MISSING:
            yield each.name, each.default_factory()
        elif each.default is not MISSING:
            yield each.name, each.default
        else:
            raise ValueError(f"a {kind.__name__} without {each.name}")


def _class(name: str, base: type) -> type[Any]:
    module, _, qualified = MOVED.get(name, name).partition(":")
    if not module.startswith(PACKAGES):
        raise ValueError(f"no class of ours: {name}")
    kind = getattr(sys.modules[module], qualified)
    if not isinstance(kind, type) or not issubclass(kind, base):
        raise TypeError(f"{name} is no {base.__name__}")
    return cast("type[Any]", kind)
