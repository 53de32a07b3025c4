# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.lab import cms
from tests.lab.ovn import Ovn, _listening
from tests.lab.shape import Controller, Shape
from tests.lab.workload import Container

SHAPE = Shape(hosts=2, rails=1, segments=1, controller=Controller.OVN)
HERE, THERE = Container("train-a", 0), Container("train-a", 1)


class Database(Ovn):
    """A northbound database that remembers what it was told."""

    def __init__(self, ports: tuple[str, ...]) -> None:
        super().__init__(Path(), SHAPE)
        self.ports, self.told = ports, ""

    def nbctl(self, *words: str) -> str:
        if "list" in words:
            return "\n".join(self.ports)
        self.told = " ".join(words)
        return ""


@pytest.fixture
def database() -> Database:
    return Database((cms.port(HERE.endpoint(0)), "somebody-else"))


def test_what_is_missing_is_made_and_what_is_too_much_goes(database: Database) -> None:
    database.write([HERE, THERE])
    gone, *made = database.told.removeprefix("-- ").split(" -- ")
    assert gone == "lsp-del somebody-else"
    port = cms.port(THERE.endpoint(0))
    assert f"lsp-add train.a.rail0_ovn_layer2_switch {port}" in made
    assert f"lsp-set-port-security {port} 02:00:00:01:00:0b 10.0.0.11" in made
    assert cms.port(HERE.endpoint(0)) not in database.told


def test_what_is_right_is_left_alone(database: Database) -> None:
    database.ports = database.ports[:1]
    database.write([HERE])
    assert database.told == ""


def test_a_database_listens_where_others_reach_it() -> None:
    assert _listening("tcp:198.18.0.2:6641") == "tcp:6641:198.18.0.2"
