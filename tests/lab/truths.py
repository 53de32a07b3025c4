# SPDX-License-Identifier: Apache-2.0
"""What a fault really is, in the vocabulary of verdicts. Pure."""

from collections.abc import Callable

from netagent.model import path
from tests.lab import cms, pods
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

OVN_LOOKUP = 33
"""OpenFlow table in which OVN 23.03 decides where a packet for a hardware address goes: the logical
one is 25, `ls_in_l2_lkup`, and the first is 8 (ovn-architecture(7))."""


def truth_of(spec: Spec, target: str, state: State) -> Truth:
    """Return the truth of a fault in a lab; raise `LabError` where it can have none."""
    if spec.kind is Kind.LAB and spec.blameless:
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
    return Truth("container", f"container {pods.sandbox(running(target, state).id)}")


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


def _of_controller(part: str) -> Truth:
    component = path.controller(part)
    return Truth(str(component.layer), str(component))


def _instance_truth(_spec: Spec, target: str, state: State) -> Truth:
    return _of_controller(f"h{host_of(target, state.shape)}")


def _port_truth(_spec: Spec, target: str, state: State) -> Truth:
    endpoint = endpoint_of(target, state.shape)
    running(endpoint.container.id, state)
    return _of_controller(f"port {cms.port(endpoint)}")


def _intended_truth(spec: Spec, target: str, state: State) -> Truth:
    _port_truth(spec, target, state)
    return NOBODY


def _offered_truth(_spec: Spec, target: str, state: State) -> Truth:
    return _of_controller(f"tunnel h{rnic_of(target, state.shape).host}")


def _lost_truth(_spec: Spec, target: str, state: State) -> Truth:
    found = destination_of(target, state.shape)
    running(found.endpoint.container.id, state)
    return Truth("overlay", f"flow h{found.host}/{INTEGRATION_BRIDGE}/table={OVN_LOOKUP}")


def _translation_truth(_spec: Spec, target: str, _state: State) -> Truth:
    if target != Kind.LAB.value:
        raise bad_target(target, Kind.LAB)
    return _of_controller("northd")


def _chassis_truth(_spec: Spec, target: str, state: State) -> Truth:
    if target in state.shape.host_names:
        raise LabError(f"{target} is there", "take a name that no host has")
    return _of_controller(f"chassis {target}")


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
    Kind.CHASSIS: _chassis_truth,
}
_OWN_TRUTHS: dict[str, _Truth] = {
    "address-refused": _port_truth,
    "controller-cut-off": _instance_truth,
    "controller-frozen": _instance_truth,
    "controller-gone": _instance_truth,
    "far-vni": _tunnel_truth,
    "flow-lost": _lost_truth,
    "host-starved": _host_truth,
    "policy-drop": _intended_truth,
    "port-contested": _port_truth,
    "port-disabled": _intended_truth,
    "port-misplaced": _port_truth,
    "port-unbound": _port_truth,
    "translation-stale": _translation_truth,
    "tunnel-address-taken": _offered_truth,
    "tunnel-address-wrong": _offered_truth,
    "tunnel-source-filtered": _tunnel_truth,
    "upcall-flood": _flooded_truth,
    "vswitchd-killed": _vswitch_truth,
}
