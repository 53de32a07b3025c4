# SPDX-License-Identifier: Apache-2.0
import socket

import pytest

from netagent.adapters.host import hops
from netagent.adapters.host.hops import Hop, first_hops
from netagent.host.facts import Namespace

HERE = Namespace("/proc/self/ns/net", 0)
ROUTER, MAC = "10.0.0.1", "02:0f:00:00:00:01"


class Route:
    def __init__(self, router):
        self.router = router

    def get_attr(self, name):
        return {"RTA_GATEWAY": self.router, "RTA_OIF": 2}[name]


@pytest.fixture
def kernel(monkeypatch):
    """Return neighbours that a canned kernel has, and how often it was asked for one."""
    neighbours, asked = [], []

    def route(_query, _family, _source, target):
        if target == "10.9.9.9":
            raise OSError(101, "Network is unreachable")
        return Route(ROUTER if target.startswith("10.0.1.") else None)

    def neighbour(_query, _family, address, device):
        asked.append((address, device))
        return neighbours.pop(0) if neighbours else ""

    monkeypatch.setattr(hops, "call_in_namespace", lambda _path, work, inode: work())
    monkeypatch.setattr(hops, "_route", route)
    monkeypatch.setattr(hops, "_neighbour", neighbour)
    return neighbours, asked


def test_what_is_behind_a_router_goes_to_it_and_it_is_looked_up_once(kernel):
    neighbours, asked = kernel
    neighbours.append(MAC)
    told = first_hops(HERE, "127.0.0.1", ["10.0.1.11", "10.0.1.12", "10.0.0.11"])
    assert told == {"10.0.1.11": Hop(MAC), "10.0.1.12": Hop(MAC), "10.0.0.11": Hop()}
    assert asked == [(ROUTER, 2)]


def test_no_way_is_told_and_what_is_no_packet_is_left_to_who_makes_it(kernel):
    told = first_hops(HERE, "127.0.0.1", ["10.9.9.9", "fd00::1", "nonsense"])
    assert told.pop("10.9.9.9").untold == (
        "its container has no way to 10.9.9.9: Network is unreachable"
    )
    assert set(told.values()) == {Hop()}


def test_a_router_that_was_forgotten_is_asked_and_may_be_silent(kernel, monkeypatch):
    neighbours, asked = kernel
    monkeypatch.setattr(hops, "POLL_S", 0.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as router:
        router.bind(("127.0.0.1", 0))
        router.settimeout(30)
        monkeypatch.setattr(hops, "DISCARD", router.getsockname()[1])
        monkeypatch.setattr(hops, "_route", lambda *_: Route("127.0.0.1"))
        neighbours += ["", "", MAC]
        assert first_hops(HERE, "127.0.0.1", ["10.0.1.11"]) == {"10.0.1.11": Hop(MAC)}
        assert router.recv(16) == b""
        assert len(asked) == 3
        monkeypatch.setattr(hops, "WAIT_S", 0.0)
        silent = first_hops(HERE, "127.0.0.1", ["10.0.1.11"])
    assert silent["10.0.1.11"].untold == "its container's router 127.0.0.1 does not answer"


def test_a_namespace_that_is_gone_leaves_all_untold():
    gone = Namespace("/run/netns/no-such-namespace", 1)
    [told] = first_hops(gone, "127.0.0.1", ["127.0.0.2"]).values()
    assert told.untold.startswith("its container's routes: ")


def test_the_kernel_says_its_routes_and_neighbours():
    with hops.query_socket() as query:
        route = hops._route(query, socket.AF_INET, "127.0.0.1", "127.0.0.2")
        device = route.get_attr("RTA_OIF")
        assert route.get_attr("RTA_GATEWAY") is None
        assert hops._neighbour(query, socket.AF_INET, "127.0.0.9", device) == ""
        with pytest.raises(OSError, match=r"nreachable|Invalid"):
            hops._route(query, socket.AF_INET, "203.0.113.9", "127.0.0.2")
