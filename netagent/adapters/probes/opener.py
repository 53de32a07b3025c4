# SPDX-License-Identifier: Apache-2.0
"""Opens the transport of each local endpoint, by UDP or by RDMA."""

from collections.abc import Mapping
from functools import partial

from netagent.adapters.probes import udp
from netagent.adapters.probes.udp_transport import Answering, UdpTransport
from netagent.adapters.rdma.host import RdmaHost
from netagent.config import ProbeConfig
from netagent.host.facts import Namespace
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.probing.roaming import EXTRA_PORTS
from netagent.probing.transport import Transport


class TransportOpener:
    """All that the transports of a host share, and where its endpoints live."""

    def __init__(
        self, config: ProbeConfig, answering: Answering, rdma: RdmaHost | None = None
    ) -> None:
        self._config = config
        self._rdma = rdma
        self._namespaces: Mapping[EndpointId, Namespace] = {}
        self._answering = answering

    def place(self, namespaces: Mapping[EndpointId, Namespace]) -> None:
        """Take endpoints to be in these namespaces from now on."""
        self._namespaces = namespaces

    def identity(self, endpoint: Endpoint) -> object:
        """Return what, if it changes, calls for a new transport; None: it cannot be opened now."""
        chosen = self._rdma.chosen(endpoint.id) if self._rdma else False
        if chosen is None:
            return None
        if self._rdma and chosen:
            place = self._rdma.place(endpoint.id)
            return place and ("rdma", place, endpoint.mtu)
        namespace = self._namespaces.get(endpoint.id)
        return namespace and ("udp", endpoint.address, endpoint.mtu, namespace.inode)

    def open(self, endpoint: Endpoint) -> Transport:
        """Open an endpoint's transport; raises OSError or CapabilityMissing."""
        if self._rdma and self._rdma.chosen(endpoint.id):
            return self._rdma.open(endpoint.id)
        namespace, config = self._namespaces[endpoint.id], self._config
        sockets = udp.open_endpoint(
            namespace.path,
            endpoint.address,
            port=config.port,
            flows=config.flows_per_pair + EXTRA_PORTS,
            inode=namespace.inode,
        )
        reopen = partial(udp.open_port, namespace.path, endpoint.address, inode=namespace.inode)
        roams = config.rotate_s and config.flows_per_pair > 1
        return UdpTransport(
            endpoint, sockets, config.port, self._answering, reopen if roams else None
        )

    def asker(self, session: int, port: int) -> tuple[EndpointId, str] | None:
        """Return the local endpoint that a marked probe asked, and the asker's overlay address."""
        return self._answering.askers.get(session, port)
