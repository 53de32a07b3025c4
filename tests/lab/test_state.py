# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest

from tests.lab.errors import LabError
from tests.lab.faults import plan
from tests.lab.shape import Controller, Shape, Transport, Tunnel, Versions
from tests.lab.state import State, Store, decode
from tests.lab.workload import Container

FULL = State(Shape(3, 1, 1, 1), containers=(Container("train-a", 0), Container("train-a", 2)))


def test_a_state_survives_its_file(tmp_path: Path) -> None:
    state = FULL.with_fault(plan("container-crash", "train-a-2", {}, FULL))
    store = Store(tmp_path)
    store.write(state)
    assert store.read() == state
    with store.locked() as locked:
        assert locked == state


def test_what_is_written_is_json(tmp_path: Path) -> None:
    Store(tmp_path).write(FULL)
    assert decode(json.loads((tmp_path / "state.json").read_text())) == FULL


def test_the_transport_and_what_follows_from_it_are_remembered() -> None:
    shape = Shape(transport=Transport.RDMA)
    state = State(shape, containers=(Container("train-b", 1, Transport.RDMA),))
    read = decode(json.loads(json.dumps(state.encode())))
    assert read == state
    assert read.shape.transport is Transport.RDMA
    assert read.containers[0].endpoint(0).address == "10.1.0.11"


def test_a_lab_on_ovn_says_where_its_databases_are() -> None:
    state = State(Shape(controller=Controller.OVN, encapsulation=Tunnel.GENEVE))
    written = json.loads(json.dumps(state.encode()))
    assert decode(written) == state
    assert written["databases"]["southbound"] == "tcp:198.18.0.2:6642"
    assert "databases" not in FULL.encode()


def test_versions_of_ip_are_remembered() -> None:
    ip = Versions(overlay=6, underlay=6)
    state = State(Shape(ip=ip), containers=(Container("train-b", 1, ip=ip),))
    read = decode(json.loads(json.dumps(state.encode())))
    assert read == state
    assert read.containers[0].endpoint(1).address == "fd00:10:0:1::11"


def test_without_a_file_no_lab_is_up(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no lab is up"), Store(tmp_path).locked():
        pass


def test_containers_and_faults_come_and_go() -> None:
    fault = plan("rnic-down", "h1/rnic0", {}, FULL)
    assert FULL.with_fault(fault).without_faults([fault]) == FULL
    fuller = FULL.with_container(Container("train-b", 1))
    assert fuller.tasks() == ("train-a", "train-b")
    assert fuller.with_container(Container("train-b", 1)) == fuller
    assert fuller.without_container(Container("train-b", 1)) == FULL
