# SPDX-License-Identifier: Apache-2.0
"""Bundles and sosreports of a real Open vSwitch, asked when it is gone."""

import json
import subprocess

import pytest

from netagent.cli import main
from ovs_checks.sources.answers import open_answers
from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.bundle import mangled
from ovs_checks.switch.database_log import rows_of
from ovs_checks.switch.rows import TABLES
from tests.conftest import OVS, require
from tests.ovs_checks.live import live_ovs

pytestmark = [pytest.mark.ovs, pytest.mark.oracle]

FLOWS = [
    "table=0,priority=9,in_port=p1,ip,cookie=0x11 actions=load:7->NXM_NX_REG1[],resubmit(,3)",
    "table=3,ip,nw_dst=10.0.0.0/24 actions=group:5",
    "table=3,priority=1 actions=mod_vlan_vid:5,NORMAL",
]
PACKETS = [
    "in_port=p1,udp,nw_dst=10.0.0.9,dl_src=00:00:00:00:00:05",
    "in_port=p1,udp,nw_dst=10.9.0.9,dl_src=00:00:00:00:00:05,dl_dst=00:00:00:00:00:01",
    "in_port=p2,arp",
]


@pytest.fixture(scope="module")
def ovs(tmp_path_factory):
    require(OVS)
    with live_ovs(tmp_path_factory.mktemp("ovs")) as live:
        live.add_bridge("br0", p1=1, p2=2, p3=3)
        live.add_bridge("br-x", q1=1)
        live.vsctl("set", "port", "p2", "trunks=5,6", "other_config:priority-tags=always")
        live.vsctl("remove", "port", "p2", "trunks", "6")
        live.vsctl("del-port", "p3", "--", "add-port", "br0", "p4", "--")
        live.vsctl("set", "interface", "p4", "type=vxlan", "options:remote_ip=flow")
        live.vsctl("set", "interface", "p4", "options:key=flow", "ofport_request=9")
        live.ofctl("add-group", "br0", "group_id=5,type=all,bucket=output:2,bucket=output:9")
        live.set_flows("br0", FLOWS)
        live.vswitchd.command("fdb/add", "br0", "p2", "5", "00:00:00:00:00:01")
        yield live


def trace(capsys, *arguments):
    code = main(["flows", "trace", *arguments])
    return code, capsys.readouterr().out


@pytest.fixture(scope="module")
def bundle(ovs, tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "h0.tar.gz"
    rundir = f"--rundir={ovs.rundir}"
    assert main(["bundle", rundir, f"--output={path}", "--samples=2", "--interval=0.1"]) == 0
    return path


def test_a_bundle_answers_as_the_vswitch_did(ovs, bundle, capsys):
    for packet in PACKETS:
        live = trace(capsys, f"--rundir={ovs.rundir}", "br0", packet)
        kept = trace(capsys, f"--bundle={bundle}", "br0", packet)
        assert kept == live
        assert "Datapath actions: " in live[1]
    answers = open_answers(bundle)
    assert len(answers.samples("ovs-appctl dpctl/dump-flows -m dummy@ovs-dummy")) == 2
    assert json.loads(answers.told("ip -j addr"))
    assert bundle.stat().st_mode & 0o777 == 0o600


def test_flows_are_listed_from_a_bundle(ovs, bundle, capsys):
    assert main(["flows", f"--bundle={bundle}", "--bridge=br0", "--table=3"]) == 0
    assert capsys.readouterr().out.count("table=3, ") == 2
    assert main(["flows", f"--bundle={bundle}", "--bridge=nope"]) == 3
    assert "not in the bundle: ovs-ofctl dump-flows nope" in capsys.readouterr().err


def test_a_bundle_named_before_the_question_is_the_one_asked(bundle, capsys):
    """And not the switch that runs here, if one does."""
    assert main(["flows", f"--bundle={bundle}", "--json", "lint"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
    assert main(["flows", f"--bundle={bundle}", "trace", "br0", "in_port=p1,udp"]) == 0


def test_the_snapshot_of_a_bundle_is_that_of_the_vswitch(ovs, bundle):
    answers = open_answers(bundle)
    live = ovs.vswitchd.snapshot(answers.host, wall_ns=answers.wall_ns)
    assert assemble(answers, answers.host, wall_ns=answers.wall_ns) == live


def test_the_database_s_file_holds_the_rows_that_the_server_gives(ovs):
    """Only what the server does not keep over a restart is missing."""
    kept = rows_of((ovs.rundir / "conf.db").read_text(), TABLES)
    forgotten = {"mac_in_use", "link_state", "mtu", "bond_active_slave"}
    for table, rows in ovs.vswitchd.rows().items():
        assert _without(kept[table], forgotten) == _without(rows, forgotten)


def _without(rows, columns):
    """Return rows in an order of their own; sets and maps have none either."""
    return sorted(
        json.dumps({c: _sorted(v) for c, v in row.items() if c not in columns}, sort_keys=True)
        for row in rows
    )


def _sorted(value):
    return [value[0], sorted(value[1])] if isinstance(value, list) and value[0] != "uuid" else value


@pytest.mark.parametrize("version", ["OpenFlow14", "OpenFlow15"])
def test_a_sosreport_answers_as_the_vswitch_did(ovs, version, tmp_path, capsys):
    """Its files are made by the commands of sos's plugin, under the names that sos gives them."""
    shown = tmp_path / "sosreport-h0-x" / "sos_commands" / "openvswitch"
    shown.mkdir(parents=True)
    database = tmp_path / "sosreport-h0-x" / "etc" / "openvswitch"
    database.mkdir(parents=True)
    (database / "conf.db").write_bytes((ovs.rundir / "conf.db").read_bytes())
    (tmp_path / "sosreport-h0-x" / "hostname").write_text("h0\n")
    control = next(ovs.rundir.glob("ovs-vswitchd.*.ctl"))
    commands = ["dpctl/show -s dummy@ovs-dummy", "ovs/route/show", "tnl/arp/show"]
    for bridge in ("br0", "br-x"):
        per_bridge = ("bridge/dump-flows --offload-stats", "dpif/show-dp-features", "fdb/show")
        commands += [f"{command} {bridge}" for command in per_bridge]
        for command in ("dump-flows", "dump-groups", "dump-ports-desc", "dump-tlv-map"):
            told = ovs.run(
                *("ovs-ofctl", "-O", version, command, f"unix:{ovs.rundir}/{bridge}.mgmt")
            )
            (shown / mangled(f"ovs-ofctl -O {version} {command} {bridge}")).write_text(told)
    for command in commands:
        told = ovs.run("ovs-appctl", "-t", str(control), *command.split())
        (shown / mangled(f"ovs-appctl {command}")).write_text(told)
    packed = tmp_path / "sosreport-h0-x.tar.xz"
    subprocess.run(["tar", "-cJf", packed, "-C", tmp_path, "sosreport-h0-x"], check=True)
    for packet in PACKETS:
        live = trace(capsys, f"--rundir={ovs.rundir}", "br0", packet)
        assert trace(capsys, f"--bundle={packed}", "br0", packet) == live
        assert trace(capsys, f"--bundle={tmp_path}", "br0", packet) == live


def test_a_bundle_without_an_open_vswitch_is_a_problem(tmp_path, capsys):
    assert main(["bundle", f"--rundir={tmp_path}", f"--output={tmp_path}/b"]) == 3
    assert "Open vSwitch unavailable" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main(["bundle", "--samples=0"]) == 2


def test_flow_tables_are_linted_live_and_from_bundles(ovs, bundle, capsys):
    """Two flows hide another, and lead to a port and a table that are not there."""
    assert main(["flows", "lint", f"--bundle={bundle}"]) == 0
    assert capsys.readouterr().out.endswith("0 warnings, 0 notes\n")
    hidden = "table=3,priority=5,udp,nw_dst=10.0.0.9,cookie=0x12 actions=output:77"
    high = "table=3,priority=40000,ip,nw_dst=10.0.0.0/16 actions=drop"
    ovs.set_flows("br0", [*FLOWS, hidden, high, "table=9 actions=drop"])
    try:
        assert main(["flows", "lint", f"--rundir={ovs.rundir}", "--json"]) == 1
    finally:
        ovs.set_flows("br0", FLOWS)
    said = json.loads(capsys.readouterr().out)
    assert [(one["check"], one["severity"]) for one in said["findings"]] == [
        ("shadowed-flow", "warning"),
        ("shadowed-flow", "warning"),
        ("unreachable-table", "warning"),
        ("missing", "warning"),
    ]
    assert any("cookie=0x12" in q["entry"] for q in said["findings"][-1]["quotes"])
    with pytest.raises(SystemExit):
        main(["flows", "lint", "--only=nope"])
    assert main(["flows", "lint", f"--bundle={bundle}", f"--bundle={bundle}"]) == 2
