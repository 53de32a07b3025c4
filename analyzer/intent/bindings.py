# SPDX-License-Identifier: Apache-2.0
"""Which flows of ports a host lacks, of what its ports of the same kind have. Pure.

Flows of a port that no logical flow stands for carry the cookie of its binding. In which tables
they lie differs between releases of OVN and kinds of ports, not between two ports of a kind.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from analyzer.intent.logical import Bound, Host

FEWEST = 3
"""Fewest ports of a kind of which one can be odd. Chosen: of two, nobody knows which is."""
PATCH = "patch"


@dataclass(frozen=True, slots=True)
class Lacking:
    """A port without flows that those of its kind have."""

    port: str
    cookie: int
    tables: tuple[int, ...]
    """OpenFlow tables in which it has none."""
    is_here: bool
    """Whether it is bound at this host, or leads between networks; else it is another one's."""


@dataclass(frozen=True, slots=True)
class Held:
    """Ports held against each other."""

    lacking: tuple[Lacking, ...] = ()
    compared: int = 0
    alone: tuple[str, ...] = ()
    """Ports with too few of their kind, of which nobody can say what they should have."""


def held(
    bindings: Iterable[Bound],
    host: Host,
    chassis: str,
    tables: Mapping[int, Collection[int]],
    kinds: Mapping[str, str],
    moving: Collection[str] = (),
) -> Held:
    """Return which ports lack what most of their kind have.

    `tables` are those in which each cookie has flows, `kinds` says of ports that are bound here
    what else they differ in, `moving` are ports that may be at several hosts.
    """
    alike: defaultdict[tuple[str, ...], list[Bound]] = defaultdict(list)
    alone = []
    for each in bindings:
        if each.datapath not in host.datapaths or not (each.chassis or each.kind == PATCH):
            continue
        kind = _kind(each, chassis, kinds)
        if kind is None or each.port in moving:
            alone.append(each.port)
        else:
            alike[kind].append(each)
    lacking, compared = [], 0
    for kind, ports in alike.items():
        if len(ports) < FEWEST:
            alone += [each.port for each in ports]
            continue
        compared += len(ports)
        counts = Counter(table for each in ports for table in tables.get(each.cookie, ()))
        usual = {table for table, count in counts.items() if 2 * count > len(ports)}
        for each in ports:
            absent = tuple(sorted(usual - set(tables.get(each.cookie, ()))))
            if absent:
                lacking.append(Lacking(each.port, each.cookie, absent, kind[0] != "at"))
    return Held(tuple(sorted(lacking, key=lambda each: each.port)), compared, tuple(sorted(alone)))


def _kind(each: Bound, chassis: str, kinds: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return what ports have in common whose flows lie in the same tables; None: nobody knows."""
    if each.kind == PATCH:
        return (PATCH,)
    if each.kind:
        return None
    if each.chassis != chassis:
        return "at", each.chassis  # all of one host are reached by the same tunnels, or none is
    return ("here", kinds[each.port]) if each.port in kinds else None
