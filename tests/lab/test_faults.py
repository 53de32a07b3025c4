# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from netagent.model.path import Component
from tests.lab.breakage import _ACTIONS
from tests.lab.catalogue import CATALOGUE, Spec
from tests.lab.errors import LabError
from tests.lab.faults import (
    cut_interfaces,
    disturbed,
    disturbed_host,
    groups,
    of_container,
    plan,
    source_of,
)
from tests.lab.pipeline import Flow, Table, host_flows
from tests.lab.shape import Controller, Shape, Transport, Versions
from tests.lab.state import NOBODY, Fault, State, Truth
from tests.lab.workload import Container

SHAPE = Shape()
EVERYONE = tuple(Container(task, host) for task in ("train-a", "train-b") for host in range(4))
STATE = State(SHAPE, containers=EVERYONE)
RDMA_STATE = State(
    Shape(transport=Transport.RDMA),
    containers=tuple(Container(each.task, each.host, Transport.RDMA) for each in EVERYONE),
)


FLOW_FAULTS = [spec.name for spec in CATALOGUE.values() if spec.is_own_flow]
RIGHT = host_flows(SHAPE, 0, EVERYONE)
OVN_STATE = State(Shape(controller=Controller.OVN), containers=EVERYONE)


def state_for(spec: Spec) -> State:
    if not spec.is_possible(Controller.NONE):
        return OVN_STATE
    return RDMA_STATE if spec.rdma else STATE


TRUTHS = [
    ("link-loss", "underlay", "link leaf-s0-r0 -- spine-0"),
    ("link-down", "underlay", "link leaf-s0-r0 -- spine-0"),
    ("one-way-loss", "underlay", "link leaf-s0-r0 -- spine-0"),
    ("link-pulses", "underlay", "link leaf-s0-r0 -- spine-0"),
    ("leaf-down", "underlay", "switch leaf-s0-r0"),
    ("rnic-loss", "rnic", "rnic h1/rnic0"),
    ("port-drop", "overlay", "flow h0/br-int/table=30"),
    ("wrong-mac", "overlay", "flow h2/br-int/table=50"),
    ("host-starved", "host", "host h2"),
    ("spine-down", "underlay", "switch spine-0"),
    ("slow-link", "underlay", "link leaf-s0-r0 -- spine-0"),
    ("mtu-blackhole", "underlay", "link leaf-s0-r0 -- spine-0"),
    ("rnic-down", "rnic", "rnic h1/rnic0"),
    ("rnic-flapping", "rnic", "rnic h1/rnic0"),
    ("flow-deleted", "overlay", "flow h0/br-int/table=40"),
    ("flow-loop", "overlay", "flow h0/br-int/table=40"),
    ("flow-drop", "overlay", "flow h0/br-int/table=30"),
    ("wrong-tunnel-remote", "overlay", "flow h0/br-int/table=40"),
    ("wrong-vni", "overlay", "flow h0/br-int/table=40"),
    ("flow-shadowed", "overlay", "flow h0/br-int/table=40"),
    ("group-dead", "overlay", "flow h0/br-int/table=40"),
    ("wrong-output-port", "overlay", "flow h2/br-int/table=50"),
    ("wrong-reverse", "overlay", "flow h2/br-int/table=40"),
    ("container-crash", "container", "container train-a-1"),
    ("agent-killed", "agent", "agent h2"),
    ("agent-frozen", "agent", "agent h2"),
    ("vswitchd-killed", "overlay", "vswitch h2"),
    ("link-delay", "underlay", "link leaf-s0-r0 -- spine-0"),
    ("rdma-port-down", "rnic", "rnic h1/rxe-a1-r0"),
    ("gid-change", "rnic", "rnic h1/rxe-a1-r0"),
    ("rdma-drop", "overlay", "flow h0/br-int/table=30"),
    ("tc-drop", "rnic", "rnic h1/rnic0"),
    ("encap-mtu", "rnic", "rnic h1/rnic0"),
    ("far-vni", "overlay", "tunnel h1/vxlan0"),
    ("tunnel-source-filtered", "overlay", "tunnel h1/vxlan0"),
    ("upcall-flood", "overlay", "vswitch h1"),
    ("narrow-port", "rnic", "rnic h1/rnic0"),
    ("ecmp-member", "underlay", "link leaf-s0-r0 -- spine-0"),
    ("spine-loss", "underlay", "switch spine-0"),
    ("leaf-loss", "underlay", "switch leaf-s0-r0"),
    ("wrong-address", "overlay", "flow h0/br-int/table=40"),
    ("background-loss", "", ""),
    ("analyzer-disk-full", "", ""),
    ("management-down", "", ""),
    ("controller-frozen", "controller", "controller h2"),
    ("controller-cut-off", "controller", "controller h2"),
    ("controller-gone", "controller", "controller h2"),
    ("port-unbound", "controller", "controller port train.a.rail0_train-a_train-a-1"),
    ("port-contested", "controller", "controller port train.a.rail0_train-a_train-a-1"),
    ("port-misplaced", "controller", "controller port train.a.rail0_train-a_train-a-1"),
    ("flow-lost", "overlay", "flow h0/br-int/table=33"),
    ("tunnel-address-wrong", "controller", "controller tunnel h1"),
    ("tunnel-address-taken", "controller", "controller tunnel h1"),
    ("address-refused", "controller", "controller port train.a.rail0_train-a_train-a-1"),
    ("translation-stale", "controller", "controller northd"),
    ("ghost-chassis", "controller", "controller chassis ghost"),
    ("policy-drop", "", ""),
    ("port-disabled", "", ""),
]


@pytest.mark.parametrize(("name", "layer", "component"), TRUTHS)
def test_each_fault_has_a_default_target_and_a_truth(name: str, layer: str, component: str) -> None:
    assert plan(name, None, {}, state_for(CATALOGUE[name])).truth == Truth(layer, component)


def test_every_fault_is_done_somewhere_and_its_truth_is_checked() -> None:
    done_by_flows = {name for name, spec in CATALOGUE.items() if spec.is_own_flow}
    assert done_by_flows | _ACTIONS.keys() == CATALOGUE.keys()
    assert {name for name, _, _ in TRUTHS} == CATALOGUE.keys()


@pytest.mark.parametrize("spec", CATALOGUE.values(), ids=CATALOGUE)
def test_every_truth_is_written_as_verdicts_are(spec: Spec) -> None:
    truth = plan(spec.name, None, {}, state_for(spec)).truth
    assert (truth == NOBODY) is spec.blameless
    if truth == NOBODY:
        return
    component = Component.parse(truth.component)
    assert component.layer == truth.layer


@pytest.mark.parametrize("spec", CATALOGUE.values(), ids=CATALOGUE)
def test_the_target_that_the_catalogue_shows_is_understood(spec: Spec) -> None:
    assert plan(spec.name, spec.kind.value, {}, state_for(spec)).target == spec.kind.value


def test_a_link_may_be_written_in_either_order() -> None:
    fault = plan("link-loss", "spine-1 -- leaf-s1-r0", {"percent": 10}, STATE)
    assert fault.target == "leaf-s1-r0--spine-1"
    assert fault.parameters == {"percent": 10}
    assert fault.truth.component == "link leaf-s1-r0 -- spine-1"


@pytest.mark.parametrize(
    ("name", "target", "problem"),
    [
        ("no-such-fault", None, "no fault is called"),
        ("link-loss", "leaf-s0-r0--leaf-s1-r0", "no target"),
        ("spine-down", "spine-2", "no target"),
        ("rnic-down", "h1/rnic2", "no target"),
        ("rnic-down", "h4/rnic0", "no target"),
        ("flow-drop", "h0/train-a-0/rail0", "is local to h0"),
        ("flow-drop", "h0/train-a-1/rail2", "no target"),
        ("flow-drop", "h0/train-c-1/rail0", "does not run"),
        ("container-crash", "train-a-9", "does not run"),
        ("agent-killed", "h9", "no target"),
        ("rdma-drop", None, "needs RDMA devices"),
        ("upcall-flood", "train-a-1", "no target"),
        ("upcall-flood", "train-a-9/rail0", "does not run"),
        ("tunnel-source-filtered", "h0/rnic0", "0 is no other host"),
    ],
)
def test_an_impossible_injection_says_why(name: str, target: str | None, problem: str) -> None:
    with pytest.raises(LabError, match=problem):
        plan(name, target, {}, STATE)


def test_unknown_parameters_and_repeated_injections_are_refused() -> None:
    with pytest.raises(LabError, match="takes no percent"):
        plan("link-down", None, {"percent": 5}, STATE)
    twice = STATE.with_fault(plan("link-down", None, {}, STATE))
    with pytest.raises(LabError, match="injected already"):
        plan("link-down", "spine-0--leaf-s0-r0", {}, twice)


def test_faults_that_need_something_absent_are_refused() -> None:
    with pytest.raises(LabError, match="sends nothing over spines"):
        plan("link-down", None, {}, State(Shape(2, 1, 1, 1)))
    with pytest.raises(LabError, match="no agents run"):
        plan("agent-killed", None, {}, State(SHAPE, agents=False))
    with pytest.raises(LabError, match="no container runs"):
        plan("container-crash", None, {}, State(SHAPE))
    with pytest.raises(LabError, match="no pair of containers"):
        plan("flow-drop", None, {}, State(SHAPE, containers=(Container("train-a", 0),)))


# --- links ---------------------------------------------------------------------------------------


def test_what_is_cut_follows_from_all_faults_together() -> None:
    link = plan("link-down", "leaf-s1-r0--spine-0", {}, STATE)
    spine = plan("spine-down", "spine-0", {}, STATE)
    assert cut_interfaces("spine-0", [link], SHAPE) == {"to-leaf-s1-r0"}
    assert cut_interfaces("spine-1", [link, spine], SHAPE) == set()
    assert cut_interfaces("spine-0", [link, spine], SHAPE) == {
        f"to-{leaf}" for leaf in SHAPE.leaf_names
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("rnic-down", "rnic-flapping"),
        ("link-delay", "slow-link"),
        ("gid-change", "rdma-port-down"),
        ("container-crash", "gid-change"),
        ("upcall-flood", "container-crash"),
    ],
)
def test_what_would_undo_each_other_is_not_injected_at_once(first: str, second: str) -> None:
    one = plan(first, None, {}, RDMA_STATE)
    with pytest.raises(LabError, match=f"{one.key} is injected already"):
        plan(second, None, {}, RDMA_STATE.with_fault(one))


@pytest.mark.parametrize("name", [*FLOW_FAULTS, "far-vni", "tunnel-source-filtered"])
def test_what_is_in_the_lab_s_own_flows_and_tunnels_is_refused_on_ovn(name: str) -> None:
    with pytest.raises(LabError, match="OVN does that here"):
        plan(name, None, {}, OVN_STATE)


def test_faults_of_ovn_are_refused_elsewhere_and_leave_the_lab_s_own_flows_alone() -> None:
    with pytest.raises(LabError, match="is a fault of OVN"):
        plan("flow-lost", None, {}, STATE)
    lost = plan("flow-lost", None, {}, OVN_STATE)
    assert disturbed(RIGHT, [lost], SHAPE, 0) == RIGHT


def test_a_ghost_is_no_host_of_the_lab() -> None:
    with pytest.raises(LabError, match="h1 is there"):
        plan("ghost-chassis", "h1", {}, OVN_STATE)


def test_faults_of_different_things_go_together() -> None:
    crash = plan("container-crash", "train-a-1", {}, RDMA_STATE)
    state = RDMA_STATE.with_fault(crash)
    assert plan("gid-change", "train-b-1/rail0", {}, state)
    assert plan("link-loss", None, {}, state.with_fault(plan("link-delay", None, {}, state)))


@pytest.mark.parametrize("source", [1, 4, -1, 0.5])
def test_a_filtered_source_is_another_host(source: float) -> None:
    assert source_of(plan("tunnel-source-filtered", None, {"source": 3}, STATE), SHAPE) == 3
    with pytest.raises(LabError, match="no other host"):
        plan("tunnel-source-filtered", None, {"source": source}, STATE)


def test_a_container_has_its_own_faults_and_those_of_its_endpoints() -> None:
    faults = [plan(spec.name, None, {}, state_for(spec)) for spec in CATALOGUE.values()]
    found = {fault.name for fault in faults if of_container(fault, "train-a-1")}
    assert found == {
        *("container-crash", "rdma-port-down", "gid-change", "upcall-flood"),
        *("port-unbound", "port-contested", "port-misplaced", "address-refused"),
        *("policy-drop", "port-disabled"),
    }


# --- flows -------------------------------------------------------------------------------------


def changes(fault: Fault, host: int = 0, state: State = STATE) -> tuple[set[Flow], set[Flow]]:
    """Return what the fault takes out of, and puts into, the flows of a host."""
    before = set(host_flows(state.shape, host, state.containers))
    after = set(disturbed(tuple(before), [fault], state.shape, host))
    return before - after, after - before


@pytest.mark.parametrize("name", FLOW_FAULTS)
def test_a_flow_fault_concerns_one_destination_on_one_host(name: str) -> None:
    state = state_for(CATALOGUE[name])
    fault, host = plan(name, None, {}, state), 2 if CATALOGUE[name].far else 0
    gone, added = changes(fault, host=host, state=state)
    assert len(gone) <= 1
    assert len(added) <= (2 if name == "port-drop" else 1)
    assert gone or added
    concerned = {
        "wrong-output-port": "reg2=0x",
        "wrong-mac": "reg2=0x",
        "wrong-reverse": "dl_dst=02:00:00:01:00:0a",
    }
    match = concerned.get(name, "dl_dst=02:00:00:01:00:0c")
    assert all(match in flow.match for flow in gone | added)
    assert changes(fault, host=1, state=state) == (set(), set())
    assert disturbed_host(fault, state.shape) == host


def test_a_dead_group_is_where_its_flow_is_and_watches_no_port() -> None:
    fault = plan("group-dead", None, {}, STATE)
    (group,) = groups([fault], SHAPE, 0)
    _, (added,) = changes(fault)
    assert added.actions == f"group:{group.removeprefix('group_id=').partition(',')[0]}"
    assert ",type=ff,bucket=watch_port:65000,set_field:" in group
    assert groups([fault], SHAPE, 1) == groups([plan("flow-drop", None, {}, STATE)], SHAPE, 0) == ()


def test_a_shadowed_flow_stays_behind_a_wider_one() -> None:
    gone, (added,) = changes(plan("flow-shadowed", None, {}, STATE))
    assert not gone
    assert "reg1" not in added.match
    assert added.priority > 100


def test_on_a_host_with_one_port_it_is_delivered_to_none() -> None:
    shape = Shape(2, 1, 1, 1)
    state = State(shape, containers=(Container("train-a", 0), Container("train-a", 1)))
    fault = plan("wrong-output-port", None, {}, state)
    flows = disturbed(host_flows(shape, 1, state.containers), [fault], shape, 1)
    assert [flow.actions for flow in flows if flow.table is Table.DELIVERY] == ["output:65000"]


def test_an_rdma_drop_matches_roce_only_and_before_any_other_drop() -> None:
    state = RDMA_STATE
    for name in ("flow-drop", "rdma-drop"):
        state = state.with_fault(plan(name, None, {}, state))
    flows = disturbed(host_flows(state.shape, 0, state.containers), state.faults, state.shape, 0)
    drop, roce = (flow for flow in flows if flow.actions == "drop" and flow.cookie == 0)
    assert roce.match == f"{drop.match},udp,tp_dst=4791"
    assert roce.priority > drop.priority > 100


def test_a_loop_leads_back_from_the_tunnel_table() -> None:
    gone, (added,) = changes(plan("flow-loop", None, {}, STATE))
    assert not gone
    assert (added.table, added.priority, added.actions) == (Table.TUNNEL, 200, "resubmit(,30)")


def test_another_address_is_written_to_ip_packets_only_and_they_go_where_they_should() -> None:
    gone, (added,) = changes(plan("wrong-address", None, {}, STATE))
    assert not gone
    assert added.match.startswith("ip,")
    right = next(f for f in RIGHT if f.table == Table.TUNNEL and f.match in added.match)
    assert added.actions == f"set_field:10.0.0.250->ip_dst,{right.actions}"


def test_by_ipv6_another_address_and_another_tunnel_are_of_ipv6() -> None:
    ip = Versions(overlay=6, underlay=6)
    shape = replace(SHAPE, ip=ip)
    state = State(shape, containers=tuple(replace(each, ip=ip) for each in EVERYONE))
    right = host_flows(shape, 0, state.containers)
    for name, said in (
        ("wrong-address", "set_field:fd00:10::250->ipv6_dst,"),
        ("wrong-tunnel-remote", "set_field:fd00:30::13->tun_ipv6_dst,"),
    ):
        wrong = set(disturbed(right, [plan(name, None, {}, state)], shape, 0)) - set(right)
        assert [said in flow.actions for flow in wrong] == [True]
    dropped = set(disturbed(right, [plan("port-drop", None, {}, state)], shape, 0)) - set(right)
    assert {",udp6,tp_src=" in flow.match for flow in dropped} == {True}


def test_a_wrong_remote_is_a_third_host_and_a_wrong_vni_is_nobody_else() -> None:
    _, (remote,) = changes(plan("wrong-tunnel-remote", None, {}, STATE))
    assert "set_field:172.30.0.13->tun_dst" in remote.actions
    _, (vni,) = changes(plan("wrong-vni", None, {}, STATE))
    assert f"set_field:{1501:#x}->tun_id" in vni.actions


def test_with_two_hosts_the_wrong_remote_is_nobody() -> None:
    shape = Shape(2, 1, 1, 1)
    state = State(shape, containers=(Container("train-a", 0), Container("train-a", 1)))
    fault = plan("wrong-tunnel-remote", None, {}, state)
    flows = disturbed(host_flows(shape, 0, state.containers), [fault], shape, 0)
    assert any("set_field:172.30.0.250->tun_dst" in flow.actions for flow in flows)


def test_faults_elsewhere_leave_flows_alone() -> None:
    assert disturbed(RIGHT, [plan("link-loss", None, {}, STATE)], SHAPE, 0) == RIGHT
