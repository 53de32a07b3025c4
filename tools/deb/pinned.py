# SPDX-License-Identifier: Apache-2.0
"""Print what of a lock this project needs, with an extra or '': pinned.py LOCK EXTRA PYTHON."""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = re.compile(r"^([A-Za-z0-9._-]+)(\[.*\])?==")


def needed(name: str, extras: frozenset[str], python: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield what a package needs on a Python, with the extras that it asks for."""
    for line in requires(name) or ():
        one = Requirement(line)
        for extra in ("", *extras):
            where = {"extra": extra, "python_version": python, "python_full_version": f"{python}.0"}
            if one.marker is None or one.marker.evaluate(where):
                yield canonicalize_name(one.name), frozenset(one.extras)
                break


def closure(extra: str, python: str) -> set[str]:
    """Return the names of all that the project needs."""
    first = ("netagent", frozenset({extra} - {""}))
    met, waiting = {first}, [first]
    while waiting:
        for each in needed(*waiting.pop(), python):
            if each not in met:
                met.add(each)
                waiting.append(each)
    return {name for name, _ in met} - {"netagent"}


def blocks(text: str) -> dict[str, str]:
    """Return the pins of a lock with their hashes, by name."""
    found = dict[str, str]()
    name = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            continue
        if (begin := NAME.match(line)) is not None:
            name = canonicalize_name(begin[1])
        found[name] = found.get(name, "") + line + "\n"
    return found


def main(lock: str, extra: str, python: str) -> int:
    """Print them; exit with 1 if the lock lacks one."""
    pins, wanted = blocks(Path(lock).read_text(encoding="utf-8")), closure(extra, python)
    if missing := sorted(wanted - pins.keys()):
        print(f"{lock} does not pin {', '.join(missing)}: make lock", file=sys.stderr)
        return 1
    print("".join(pins[name] for name in sorted(wanted)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
