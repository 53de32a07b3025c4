# SPDX-License-Identifier: Apache-2.0
"""The responder process, but polling instead of waiting: to compare with a loop that does so."""

import sys

from netagent.adapters.clock import now_ns
from netagent.adapters.rdma.channel import serve_parent
from netagent.adapters.rdma.responder import Service, _Endpoint

SPINS = 256
"""Polls of an endpoint between looks at everything else."""

IDLE_NS = 1_000_000_000
"""After so long without a probe it waits, so that whoever starts has a processor."""


class BusyService(Service):
    """Does not sleep while probes come."""

    _until_ns = 0

    def _serve(self, endpoint: _Endpoint, woken_ns: int) -> None:
        self._until_ns = now_ns() + IDLE_NS
        super()._serve(endpoint, woken_ns)

    def run(self) -> None:
        """Serve until the parent goes away."""
        while not self._parent.closed:
            if now_ns() > self._until_ns:
                self._look(0.05)
            for endpoint in self._endpoints.values():
                for arrived in endpoint.port.take(SPINS):
                    self._until_ns = now_ns() + IDLE_NS
                    self._take(endpoint, arrived, self._tick_ns)
            if now_ns() > self._tick_ns:
                self._look(0)


if __name__ == "__main__":
    BusyService(serve_parent(sys.argv[1:])).run()
