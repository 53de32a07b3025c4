# SPDX-License-Identifier: Apache-2.0
"""A flow-table lookup written straight from ovs-fields(7), slow and without any cleverness."""

from ovs_checks.openflow.fields import FIELDS, read
from ovs_checks.openflow.flow import Flow
from ovs_checks.openflow.packet import Header


def lookup(flows: list[Flow], header: Header) -> Flow | None:
    """Return the matching flow of highest priority, the first dumped among equals."""
    best = None
    for flow in flows:
        if flow_matches(flow, header) and (best is None or flow.priority > best.priority):
            best = flow
    return best


def flow_matches(flow: Flow, header: Header) -> bool:
    """Compare bit by bit; an option of a tunnel must be there, whatever is in it."""
    for term in flow.match.terms:
        if not _is_there(term.field, header):
            return False
        have = read(FIELDS[term.field], header)
        for bit in range(FIELDS[term.field].width):
            if term.mask >> bit & 1 and (have ^ term.value) >> bit & 1:
                return False
    return True


def failing_terms(flow: Flow, header: Header) -> int:
    """Count the terms of `flow` that do not hold."""
    return sum(
        not _is_there(term.field, header)
        or read(FIELDS[term.field], header) & term.mask != term.value
        for term in flow.match.terms
    )


def _is_there(field: str, header: Header) -> bool:
    # tun_metadata_set_match() of lib/tun-metadata.c has the packet's map of options compared, too.
    wanted = FIELDS[field].present
    return header.tun_present & wanted == wanted
