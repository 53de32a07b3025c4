# SPDX-License-Identifier: Apache-2.0
"""Pickles that hold plain values, read without running anything that is in them.

Python's own unpickler imports and calls what a pickle names, and allocates what it claims. This
one knows the operations that build None, bool, int, float, str, bytes, list, tuple and dict, and
refuses all others, so a pickle of any class is refused. What a size claims must be there; what is
used again is the same object; keys are scalars, since hashing a deep tuple overflows C's stack; and
there are limits to what is built, to its depth and to the operations, so memory and time are
bounded. Operations and arguments are those of CPython's `Lib/pickletools.py`.
"""

import struct
from collections.abc import Callable
from typing import Any

from netagent.model.errors import RemoteProtocolError

MAX_DEPTH = 32
"""Deepest nesting. Chosen: a flight recorder's dump has six levels."""
MAX_OPERATIONS = 32_000_000
"""Most operations. Chosen: 100,000 entries with frames; their values are pointers of 8 bytes."""
MAX_CONTAINERS = 4_000_000
"""Most lists, tuples, dicts and remembered values. Chosen: some 400 MB, and 200,000 entries."""
MAX_UNFOLDED = 64_000_000
"""Most values, each counted as often as it is used. Chosen: twice the operations; a pickle of some
hundred bytes may use a list twice in a list that is used twice, and so on."""
MAX_KEY = 1 << 60
"""Numbers as keys are below it. Larger ones may all have one hash, and take quadratic time."""
MAX_DIGITS = 4300
"""Longest integer in text. As CPython's own limit, against quadratic time."""

_MARK = object()
_U16, _I32, _U32, _U64 = (struct.Struct(each) for each in ("<H", "<i", "<I", "<Q"))
_F64 = struct.Struct(">d")
_CONTAINERS = frozenset({list, tuple, dict})
_STOP, _MARKS, _NONE, _BINGET, _BININT1 = b".(NhK"
_KEYS = frozenset({str, int, bool, bytes, type(None)})


class _Refused(Exception):
    """A pickle that breaks the rules above."""


def is_pickle(content: bytes) -> bool:
    """Return whether bytes look like a pickle of protocol 2 to 5."""
    return len(content) > 2 and content[0] == 0x80 and content[1] in range(2, 6)


def plain(content: bytes) -> Any:
    """Return the value that a pickle holds: None, bool, int, float, str, bytes, list, tuple, dict.

    Raises RemoteProtocolError for anything else, for damage, and beyond the limits above.
    """
    try:
        value = _Machine(content).run()
        _check_depth(value)
    except (IndexError, struct.error) as error:
        raise RemoteProtocolError("pickle: it ends too early, or has nothing to take") from error
    except KeyError as error:
        raise RemoteProtocolError("pickle: a value that was not remembered") from error
    except (_Refused, ValueError) as error:
        raise RemoteProtocolError(f"pickle: {str(error)[:120]}") from error
    return value


class _Machine:
    """The stack, what is remembered, and the place in the bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0

    def run(self) -> Any:
        content, memo, push = self.content, self.memo, self.stack.append
        for _ in range(MAX_OPERATIONS):
            code = content[self.at]
            self.at += 1
            if code == _BINGET:
                push(memo[content[self.at]])
                self.at += 1
            elif code == _BININT1:
                push(content[self.at])
                self.at += 1
            elif code == _NONE:
                push(None)
            elif code == _MARKS:
                push(_MARK)
            elif code == _STOP:
                return self._result()
            elif (operation := _OPERATIONS.get(code)) is not None:
                operation(self)
            else:
                raise _Refused(_refusal(code, self.at - 1))
        raise _Refused(f"more than {MAX_OPERATIONS} operations")

    def _result(self) -> Any:
        if len(self.stack) != 1:
            raise _Refused("it does not end with one value")
        return self.pop()

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.content):
            raise IndexError
        taken = self.content[self.at : end]
        self.at = end
        return taken

    def number(self, of: struct.Struct) -> Any:
        (value,) = of.unpack_from(self.content, self.at)
        self.at += of.size
        return value

    def byte(self) -> int:
        value = self.content[self.at]
        self.at += 1
        return value

    def line(self) -> bytes:
        end = self.content.index(b"\n", self.at)
        if end - self.at > MAX_DIGITS:
            raise _Refused("a number of too many digits")
        taken = self.content[self.at : end]
        self.at = end + 1
        return taken

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def hold(self, value: Any) -> None:
        self.containers += 1
        if self.containers > MAX_CONTAINERS:
            raise _Refused(f"more than {MAX_CONTAINERS} lists, tuples and dicts")
        self.stack.append(value)

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise _Refused("a mark where a value should be")
        return value

    def some(self, count: int) -> tuple[Any, ...]:
        values = [self.pop() for _ in range(count)]
        return tuple(reversed(values))

    def marked(self) -> list[Any]:
        stack = self.stack
        place = len(stack) - 1
        while stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise _Refused("a mark is missing")
        values = stack[place + 1 :]
        del stack[place:]
        return values

    def remember(self, key: int) -> None:
        value = self.pop()
        self.memo[key] = value
        self.hold(value)

    def recall(self, key: int) -> None:
        self.stack.append(self.memo[key])

    def extend(self, values: list[Any]) -> None:
        whole = self.stack[-1]
        if type(whole) is not list:
            raise _Refused("no list to add to")
        whole.extend(values)

    def update(self, values: list[Any]) -> None:
        whole = self.stack[-1]
        if type(whole) is not dict or len(values) % 2:
            raise _Refused("no dict to add to")
        for key in values[::2]:
            if type(key) not in _KEYS:
                raise _Refused(f"a {type(key).__name__} as a key")
            if type(key) is int and abs(key) >= MAX_KEY:
                raise _Refused("a key that is too large")
        whole.update(zip(values[::2], values[1::2], strict=True))


def _check_depth(value: Any) -> None:
    """Raise where a value nests deeper than `MAX_DEPTH`, holds itself, or unfolds to very much.

    Level by level, and in each what is shared once, with how often it is used.
    """
    level = {id(value): (value, 1)} if type(value) in _CONTAINERS else {}
    unfolded = 0
    for _ in range(MAX_DEPTH):
        below: dict[int, tuple[Any, int]] = {}
        for part, times in level.values():
            unfolded += times * len(part)
            for inner in part.values() if type(part) is dict else part:
                if type(inner) in _CONTAINERS:
                    known = below.get(id(inner))
                    below[id(inner)] = inner, times + (known[1] if known else 0)
        if unfolded > MAX_UNFOLDED:
            raise _Refused(f"more than {MAX_UNFOLDED} values, each counted as often as it is used")
        if not below:
            return
        level = below
    raise _Refused(f"it nests more than {MAX_DEPTH} deep")


def _integer(machine: _Machine) -> None:
    text = machine.line()
    machine.push({b"00": False, b"01": True}[text] if text in (b"00", b"01") else int(text))


def _long(size: Callable[[_Machine], int]) -> "Callable[[_Machine], None]":
    def operation(machine: _Machine) -> None:
        machine.push(int.from_bytes(machine.take(size(machine)), "little", signed=True))

    return operation


def _text(size: Callable[[_Machine], int]) -> "Callable[[_Machine], None]":
    def operation(machine: _Machine) -> None:
        machine.push(machine.take(size(machine)).decode("utf-8", "surrogatepass"))

    return operation


def _bytes(size: Callable[[_Machine], int]) -> "Callable[[_Machine], None]":
    def operation(machine: _Machine) -> None:
        machine.push(machine.take(size(machine)))

    return operation


def _dict(machine: _Machine) -> None:
    values = machine.marked()
    machine.hold({})
    machine.update(values)


def _append(machine: _Machine) -> None:
    machine.extend([machine.pop()])


def _set_item(machine: _Machine) -> None:
    machine.update(list(machine.some(2)))


def _byte_long(machine: _Machine) -> int:
    return machine.byte()


def _long_size(machine: _Machine) -> int:
    size: int = machine.number(_I32)
    if not 0 <= size <= MAX_DIGITS:
        raise _Refused("a number of too many digits")
    return size


def _u32_size(machine: _Machine) -> int:
    size: int = machine.number(_U32)
    return size


def _u64_size(machine: _Machine) -> int:
    size: int = machine.number(_U64)
    return size


_OPERATIONS: dict[int, Callable[[_Machine], object]] = {
    0x80: lambda m: m.byte(),  # PROTO
    0x95: lambda m: m.number(_U64),  # FRAME: what it says of sizes is of no use here
    ord("0"): lambda m: m.stack.pop(),
    ord("1"): lambda m: m.marked(),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("I"): _integer,
    ord("J"): lambda m: m.push(m.number(_I32)),
    ord("M"): lambda m: m.push(m.number(_U16)),
    ord("L"): lambda m: m.push(int(m.line().rstrip(b"L"))),
    0x8A: _long(_byte_long),
    0x8B: _long(_long_size),
    ord("F"): lambda m: m.push(float(m.line())),
    ord("G"): lambda m: m.push(m.number(_F64)),
    ord("X"): _text(_u32_size),
    0x8C: _text(_byte_long),
    0x8D: _text(_u64_size),
    ord("U"): _text(_byte_long),
    ord("T"): _text(_u32_size),
    ord("B"): _bytes(_u32_size),
    ord("C"): _bytes(_byte_long),
    0x8E: _bytes(_u64_size),
    ord(")"): lambda m: m.hold(()),
    0x85: lambda m: m.hold(m.some(1)),
    0x86: lambda m: m.hold(m.some(2)),
    0x87: lambda m: m.hold(m.some(3)),
    ord("t"): lambda m: m.hold(tuple(m.marked())),
    ord("]"): lambda m: m.hold([]),
    ord("l"): lambda m: m.hold(m.marked()),
    ord("a"): _append,
    ord("e"): lambda m: m.extend(m.marked()),
    ord("}"): lambda m: m.hold({}),
    ord("d"): _dict,
    ord("s"): _set_item,
    ord("u"): lambda m: m.update(m.marked()),
    ord("q"): lambda m: m.remember(m.byte()),
    ord("r"): lambda m: m.remember(m.number(_U32)),
    ord("p"): lambda m: m.remember(int(m.line())),
    0x94: lambda m: m.remember(len(m.memo)),
    ord("j"): lambda m: m.recall(m.number(_U32)),
    ord("g"): lambda m: m.recall(int(m.line())),
}
_CALLS = {
    ord("c"): "GLOBAL", 0x93: "STACK_GLOBAL", ord("i"): "INST", ord("o"): "OBJ",
    ord("R"): "REDUCE", ord("b"): "BUILD", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", ord("P"): "PERSID",
    ord("Q"): "BINPERSID", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
}  # fmt: skip


def _refusal(code: int, at: int) -> str:
    name = _CALLS.get(code)
    if name is None:
        return f"operation {code:#04x} at byte {at} is none of plain values"
    return f"{name} at byte {at}: it would run code; only plain values are read"
