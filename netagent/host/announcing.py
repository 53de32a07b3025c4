# SPDX-License-Identifier: Apache-2.0
"""What a host reports to the analyzer: which endpoints others may probe, and what is amiss."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from netagent.host.facts import HostView
from netagent.model.endpoint import Endpoint, RdmaAddress, oddity
from netagent.model.finding import MASKED, MAX_TEXT, Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, rnic
from netagent.wire.unprobed import MOST_PORTS, MOST_TEXT, Unprobed, UnprobedPort, Why

_LAST = (FindingKind.MISCONFIGURED, FindingKind.UNKNOWN_INPUT)
"""What is no fault of anything that carries packets."""
_DEAD = {FindingKind.RNIC_DOWN, FindingKind.GID_CHANGED}
"""What takes an endpoint's RNIC away from it, whatever its interface says."""


@dataclass(frozen=True, slots=True)
class RdmaState:
    """What RDMA has to say of the endpoints that it serves."""

    chosen: Callable[[EndpointId], bool | None] = lambda _: False
    """Whether an endpoint is probed by RDMA; None where that is not known yet."""
    addresses: Mapping[EndpointId, RdmaAddress] = field(default_factory=dict)
    """Where each RDMA endpoint answers, or last did."""
    failed: Mapping[EndpointId, str] = field(default_factory=dict)
    """Why endpoints without an address have none."""
    findings: tuple[Finding, ...] = ()
    """Findings about RDMA devices."""


def announced(
    view: HostView, unopened: Mapping[EndpointId, str], rdma: RdmaState
) -> tuple[Endpoint, ...]:
    """Return what others may probe: what answers, and what did until its RNIC failed.

    `unopened` says why sockets could not be opened. An endpoint that makes no sense is left out:
    others refuse all that a host says for it.
    """
    return tuple(e for e in _announced(view.endpoints, unopened, rdma) if not oddity(e))


def _announced(
    endpoints: Iterable[Endpoint], unopened: Mapping[EndpointId, str], rdma: RdmaState
) -> Iterator[Endpoint]:
    for endpoint in endpoints:
        if rdma.chosen(endpoint.id) is False:
            if endpoint.id not in unopened:
                yield endpoint
        elif endpoint.id in rdma.addresses:
            yield replace(endpoint, rdma=rdma.addresses[endpoint.id])


def findings(
    view: HostView, unopened: Mapping[EndpointId, str], rdma: RdmaState, *, wall_ns: int
) -> tuple[Finding, ...]:
    """Return all that the host finds amiss with its parts."""
    dead = {f.component.name.partition("/")[2] for f in rdma.findings if f.kind in _DEAD}
    # An interface that is down takes its RNIC with it: the RNIC's finding says both.
    explained = {str(key) for key, address in rdma.addresses.items() if address.device in dead}
    found = [
        finding
        for finding in view.findings
        if finding.kind is not FindingKind.ENDPOINT_DOWN or finding.component.name not in explained
    ]
    slow = _slow_devices(view, rdma)
    theirs = [
        finding
        for finding in rdma.findings
        if finding.kind is not FindingKind.RATE_REDUCED or finding.component not in slow
    ]
    mute = _mute_ones(view, unopened, rdma)
    told = (*found, *theirs, *(_mute(key, why, wall_ns) for key, why in mute.items()))
    return tuple(map(_plain, told))


def unprobed(view: HostView, unopened: Mapping[EndpointId, str], rdma: RdmaState) -> Unprobed:
    """Return all that is no endpoint that others may probe, those included that cannot answer."""
    mute, said = _mute_ones(view, unopened, rdma), view.unprobed
    told = tuple(
        UnprobedPort(
            port=each.port,
            why=Why.MUTE,
            text=_plain_text(mute[each.id]).replace("\n", " ")[:MOST_TEXT],
            bridge=each.bridge,
            container=each.id.container,
            task=each.task,
        )
        for each in view.endpoints
        if each.id in mute
    )
    return Unprobed(ports=(*told, *said.ports)[:MOST_PORTS], count=len(told) + said.count)


def foremost(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings with what matters most first: whoever takes no more than some takes these."""
    return tuple(sorted(found, key=lambda each: (each.kind in _LAST, each.kind in MASKED)))


def _mute_ones(
    view: HostView, unopened: Mapping[EndpointId, str], rdma: RdmaState
) -> dict[EndpointId, str]:
    """Return which endpoints cannot answer probes, and why."""
    mute = {key: why for key, why in unopened.items() if rdma.chosen(key) is False}
    odd = ((e.id, oddity(e)) for e in _announced(view.endpoints, unopened, rdma))
    return mute | {**rdma.failed} | {key: why for key, why in odd if why}


def _plain(finding: Finding) -> Finding:
    read = {key: _plain_text(text) for key, text in finding.evidence.items()}
    return replace(finding, text=_plain_text(finding.text), evidence=read)


def _plain_text(text: str) -> str:
    """Return a text as the analyzer takes it."""
    cut = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in cut)


def _slow_devices(view: HostView, rdma: RdmaState) -> set[Component]:
    """Return the RDMA devices behind RNICs that the host found slow: it is one cable's finding."""
    slow = {
        f.component.name.partition("/")[2]
        for f in view.findings
        if f.kind is FindingKind.RATE_REDUCED
    }
    rails = {u.rail for u in view.uplinks if slow.intersection(u.members)}
    return {
        rnic(endpoint.host, rdma.addresses[endpoint.id].device)
        for endpoint in view.endpoints
        if endpoint.id in rdma.addresses
        and (endpoint.id.rail in rails if endpoint.bridge else endpoint.rnic in slow)
    }


def _mute(endpoint: EndpointId, why: str, wall_ns: int) -> Finding:
    # Nobody may probe what cannot answer: a finding reports it, not lost probes.
    component = Component(Kind.ENDPOINT, str(endpoint))
    return Finding(FindingKind.UNKNOWN_INPUT, component, f"cannot answer probes: {why}", wall_ns)
