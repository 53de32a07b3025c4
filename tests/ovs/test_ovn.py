# SPDX-License-Identifier: Apache-2.0
"""A lab whose virtual switches OVN drives: agents read what a CMS writes for ovn-kubernetes."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab import Lab, LabError, Shape, cms
from tests.lab.commands import wait_for
from tests.lab.demo import Observer
from tests.lab.faults import RDMA_PORT
from tests.lab.namespaces import in_thread
from tests.lab.shape import Controller, Tunnel
from tests.lab.workload import container_of

pytestmark = [pytest.mark.lab, pytest.mark.ovn]

SHAPE = Shape(hosts=3, segments=1, controller=Controller.OVN, encapsulation=Tunnel.GENEVE)
TARGET = "train-a-1/rail0"
ENDPOINT = container_of("train-a-1").endpoint(0)
NAME = cms.port(ENDPOINT)


@contextmanager
def injected(lab: Lab, name: str, target: str | None) -> Iterator[None]:
    fault = lab.inject(name, target)
    try:
        yield
    finally:
        lab.heal(fault.key)


def answers(lab: Lab, source: str = "train-a-0", address: str = ENDPOINT.address) -> int:
    return lab.reaches(source, address, timeout_s=0.2)


def is_whole(lab: Lab) -> bool:
    return all(answers(lab, source) == 3 for source in ("train-a-0", "train-a-2", "train-b-0"))


def steps(lab: Lab) -> list[int]:
    """Return which generation was asked for, translated, and installed by all hosts."""
    columns = "--columns=nb_cfg,sb_cfg,hv_cfg"
    return [int(each) for each in lab.run("ovn", "ovn-nbctl", "--bare", columns, "list",
                                          "NB_Global").split()]  # fmt: skip


def arrives(lab: Lab, port: int) -> bool:
    """Tell whether a datagram from train-a-0 to a port of the endpoint does."""

    def listen() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.settimeout(0.5)
        made.bind((ENDPOINT.address, port))
        return made

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", (ENDPOINT.address, port))

    with in_thread("na-train-a-1", listen) as listener:
        in_thread("na-train-a-0", send)
        try:
            return listener.recv(16) == b"x"
        except TimeoutError:
            return False


# --- health ------------------------------------------------------------------------------------


def test_agents_find_every_endpoint_and_nobody_is_named(lab: Lab, observer: Observer) -> None:
    wait_for("all endpoints", lambda: observer.endpoints_up() == 12, timeout_s=30)
    assert is_whole(lab)
    assert observer.new() == []


def test_interfaces_say_what_a_controller_writes_and_nothing_of_ours(lab: Lab) -> None:
    row = ("get", "Interface", ENDPOINT.port)
    assert lab.run("h1", "ovs-vsctl", *row, "external_ids:encap-ip").strip() == '"172.30.0.11"'
    for ours in ("task", "rail"):
        with pytest.raises(LabError, match="no key"):
            lab.run("h1", "ovs-vsctl", *row, f"external_ids:{ours}")


def test_each_rail_has_tunnels_of_its_own(lab: Lab) -> None:
    def sent(rail: int) -> int:
        return int(lab.run("h0", "cat", f"/sys/class/net/rnic{rail}/statistics/tx_bytes"))

    for rail in range(SHAPE.rails):
        before = [sent(each) for each in range(SHAPE.rails)]
        flood = ("ping", "-q", "-f", "-s", "1400", "-c", "3000", "-w", "10")
        lab.run("train-a-0", *flood, f"10.0.{rail}.11")
        grown = [sent(each) - then for each, then in enumerate(before)]
        assert grown[rail] - grown[1 - rail] > 2000 * 1400


def test_full_packets_fit_the_tunnel(lab: Lab) -> None:
    options = ("-M", "do", "-s", "1414", "-c", "1", "-W", "1")
    lab.run("train-a-0", "ping", "-n", "-q", *options, ENDPOINT.address)


# --- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("port-unbound", TARGET),
        ("port-misplaced", TARGET),
        ("port-disabled", TARGET),
        ("flow-lost", f"h0/{TARGET}"),
        ("tunnel-address-wrong", "h1/rnic0"),
        ("address-refused", TARGET),
        ("controller-gone", "h1"),
        ("rnic-down", "h1/rnic0"),
        ("vswitchd-killed", "h1"),
    ],
)
def test_what_was_lost_comes_back(lab: Lab, name: str, target: str) -> None:
    with injected(lab, name, target):
        wait_for("loss", lambda: answers(lab) == 0, timeout_s=20)
        assert answers(lab, address="10.0.0.12") == 3
    wait_for("all of it", lambda: is_whole(lab), timeout_s=20)


def test_two_hosts_fight_over_a_port(lab: Lab) -> None:
    def chassis() -> str:
        columns = ("--bare", "--columns=chassis", "find", "Port_Binding")
        return lab.run("ovn", "ovn-sbctl", *columns, f"logical_port={NAME}").strip()

    first = chassis()
    with injected(lab, "port-contested", TARGET):
        wait_for("the other to win", lambda: chassis() not in {"", first}, timeout_s=20)
    wait_for("peace", lambda: chassis() == first and is_whole(lab), timeout_s=20)


@pytest.mark.parametrize(
    ("name", "target", "behind"),
    [
        ("controller-frozen", "h1", 2),
        ("controller-cut-off", "h1", 2),
        ("tunnel-address-taken", "h1/rnic0", 2),
        ("translation-stale", None, 1),
    ],
)
def test_what_is_asked_meanwhile_is_not_done(
    lab: Lab, name: str, target: str | None, behind: int
) -> None:
    with injected(lab, name, target):
        wait_for("all others", lambda: len(set(steps(lab)[:behind])) == 1, timeout_s=20)
        asked = steps(lab)
        assert asked[behind] < asked[0]
        assert is_whole(lab)
    wait_for("it to be done", lambda: len(set(steps(lab))) == 1, timeout_s=20)
    assert is_whole(lab)


def test_a_ghost_is_listed_and_laid(lab: Lab) -> None:
    def chassis() -> list[str]:
        return lab.run("ovn", "ovn-sbctl", "--bare", "--columns=name", "list", "Chassis").split()

    with injected(lab, "ghost-chassis", "ghost"):
        assert "ghost" in chassis()
        assert is_whole(lab)
    assert sorted(chassis()) == ["h0", "h1", "h2"]


def test_a_policy_drops_what_it_names(lab: Lab) -> None:
    with injected(lab, "policy-drop", TARGET):
        assert answers(lab) == 3
        assert not arrives(lab, RDMA_PORT)
        assert arrives(lab, RDMA_PORT + 1)
    assert arrives(lab, RDMA_PORT)


def test_containers_come_and_go(lab: Lab) -> None:
    lab.stop_container("train-a-1")
    assert NAME not in lab.run("ovn", "ovn-nbctl", "lsp-list", cms.switch(ENDPOINT))
    lab.start_container("train-a-1")
    assert answers(lab) == 3
