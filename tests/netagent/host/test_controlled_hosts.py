# SPDX-License-Identifier: Apache-2.0
"""Whole hosts under each controller, with external_ids as it writes them and none of our own."""

from dataclasses import replace

import pytest

from netagent.host.controllers import CONTROLLERS, ControllerPorts, Rule
from netagent.host.discovery import UNFOUND_NS, Discovery
from netagent.host.facts import Bridge, HostView, Link, LinkView, Namespace, Port, VswitchView
from netagent.host.sources import Given, OwnPorts, found_by
from netagent.host.unprobed import unprobed
from netagent.host.uplinks import Uplinks
from netagent.model.vswitch import Interface
from netagent.wire.unprobed import Unprobed, Why
from tests.netagent.host.small_host import physical
from tests.netagent.host.test_controllers import NETNS, SANDBOX, written_by

VTEPS = ("172.30.0.10", "172.30.1.10")
RAILS = ("rnic0", "rnic1")
PLAIN = {
    "ovn-h2-0": Interface("ovn-h2-0", "geneve", 1, {"remote_ip": "172.30.0.12", "key": "flow"}),
    "br-int": Interface("br-int", "internal", 65534),
    "patch-br-int-to-br-ex": Interface("patch-br-int-to-br-ex", "patch", 2),
    "ovn-k8s-mp0": Interface("ovn-k8s-mp0", "internal", 3, external_ids={"iface-id": "k8s-h1"}),
}
"""What stands on the integration bridge beside containers; OVN's tunnels name neither rail nor
local address."""


class Host:
    """A host with two rails, on which a test plugs containers in."""

    def __init__(self, source: str, rules, *, vteps=VTEPS, rails=RAILS, tunnel="ovn-h2-0") -> None:
        self.rows = [p for p in written_by(source) if not p.name.startswith("vxlan")]
        self.source, self.rails = ControllerPorts(rules), rails
        own = dict(PLAIN)
        if tunnel != "ovn-h2-0":  # as Antrea's, which goes to all hosts
            own.pop("ovn-h2-0")
            own[tunnel] = Interface(tunnel, "geneve", 1, {"remote_ip": "flow", "key": "flow"})
        self.own = [Port(name, (each,)) for name, each in own.items()]
        self.encapsulations = ",".join(vteps) if tunnel == "ovn-h2-0" else ""
        self.links = {name: Link(n, name) for n, name in enumerate(RAILS, 1)}
        for rail, address in enumerate(VTEPS):
            self.links[f"br-phy{rail}"] = Link(
                10 + rail, f"br-phy{rail}", "tun", addresses=(address,)
            )
        self.inside: dict[int, dict[int, Link]] = {}
        self.namespaces: dict[int, Namespace] = {}
        self.by_path: dict[str, int] = {}

    def veth(
        self, name: str, nsid: int, index: int, netdev: str, mac: str, *addresses: str
    ) -> None:
        self.links[name] = Link(100 + index, name, "veth", netnsid=nsid, peer=index)
        self._in(nsid, Link(index, netdev, "veth", mac, addresses=addresses))

    def function(
        self, name: str, nsid: int, index: int, netdev: str, mac: str, *addresses: str
    ) -> None:
        """Give a container a virtual function, whose representor has the port's name."""
        self.links[name] = Link(100 + index, name, switch_port="pf1vf3")
        self._in(nsid, Link(index, netdev, mac=mac, addresses=addresses))

    def _in(self, nsid: int, device: Link) -> None:
        self.inside.setdefault(nsid, {})[device.index] = device
        self.namespaces[nsid] = Namespace(f"/proc/{nsid}/ns/net", nsid)

    def look(self) -> tuple[HostView, Unprobed]:
        ports = (*self.own, *self.rows)
        ids = {"ovn-encap-ip": self.encapsulations} if self.encapsulations else {}
        bridges = (Bridge("br-int", "system", ports), physical(0), physical(1))
        view = VswitchView(True, bridges, ids)
        links = LinkView(self.links, self.inside, self.namespaces, self.by_path)
        interfaces = tuple(bridges[0].interfaces())
        uplinks, _ = Uplinks(self.rails).observe(view, interfaces, links, rails=frozenset())
        found = found_by([OwnPorts(), self.source], Given(ports, links, uplinks))
        discovery = Discovery(host="h1", bridge="br-int", rnics=self.rails)
        for now_ns in (0, 2 * UNFOUND_NS):
            host = discovery.observe(view, links, found, now_ns=now_ns, wall_ns=0)
        waiting = discovery.waiting()
        said = unprobed(view, "br-int", found, waiting, host, links.host, has_rules=True)
        return host, said


def told(said: Unprobed) -> dict[str, Why]:
    return {each.port: each.why for each in said.ports}


def ends(host: HostView) -> list[tuple[str, str, str, str, str]]:
    return [(str(e.id), e.task, e.address, e.port, e.underlay) for e in host.endpoints]


@pytest.mark.parametrize("by_function", [True, False])
def test_ovn_kubernetes(by_function):
    host = Host("ovn-kubernetes_pkg_cni_helper_linux.go", CONTROLLERS["ovn-kubernetes"])
    host.veth("0f2cbc7d1a5e3b9", 5, 2, "eth0", "0a:58:0a:f4:00:05", "10.244.0.5")
    plug = host.function if by_function else host.veth
    plug("eth3", 5, 3, "net1", "0a:58:0a:c8:00:05", "10.200.0.5")
    view, said = host.look()
    assert ends(view) == [(f"{SANDBOX}/rail1", "ml", "10.200.0.5", "eth3", "172.30.1.10")]
    assert (view.findings, told(said)) == ((), {"0f2cbc7d1a5e3b9": Why.NO_RAIL})


def test_ovn_kubernetes_with_the_networks_name_for_the_rail():
    """Without a VTEP for each rail: one network attachment for each."""
    rules = replace(CONTROLLERS["ovn-kubernetes"], rail=Rule("{k8s.ovn.org/nad}", r"ml/rail(\d+)"))
    host = Host("ovn-kubernetes_pkg_cni_helper_linux.go", rules)
    host.veth("0f2cbc7d1a5e3b9", 5, 2, "eth0", "0a:58:0a:f4:00:05", "10.244.0.5")
    host.veth("eth3", 5, 3, "net1", "0a:58:0a:c8:00:05", "10.200.0.5")
    view, said = host.look()
    assert [str(each.id) for each in view.endpoints] == [f"{SANDBOX}/rail1"]
    (other,) = said.ports
    assert (other.why, other.name) == (Why.NO_RAIL, "ml_bert-worker-0")
    assert other.text == "external_ids say no rail ({k8s.ovn.org/nad})"


@pytest.mark.parametrize("by_function", [True, False])
def test_kube_ovn(by_function):
    """It says no hardware address, and the path of the namespace: by that a function is found."""
    host = Host("kube-ovn_pkg_daemon_ovs_linux.go", CONTROLLERS["kube-ovn"])
    host.by_path = {NETNS: 5}
    host.veth("3d5c0e7a9b21_h", 5, 2, "eth0", "00:00:00:4a:00:02", "10.16.0.7", "fd00:10:16::7")
    plug = host.function if by_function else host.veth
    plug("3d5c0e7a_net1_h", 5, 3, "net1", "00:00:00:4a:00:03", "10.200.0.7")
    view, said = host.look()
    assert ends(view) == [
        ("ml.bert-worker-0/rail1", "ml", "10.200.0.7", "3d5c0e7a_net1_h", "172.30.1.10")
    ]
    assert view.endpoints[0].mac == "00:00:00:4a:00:03"
    assert (view.findings, told(said)) == ((), {"3d5c0e7a9b21_h": Why.NO_RAIL})


def test_ovs_cni():
    rules = replace(CONTROLLERS["ovs-cni"], task=Rule("bert"))
    host = Host("ovs-cni_pkg_ovsdb_ovsdb.go", rules)
    host.veth("veth1f2e3d4c", 5, 3, "net2", "02:00:00:00:00:09", "10.201.0.9")
    view, said = host.look()
    (end,) = view.endpoints
    assert (end.id.rail, end.task, end.address, end.mac) == (
        1,
        "bert",
        "10.201.0.9",
        "02:00:00:00:00:09",
    )
    assert (view.findings, said) == ((), Unprobed())


def test_neutron():
    rules = replace(CONTROLLERS["neutron"], task=Rule("all"), rail=Rule("0"))
    host = Host("os-vif_vif_plug_ovs_ovsdb_lib.py", rules)
    host.rows += Host("neutron_neutron_agent_linux_interface.py", rules).rows
    host.veth("tap7d1e6a52-3c", 5, 3, "eth0", "fa:16:3e:6b:1f:0a", "10.0.0.3")
    host.veth("tap9a8b7c6d-5e", 6, 2, "ns-9a8b7c6d-5e", "fa:16:3e:00:11:33", "10.0.0.2")
    view, said = host.look()
    assert [(each.port, each.address) for each in view.endpoints] == [
        ("tap7d1e6a52-3c", "10.0.0.3")
    ]
    assert (view.findings, told(said)) == ((), {"tap9a8b7c6d-5e": Why.NO_CONTAINER})


def test_ovn_alone():
    rules = replace(CONTROLLERS["ovn"], task=Rule("{iface-id}", r"(.+)-port\d+"), rail=Rule("0"))
    host = Host("ovn_controller_binding.c", rules)
    host.veth("vif3", 5, 3, "eth0", "00:00:00:00:00:03", "10.0.0.5")
    view, said = host.look()
    assert ends(view) == [("sw0-port3/rail0", "sw0", "10.0.0.5", "vif3", "172.30.0.10")]
    assert (view.findings, said) == ((), Unprobed())


def test_antrea():
    """Its one tunnel names no address, and its pods have one rail."""
    rules = replace(CONTROLLERS["antrea"], rail=Rule("0"))
    file = "antrea_pkg_agent_cniserver_pod_configuration.go"
    host = Host(file, rules, rails=("rnic0",), tunnel="antrea-tun0")
    host.links["rnic0"] = Link(1, "rnic0", addresses=("10.9.0.1",))
    host.by_path = {NETNS: 5, "/var/run/netns/cni-6b0d": 6}
    host.veth("bert-wor-5f3a1c", 5, 2, "eth0", "5a:11:7c:9b:20:4e", "10.10.1.7", "fd00:10:10:1::7")
    host.function("eth4", 6, 2, "eth0", "5a:11:7c:9b:20:4f", "10.10.1.8")
    view, said = host.look()
    assert ends(view) == [
        ("ml.bert-worker-0/rail0", "ml", "10.10.1.7", "bert-wor-5f3a1c", "10.9.0.1"),
        ("ml.bert-worker-1/rail0", "ml", "10.10.1.8", "eth4", "10.9.0.1"),
    ]
    assert (view.findings, said) == ((), Unprobed())


def test_a_function_whose_container_is_not_found_is_said_and_then_a_finding():
    host = Host("ovn-kubernetes_pkg_cni_helper_linux.go", CONTROLLERS["ovn-kubernetes"])
    host.links["eth3"] = Link(103, "eth3", switch_port="pf1vf3")
    view, said = host.look()
    assert view.endpoints == ()
    assert told(said) == {"0f2cbc7d1a5e3b9": Why.NO_RAIL, "eth3": Why.NO_CONTAINER}
    assert [each.evidence["port"] for each in view.findings] == ["eth3"]
