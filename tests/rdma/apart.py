# SPDX-License-Identifier: Apache-2.0
"""Two machines on a cable: `python -m tests.rdma.apart answer|probe`, each in a guest of its own.

Nothing of one kernel is the other's: no policy routing, no shared device. `answer` serves until the
prober says that it is done; `probe` prints as JSON what became of its probes and what source ports
its kernel put on the wire.
"""

import json
import socket
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from netagent.adapters.rdma.resolver import Resolver
from netagent.adapters.rdma.responder_client import ResponderClient
from netagent.model.endpoint import RdmaAddress
from netagent.model.ids import EndpointId
from netagent.model.pinglist import Target
from netagent.probing.session import ProbeReplied
from netagent.wire.codec import decode, encode
from tests.rdma.pair import (
    FLOWS,
    PATIENCE_S,
    Duet,
    Side,
    eventually,
    open_transport,
    opened,
    roce_ports,
    run,
    sniffer,
)

ADDRESSES = {"answer": "192.0.2.10", "probe": "192.0.2.11"}
PORT = 7000
PROBES = 200
SIZES = (64, 500, 1000)
NEAR, FAR = EndpointId("near", 0), EndpointId("far", 0)


def main(role: str) -> None:
    """Play one of the two."""
    own, other = ADDRESSES[role], ADDRESSES["answer" if role == "probe" else "probe"]
    (netdev,) = {path.name for path in Path("/sys/bus/virtio/drivers/virtio_net").glob("*/net/*")}
    run("ip", "address", "add", f"{own}/24", "dev", netdev)
    run("ip", "link", "set", netdev, "up")
    run("modprobe", "rdma_rxe")
    side = Side(netdev, "rxe0", own, "", "192.0.2.0/24")
    side.add_device()
    if role == "answer":
        _answer(side, prober=f"::ffff:{other}")
    else:
        print(json.dumps(_probe(side, other)))


def _answer(side: Side, *, prober: str) -> None:
    with ExitStack() as stack:
        responders = ResponderClient(replies_per_second=10_000)
        stack.callback(responders.close)
        responders.set_endpoints({FAR: (side.place, FLOWS)})
        responders.aim({FAR: [prober]})
        opened(responders, FAR)
        server = stack.enter_context(socket.create_server((side.address, PORT)))
        server.settimeout(PATIENCE_S)
        asking, _ = server.accept()
        with asking:
            asking.sendall(encode(responders.opened[FAR]))
            asking.shutdown(socket.SHUT_WR)
            asking.settimeout(PATIENCE_S)
            while asking.recv(64):
                responders.step()


def _probe(side: Side, other: str) -> dict[str, object]:
    with ExitStack() as stack:
        asked = stack.enter_context(_connected(other))
        address = decode(_all(asked), RdmaAddress)
        resolver, nobody = Resolver(), ResponderClient(replies_per_second=1)
        stack.callback(resolver.close)
        stack.callback(nobody.close)
        transport = open_transport(side, resolver)
        stack.callback(transport.close)
        target = Target(NEAR, FAR, other, "", address)
        transport.aim([target])
        duet = Duet((side, side), resolver, nobody, transport, target)
        duet.warm()
        wire = stack.enter_context(sniffer(side.netdev))
        ended = Counter[str]()
        for number in range(PROBES):
            size = SIZES[number % len(SIZES)]
            ended += Counter(k.__name__ for k in duet.probe(1, flow=number % FLOWS, size=size))
        measured = sorted(each.network_ns for each in duet.measured())
        return {
            "replied": ended[ProbeReplied.__name__],
            "ended": ended,
            "median_us": measured[len(measured) // 2] // 1000,
            "ports": sorted(transport.ports),
            "ports_on_wire": sorted(roce_ports(wire, side.address)),
        }


def _connected(address: str) -> socket.socket:
    found: list[socket.socket] = []

    def connect() -> bool:
        try:
            found.append(socket.create_connection((address, PORT), timeout=1))
        except OSError:
            return False
        return True

    eventually(connect, f"a connection to {address}")
    found[0].settimeout(PATIENCE_S)
    return found[0]


def _all(stream: socket.socket) -> bytes:
    parts = list(iter(lambda: stream.recv(4096), b""))
    return b"".join(parts)


if __name__ == "__main__":
    main(sys.argv[1])
