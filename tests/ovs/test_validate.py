# SPDX-License-Identifier: Apache-2.0
"""The copies of a real Open vSwitch's flow tables, compared for one pair over the agent's RPC."""

import asyncio
import contextlib
import re
import subprocess

import pytest
from msgspec import structs

from analyzer.fleet import Fleet
from netagent.adapters.workers.vswitch import VswitchWorker
from netagent.agent.acting import Acting
from netagent.agent.adapters import build
from netagent.agent.answers import Answers
from netagent.agent.membership import Membership
from netagent.agent.windows import Windows
from netagent.config import AgentConfig, AnalyzerConfig, OvsConfig, ProbeConfig, RpcConfig
from netagent.model.errors import TooSoon
from netagent.model.ids import EndpointId
from netagent.model.path import flow_table
from netagent.server import RpcServer
from netagent.wire.validate import ValidateRequest
from ovs_checks.sources.vswitchd import Vswitchd
from tests.conftest import OVS, ROOT, require
from tests.ovs.host import Host, run
from tests.waiting import wait_until

pytestmark = pytest.mark.ovs
DATAPATH = "netdev@ovs-netdev"
PORT = 18515
REQUEST = ValidateRequest(
    local=EndpointId("a", 0),
    remote_address="10.0.0.11",
    remote_mac="02:00:00:00:00:0b",
    destination_port=PORT,
)


@pytest.fixture(scope="module")
def host():
    require(ROOT)
    require(OVS)
    made = Host(rails=1)
    try:
        made.start_container("a", octet=10)
        made.start_container("b", octet=11)
        made.start_container("c", octet=12)
        yield made
    finally:
        made.close()


def set_flows(host, *flows):
    """Replace the flows of the integration bridge, and those of the datapath."""
    target = f"unix:{host.rundir}/br-int.mgmt"
    text = "\n".join(["delete", *(f"add {flow}" for flow in flows), ""])
    subprocess.run(
        ["ovs-ofctl", "--bundle", "-O", "OpenFlow15", "add-flows", target, "-"],
        input=text, text=True, check=True, capture_output=True,
    )  # fmt: skip
    Vswitchd(host.rundir).command("revalidator/purge")


def ports(host):
    """Return the OpenFlow number of each container's port."""
    shown = run("ovs-ofctl", "show", f"unix:{host.rundir}/br-int.mgmt")
    return {name: int(number) for number, name in re.findall(r"(\d+)\((\w+)-r0\)", shown)}


def forwarding(host, cookie="0x5"):
    """Return flows by which containers `a` and `b` reach each other."""
    number = ports(host)
    return (
        f"cookie={cookie},table=0,priority=100,ip,in_port={number['a']} actions=resubmit(,10)",
        f"table=0,priority=100,ip,in_port={number['b']} actions=output:{number['a']}",
        f"cookie=0xa,table=10,priority=50,ip,nw_dst=10.0.0.11 actions=output:{number['b']}",
        "table=0,priority=10,arp actions=NORMAL",
    )


def megaflow(host):
    """Return the datapath's flow that takes probes of `a`; None without one."""
    shown = Vswitchd(host.rundir).command("dpctl/dump-flows", "-m", DATAPATH)
    lines = (line for line in shown.splitlines() if "in_port(a-r0)" in line)
    return next((line for line in lines if "eth_type(0x0800)" in line), None)


LEAVING = (
    "import socket, time\n"
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    f"while True: s.sendto(b'x' * 20, ('{{}}', {PORT})); time.sleep(0.05)\n"
)


@contextlib.contextmanager
def running(namespace, program):
    """Have Python run a program in a namespace all the while."""
    python = subprocess.Popen(
        ["ip", "netns", "exec", namespace, "python3", "-c", program], stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        python.kill()
        python.wait()


@contextlib.contextmanager
def sending(host):
    """Have container `a` send datagrams to `b` all the while."""
    with running(host.containers["a"], LEAVING.format("10.0.0.11")):
        wait_until(lambda: megaflow(host), "a flow of the datapath")
        yield


def ask(host, tmp_path, *requests):
    """Return what an agent answers to the analyzer's client, or how it fails, one by one."""
    config = AgentConfig(
        host="h0",
        analyzer=AnalyzerConfig(url="http://127.0.0.1:1"),
        state_dir=str(tmp_path),
        probe=ProbeConfig(transport="udp"),
        rpc=RpcConfig(listen="127.0.0.1:0"),
        ovs=OvsConfig(rundir=str(host.rundir)),
    )

    async def main():
        worker = VswitchWorker(config)
        adapters = build(config, worker, lambda: None)
        membership = Membership(config, "one", adapters)
        windows = Windows(config, "one", adapters, membership)
        server = RpcServer(
            config, Answers(config, "one", adapters, membership, windows, Acting(config))
        )
        await server.start()
        fleet = Fleet(lambda _: f"http://127.0.0.1:{server.port}")
        said = []
        try:
            for request in requests:
                try:
                    said.append(await fleet.validate("h0", request, deadline_s=60))
                except Exception as error:  # noqa: BLE001 - it is what is looked at
                    said.append(error)
        finally:
            await fleet.close()
            await server.stop()
            await worker.close()
            adapters.close()
        return said

    return asyncio.run(main())


def test_a_stale_flow_of_the_datapath_is_found_and_quoted(host, tmp_path):
    """Open vSwitch does not look again at a flow whose tables have not changed."""
    set_flows(host, *forwarding(host))
    with sending(host):
        (clean, again) = ask(host, tmp_path, REQUEST, REQUEST)
        assert (clean.findings, clean.flows >= 1, clean.judged, clean.looks) == (
            (), True, clean.flows, 3,
        )  # fmt: skip
        assert isinstance(again, TooSoon)  # the host is not disturbed at each question
        key = re.search(r"(ufid:.*), packets:", megaflow(host))[1]
        number = re.search(r"port (\d+): c-r0", Vswitchd(host.rundir).command("dpctl/show"))[1]
        numbered = key.replace("in_port(a-r0)", f"in_port({_number(host, 'a-r0')})")
        Vswitchd(host.rundir).command("dpctl/mod-flow", DATAPATH, numbered, number)
        (found,) = ask(host, tmp_path, REQUEST)
    (one,) = found.findings
    assert (one.check, one.severity) == ("stale-megaflow", "warning")
    assert one.component == flow_table("h0", "br-int", 10)
    quotes = {each.what: each.entry for each in one.quotes}
    assert "cookie=0xa" in quotes["intent"]
    assert "actions:c-r0" in quotes["datapath"]


def _number(host, port):
    shown = Vswitchd(host.rundir).command("dpctl/show")
    return re.search(rf"port (\d+): {port}", shown)[1]


def test_what_lint_finds_is_told_of_the_tables_that_the_packets_cross(host, tmp_path):
    number = ports(host)
    hidden = f"cookie=0x9,table=10,priority=40,udp,nw_dst=10.0.0.11 actions=output:{number['b']}"
    elsewhere = (
        "table=20,priority=9 actions=drop",
        f"table=20,priority=8,ip actions=output:{number['b']}",
        "table=0,priority=1,tcp actions=resubmit(,20)",
    )
    crossed = forwarding(host)[2].replace("output:", "output:77,output:")
    set_flows(host, *forwarding(host)[:2], crossed, hidden, *elsewhere)
    with sending(host):
        (found,) = ask(host, tmp_path, REQUEST)
    told = {(one.check, one.severity): one for one in found.findings}
    assert told.keys() == {("missing", "warning"), ("shadowed-flow", "warning")}
    assert told["missing", "warning"].text == "sends to port 77, which does not exist"
    assert told["missing", "warning"].component == flow_table("h0", "br-int", 10)
    assert "cookie=0x9" in told["shadowed-flow", "warning"].quotes[0].entry


def test_an_endpoint_that_is_not_here_is_a_question_that_makes_no_sense(host, tmp_path):
    (failed,) = ask(host, tmp_path, structs.replace(REQUEST, local=EndpointId("z", 0)))
    assert "z/rail0 is no endpoint of h0" in str(failed)


FAR = structs.replace(
    REQUEST, remote_address="10.0.0.99", remote_mac="02:00:00:00:00:63",
    local_underlay="172.30.0.10", remote_underlay="172.30.0.11",
)  # fmt: skip
ARRIVING = """\
import socket, struct, time
frame = bytes.fromhex("02000000000a" "020000000063" "0800")
udp = struct.pack("!HHHH", 40000, 18515, 28, 0) + b"x" * 20
ip = struct.pack("!BBHHHBBH4s4s", 69, 0, 20 + len(udp), 0, 0, 64, 17, 0,
                 bytes([10, 0, 0, 99]), bytes([10, 0, 0, 10]))
outer = struct.pack("!II", 0x08000000, 100 << 8)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK: no NIC fills it in; a wrong one is dropped
while True: s.sendto(outer + frame + ip + udp, ("172.30.0.10", 4789)); time.sleep(0.05)
"""


def tunnelled(host):
    """Return the datapath's flows of the pair: what leaves by the tunnel, and what arrives."""
    shown = Vswitchd(host.rundir).command("dpctl/dump-flows", "-m", DATAPATH).splitlines()
    left = [line for line in shown if "in_port(a-r0)" in line and "tnl_push" in line]
    came = [line for line in shown if "tunnel(tun_id=0x64" in line and "actions:a-r0" in line]
    return left + came if left and came else []


def test_of_a_pair_behind_a_tunnel_both_directions_are_compared_and_agree(host, tmp_path):
    """What encapsulates is said in another way by the datapath than by the tables."""
    run("ip", "-n", host.fabric, "addr", "replace", "172.30.0.11/24", "dev", "port0")
    inside = ("ip", "-n", host.containers["a"], "neigh", "replace", "10.0.0.99")
    run(*inside, "lladdr", "02:00:00:00:00:63", "dev", "eth0")
    shown = run("ovs-ofctl", "show", f"unix:{host.rundir}/br-int.mgmt")
    vxlan = re.search(r"(\d+)\(vxlan0\)", shown)[1]
    a = ports(host)["a"]
    set_flows(
        host,
        f"table=0,ip,in_port={a} actions=set_field:100->tun_id,set_field:172.30.0.11->tun_dst,"
        f"output:{vxlan}",
        f"table=0,ip,in_port={vxlan},tun_id=100,nw_dst=10.0.0.10 actions=output:{a}",
    )
    leaving = running(host.containers["a"], LEAVING.format("10.0.0.99"))
    with leaving, running(host.fabric, ARRIVING):
        wait_until(lambda: tunnelled(host), "flows both ways")
        (found,) = ask(host, tmp_path, FAR)
    assert found.findings == ()
    assert (found.flows, found.judged) == (2, 2)
