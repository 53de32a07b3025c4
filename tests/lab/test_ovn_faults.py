# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.lab import cms, ovn_faults
from tests.lab.errors import LabError
from tests.lab.faults import plan
from tests.lab.ovn import Ovn
from tests.lab.ovs import VirtualSwitch
from tests.lab.rim import Rim
from tests.lab.shape import Controller, Shape, driven_by
from tests.lab.state import State
from tests.lab.workload import Container

SHAPE = driven_by(Controller.OVN)
EVERYONE = tuple(Container("train-a", host) for host in range(4))
STATE = State(SHAPE, containers=EVERYONE)


@dataclass
class Lab:
    """What faults told whom."""

    directory: Path
    told: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=lambda: ["af7ee434-0000"])
    flows: str = ""

    def rim(self, *faults: Any, shape: Shape = SHAPE) -> Rim:
        switch, nobody = lambda host: Switch(self, host), lambda host: None
        none: Any = None
        return Rim(self.directory, shape, faults, none, none, switch, nobody)

    def note(self, whom: str, *words: str) -> str:
        self.told.append(" ".join((whom, *words)))
        return "\n".join(self.rows) if "find" in words else "7"

    def run(self, *words: str) -> str:
        self.told.append(" ".join(words))
        return self.flows if "dump-flows" in words else ""


class Switch(VirtualSwitch):
    def __init__(self, lab: Lab, host: int) -> None:
        super().__init__(lab.directory, SHAPE, host)
        self._lab = lab

    def vsctl(self, *arguments: str) -> None:
        self._lab.note(self._name, *arguments)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    made = Lab(tmp_path)
    for tool in ("nbctl", "sbctl", "appctl"):
        monkeypatch.setattr(Ovn, tool, lambda _, *words, tool=tool: made.note(tool, *words))
    monkeypatch.setattr(ovn_faults, "run", made.run)
    return made


def done_and_undone(lab: Lab, name: str, target: str | None = None) -> tuple[list[str], list[str]]:
    fault = plan(name, target, {}, STATE)
    do, undo = ovn_faults.ACTIONS[name]
    do(lab.rim(fault), fault)
    done, lab.told = lab.told, []
    undo(lab.rim(), fault)
    return done, lab.told


@pytest.mark.parametrize("name", ["tunnel-address-wrong", "tunnel-address-taken"])
def test_a_host_offers_its_own_addresses_again(lab: Lab, name: str) -> None:
    (wrong, *_), (right,) = done_and_undone(lab, name, "h3/rnic1")
    offered = Switch(lab, 3)._for_ovn()
    assert right.split()[-1] in offered
    assert wrong.split()[-1] not in offered
    assert wrong.split("=")[1].startswith('"172.30.0.13,')


def test_what_is_taken_is_another_host_s(lab: Lab) -> None:
    (taken, asked, _), _ = done_and_undone(lab, "tunnel-address-taken", "h3/rnic1")
    assert taken.endswith(f'{SHAPE.vtep(0, 1)}"')
    assert asked == "nbctl get NB_Global . nb_cfg"


def test_a_port_is_called_by_its_own_name_again(lab: Lab) -> None:
    (wrong,), (right,) = done_and_undone(lab, "port-unbound", "train-a-1/rail1")
    name = cms.port(EVERYONE[1].endpoint(1))
    assert right.endswith(f"train-a-1-r1 external_ids:iface-id={name}")
    assert right != wrong


def test_the_policy_that_goes_is_the_one_that_came(lab: Lab) -> None:
    (came, *_), (gone,) = done_and_undone(lab, "policy-drop")
    assert "{4791, 18515}" in came
    added = came.removeprefix("nbctl --name=quarantine acl-add ").removesuffix(" drop")
    assert gone == f"nbctl acl-del {added}"


def test_a_flow_that_is_lost_is_kept_and_given_back(lab: Lab) -> None:
    flow = "cookie=0xaf7ee434, table=33, priority=50 actions=resubmit(,37)"
    lab.flows = f"OFPST_FLOW reply\n {flow}\n"
    done, (_, back) = done_and_undone(lab, "flow-lost")
    assert done[-1].endswith("cookie=0xaf7ee434/-1")
    assert back.endswith(f"br-int.mgmt {flow}")
    assert list(lab.directory.iterdir()) == []


def test_a_flow_of_a_port_that_was_made_anew_is_not_given_back(lab: Lab) -> None:
    fault = plan("flow-lost", None, {}, STATE)
    do, undo = ovn_faults.ACTIONS["flow-lost"]
    lab.flows = " cookie=0xaf7ee434, table=33, priority=50 actions=resubmit(,37)\n"
    do(lab.rim(fault), fault)
    lab.rows = ["03d899b2-0000"]
    undo(lab.rim(), fault)
    assert not [words for words in lab.told if "add-flow" in words]


@pytest.mark.parametrize(
    ("flows", "rows"), [("x table=34, actions=drop", ["a-b"]), ("", ["a-b"]), ("", [])]
)
def test_another_pipeline_than_the_known_is_refused_and_left_alone(
    lab: Lab, flows: str, rows: list[str]
) -> None:
    lab.flows, lab.rows = flows, rows
    with pytest.raises(LabError):
        done_and_undone(lab, "flow-lost")
    assert not [words for words in lab.told if "del-flows" in words]


def test_where_another_fault_may_keep_a_host_from_it_nobody_waits(lab: Lab) -> None:
    fault, other = (
        plan("port-disabled", None, {}, STATE),
        plan("translation-stale", None, {}, STATE),
    )
    do, _ = ovn_faults.ACTIONS["port-disabled"]
    do(lab.rim(fault, other), fault)
    assert not [words for words in lab.told if "sync" in words]
    do(lab.rim(fault), fault)
    assert [words for words in lab.told if "sync" in words]


def test_a_lab_of_one_host_has_no_other(lab: Lab) -> None:
    fault = plan("port-contested", None, {}, STATE)
    with pytest.raises(LabError, match="one host"):
        ovn_faults.ACTIONS["port-contested"][0](lab.rim(fault, shape=Shape(1, 1, 1, 1)), fault)
