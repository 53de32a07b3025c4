# SPDX-License-Identifier: Apache-2.0
"""What a cloud management system says of containers to OVN and to hosts. Pure.

As ovn-kubernetes writes it for networks beside a pod's first: ConfigureOVS in
go-controller/pkg/cni/helper_linux.go, GetSecondaryNetworkPrefix in pkg/util/multi_network.go,
addLogicalPortToNetwork in pkg/ovn/base_network_controller_pods.go. A task is a namespace, a
container a pod, and each rail of a task a network: tenants have overlapping addresses.
"""

from collections.abc import Iterable

from tests.lab.workload import Container, Endpoint


def network(endpoint: Endpoint) -> str:
    """Return the network of an endpoint's task and rail, as its attachment is called."""
    return f"{endpoint.container.task}/rail{endpoint.rail}"


def _prefix(endpoint: Endpoint) -> str:
    return network(endpoint).replace("-", ".").replace("/", ".") + "_"


def switch(endpoint: Endpoint) -> str:
    """Return the logical switch of an endpoint."""
    return f"{_prefix(endpoint)}ovn_layer2_switch"


def port(endpoint: Endpoint) -> str:
    """Return the logical port of an endpoint, which is also its interface's iface-id."""
    return f"{_prefix(endpoint)}{endpoint.container.task}_{endpoint.container.id}"


def interface_ids(endpoint: Endpoint) -> dict[str, str]:
    """Return the external_ids of an endpoint's interface, on its host."""
    return {
        "iface-id": port(endpoint),
        "attached_mac": endpoint.mac,
        "ip_addresses": f"{endpoint.address}/{endpoint.prefix_length}",
        "sandbox": endpoint.container.id,
        "encap-ip": endpoint.vtep,
        "k8s.ovn.org/nad": network(endpoint),
        "k8s.ovn.org/network": network(endpoint).replace("/", "."),
    }


def port_ids(endpoint: Endpoint) -> dict[str, str]:
    """Return the external_ids of an endpoint's logical port."""
    return {
        "namespace": endpoint.container.task,
        "pod": "true",
        "k8s.ovn.org/nad": network(endpoint),
        "k8s.ovn.org/network": network(endpoint).replace("/", "."),
        "k8s.ovn.org/topology": "layer2",
    }


def endpoints(containers: Iterable[Container], rails: int) -> list[Endpoint]:
    """Return all endpoints of containers, sorted."""
    return [each.endpoint(rail) for each in sorted(containers) for rail in range(rails)]
