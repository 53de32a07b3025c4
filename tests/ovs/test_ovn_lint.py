# SPDX-License-Identifier: Apache-2.0
"""Flow tables that OVN made raise nothing; what somebody else plants among them does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conftest import OVN, OVS, ROOT, require
from tests.lab import Lab, Shape
from tests.lab.commands import run
from tests.lab.shape import Controller, Tunnel
from tests.ovs.test_ovn_flows import HOSTS, enrich, flows_of, logical_flows, management

pytestmark = [pytest.mark.lab, pytest.mark.ovn]

_OFCTL = ("ovs-ofctl", "-O", "OpenFlow15")


@pytest.fixture(scope="module", params=[Tunnel.GENEVE, Tunnel.VXLAN])
def net(request: pytest.FixtureRequest) -> Iterator[Lab]:
    for capability in (ROOT, OVS, OVN):
        require(capability)
    made = Lab()
    shape = Shape(hosts=2, segments=1, controller=Controller.OVN, encapsulation=request.param)
    try:
        made.up(shape, agents=False)
        enrich(made)
        yield made
    finally:
        assert made.down() == []


def lint(lab: Lab, *more: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "netagent", "flows", "lint", "--json", *more],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert "findings" in told, told
    assert done.returncode == int(any(one["severity"] == "warning" for one in told["findings"]))
    return list(told["findings"])


def at(lab: Lab, host: str) -> tuple[str, str]:
    return "--rundir", str(lab.directory / host)


@contextmanager
def planted(lab: Lab, host: str, flow: str) -> Iterator[None]:
    """Add a flow of a cookie that no row has."""
    bridge = management(lab, host)
    run(*_OFCTL, "add-flow", bridge, f"cookie=0xbad,{flow}")
    try:
        yield
    finally:
        run(*_OFCTL, "del-flows", bridge, "cookie=0xbad/-1")


@pytest.mark.parametrize("host", HOSTS)
def test_what_ovn_made_raises_nothing(net: Lab, host: str) -> None:
    assert lint(net, *at(net, host)) == []


def test_nor_do_two_hosts_together(net: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, words = tmp_path_factory.mktemp("bundles"), []
    for host in HOSTS:
        file = str(folder / f"{host}.tar.gz")
        entered = ("unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh")
        run(*entered, sys.executable, "-m", "netagent", "bundle", *at(net, host), "--output", file)
        words += ["--bundle", file]
    assert lint(net, *words) == []


@pytest.mark.parametrize(
    ("flow", "check"),
    [
        ("table={l2},priority=60000,actions=drop", "shadowed-flow"),
        ("table={l2},priority=60000,udp,actions=output:4242", "missing"),
        ("table=200,priority=1,actions=drop", "unreachable-table"),
        ("table={l2},priority=60000,conj_id=4242,udp,actions=drop", "conjunction"),
    ],
)
def test_what_somebody_plants_is_found(net: Lab, flow: str, check: str) -> None:
    """Into the table of lookups by address, wherever this OVN has it."""
    stages = {row.cookie: row.stage for row in logical_flows(net).values()}
    lookups = [c for c in flows_of(net, "h0") if stages.get(c) == "ls_in_l2_lkup"]
    line = flows_of(net, "h0")[lookups[0]][0]
    table = line.partition("table=")[2].partition(",")[0]
    with planted(net, "h0", flow.format(l2=table)):
        found = lint(net, *at(net, "h0"))
    assert {one["check"] for one in found if one["severity"] == "warning"} == {check}
    assert lint(net, *at(net, "h0")) == []
