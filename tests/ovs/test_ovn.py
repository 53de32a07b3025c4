# SPDX-License-Identifier: Apache-2.0
"""A lab whose virtual switches OVN drives: agents read what its controller's CMS writes."""

from contextlib import contextmanager

import pytest

from tests.lab import cms
from tests.lab.commands import wait_for
from tests.lab.namespaces import in_thread
from tests.lab.shape import Controller, Shape, Tunnel
from tests.lab.traffic import PORT
from tests.lab.workload import container_of

pytestmark = pytest.mark.lab

SHAPE = Shape(hosts=3, controller=Controller.OVN, encapsulation=Tunnel.GENEVE)
TARGET = "train-a-1/rail0"
PEER = container_of("train-a-1").endpoint(0)
NAME = cms.port(PEER)


@contextmanager
def injected(lab, name, target=None):
    fault = lab.inject(name, target)
    try:
        yield fault
    finally:
        lab.heal(fault.key)


def answered(lab, source="train-a-0", address=PEER.address):
    return lab.reaches(source, address, timeout_s=0.2)


def is_whole(lab):
    everyone = [each for rail in range(SHAPE.rails) for each in (f"10.0.{rail}.11",)]
    return all(answered(lab, source, to) == 3 for source in ("train-a-0", "train-a-2", "train-b-0")
               for to in everyone)  # fmt: skip


def asked(lab, *words):
    return lab.run("ovn", *words).split()


# --- health ------------------------------------------------------------------------------------


def test_agents_find_every_endpoint_and_nobody_is_named(lab, observer):
    wait_for("all endpoints", lambda: observer.endpoints_up() == 2 * 3 * 2, timeout_s=30)
    assert is_whole(lab)
    assert observer.new() == []


def test_what_is_written_is_the_controller_s(lab):
    ids = lab.run("h1", "ovs-vsctl", "get", "Interface", PEER.port, "external_ids")
    assert f'iface-id="{NAME}"' in ids or f"iface-id={NAME}" in ids
    assert 'encap-ip="172.30.0.11"' in ids
    assert "task" not in ids.replace("train", "")
    assert "rail=" not in ids


def test_each_rail_has_a_tunnel_of_its_own(lab):
    def sent(rail):
        return int(lab.run("h0", "cat", f"/sys/class/net/rnic{rail}/statistics/tx_packets"))

    lab.processes.kill("traffic")
    for rail in range(SHAPE.rails):
        ways = [sent(each) for each in range(SHAPE.rails)]
        lab.run("train-a-0", "ping", "-q", "-f", "-c", "400", f"10.0.{rail}.11")
        grown = [sent(each) - before for each, before in enumerate(ways)]
        assert grown[rail] >= 400
        assert grown[1 - rail] < 400  # what agents ask meanwhile


def test_full_packets_fit_the_tunnel(lab):
    options = ("-M", "do", "-s", "1414", "-c", "1", "-W", "1")
    lab.run("train-a-0", "ping", "-n", "-q", *options, PEER.address)


# --- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("port-unbound", TARGET),
        ("port-misplaced", TARGET),
        ("flow-lost", "h0/train-a-1/rail0"),
        ("tunnel-address-wrong", "h1/rnic0"),
        ("address-refused", TARGET),
        ("controller-gone", "h1"),
        ("port-disabled", TARGET),
        ("rnic-down", "h1/rnic0"),
    ],
)
def test_what_loses_everything_loses_it_until_it_is_healed(lab, name, target):
    with injected(lab, name, target):
        wait_for("loss", lambda: answered(lab) == 0, timeout_s=20)
        assert answered(lab, address="10.0.0.12") == 3
    wait_for("all of the lab", lambda: is_whole(lab), timeout_s=20)
