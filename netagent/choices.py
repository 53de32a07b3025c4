# SPDX-License-Identifier: Apache-2.0
"""What a configuration file could have said instead of what is wrong in it.

To be imported where something is wrong: what it stands on costs memory.
"""

import difflib
from collections.abc import Iterable

from msgspec import inspect


def instead_of_value(kind: type, where: Iterable[str | int]) -> str:
    """Return ``; write one of ...`` for the setting at `where` in a `kind`; "" for no choice."""
    values: list[object] = []
    at = _at(kind, where)
    for found in (*at, *(item for each in at for item in _items(each))):
        if isinstance(found, inspect.EnumType):
            values += [each.value for each in found.cls]
        elif isinstance(found, inspect.LiteralType):
            values += found.values
    told = ", ".join(f'"{each}"' for each in values if each != "")
    return f"; write one of {told}" if told else ""


def instead_of_key(kind: type, where: Iterable[str | int], key: str) -> str:
    """Return ``; is NAME meant?`` where the table at `where` has a key like `key`.

    Of a key that belongs to no table, and was written below one, it says so; else "".
    """
    names = [field.encode_name for each in _at(kind, where) for field in _fields(each)]
    if like := difflib.get_close_matches(key, names, n=1):
        return f"; is {like[0]!r} meant?"
    if any(field.encode_name == key for each in _at(kind, ()) for field in _fields(each)):
        return "; it belongs above the first [section], or is a section of its own"
    return ""


def _at(kind: type, where: Iterable[str | int]) -> list[inspect.Type]:
    """Return the types that a value at `where` may be of."""
    found = _each(inspect.type_info(kind))
    for key in where:
        found = [inner for each in found for inner in _inside(each, key)]
    return found


def _inside(kind: inspect.Type, key: str | int) -> list[inspect.Type]:
    if isinstance(kind, inspect.DictType):
        return _each(kind.value_type)
    if items := _items(kind):
        return items
    return [
        each for field in _fields(kind) if field.encode_name == key for each in _each(field.type)
    ]


def _items(kind: inspect.Type) -> list[inspect.Type]:
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return _each(kind.item_type)
    return []


def _fields(kind: inspect.Type) -> Iterable[inspect.Field]:
    return kind.fields if isinstance(kind, inspect.StructType) else ()


def _each(kind: inspect.Type) -> list[inspect.Type]:
    return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]
