# SPDX-License-Identifier: Apache-2.0
"""What hosts and the topology file claim, and what of it is taken."""

from collections.abc import Collection, Iterable
from itertools import islice

from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.finding import MAX_TEXT, Finding, FindingKind
from netagent.model.path import Component, Kind, link, rnic
from netagent.wire.messages import Summary

OF_HOSTS = frozenset(Kind) - {Kind.SWITCH, Kind.LINK}
"""Kinds of what a host has, and may state something of."""
MOST_FINDINGS = 64
"""Most findings taken of one summary. Chosen: a host has some ten parts that anything can be stated
of; each costs time in every window."""
MOST_NAME = 200
"""Most characters of a component's name. Chosen: names of containers have 64."""
MOST_READ = 32
"""Most things read that a finding quotes. Chosen: likewise."""


def own_findings(summary: Summary, containers: Collection[str]) -> tuple[Finding, ...]:
    """Return the findings about the sender's own parts; `containers` are those it registered.

    A certificate lets a host speak of itself: what it says of others is dropped, and what is more
    or longer than any host has to say.
    """
    own = (f for f in summary.findings if is_own(f.component, summary.host, containers))
    return tuple(islice(filter(_is_plain, own), MOST_FINDINGS))


def _is_plain(finding: Finding) -> bool:
    """Return whether a finding is of a part of a host, and can be shown to people as it is."""
    component = finding.component
    texts = (finding.text, *finding.evidence, *finding.evidence.values())
    return (
        component.kind in OF_HOSTS
        and len(component.name) <= MOST_NAME
        and component.name.isprintable()
        and len(finding.evidence) <= MOST_READ
        and all(len(text) <= MAX_TEXT for text in texts)
        and all("".join(text.split("\n")).isprintable() for text in texts)
    )


def is_own(component: Component, host: str, containers: Collection[str] = ()) -> bool:
    """Return whether a component is a part of `host`, or one of its `containers`."""
    if component.kind in {Kind.CONTAINER, Kind.ENDPOINT}:
        return component.name.partition("/rail")[0] in containers
    return component.name.partition("/")[0] == host


def differences(topology: LearnedTopology, endpoints: Iterable[Endpoint]) -> list[Finding]:
    """Return findings where traces differ from the declared topology."""
    found: dict[Component, str] = {
        link(a, b): f"probes cross a link between {a} and {b} that the topology file lacks"
        for a, b in sorted(topology.undeclared_links())
    }
    leaves = topology.leaves()
    for endpoint in endpoints:
        port = rnic(endpoint.host, endpoint.rnic)
        seen = leaves.get(endpoint.underlay) if endpoint.bridge else None
        said = topology.declared.leaf(endpoint.host, endpoint.rnic)
        if said and seen and said != seen:
            found[port] = f"{port} is cabled to {seen}; the topology file says {said}"
    return [Finding(FindingKind.TOPOLOGY_DIFFERS, c, text, 0) for c, text in found.items()]
