# SPDX-License-Identifier: Apache-2.0
"""Discovery on a real Open vSwitch: what happens on a host is known within a second."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

import pytest

import netagent
from netagent.adapters.host import watcher
from netagent.adapters.host.setns import call_in_namespace
from netagent.adapters.host.vswitchd import OVSDB_LOOKS
from netagent.adapters.host.watcher import VSWITCHD_LOOK_S, Watcher
from netagent.config import AgentConfig, AnalyzerConfig, EndpointsConfig, OvsConfig
from netagent.host.discovery import SETTLED_NS
from netagent.host.facts import HostView
from netagent.model.endpoint import EndpointState
from netagent.model.finding import FindingKind
from netagent.model.ids import EndpointId
from netagent.wire.controller import Working
from tests.conftest import NETNS, OVS, require
from tests.ovs.host import Host, run
from tests.waiting import wait_until

pytestmark = pytest.mark.ovs

FIRST = EndpointId("c0", 0)


class Views:
    """Runs a Watcher inside a host's namespace and keeps its latest view."""

    def __init__(
        self,
        host: Host,
        endpoints: EndpointsConfig = EndpointsConfig(),  # noqa: B008 - frozen
        *,
        driven_by: str = "",
    ) -> None:
        rundir = str(host.rundir)
        self._config = AgentConfig(
            host="h0",
            analyzer=AnalyzerConfig(url="http://127.0.0.1:1"),
            ovs=OvsConfig(rundir=rundir, ovn_rundir=rundir, driven_by=driven_by),
            endpoints=endpoints,
        )
        self._path = f"/run/netns/{host.name}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._inside, name="watcher")
        self.latest = HostView()
        self.error: BaseException | None = None
        self.cpu_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._work is not None
        self._loop.call_soon_threadsafe(self._work.cancel)
        self._thread.join(5)
        assert not self._thread.is_alive()
        assert self.error is None

    def _inside(self) -> None:
        call_in_namespace(self._path, self._watch)

    def _watch(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.create_task(Watcher(self._config).run(self._keep))
        self._ready.set()
        try:
            await self._work
        except asyncio.CancelledError:
            self.cpu_s = time.thread_time()
        except BaseException as error:
            self.error = error
            raise

    def _keep(self, view: HostView) -> None:
        self.latest = view

    def within(self, seconds: float, what: str, condition: Callable[[HostView], object]) -> float:
        """Wait until the latest view satisfies `condition`; return the seconds it took."""
        try:
            return wait_until(lambda: bool(condition(self.latest)), what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen: {self.latest}") from self.error


def state_of(view: HostView, key: EndpointId = FIRST) -> EndpointState | None:
    return next((each.state for each in view.endpoints if each.id == key), None)


def kinds(view: HostView) -> set[FindingKind]:
    return {each.kind for each in view.findings}


def components(view: HostView, kind: FindingKind) -> list[str]:
    return [str(each.component) for each in view.findings if each.kind is kind]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    require(NETNS)
    require(OVS)
    made = Host()
    yield made
    made.close()


@pytest.fixture
def views(host: Host) -> Iterator[Views]:
    with Views(host) as watching:
        watching.within(5, "a first view", lambda v: v.complete and not v.findings)
        yield watching


@pytest.fixture
def container(host: Host, views: Views) -> Iterator[str]:
    host.start_container("c0")
    views.within(1, "c0 to appear", lambda v: state_of(v) is EndpointState.UP)
    yield "c0"
    if "c0" in host.containers:
        host.delete_namespace("c0")
    host.vsctl("--if-exists", "del-port", "br-int", "c0-r0")
    # The kernel takes namespaces apart in its own time; the next c0 needs the name.
    wait_until(lambda: not host.has_device("c0-r0"), "end of c0-r0")


def test_a_running_container_is_known_with_all_its_addresses(host, views, container):
    (endpoint,) = views.latest.endpoints
    assert endpoint.id == FIRST
    assert (endpoint.task, endpoint.host, endpoint.address) == ("train", "h0", "10.0.0.10")
    assert endpoint.mac == "02:00:00:00:00:0a"
    assert (endpoint.underlay, endpoint.rnic, endpoint.bond) == ("172.30.0.10", "rnic0", None)
    assert (endpoint.bridge, endpoint.port, endpoint.mtu) == ("br-int", "c0-r0", 1450)
    assert views.latest.namespaces[FIRST].path == f"/run/netns/{host.containers[container]}"
    assert [(each.rail, each.device) for each in views.latest.uplinks] == [
        (0, "rnic0"),
        (1, "rnic1"),
    ]


def test_a_graceful_stop_removes_the_endpoint_within_a_second_and_alarms_nobody(
    host, views, container
):
    host.unplug(container)
    views.within(1, "c0 to vanish", lambda v: state_of(v) is None)
    host.delete_namespace(container)
    assert not views.latest.findings


def test_a_change_inside_the_container_is_known_a_second_after_it_rests(host, views, container):
    namespace = host.containers[container]
    run("ip", "-n", namespace, "link", "set", "eth0", "mtu", "1400")
    views.within(
        SETTLED_NS / 1e9 + 1, "the new MTU", lambda v: [each.mtu for each in v.endpoints] == [1400]
    )


def test_an_interface_set_down_is_an_endpoint_down_and_stays_probed(host, views, container):
    namespace = host.containers[container]
    run("ip", "-n", namespace, "link", "set", "eth0", "down")
    views.within(4, "a finding", lambda v: FindingKind.ENDPOINT_DOWN in kinds(v))
    assert state_of(views.latest) is EndpointState.UP
    assert components(views.latest, FindingKind.ENDPOINT_DOWN) == ["endpoint c0/rail0"]
    run("ip", "-n", namespace, "link", "set", "eth0", "up")
    views.within(1, "its end", lambda v: not v.findings)


def test_a_namespace_that_vanishes_under_its_port_is_a_crash(host, views, container):
    host.delete_namespace(container)
    views.within(1.5, "its namespace to go", lambda v: not v.namespaces)
    assert state_of(views.latest) is EndpointState.UP, "a graceful stop may still follow"
    views.within(4, "the crash", lambda v: state_of(v) is EndpointState.CRASHED)
    assert components(views.latest, FindingKind.CONTAINER_CRASHED) == ["container c0"]
    host.unplug(container)
    views.within(1, "the port's removal", lambda v: not v.endpoints and not v.findings)


def test_a_crash_is_seen_although_a_socket_of_ours_keeps_the_namespace_alive(
    host, views, container
):
    path = views.latest.namespaces[FIRST].path
    inside = call_in_namespace(path, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with inside:
        host.delete_namespace(container)
        views.within(5, "the crash", lambda v: state_of(v) is EndpointState.CRASHED)


def test_an_rnic_set_down_is_found_at_once_and_cleared_when_it_is_up(host, views):
    host.ip("link", "set", "rnic1", "down")
    views.within(1, "RNIC_DOWN", lambda v: FindingKind.RNIC_DOWN in kinds(v))
    assert components(views.latest, FindingKind.RNIC_DOWN) == ["rnic h0/rnic1"]
    host.ip("link", "set", "rnic1", "up")
    views.within(1, "its end", lambda v: not v.findings)


def test_an_rnic_that_flaps_is_found_out(host, views):
    for state in ("down", "up", "down", "up"):
        host.ip("link", "set", "rnic0", state)
        down = state == "down"
        views.within(
            1, f"rnic0 {state}", lambda v, down=down: (FindingKind.RNIC_DOWN in kinds(v)) == down
        )
    views.within(1, "RNIC_FLAPPING", lambda v: FindingKind.RNIC_FLAPPING in kinds(v))
    assert components(views.latest, FindingKind.RNIC_FLAPPING) == ["rnic h0/rnic0"]


@pytest.fixture
def bonded(host: Host) -> Iterator[None]:
    """Give rail 1 a second RNIC, and let Open vSwitch bond both."""
    host.ip("link", "add", "spare1", "type", "veth", "peer", "portb", "netns", host.fabric)
    run("ip", "-n", host.fabric, "link", "set", "portb", "up")
    host.ip("link", "set", "spare1", "up")
    bond = ("add-bond", "br-phy1", "bond1", "rnic1", "spare1")
    host.vsctl("del-port", "br-phy1", "rnic1", "--", *bond)
    yield
    host.vsctl("del-port", "br-phy1", "bond1", "--", "add-port", "br-phy1", "rnic1")
    host.ip("link", "del", "spare1")


def test_a_member_of_a_bond_that_fails_is_masked_until_the_last_one_does(host, bonded, views):
    rails = views.latest.uplinks
    assert [(each.bond, sorted(each.members)) for each in rails[1:]] == [
        ("bond1", ["rnic1", "spare1"])
    ]
    run("ip", "-n", host.fabric, "link", "set", "port1", "down")  # the switch's end of the cable
    views.within(5, "RAIL_ON_SPARE", lambda v: v.findings)
    (finding,) = views.latest.findings
    assert (finding.kind, str(finding.component)) == (FindingKind.RAIL_ON_SPARE, "rnic h0/rnic1")
    assert "rnic1 has no carrier: nothing is lost, but it has 1 of 2 links" in finding.text
    host.ip("link", "set", "spare1", "down")
    views.within(1, "both down", lambda v: kinds(v) == {FindingKind.RNIC_DOWN})
    assert len(views.latest.findings) == 2
    run("ip", "-n", host.fabric, "link", "set", "port1", "up")
    host.ip("link", "set", "spare1", "up")
    views.within(2, "the end of it", lambda v: not v.findings)


def test_a_dead_vswitchd_is_found_and_its_return_too(host, views, container):
    host.kill("ovs-vswitchd")
    views.within(2.5, "VSWITCH_DOWN", lambda v: FindingKind.VSWITCH_DOWN in kinds(v))
    assert state_of(views.latest) is EndpointState.UP, "what leads where has not changed"
    assert [each.device for each in views.latest.uplinks] == ["rnic0", "rnic1"]
    host.start_vswitchd()
    for rail in (0, 1):
        host.address_rail(rail)
    views.within(5, "its end", lambda v: FindingKind.VSWITCH_DOWN not in kinds(v))


def test_a_restart_of_ovsdb_loses_no_endpoint_and_later_changes_are_heard(
    host, views, container, monkeypatch
):
    monkeypatch.setattr(watcher, "VSWITCHD_LOOK_S", 0.2)
    host.kill("ovsdb-server")
    wait_s = OVSDB_LOOKS * VSWITCHD_LOOK_S + 4
    views.within(wait_s, "VSWITCH_DOWN", lambda v: FindingKind.VSWITCH_DOWN in kinds(v))
    assert state_of(views.latest) is EndpointState.UP
    host.start_ovsdb()
    views.within(5, "its end", lambda v: not v.findings)
    host.start_container("c1", octet=11)
    key = EndpointId("c1", 0)
    views.within(3, "c1 to appear", lambda v: state_of(v, key) is EndpointState.UP)
    host.unplug("c1")
    host.delete_namespace("c1")
    views.within(2, "c1 to vanish", lambda v: state_of(v, key) is None)


def test_a_container_whose_port_is_wired_to_nothing_is_found_by_its_hardware_address(host, views):
    """A tap stands in for a representor, another one for the function that a container has."""
    inside = host.containers["vf"] = f"na-{host.tag}-vf"
    key = EndpointId("vf", 0)
    run("ip", "netns", "add", inside)
    host.ip("tuntap", "add", "vf-r0", "mode", "tap")
    host.ip("link", "set", "vf-r0", "up")
    host._plug("vf", 0, "02:00:00:00:00:2a", "10.0.0.42/24")
    # The device comes later than its port, as by some plugins, and then its address.
    run("ip", "-n", inside, "tuntap", "add", "net1", "mode", "tap")
    run("ip", "-n", inside, "link", "set", "net1", "address", "02:00:00:00:00:2a")
    run("ip", "-n", inside, "link", "set", "net1", "mtu", "1450", "up")
    run("ip", "-n", inside, "addr", "add", "10.0.0.42/24", "dev", "net1")
    views.within(10, "vf to appear", lambda v: state_of(v, key) is EndpointState.UP)
    assert views.latest.namespaces[key].path == f"/run/netns/{inside}"
    run("ip", "-n", inside, "link", "set", "net1", "down")
    views.within(5, "its failure", lambda v: FindingKind.ENDPOINT_DOWN in kinds(v))
    run("ip", "-n", inside, "link", "set", "net1", "up")
    views.within(5, "its end", lambda v: FindingKind.ENDPOINT_DOWN not in kinds(v))
    host.delete_namespace("vf")
    views.within(5, "its crash", lambda v: state_of(v, key) is EndpointState.CRASHED)
    host.vsctl("del-port", "br-int", "vf-r0")
    host.ip("link", "del", "vf-r0")
    views.within(5, "nothing", lambda v: not v.endpoints and not v.findings)


def test_what_the_host_and_its_rnics_are_is_read_and_followed(host, monkeypatch):
    monkeypatch.setattr(watcher, "BOARD_LOOK_S", 0.1)
    host.vsctl("set", "Open_vSwitch", ".", "ovs_version=3.9.9")
    with Views(host) as watching:
        watching.within(5, "an inventory", lambda v: v.inventory and v.inventory.rnics)
        found = watching.latest.inventory
        assert found is not None
        assert (found.kernel, found.ovs, found.hw_offload) == (os.uname().release, "3.9.9", False)
        assert found.netagent == netagent.__version__
        # No PCI function; /sys of this process shows another namespace, so nothing else is known.
        assert [(each.netdev, each.model, each.driver) for each in found.rnics] == [
            ("rnic0", "veth", "veth 1.0"), ("rnic1", "veth", "veth 1.0")
        ]  # fmt: skip
        host.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
        try:
            watching.within(5, "hw-offload", lambda v: v.inventory and v.inventory.hw_offload)
        finally:
            host.vsctl("remove", "Open_vSwitch", ".", "other_config", "hw-offload")


def test_the_hosts_part_of_a_controller_is_read_and_followed(host, views, container, monkeypatch):
    """What ovn-controller writes (ovn-controller(8)); it has no process here."""
    assert views.latest.controller is None
    monkeypatch.setattr(watcher, "CONTROLLER_LOOK_S", 0.1)
    said = ["ovn-remote=tcp:10.9.0.1:6642", 'ovn-encap-ip="172.30.0.10,172.30.1.10"']
    host.vsctl("set", "Open_vSwitch", ".", *(f"external_ids:{each}" for each in said))
    host.vsctl("set", "bridge", "br-int", "external_ids:ovn-nb-cfg=7")
    host.vsctl("set", "interface", "c0-r0", "external_ids:ovn-installed=true")
    try:
        views.within(
            10, "a stopped controller",
            lambda v: v.controller and v.controller.working is Working.STOPPED
            and v.controller.ports and v.controller.ports[0].is_installed,
        )  # fmt: skip
        state = views.latest.controller
        assert state is not None
        assert (state.generation, state.central) == (7, "tcp:10.9.0.1:6642")
        assert state.encapsulations == state.addresses[:2] == ("172.30.0.10", "172.30.1.10")
        (port,) = state.ports
        assert (port.name, port.interface) == ("a_c0_rail0", "c0-r0")
        assert (port.mac, port.addresses) == ("02:00:00:00:00:0a", ("10.0.0.10",))
    finally:
        host.vsctl("clear", "Open_vSwitch", ".", "external_ids")
        host.vsctl("clear", "bridge", "br-int", "external_ids")
    views.within(5, "no controller", lambda v: v.controller is None)


def test_kube_ovns_port_is_an_endpoint_with_the_interfaces_hardware_address(host):
    """What configureNic (pkg/daemon/ovs_linux.go) writes, with the VTEP of rail 1."""
    inside = host.containers["pod"] = f"na-{host.tag}-pod"
    port, key = "3d5c0e7a_net1_h", EndpointId("ml.bert-0", 1)
    run("ip", "netns", "add", inside)
    host.ip("link", "add", port, "type", "veth", "peer", "net1", "netns", inside)
    host.ip("link", "set", port, "up")
    run("ip", "-n", inside, "link", "set", "net1", "address", "02:00:00:00:00:3a", "up")
    run("ip", "-n", inside, "addr", "add", "10.200.0.7/24", "dev", "net1")
    written = {
        "iface-id": "bert-0.ml.rail1.ml.ovn", "vendor": "kube-ovn", "pod_name": "bert-0",
        "pod_namespace": "ml", "ip": "10.200.0.7", "pod_netns": f"/run/netns/{inside}",
        "encap-ip": "172.30.1.10",
    }  # fmt: skip
    ids = [f'external_ids:{key}="{value}"' for key, value in written.items()]
    with Views(host, EndpointsConfig(controller="kube-ovn")) as views:
        host.vsctl("add-port", "br-int", port, "--", "set", "interface", port, *ids)
        views.within(5, "the pod", lambda v: state_of(v, key) is EndpointState.UP)
        (endpoint,) = views.latest.endpoints
        assert (endpoint.task, endpoint.address) == ("ml", "10.200.0.7")
        assert (endpoint.mac, endpoint.underlay) == ("02:00:00:00:00:3a", "172.30.1.10")
        host.vsctl("del-port", "br-int", port)
        views.within(5, "nothing", lambda v: not v.endpoints and not v.findings)
    host.delete_namespace("pod")


def test_ovs_cnis_representor_is_an_endpoint_in_the_namespace_that_its_port_names(host):
    """What createPortOperation (pkg/ovsdb/ovsdb.go) writes into the row of the Port; taps stand in
    for a representor and for the function in the container.
    """  # noqa: D205 - one sentence
    inside = host.containers["cni"] = f"na-{host.tag}-cni"
    port, key = "cni-r0", EndpointId("6e1b1a63", 0)
    run("ip", "netns", "add", inside)
    host.ip("tuntap", "add", port, "mode", "tap")
    host.ip("link", "set", port, "up")
    run("ip", "-n", inside, "tuntap", "add", "net1", "mode", "tap")
    run("ip", "-n", inside, "link", "set", "net1", "up")
    run("ip", "-n", inside, "addr", "add", "10.0.0.43/24", "dev", "net1")
    written = {
        "contPodUid": "6e1b1a63", "contNetns": f"/run/netns/{inside}", "contIface": "net1",
        "owner": "ovs-cni.network.kubevirt.io",
    }  # fmt: skip
    ids = [f'external_ids:{key}="{value}"' for key, value in written.items()]
    with Views(host, EndpointsConfig(controller="ovs-cni", task="bert")) as views:
        host.vsctl("add-port", "br-int", port, "--", "set", "port", port, *ids)
        views.within(5, "the pod", lambda v: state_of(v, key) is EndpointState.UP)
        (endpoint,) = views.latest.endpoints
        assert (endpoint.task, endpoint.address, endpoint.port) == ("bert", "10.0.0.43", port)
        assert views.latest.namespaces[key].path == f"/run/netns/{inside}"
        host.delete_namespace("cni")
        views.within(5, "its crash", lambda v: state_of(v, key) is EndpointState.CRASHED)
        host.vsctl("del-port", "br-int", port)
        host.ip("link", "del", port)
        views.within(5, "nothing", lambda v: not v.endpoints and not v.findings)


def test_an_endpoint_of_ipv6_over_ipv6_is_found_once_its_address_may_be_used(host: Host) -> None:
    host.ip("addr", "add", "fd00:30::10/64", "dev", "br-phy0", "nodad")
    host.vsctl("set", "interface", "vxlan0", 'options:local_ip="FD00:30:0::10"')
    try:
        with Views(host) as views:
            host.start_container("six", octet=66, address="fd00:10::66/64")
            key = EndpointId("six", 0)
            # Duplicate address detection takes a second after the carrier is there.
            views.within(8, "the endpoint", lambda view: state_of(view, key) is EndpointState.UP)
            (found,) = (each for each in views.latest.endpoints if each.id == key)
            assert (found.address, found.underlay) == ("fd00:10::66", "fd00:30::10")
            assert (found.rnic, found.mtu) == ("rnic0", 1450)
            inside = ("ip", "-n", host.containers["six"])
            run(*inside, "addr", "del", "fd00:10::66/64", "dev", "eth0")
            views.within(8, "its address", lambda view: FindingKind.ENDPOINT_DOWN in kinds(view))
            (text,) = (e.text for e in views.latest.findings if e.kind is FindingKind.ENDPOINT_DOWN)
            assert "does not carry fd00:10::66" in text
            host.unplug("six")
            views.within(4, "its end", lambda view: state_of(view, key) is None)
    finally:
        if "six" in host.containers:
            host.delete_namespace("six")
        host.vsctl("set", "interface", "vxlan0", "options:local_ip=172.30.0.10")
        host.ip("addr", "del", "fd00:30::10/64", "dev", "br-phy0")


def test_another_controllers_part_is_what_open_vswitch_knows_of_it(host: Host) -> None:
    """A controller that says hello by OpenFlow is connected; one that hangs up is not."""
    path = host.rundir / "acme.sock"
    with socket.socket(socket.AF_UNIX) as listener, Views(host, driven_by="acme") as views:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(10)
        views.within(5, "a host that nobody drives", lambda v: works(v) is Working.UNKNOWN)
        host.vsctl("set-controller", "br-int", f"unix:{path}")
        try:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(bytes.fromhex("0400000800000001"))  # OpenFlow 1.3: OFPT_HELLO
                views.within(10, "a controller", lambda v: works(v) is Working.CONNECTED)
            listener.close()
            views.within(10, "none", lambda v: works(v) is Working.CUT_OFF)
        finally:
            host.vsctl("del-controller", "br-int")
        views.within(5, "nobody again", lambda v: works(v) is Working.UNKNOWN)


def works(view: HostView) -> Working | None:
    assert view.controller is None or view.controller.source == "acme"
    return view.controller.working if view.controller else None
