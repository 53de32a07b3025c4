# SPDX-License-Identifier: Apache-2.0
"""Flow tables that OVN makes, of a network with all that clouds use: held against what it wants."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab import Lab, Shape, cms
from tests.lab.commands import run, wait_for
from tests.lab.shape import INTEGRATION_BRIDGE, Controller, Tunnel
from tests.lab.workload import container_of

pytestmark = pytest.mark.lab

SHAPE = Shape(hosts=2, segments=1, controller=Controller.OVN, encapsulation=Tunnel.GENEVE)
HOSTS = ("h0", "h1")
ENDS = [container_of(f"train-a-{host}").endpoint(0) for host in range(2)]
SWITCHES = [cms.switch(container_of("train-a-0").endpoint(rail)) for rail in range(2)]
PORTS = [cms.port(each) for each in ENDS]
_OFCTL = ("ovs-ofctl", "-O", "OpenFlow15")


def enrich(lab: Lab) -> None:
    """Add a router between two networks, policies of a group and of a switch, a load balancer."""
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
    group, drop = "outport == @pg1 && ip4.src == $as1 && tcp", "udp.dst == {5000, 5001}"
    nb += [
        ("create", "Address_Set", "name=as1", 'addresses="10.0.0.10","10.0.0.11","10.0.1.10"'),
        ("pg-add", "pg1", *PORTS),
        ("acl-add", "pg1", "to-lport", "1002", f"{group}.dst == {{80, 443}}", "allow-related"),
        ("acl-add", "pg1", "to-lport", "1001", group, "drop"),
        ("--name=quarantine", "acl-add", SWITCHES[1], "from-lport", "1001", drop, "drop"),
        ("lb-add", "lb0", "10.0.0.200:80", "10.0.0.10:80,10.0.0.11:80"),
        ("ls-lb-add", SWITCHES[0], "lb0"),
    ]  # fmt: skip
    lab.run("ovn", "ovn-nbctl", *(word for each in nb for word in ("--", *each)))
    lab.run("ovn", "ovn-nbctl", "--timeout=20", "--wait=hv", "sync")


@pytest.fixture(scope="module")
def net(lab: Lab) -> Lab:
    enrich(lab)
    wait_for("all hosts to say what drives them", lambda: is_known(lab), timeout_s=120)
    return lab


def is_known(lab: Lab) -> bool:
    return not any(diff(lab, host)["compared"]["cannot"] for host in HOSTS)


def diff(lab: Lab, host: str) -> dict[str, Any]:
    """Return what the command says of a host, which exits as it should."""
    command = ("netagent-analyzer", "intent", "diff", host, "--json")
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
            found[uuid[:8]] = f"{called} {name}"
    return found


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
        told = diff(net, host)
        found = told["compared"]["found"]
        assert (found["missing"], found["ports"], found["stale"], found["unclear"]) == ([],) * 4
        assert told["first"] is None
        assert found["compared"] > 200
        assert found["compared_ports"] >= 8


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
            told = diff(net, host)
        found = told["compared"]["found"]
        said = [(e["cookie"], e["stage"], e["match"]) for e in found["missing"]]
        owner = found["missing"][0]["owner"] if len(found["missing"]) == 1 else ""
        is_named = said == [(row.cookie, row.stage, row.match)]
        expected = named.get(row.hint)
        is_owned = owner.startswith("logical ") if expected is None else owner == expected[:80]
        is_owned = is_owned or owner == "ACL quarantine"
        is_alone = not found["ports"] and not found["stale"] and told["first"] == "intent, OpenFlow"
        return "" if is_named and is_owned and is_alone else f"{said} {owner} not {expected}"

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
