# SPDX-License-Identifier: Apache-2.0
"""The pages for whoever has to act on a verdict: one for each kind of component and symptom."""

from collections.abc import Mapping
from dataclasses import dataclass

from netagent.model.finding import MASKED, FindingKind
from netagent.model.verdict import Symptom, Verdict

FOLDER = "docs/runbooks"
"""Where the pages are in the repository."""

UNDECIDED = "undecided"
"""Instead of a kind, where a verdict names no component."""

HOW: Mapping[Symptom, str] = {
    Symptom.UNCONNECTIVITY: "loses",
    Symptom.LOSS: "loses",
    Symptom.LATENCY: "slow",
    Symptom.SILENCE: "silent",
    Symptom.DELAY: "late",
    Symptom.MASKED: "masked",
    Symptom.MISSING: "missing",
    Symptom.HELD_UP: "holds-up",
}
"""Symptom -> the second half of a page's name. A part of the probes and all of them are one page:
what to do is the same."""

PAGES: Mapping[str, str] = {
    "switch-loses": "A switch loses packets",
    "switch-slow": "A switch delays packets",
    "link-loses": "A link loses packets",
    "link-slow": "A link delays packets",
    "rnic-loses": "An RNIC, its cable or its switch port loses packets",
    "rnic-slow": "An RNIC, its cable or its switch port delays packets",
    "rnic-masked": "An RNIC works, but not as it should",
    "flow-loses": "An entry of a flow table drops packets or sends them astray",
    "flow-slow": "Flows are not in the RNIC, and so are slow",
    "tunnel-loses": "A tunnel loses packets",
    "vswitch-loses": "A virtual switch loses packets",
    "container-loses": "A container crashed, or loses packets",
    "container-slow": "A container's packets are slow",
    "container-missing": "A declared container never came",
    "endpoint-loses": "One endpoint of a container loses packets",
    "endpoint-slow": "One endpoint of a container is slow",
    "host-loses": "A host loses packets on all of its RNICs",
    "host-slow": "A host's packets are slow on all of its RNICs",
    "host-silent": "A host is not heard, or its clock is wrong",
    "host-late": "A host gets no CPU, and answers probes late",
    "host-masked": "A part of a host works, but not as it should",
    "agent-silent": "A host's agent does not report",
    "controller-loses": "A controller's word costs endpoints their packets",
    "controller-masked": "A controller stands still or is wrong, and costs nothing yet",
    "rank-holds-up": "A rank of a job holds it up, and the network does not",
    "host-holds-up": "A host's ranks hold a job up, and the network does not",
    "task-holds-up": "A job is held up, and no one rank or link is at fault",
    "undecided-loses": "Packets are lost, and the evidence does not name one part",
    "undecided-slow": "Packets are slow, and the evidence does not name one part",
    "undecided-silent": "Most hosts are not heard at once",
    "findings": "What a host states, and is no incident",
    "analyzer-itself": "The analyzer itself is in trouble",
}
"""Name of a page -> its title."""

OTHERS = frozenset({"findings", "analyzer-itself"})
"""Pages of no verdict."""

OF_FINDINGS: Mapping[FindingKind, str] = {
    FindingKind.RNIC_DOWN: "rnic-loses",
    FindingKind.RNIC_FLAPPING: "rnic-loses",
    FindingKind.GID_CHANGED: "rnic-loses",
    **dict.fromkeys(MASKED, "rnic-masked"),
    FindingKind.CONTAINER_CRASHED: "container-loses",
    FindingKind.ENDPOINT_DOWN: "endpoint-loses",
    FindingKind.FLOODED: "endpoint-loses",
    FindingKind.VSWITCH_DOWN: "vswitch-loses",
    FindingKind.CONTROLLER_STALE: "controller-masked",
    FindingKind.TRANSLATION_STALE: "controller-masked",
    FindingKind.TUNNEL_ADDRESS_WRONG: "controller-masked",
    FindingKind.TUNNEL_ADDRESS_TAKEN: "controller-masked",
    FindingKind.GHOST_CHASSIS: "controller-masked",
    FindingKind.PORT_UNBOUND: "controller-loses",
    FindingKind.PORT_CONTESTED: "controller-loses",
    FindingKind.PORT_MISPLACED: "controller-loses",
    FindingKind.ADDRESS_REFUSED: "controller-loses",
}
"""Finding -> its page, which names it; those that are not here are on `findings`."""


@dataclass(frozen=True, slots=True)
class Runbooks:
    """Where the pages are."""

    base: str = FOLDER
    """A folder or a URL, to which ``/NAME.md`` is added; or a text with ``{name}`` in it."""

    def of(self, name: str) -> str:
        """Return where a page is."""
        if "{name}" in self.base:
            return self.base.replace("{name}", name)
        return f"{self.base.rstrip('/')}/{name}.md"


def runbook_of(verdict: Verdict) -> str:
    """Return the name of the page of a verdict."""
    kind = verdict.component.kind.value if verdict.component else UNDECIDED
    return page_of(kind, HOW[verdict.symptom])


def page_of(kind: str, how: str) -> str:
    """Return the name of a page; of what no localiser says so far, the first of that kind."""
    name = f"{kind}-{how}"
    return name if name in PAGES else next(each for each in PAGES if each.startswith(f"{kind}-"))


def runbook_of_finding(kind: FindingKind) -> str:
    """Return the name of the page of a finding."""
    return OF_FINDINGS.get(kind, "findings")
