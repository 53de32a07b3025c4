# SPDX-License-Identifier: Apache-2.0
"""What names say: which rank a file is of, and what a group is for."""

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath

from analyzer.operators.log import GroupKind

SUFFIXES = frozenset(
    {".pkl", ".pickle", ".p", ".json", ".jsonl", ".bin", ".dump", ".trace", ".log", ".txt", ".gz"}
)
"""Ends of file names that say nothing of the rank."""
MAX_RANK = 10_000_000
"""Largest rank. Chosen: a hundred times the largest job; dates and process ids are larger."""

_KINDS = (
    (GroupKind.WORLD, r"^(0|default_pg|default|world)$|global|world"),
    (GroupKind.EXPERT, r"(^|[^a-z])ep\d*([^a-z]|$)|expert"),
    (GroupKind.DATA, r"(^|[^a-z])(dp|ddp|fsdp|hsdp)\d*([^a-z]|$)|data|replicate|shard"),
    (GroupKind.TENSOR, r"(^|[^a-z])tp\d*([^a-z]|$)|tensor"),
    (GroupKind.PIPELINE, r"(^|[^a-z])pp\d*([^a-z]|$)|pipe|embedding"),
)


def kind_of(description: str) -> GroupKind:
    """Return what a group is for, by the name or the description that a job gave it."""
    lowered = description.lower()
    found = (kind for kind, pattern in _KINDS if re.search(pattern, lowered))
    return next(found, GroupKind.UNKNOWN)


def text_of(value: object, most: int, otherwise: str = "") -> str:
    """Return a text, or a number as one; `otherwise` of anything else.

    Of a list a few bytes of a pickle may make gigabytes of text.
    """
    if isinstance(value, str):
        return value[:most]
    return str(value)[:most] if isinstance(value, int) and abs(value) < 1 << 62 else otherwise


def _stem(name: str) -> str:
    path = PurePath(name)
    while path.suffix.lower() in SUFFIXES:
        path = path.with_suffix("")
    return str(path)


def _at_end(name: str) -> int | None:
    return _number(re.search(r"(\d+)$", PurePath(_stem(name)).name))


def _after_rank(name: str) -> int | None:
    return _number(re.search(r"rank[_\-.=]?(\d+)", PurePath(_stem(name)).name, re.IGNORECASE))


def _in_path(name: str) -> int | None:
    return _number(re.search(r"rank[_\-.=]?(\d+)", _stem(name), re.IGNORECASE))


def _last(name: str) -> int | None:
    return _number(re.search(r"(\d+)\D*$", _stem(name)))


def _number(found: re.Match[str] | None) -> int | None:
    if found is None or len(found[1]) > len(str(MAX_RANK)):
        return None
    return int(found[1]) if int(found[1]) <= MAX_RANK else None


_SCHEMES: tuple[Callable[[str], int | None], ...] = (_at_end, _after_rank, _in_path, _last)


def ranks_of(names: Sequence[str]) -> list[int] | None:
    """Return the rank that each file name ends in, or else has after `rank`; None if it is unclear.

    All names are read alike, by the first way in which all have a rank and no two the same.
    """
    for scheme in _SCHEMES:
        ranks = [scheme(name) for name in names]
        known = [rank for rank in ranks if rank is not None]
        if len(set(known)) == len(names):
            return known
    return None


def host_of(name: str) -> str | None:
    """Return the host that stands between `rank_` and the rank in a file's name, if one does."""
    found = re.search(r"rank_(.+)_\d+$", PurePath(_stem(name)).name)
    return found[1] if found else None
