# SPDX-License-Identifier: Apache-2.0
"""All incidents that are kept, page by page, newest first."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

from analyzer.server.page.page import Page
from analyzer.server.page.shown import MAX_LOOKED, seen, short
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from netagent.model.path import Layer
from netagent.model.verdict import Incident, IncidentState

STATES = ("active", *(each.value for each in IncidentState))
"""What may be asked for; `active` is whatever is not over."""
LAYERS = tuple(each.value for each in Layer)
MAX_PAGE = 200
"""Most incidents of a page. Chosen: some hundred KB."""

Plain = dict[str, Any]
Place = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which incidents."""

    state: str = ""
    """One of STATES; empty: any."""
    layer: str = ""
    """One of LAYERS; empty: any, and those of which it is not known what is at fault."""
    component: str = ""
    """What the name of what is at fault has in it, in any case."""

    def __post_init__(self) -> None:
        for given, known in ((self.state, STATES), (self.layer, LAYERS)):
            if given and given not in known:
                raise Problem(400, f"{given!r} is none of them", f"use {', '.join(known)}")

    def has(self, known: Incident) -> bool:
        """Return whether an incident, as the caller may see it, is wanted."""
        component, layer = known.verdict.component, known.verdict.layer
        return (not self.layer or layer == self.layer) and (
            not self.component
            or (component is not None and self.component.casefold() in str(component).casefold())
        )


def archive(page: Page, sees: Sight, wanted: Wanted, after: str, limit: int) -> Plain:
    """Return a page of what is kept, and where the next one begins.

    `after` is the `next` of the page before; empty: the first one. A page may have fewer than
    `limit`, where few of those looked at are wanted. Raises Problem.
    """
    analyzer, behind = page.analyzer, _parsed(after) if after else None
    every = (e for e in analyzer.journal.incidents(wanted.state or None)
             if behind is None or _place(e) > behind)  # fmt: skip
    told, last = list[Plain](), None
    for known in islice(every, MAX_LOOKED):
        last, mine = known, seen(analyzer, sees, known)
        if mine is not None and wanted.has(mine):
            told.append(short(analyzer, mine))
        if len(told) == limit:
            break
    has_more = last is not None and next(every, None) is not None
    return {
        "at_ns": analyzer.clock(),
        "incidents": told,
        "next": f"{last.detected_ns}.{last.id}" if has_more and last is not None else None,
        "states": STATES,
        "layers": LAYERS,
    }


def _place(known: Incident) -> Place:
    """Return where an incident stands in the order of the journal, which may forget it."""
    return -known.detected_ns, known.id


def _parsed(after: str) -> Place:
    at_ns, _, name = after.partition(".")
    if not at_ns.isdecimal():
        raise Problem(400, f"{after!r} is no place to go on from", "begin with the first page")
    return -int(at_ns), name
