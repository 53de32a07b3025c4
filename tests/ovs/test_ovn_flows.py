# SPDX-License-Identifier: Apache-2.0
"""Flow tables that OVN makes, of a network with all that clouds use: held against what it wants."""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab import Lab, Shape, cms
from tests.lab.commands import run, wait_for
from tests.lab.shape import INTEGRATION_BRIDGE, Controller, Tunnel
from tests.lab.workload import Endpoint, container_of

pytestmark = [pytest.mark.lab, pytest.mark.ovn]

SHAPE = Shape(hosts=2, segments=1, controller=Controller.OVN, encapsulation=Tunnel.GENEVE)
HOSTS = ("h0", "h1")
ENDS = [container_of(f"train-a-{host}").endpoint(0) for host in range(2)]
SWITCHES = [cms.switch(container_of("train-a-0").endpoint(rail)) for rail in range(2)]
_OFCTL = ("ovs-ofctl", "-O", "OpenFlow15")
_TABLE = re.compile(r"\btable=(\d+)")
_METADATA = re.compile(r"metadata=(\w+)")


def enrich(lab: Lab) -> None:
    """Add a router between two networks, policies, and a switch that tracks connections.

    That one has a port at each host, and no traffic: Open vSwitch 3.1's own datapath aborts where
    it tracks connections whose flows come and go (conntrack.c, conn_update_state).
    """
    nb: list[tuple[str, ...]] = [("lr-add", "lr")]
    for rail, switch in enumerate(SWITCHES):
        near, far = f"lr-{rail}", f"{rail}-lr"
        nb += [
            ("lrp-add", "lr", near, f"02:aa:00:00:00:0{rail + 1}", f"10.0.{rail}.250/24"),
            ("lsp-add", switch, far),
            ("lsp-set-type", far, "router"),
            ("lsp-set-addresses", far, "router"),
            ("lsp-set-options", far, f"router-port={near}"),
        ]
    nb.append(("ls-add", "quiet"))
    for host in HOSTS:
        nb += [("lsp-add", "quiet", f"quiet-{host}")]
        interface = ("set", "Interface", "quiet", "type=internal")
        named = f"external_ids:iface-id=quiet-{host}"
        lab.run(host, "ovs-vsctl", "add-port", INTEGRATION_BRIDGE, "quiet", "--", *interface, named)
    group, drop = "outport == @pg1 && ip4.src == $as1 && tcp", "udp.dst == {5000, 5001}"
    nb += [
        ("create", "Address_Set", "name=as1", 'addresses="10.0.0.10","10.0.0.11","10.0.1.10"'),
        ("pg-add", "pg1", *(f"quiet-{host}" for host in HOSTS)),
        ("acl-add", "pg1", "to-lport", "1002", f"{group}.dst == {{80, 443}}", "allow-related"),
        ("acl-add", "pg1", "to-lport", "1001", group, "drop"),
        ("--name=quarantine", "acl-add", SWITCHES[1], "from-lport", "1001", drop, "drop"),
        ("lb-add", "lb0", "10.0.0.200:80", "10.0.0.10:80,10.0.0.11:80"),
        ("ls-lb-add", "quiet", "lb0"),
    ]
    lab.run("ovn", "ovn-nbctl", *(word for each in nb for word in ("--", *each)))
    lab.run("ovn", "ovn-nbctl", "--timeout=20", "--wait=hv", "sync")


@pytest.fixture(scope="module")
def net(lab: Lab) -> Lab:
    enrich(lab)
    wait_for("all hosts to say what drives them", lambda: is_known(lab), timeout_s=120)
    return lab


def is_known(lab: Lab) -> bool:
    return not any(diff(lab, host)["compared"]["cannot"] for host in HOSTS)


def able(lab: Lab, host: str) -> dict[str, Any]:
    """Return what the command says once it can: a busy machine may be late with its flows."""
    told: list[dict[str, Any]] = []

    def is_able() -> bool:
        told.append(diff(lab, host))
        if why := told[-1]["compared"]["cannot"]:
            print(f"{host}: {why}")
        return not why

    wait_for(f"the flows of {host}", is_able, timeout_s=120)
    return told[-1]


def diff(lab: Lab, host: str) -> dict[str, Any]:
    """Return what the command says of a host, which exits as it should."""
    command = (sys.executable, "-m", "analyzer.cli", "intent", "diff", host, "--json")
    done = subprocess.run(
        ["env", *(f"{k}={v}" for k, v in lab.services().environment().items()), *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told: dict[str, Any] = json.loads(done.stdout)
    is_odd = told["first"] is not None or told["compared"]["cannot"]
    assert done.returncode == int(bool(is_odd)), done.stderr
    return told


@dataclass(frozen=True)
class Row:
    """A logical flow, as the southbound database has it."""

    cookie: int
    stage: str
    match: str
    hint: str


def logical_flows(lab: Lab) -> dict[int, Row]:
    columns = "--columns=_uuid,match,external_ids"
    told = json.loads(lab.run("ovn", "ovn-sbctl", "--format=json", columns, "list", "Logical_Flow"))
    found = {}
    for (_, uuid), match, (_, ids) in told["data"]:
        said = dict(ids)
        cookie = int(uuid[:8], 16)
        found[cookie] = Row(cookie, said["stage-name"], match, said.get("stage-hint", ""))
    return found


def owners(lab: Lab) -> dict[str, str]:
    """Return northbound rows: how their identities begin -> what they are called."""
    found = {}
    for table, column, called in (
        ("ACL", "match", "ACL"), ("Logical_Switch_Port", "name", "port"),
        ("Logical_Router_Port", "name", "router port"), ("Load_Balancer", "name", "load balancer"),
    ):  # fmt: skip
        words = ("--format=json", f"--columns=_uuid,{column}", "list", table)
        for (_, uuid), name in json.loads(lab.run("ovn", "ovn-nbctl", *words))["data"]:
            found[uuid[:8]] = f"{called} {name[:80]}{'...' * (len(name) > 80)}"
    named = lab.run(
        "ovn", "ovn-nbctl", "--bare", "--columns=_uuid", "find", "ACL", "name=quarantine"
    )
    return found | {named[:8]: "ACL quarantine"}


def management(lab: Lab, host: str) -> str:
    return f"unix:{lab.directory / host / INTEGRATION_BRIDGE}.mgmt"


def flows_of(lab: Lab, host: str) -> dict[int, list[str]]:
    """Return a host's flows by their cookies, as they can be added again."""
    dump = run(*_OFCTL, "--no-stats", "--no-names", "dump-flows", management(lab, host))
    found = defaultdict(list)
    for line in dump.splitlines():
        if "actions=" in line:
            cookie = line.partition("cookie=")[2].partition(",")[0]
            found[int(cookie or "0", 16)].append(line.strip())
    return found


@contextmanager
def without(lab: Lab, host: str, cookie: int, lines: list[str]) -> Iterator[None]:
    """Take all flows of a cookie away, and give them back."""
    run(*_OFCTL, "del-flows", management(lab, host), f"cookie={cookie:#x}/-1")
    try:
        yield
    finally:
        for line in lines:
            run(*_OFCTL, "add-flow", management(lab, host), line)


def test_a_healthy_network_differs_nowhere(net: Lab) -> None:
    for host in HOSTS:
        told = able(net, host)
        found = told["compared"]["found"]
        assert (found["missing"], found["ports"], found["stale"], found["unclear"]) == ([],) * 4
        assert told["first"] is None
        assert found["compared"] > 200
        assert found["compared_ports"] >= 8


@pytest.mark.parametrize("end", ENDS, ids=["its own", "of another host"])
def test_a_port_whose_flows_are_gone_is_named(net: Lab, end: Endpoint) -> None:
    port, columns = cms.port(end), ("--bare", "--columns=_uuid", "find", "Port_Binding")
    cookie = int(lab_sb(net, *columns, f"logical_port={port}")[:8], 16)
    lines = flows_of(net, "h0")[cookie]
    with without(net, "h0", cookie, lines):
        found = able(net, "h0")["compared"]["found"]
    tables = sorted({int((*_TABLE.findall(each), "0")[0]) for each in lines})
    said = [(each["port"], each["tables"], each["is_here"]) for each in found["ports"]]
    assert said == [(port, tables, end is ENDS[0])]
    assert found["missing"] == found["stale"] == []


def lab_sb(lab: Lab, *words: str) -> str:
    return lab.run("ovn", "ovn-sbctl", *words)


def test_what_nothing_asks_for_is_stale(net: Lab) -> None:
    bridge = management(net, "h0")
    run(*_OFCTL, "add-flow", bridge, "cookie=0xbad,table=9,priority=7,udp,actions=drop")
    try:
        found = able(net, "h0")["compared"]["found"]
    finally:
        run(*_OFCTL, "del-flows", bridge, "cookie=0xbad/-1")
    assert found["stale"] == [{"cookie": 0xBAD, "tables": [9], "flows": 1}]
    assert found["missing"] == found["ports"] == []


# --- one of several flows -------------------------------------------------------------------------


def remembered(lab: Lab) -> None:
    """Return once h0's flows were the same for long enough."""

    def is_so() -> bool:
        found = able(lab, "h0")["compared"]["found"]
        assert found["fewer"] == found["missing"] == []
        return bool(found["is_remembered"])

    wait_for("h0 to be known", is_so, timeout_s=180)


def test_one_of_several_flows_of_a_logical_one_is_told_by_what_was_there_before(net: Lab) -> None:
    remembered(net)
    rows, bridge = logical_flows(net), management(net, "h0")
    flows = flows_of(net, "h0")
    several: dict[int, str] = {}
    for cookie, lines in flows.items():
        networks = Counter(_METADATA.findall(line)[0] for line in lines if cookie in rows)
        for network, count in networks.items():
            if count > 1:
                several[cookie] = next(e for e in lines if _METADATA.findall(e)[0] == network)
    assert len(several) > 5
    for line in several.values():
        flow = line.partition(" actions=")[0].replace(",", "/-1,", 1)
        run(*_OFCTL, "--strict", "del-flows", bridge, flow)
    try:
        found = able(net, "h0")["compared"]["found"]
    finally:
        for line in several.values():
            run(*_OFCTL, "add-flow", bridge, line)
    said = {each["cookie"]: (each["had"], each["has"]) for each in found["fewer"]}
    print(f"{len(said.keys() & several.keys())} of {len(several)} named, "
          f"{len(said.keys() - several.keys())} wrong")  # fmt: skip
    assert said == {each: (len(flows[each]), len(flows[each]) - 1) for each in several}
    assert found["missing"] == []
    assert able(net, "h0")["first"] is None


def test_fewer_flows_that_somebody_asked_for_are_not_missing(net: Lab) -> None:
    remembered(net)
    net.run("ovn", "ovn-nbctl", "--wait=hv", "remove", "Address_Set", "as1", "addresses",
            '"10.0.1.10"')  # fmt: skip
    assert able(net, "h0")["first"] is None


# --- every stage ----------------------------------------------------------------------------------


def test_of_each_stage_a_flow_that_is_gone_is_named_with_its_owner(net: Lab) -> None:
    rows, named = logical_flows(net), owners(net)
    chosen: dict[str, tuple[str, Row]] = {}
    dumps = {host: flows_of(net, host) for host in HOSTS}
    for cookie, row in sorted(rows.items(), key=lambda item: item[1].hint == ""):
        host = HOSTS[len(chosen) % 2]
        if cookie in dumps[host] and row.stage not in chosen:
            chosen[row.stage] = host, row

    def right(host: str, row: Row) -> str:
        """Return "" where the diff names it, and it alone; else what it says."""
        with without(net, host, row.cookie, dumps[host][row.cookie]):
            told = able(net, host)
        found = told["compared"]["found"]
        said = [(e["cookie"], e["stage"], e["match"]) for e in found["missing"]]
        owner = found["missing"][0]["owner"] if len(found["missing"]) == 1 else ""
        expected = named.get(row.hint)
        is_owned = owner.startswith("logical ") if expected is None else owner == expected
        is_named = is_owned and said == [(row.cookie, row.stage, row.match)]
        is_alone = not any(found[each] for each in ("fewer", "ports", "stale", "unclear"))
        is_first = told["first"] == "intent, OpenFlow"
        return "" if is_named and is_alone and is_first else f"{found} not {expected}"

    def all_of(host: str) -> dict[str, str]:
        mine = {stage: row for stage, (at, row) in chosen.items() if at == host}
        return {stage: right(host, row) for stage, row in mine.items()}

    with ThreadPoolExecutor(len(HOSTS)) as pool:
        results = {stage: why for part in pool.map(all_of, HOSTS) for stage, why in part.items()}
    for stage, (host, row) in sorted(chosen.items()):
        owner = named.get(row.hint, "-")
        print(f"{stage:28} {host} {results[stage] or 'named':10} {owner[:40]:40} {row.match[:60]}")
    score = sum(not why for why in results.values())
    print(f"{score} of {len(results)} stages named, of {len({r.stage for r in rows.values()})}")
    assert {stage: why for stage, why in results.items() if why} == {}
    assert len(results) > 50
    assert all(able(net, host)["first"] is None for host in HOSTS)
