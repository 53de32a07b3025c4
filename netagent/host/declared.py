# SPDX-License-Identifier: Apache-2.0
"""Endpoints that no port of a virtual switch carries, as whoever plugs them in declares them.

A virtual function in legacy mode, a macvlan or ipvlan on an RNIC, a sub-function or a whole RNIC
leaves nothing on the host by which a container could be found. A file for each container says it:

    {"container": "train-a-0", "task": "train-a", "netns": "/run/netns/train-a-0",
     "rails": {"0": "net1", "1": "net2"}}

`netns` is the path of its network namespace; `rails` has the name of its interface on each rail.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from netagent.host.facts import DeclaredFile
from netagent.host.ports import ContainerPort, Unusable, is_container, is_task, parse_rail
from netagent.host.sources import Found, Given
from netagent.model.ids import EndpointId

MAX_FILES = 512
"""Files that are read. Chosen: several times as many containers as a host has GPUs."""
MAX_BYTES = 4096
"""Bytes of one file. Chosen: hundreds of rails fit."""

_MAX_SHOWN = 200
"""Characters of a problem that are told. Chosen: to be read."""
_IFNAMSIZ = 16
"""Bytes of an interface's name with its end (linux/if.h)."""


class _Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file says."""

    container: str
    task: str
    netns: str
    rails: dict[str, str]


class DeclaredPorts:
    """The endpoints that files declare."""

    def endpoints(self, given: Given) -> Found:
        """Return the endpoints that the files declare."""
        ports: dict[EndpointId, ContainerPort] = {}
        source: dict[EndpointId, str] = {}
        unusable = []
        for file in sorted(given.files, key=lambda each: each.name):
            try:
                found = {port.id: port for port in _ports(file)}
            except ValueError as error:
                unusable.append(Unusable(_shown(file.name), _shown(str(error)), "file"))
                continue
            if twin := min(found.keys() & ports, default=None):
                text = f"{twin} is already declared in {source[twin]}"
                unusable.append(Unusable(_shown(file.name), _shown(text), "file"))
                continue
            ports |= found
            source |= dict.fromkeys(found, file.name)
        return Found(tuple(ports[key] for key in sorted(ports)), tuple(unusable))


def _ports(file: DeclaredFile) -> Iterator[ContainerPort]:
    """Yield what a file declares; ValueError for one that is not as it should be."""
    if file.problem:
        raise ValueError(file.problem)
    declared = _read(file.text)
    numbers: set[int] = set()
    for rail, netdev in declared.rails.items():
        number = parse_rail(rail)
        if number is None:
            raise ValueError(f"{rail!r} is no rail")
        if number in numbers:
            raise ValueError(f"rail {number} is there twice")
        numbers.add(number)
        yield ContainerPort(
            id=EndpointId(declared.container, number),
            task=declared.task,
            interface=netdev,
            address="",
            mac="",
            netns=declared.netns,
            netdev=netdev,
            bridged=False,
        )


def _read(text: bytes) -> _Declared:
    if len(text) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES} bytes")
    try:
        data = json.loads(text.decode(), object_pairs_hook=_unique)
        declared = msgspec.convert(data, _Declared, strict=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not is_container(declared.container):
        raise ValueError(f"cannot use container {declared.container!r}")
    if not is_task(declared.task):
        raise ValueError(f"cannot use task {declared.task!r}")
    if not declared.netns.startswith("/") or not declared.netns.isprintable():
        raise ValueError(f"netns {declared.netns!r} is no absolute path")
    if odd := next((name for name in declared.rails.values() if not _is_netdev(name)), None):
        raise ValueError(f"{odd!r} is no name of an interface")
    if "" in declared.rails.values() or not declared.rails:
        raise ValueError("rails name no interface")
    return declared


def _unique(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _shown(text: str) -> str:
    """Return a text as it can be told: whoever wrote a file may have written anything into it."""
    cut = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in cut)


def _is_netdev(name: str) -> bool:
    """Whether a device can have the name (dev_valid_name of net/core/dev.c)."""
    if name in {".", ".."} or len(name.encode()) >= _IFNAMSIZ:
        return False
    return not any(each in "/:" or each.isspace() for each in name)
