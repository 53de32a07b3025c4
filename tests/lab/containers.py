# SPDX-License-Identifier: Apache-2.0
"""Containers: one interface per rail, wired to their host, in a namespace of their own.

By podman they are real ones, whose sandbox has the namespace. Where the transport is RDMA they have
none: their interfaces are in the initial namespace.
"""

from pyroute2 import IPRoute

from tests.lab import namespaces, pods, rdma
from tests.lab.commands import run
from tests.lab.fabric import endpoint_sysctls
from tests.lab.shape import Runtime, Shape, Wire, namespace
from tests.lab.workload import Container, Endpoint


def create(container: Container, shape: Shape) -> None:
    """Create a container with its interfaces up; its host ends wait to be plugged in."""
    host = namespace(f"h{container.host}")
    endpoints = [container.endpoint(rail) for rail in range(shape.rails)]
    if shape.containers is Runtime.PODMAN:
        pods.create(container.id)
        namespaces.prepare(container.namespace, endpoint_sysctls(container.ip.overlay))
    elif not container.shares_namespace:
        namespaces.create(container.namespace, endpoint_sysctls(container.ip.overlay))
    namespaces.connect(
        Wire(container.namespace, endpoint.interface, host, endpoint.port) for endpoint in endpoints
    )

    def bring_up_host_ends(ip: IPRoute) -> None:
        for endpoint in endpoints:
            index = namespaces.index_of(ip, endpoint.port)
            ip.link("set", index=index, mtu=endpoint.mtu - shape.option_bytes, state="up")

    namespaces.inside(host, bring_up_host_ends)
    for endpoint in endpoints:
        _bring_up(endpoint, shape)
        _leave_no_checksum_to_hardware(container, endpoint.interface)
        if container.shares_namespace:
            rdma.wait_until_usable(endpoint)


def _bring_up(endpoint: Endpoint, shape: Shape) -> None:
    """Bring an endpoint's interface up with its address, and its RDMA device if it has one."""
    container = endpoint.container
    if container.shares_namespace:
        rdma.attach(endpoint)
        return

    def configure(ip: IPRoute) -> None:
        index = namespaces.index_of(ip, endpoint.interface)
        mtu = endpoint.mtu - shape.option_bytes
        ip.link("set", index=index, address=endpoint.mac, mtu=mtu, state="up")
        length = endpoint.prefix_length
        namespaces.add_address(ip, endpoint.interface, endpoint.address, length)

    namespaces.inside(container.namespace, configure)


def exists(container: Container) -> bool:
    """Tell whether a container is there; one that crashed is not."""
    if not container.shares_namespace:
        return container.namespace in namespaces.ours()
    with IPRoute() as ip:
        return container.endpoint(0).interface in namespaces.root_links(ip)


def delete(container: Container) -> None:
    """Delete a container with its interfaces, if it is there."""
    if container.shares_namespace:
        rdma.detach(container)
    elif pods.exists(container.id):
        pods.remove(container.id)
    else:
        namespaces.delete(container.namespace)


def crash(container: Container) -> None:
    """End a container as nobody wanted it: of a pod, all processes are killed, and no more."""
    if pods.exists(container.id):
        pods.kill(container.id)
    else:
        delete(container)


def _leave_no_checksum_to_hardware(container: Container, interface: str) -> None:
    # The userspace datapath takes frames off the veth as they are: nobody would fill it in.
    enter = namespaces.entering(container.namespace)
    run(*enter, "ethtool", "-K", interface, "tx", "off")
