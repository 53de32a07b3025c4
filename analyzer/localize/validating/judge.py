# SPDX-License-Identifier: Apache-2.0
"""What a host's comparison of its flow tables says of the trouble of one pair. Pure.

A host is believed about its own parts only: tables that its answer names have to be its own, and an
RNIC is named as its host registered it, never as an answer says.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from analyzer.localize.case import OrderedPair
from analyzer.localize.claims import is_own
from netagent.model.endpoint import Endpoint
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.path import Component, Kind, rnic
from netagent.wire.validate import Inconsistency, ValidateReply

STATED = ("stale-megaflow", "missing-filter", "orphan-filter")
"""Checks whose warnings explain losses, and slowness: packets do what no table says."""
SLOWS = ("in-software", "not-offloaded", "stale-counter", "offload-churn")
"""Checks whose warnings explain slowness only: packets go the right way, by the processor."""
OF_TABLES = "stale-megaflow"
"""The one of them that is between OpenFlow and the datapath; the others are the RNIC's."""
MAX_QUOTED = 4
"""Warnings of one answer that become evidence. Chosen: to be read."""
MAX_LINE = 400
"""Characters of a quoted entry. Chosen: what it matches stands at its beginning, what it does at
its end."""
MAX_NAME = 200
"""Characters of a component's name. Chosen: a host, a bridge and a table fit."""
_OWN = frozenset({Kind.FLOW, Kind.TUNNEL, Kind.VSWITCH})
_BY_DESIGN = "userspace("
"""What a flow of the datapath does that no RNIC can do."""


@dataclass(frozen=True, slots=True)
class Accused:
    """A part of a host, and the inconsistency that accuses it."""

    component: Component
    finding: Inconsistency


@dataclass(frozen=True, slots=True)
class Compared:
    """What a host's comparison came to, for a person who asked for it."""

    host: str
    said: Evidence | None = None
    """None if there was none."""
    accused: Accused | None = None
    why: str = ""
    """Why it says nothing; empty if it says something."""


def honest(reply: ValidateReply, host: str) -> bool:
    """Return whether `host` speaks of its own tables only."""
    return reply.host == host and all(
        found.component.kind in _OWN
        and is_own(found.component, host)
        and len(found.component.name) <= MAX_NAME
        for found in reply.findings
    )


def accused(reply: ValidateReply, end: Endpoint, *, is_slow: bool) -> Accused | None:
    """Return the part of the host of `end` that explains its trouble; None where none does.

    A note accuses nobody: it is what one look cannot settle.
    """
    for check in (*STATED, *SLOWS) if is_slow else STATED:
        for found in reply.findings:
            if found.check == check and found.severity == "warning" and _is_borne_out(found):
                own = found.component if check == OF_TABLES else rnic(end.host, end.rnic)
                return Accused(own, found)
    return None


def _is_borne_out(found: Inconsistency) -> bool:
    """Return whether both copies are quoted, and the difference is not by design."""
    quotes = {each.what: each.entry for each in found.quotes}
    both = quotes.keys() >= ({"intent", "datapath"} if found.check == OF_TABLES else {"hardware"})
    return both and not (found.check in SLOWS and _BY_DESIGN in quotes.get("datapath", ""))


def evidence(pair: OrderedPair, reply: ValidateReply) -> Evidence:
    """Return a comparison as evidence; `pair` has the end on the host that was asked first."""
    values = {
        "host": reply.host,
        "source": str(pair[0]),
        "target": str(pair[1]),
        "flows": reply.flows,
        "judged": reply.judged,
        "hardware": reply.in_hardware,
        "lines": list(_lines(reply)),
    }
    return Evidence(EvidenceKind.COMPARED, values)


def _lines(reply: ValidateReply) -> Iterator[str]:
    warnings = [found for found in reply.findings if found.severity == "warning"]
    for found in warnings[:MAX_QUOTED]:
        yield _short(f"{found.check} ({found.component}): {found.text}")
        yield from (_short(f"{each.what}: {each.entry}") for each in found.quotes)
    more = len(warnings[MAX_QUOTED:]) + reply.omitted
    if more:
        yield f"and {more} more"


def _short(text: str) -> str:
    """Return a text, or its beginning and its end."""
    half = MAX_LINE // 2
    return text if len(text) <= MAX_LINE else f"{text[:half]} … {text[-half:]}"
