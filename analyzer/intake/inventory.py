# SPDX-License-Identifier: Apache-2.0
"""A host's inventory, decoded: what of its parts is compared with what of others'."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from netagent.model.errors import RemoteProtocolError
from netagent.model.path import Kind, rnic
from netagent.wire.inventory import MOST_RNICS, MOST_TEXT, Inventory, RnicInventory

PRIORITIES = range(8)
"""Of IEEE 802.1Q."""
MOST_NUMBER = 1 << 31
"""Largest MTU and rate that are taken. Chosen: beyond all that will be."""


class Aspect(NamedTuple):
    """What is compared: one property of parts that are alike."""

    kind: Kind
    """RNIC or HOST."""
    model: str
    """Of RNICs; of hosts that of most of their RNICs, "" where they have none."""
    what: str
    """``firmware``, ``MTU``, ``kernel``, ..."""


NETAGENT = "netagent"
"""Aspect of hosts that is the agent's version."""

Parts = Mapping[Aspect, Mapping[str, tuple[str, ...]]]
"""Value of each aspect -> names of the host's parts that have it, in order."""


def parts_of(host: str, inventory: Inventory) -> Parts:
    """Return what is compared of a host.

    RNICs of which no model is known are like no others, and left out. Raises RemoteProtocolError
    where a text or the table is longer than agents make it, or holds what cannot be.
    """
    _check(inventory)
    found: dict[Aspect, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    models = Counter[str]()
    for each in sorted(inventory.rnics, key=lambda each: each.netdev):
        model, name = f"{each.model} {each.board}".strip(), rnic(host, each.netdev).name
        if model:
            models[model] += 1
            for what, value in _of_rnic(each):
                found[Aspect(Kind.RNIC, model, what)][value].append(name)
    kind = min(models, key=lambda model: (-models[model], model), default="")
    for what, value in _of_host(inventory):
        found[Aspect(Kind.HOST, kind, what)][value].append(host)
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}  # most aspects have all parts alike
    return {
        aspect: {
            value: shared.setdefault(tuple(names), tuple(names)) for value, names in values.items()
        }
        for aspect, values in found.items()
    }


def _of_rnic(of: RnicInventory) -> Iterator[tuple[str, str]]:
    yield from _said({"firmware": of.firmware, "driver": of.driver, "trust": of.trust})
    for what, priorities in (("PFC priorities", of.pfc), ("DCQCN priorities", of.dcqcn)):
        if priorities is not None:
            yield what, ",".join(map(str, sorted(set(priorities)))) or "none"
    if of.mtu is not None:
        yield "MTU", str(of.mtu)
    if of.mbps is not None:
        yield "speed", f"{of.mbps / 1000:g} Gb/s"
    if of.offload is not None:
        yield "hw-tc-offload", _switch(is_on=of.offload)


def _of_host(of: Inventory) -> Iterator[tuple[str, str]]:
    yield from _said({"kernel": of.kernel, "Open vSwitch": of.ovs, NETAGENT: of.netagent})
    if of.hw_offload is not None:
        yield "hw-offload", _switch(is_on=of.hw_offload)


def _said(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((what, text) for what, text in texts.items() if text)


def _switch(*, is_on: bool) -> str:
    return "on" if is_on else "off"


def _check(inventory: Inventory) -> None:
    rnics = inventory.rnics
    if len(rnics) > MOST_RNICS:
        raise RemoteProtocolError(f"an inventory of {len(rnics)} RNICs; {MOST_RNICS} at most")
    if len({each.netdev for each in rnics}) < len(rnics):
        raise RemoteProtocolError("an inventory that has an RNIC twice")
    for text in (inventory.kernel, inventory.ovs, inventory.netagent):
        _check_text(text)
    for each in rnics:
        for text in (each.netdev, each.model, each.board, each.firmware, each.driver, each.trust):
            _check_text(text)
        for priority in (*(each.pfc or ()), *(each.dcqcn or ())):
            if priority not in PRIORITIES:
                raise RemoteProtocolError(f"an inventory with the priority {priority}")
        for number in (each.mtu, each.mbps):
            if number is not None and not 0 <= number <= MOST_NUMBER:
                raise RemoteProtocolError(f"an inventory with the number {number}")


def _check_text(text: str) -> None:
    if len(text) > MOST_TEXT or not text.isprintable():
        raise RemoteProtocolError(f"an inventory with the text {text[:MOST_TEXT]!r}")
