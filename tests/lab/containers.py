# SPDX-License-Identifier: Apache-2.0
"""Containers as namespaces with one interface per rail, wired to their host."""

from pyroute2 import IPRoute

from tests.lab import namespaces
from tests.lab.commands import run
from tests.lab.fabric import ENDPOINT_SYSCTLS
from tests.lab.shape import Wire, namespace
from tests.lab.workload import OVERLAY_MTU, Container


def create(container: Container, rails: int) -> None:
    """Create a container with its interfaces up; its host ends wait to be plugged in."""
    host = namespace(f"h{container.host}")
    endpoints = [container.endpoint(rail) for rail in range(rails)]
    namespaces.create(container.namespace, ENDPOINT_SYSCTLS)
    namespaces.connect(
        Wire(container.namespace, endpoint.interface, host, endpoint.port) for endpoint in endpoints
    )

    def bring_up_host_ends(ip: IPRoute) -> None:
        for endpoint in endpoints:
            index = namespaces.index_of(ip, endpoint.port)
            ip.link("set", index=index, mtu=OVERLAY_MTU, state="up")

    def bring_up(ip: IPRoute) -> None:
        for endpoint in endpoints:
            index = namespaces.index_of(ip, endpoint.interface)
            ip.link("set", index=index, address=endpoint.mac, mtu=OVERLAY_MTU, state="up")
            namespaces.add_address(ip, endpoint.interface, endpoint.address, 24)

    namespaces.inside(container.namespace, bring_up)
    namespaces.inside(host, bring_up_host_ends)
    for endpoint in endpoints:
        _leave_no_checksum_to_hardware(container, endpoint.interface)


def delete(container: Container) -> None:
    """Delete a container with its interfaces, if it is there."""
    namespaces.delete(container.namespace)


def _leave_no_checksum_to_hardware(container: Container, interface: str) -> None:
    # The userspace datapath takes frames off the veth as they are: nobody would fill it in.
    enter = ("ip", "netns", "exec", container.namespace)
    run(*enter, "ethtool", "-K", interface, "tx", "off")
