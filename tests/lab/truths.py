# SPDX-License-Identifier: Apache-2.0
"""What a fault really is, in the vocabulary of verdicts. Pure."""

from collections.abc import Callable

from tests.lab.catalogue import Spec
from tests.lab.errors import LabError
from tests.lab.shape import INTEGRATION_BRIDGE, rnic, tunnel
from tests.lab.state import NOBODY, State, Truth
from tests.lab.targets import (
    Kind,
    bad_target,
    destination_of,
    endpoint_of,
    host_of,
    link_of,
    rnic_of,
    running,
)


def truth_of(spec: Spec, target: str, state: State) -> Truth:
    """Return the truth of a fault in a lab; raise `LabError` where it can have none."""
    if spec.kind is Kind.LAB:
        return _lab_truth(target, state)
    return (_OWN_TRUTHS.get(spec.name) or _TRUTHS[spec.kind])(spec, target, state)


def _lab_truth(target: str, state: State) -> Truth:
    if target != Kind.LAB.value:
        raise bad_target(target, Kind.LAB)
    if not state.agents:
        raise LabError("no agents run in this lab", "run: up without --no-agents")
    return NOBODY


def _link_truth(_spec: Spec, target: str, state: State) -> Truth:
    if state.shape.segments == 1:
        raise LabError("one segment sends nothing over spines", "run: up --segments 2")
    return Truth("underlay", f"link {link_of(target, state.shape).name}")


def _spine_truth(_spec: Spec, target: str, state: State) -> Truth:
    if target not in state.shape.spine_names:
        raise bad_target(target, Kind.SPINE)
    return Truth("underlay", f"switch {target}")


def _leaf_truth(_spec: Spec, target: str, state: State) -> Truth:
    if target not in state.shape.leaf_names:
        raise bad_target(target, Kind.LEAF)
    return Truth("underlay", f"switch {target}")


def _host_truth(_spec: Spec, target: str, state: State) -> Truth:
    host = host_of(target, state.shape)
    if not state.agents:
        raise LabError("no agents run in this lab", "run: up without --no-agents")
    return Truth("host", f"host h{host}")


def _rnic_truth(_spec: Spec, target: str, state: State) -> Truth:
    found = rnic_of(target, state.shape)
    return Truth("rnic", f"rnic h{found.host}/{rnic(found.rail)}")


def _tunnel_truth(_spec: Spec, target: str, state: State) -> Truth:
    found = rnic_of(target, state.shape)
    return Truth("overlay", f"tunnel h{found.host}/{tunnel(found.rail)}")


def _flow_truth(spec: Spec, target: str, state: State) -> Truth:
    found = destination_of(target, state.shape)
    container = running(found.endpoint.container.id, state)
    host = container.host if spec.far else found.host
    return Truth("overlay", f"flow h{host}/{INTEGRATION_BRIDGE}/table={int(spec.table)}")


def _container_truth(_spec: Spec, target: str, state: State) -> Truth:
    return Truth("container", f"container {running(target, state).id}")


def _device_truth(_spec: Spec, target: str, state: State) -> Truth:
    endpoint = endpoint_of(target, state.shape)
    host = running(endpoint.container.id, state).host
    return Truth("rnic", f"rnic h{host}/{endpoint.rdma_device}")


def _flooded_truth(_spec: Spec, target: str, state: State) -> Truth:
    container = running(endpoint_of(target, state.shape).container.id, state)
    return Truth("overlay", f"vswitch h{container.host}")


def _vswitch_truth(_spec: Spec, target: str, state: State) -> Truth:
    return Truth("overlay", f"vswitch h{host_of(target, state.shape)}")


def _agent_truth(_spec: Spec, target: str, state: State) -> Truth:
    host = host_of(target, state.shape)
    if not state.agents:
        raise LabError("no agents run in this lab", "run: up without --no-agents")
    return Truth("agent", f"agent h{host}")


_Truth = Callable[[Spec, str, State], Truth]
_TRUTHS: dict[Kind, _Truth] = {
    Kind.LINK: _link_truth,
    Kind.SPINE: _spine_truth,
    Kind.LEAF: _leaf_truth,
    Kind.RNIC: _rnic_truth,
    Kind.FLOW: _flow_truth,
    Kind.CONTAINER: _container_truth,
    Kind.ENDPOINT: _device_truth,
    Kind.HOST: _agent_truth,
}
_OWN_TRUTHS: dict[str, _Truth] = {
    "far-vni": _tunnel_truth,
    "host-starved": _host_truth,
    "tunnel-source-filtered": _tunnel_truth,
    "upcall-flood": _flooded_truth,
    "vswitchd-killed": _vswitch_truth,
}
