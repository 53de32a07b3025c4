# SPDX-License-Identifier: Apache-2.0
"""Flow tables held against the flows of a real datapath, which packets have made."""

import json
import os
import re
from itertools import product

import pytest
from hypothesis import HealthCheck, given, note, settings

from netagent.cli import main
from ovs_checks.lint.layers import check, layers_of
from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.bundle import Bundle, Recorder, pack
from tests.conftest import OVS, require
from tests.ovs_checks.live import LiveOvs, live_ovs
from tests.ovs_checks.pipelines import MACS, pipelines

pytestmark = [pytest.mark.ovs, pytest.mark.oracle]

DATAPATH = "dummy@ovs-dummy"
IP = "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto={},tos=0,ttl=64,frag=no)"
IPV6 = "eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=0,proto={},tclass=0,hlimit=64,frag=no)"
BODIES = (
    f"{IP.format(17)},udp(src=3,dst=4791)",
    f"{IP.format(6)},tcp(src=2,dst=80)",
    "eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha={0},tha={0})".format(MACS[0]),
    f"{IPV6.format(17)},udp(src=3,dst=4791)",
    f"{IPV6.format(58)},icmpv6(type=135,code=0),nd(target=fe80::2,sll={MACS[0]})",
)


@pytest.fixture(scope="module")
def ovs(tmp_path_factory):
    require(OVS)
    with live_ovs(tmp_path_factory.mktemp("ovs")) as live:
        live.add_lab()
        yield live


def send(live: LiveOvs, port: str, *packets: str) -> None:
    """Have packets come in by a port; afterwards the datapath holds what is to hold."""
    for packet in packets:
        live.vswitchd.command("netdev-dummy/receive", port, packet)
    live.vswitchd.command("revalidator/wait")


def packet(port: int, source: str, destination: str, body: str) -> str:
    return f"in_port({port}),eth(src={source},dst={destination}),{body}"


def kept(live: LiveOvs) -> Bundle:
    """Return a bundle with two samples of the datapath."""
    clock = iter(range(0, 1 << 62, 1_000_000_000))
    recorder = Recorder(live.vswitchd, "h0", lambda: next(clock))
    assemble(recorder, "h0")
    recorder.command("dpctl/show", "-s", DATAPATH)
    for _ in range(2):
        recorder.command("dpctl/dump-flows", "-m", DATAPATH)
    return recorder.bundle()


def checked(live: LiveOvs):
    bundle = kept(live)
    layers = layers_of(bundle, assemble(bundle, "h0"))
    return layers, check(layers)


@given(pipelines(), pipelines())
@settings(
    max_examples=settings().max_examples // 20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_the_datapath_does_what_the_flow_tables_say(ovs, flows, others):
    """Whatever the tables are: of a switch that is well, no flow is stale."""
    ovs.set_flows("br0", flows)
    ovs.set_flows("br1", others)
    ovs.vswitchd.command("fdb/flush", "br0")
    ovs.vswitchd.command("fdb/flush", "br1")
    ovs.vswitchd.command("revalidator/purge")
    send(ovs, "p1", *(packet(1, MACS[0], to, body) for to, body in product(MACS[1:], BODIES)))
    layers, found = checked(ovs)
    assert layers.last.megaflows
    note("\n".join(one.text for one in layers.last.megaflows))
    assert [one for one in found if one.severity == "warning"] == []
    assert all("cannot tell" in one.text for one in found if one.check == "stale-megaflow")


def test_a_datapath_flow_that_was_tampered_with_is_stale(ovs, tmp_path, capsys):
    """Open vSwitch does not look again at a flow whose tables have not changed."""
    ovs.set_flows("br0", ["cookie=0x5,table=0,in_port=1,udp actions=output:2"])
    ovs.vswitchd.command("revalidator/purge")
    send(ovs, "p1", packet(1, MACS[0], MACS[1], BODIES[0]))
    _, found = checked(ovs)
    assert found == []
    (megaflow,) = kept(ovs).told(f"ovs-appctl dpctl/dump-flows -m {DATAPATH}").splitlines()[1:]
    key = re.search(r"(ufid:.*), packets:", megaflow)[1]
    ovs.vswitchd.command("dpctl/mod-flow", DATAPATH, key.replace("in_port(p1)", "in_port(1)"), "3")
    layers, found = checked(ovs)
    assert len(layers.samples) == 2
    (one,) = found
    assert (one.check, one.severity) == ("stale-megaflow", "warning")
    assert one.text == "the datapath does p3, the flow tables say 2"
    quotes = dict(one.quotes)
    assert quotes["intent"].startswith("2 by br0/table=0: cookie=0x5")
    assert quotes["datapath"].startswith("ufid:")
    assert quotes["hardware"] == "filters were not dumped"
    path = tmp_path / "b.tar.gz"
    path.write_bytes(pack(kept(ovs), version="1"))
    assert main(["flows", "layers", f"--bundle={path}", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["check"] == "stale-megaflow"
    live = ["flows", "layers", f"--rundir={ovs.rundir}", "--interval=0.1"]
    assert main([*live, "--only=stale-megaflow"]) == 1
    place = f"flow {os.uname().nodename}/br0/table=0"
    assert capsys.readouterr().out.splitlines()[0] == f"warning stale-megaflow  {place}"
    assert main([*live, "--only=offload-churn"]) == 0
    ovs.vswitchd.command("revalidator/purge")


def test_rdma_in_the_software_datapath_is_named(ovs):
    ovs.set_flows("br0", ["udp,udp_dst=4791 actions=output:2", "tcp,tcp_dst=4791 actions=output:2"])
    ovs.vswitchd.command("revalidator/purge")
    roce = packet(1, MACS[0], MACS[1], BODIES[0])
    tcp = packet(1, MACS[0], MACS[1], BODIES[1].replace("dst=80", "dst=4791"))
    send(ovs, "p1", *[roce] * 5, *[tcp] * 150)
    assert checked(ovs)[1] == []
    send(ovs, "p1", *[roce] * 150)
    (one,) = check(checked(ovs)[0], ["rdma-in-software"])
    assert one.severity == "note"  # none of them between the samples
    assert one.text.startswith("15")
    assert "udp(src=3/0,dst=4791)" in dict(one.quotes)["datapath"]
