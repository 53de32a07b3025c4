# SPDX-License-Identifier: Apache-2.0
"""Looking a packet up in one flow table."""

from collections.abc import Sequence
from dataclasses import dataclass

from .flow import Flow, Match, Term
from .packet import FIELDS, Header, read


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup found."""

    flow: Flow | None
    """The flow that matches; None for a miss."""

    doubt: str = ""
    """Why that is uncertain; empty if it is not."""


@dataclass(frozen=True, slots=True)
class Near:
    """A flow that does not match, and the terms that it fails by."""

    flow: Flow
    failed: tuple[Term, ...]


def matches(match: Match, header: Header) -> bool:
    """Tell whether all terms that are understood hold."""
    return all(header[slot] & mask == value for slot, value, mask in match.tests)


def lookup(flows: Sequence[Flow], header: Header) -> Found:
    """Find the flow of highest priority that matches; `flows` are sorted, highest priority first.

    A field that is not understood may or may not match, and Open vSwitch leaves open which of two
    matching flows of one priority wins: both are doubts, the latter only if the actions differ.
    """
    best: Flow | None = None
    for flow in flows:
        if best and flow.priority < best.priority:
            break
        if not matches(flow.match, header):
            continue
        if flow.match.unknown:
            return Found(flow, f"field not understood: {flow.match.unknown[0].text}")
        if best and best.actions != flow.actions:
            return Found(best, f"two flows of priority {flow.priority} match; other: {flow.text}")
        best = best or flow
    return Found(best)


def nearest(flows: Sequence[Flow], header: Header) -> Near | None:
    """Return the flow that fails by the fewest terms, of these the one of highest priority.

    Flows that match everything come near everything; they are passed over, as those that match.
    """
    best: Near | None = None
    for flow in flows:
        failed = tuple(term for term in flow.match.terms if not _holds(term, header))
        if failed and (best is None or len(failed) < len(best.failed)):
            best = Near(flow, failed)
    return best


def _holds(term: Term, header: Header) -> bool:
    return read(FIELDS[term.field], header) & term.mask == term.value
