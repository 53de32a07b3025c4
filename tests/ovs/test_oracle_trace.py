# SPDX-License-Identifier: Apache-2.0
"""The oracle: a real ovs-vswitchd says by `ofproto/trace` where random packets go; so do we."""

import json
import os
import re
import signal
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, note, reject, settings
from hypothesis import strategies as st

from netagent.cli import main
from netagent.model.errors import RemoteProtocolError, Unreachable
from ovs_checks.openflow.parse import parse_header
from ovs_checks.sources.vswitchd import Vswitchd
from ovs_checks.translate.text import trace
from ovs_checks.walk.host import walk
from ovs_checks.walk.opinion import compare
from ovs_checks.walk.reach import walk_ingress
from ovs_checks.walk.values import LocalWalk
from tests.conftest import OVS, require
from tests.ovs_checks.live import LiveOvs, live_ovs
from tests.ovs_checks.pipelines import packets, pipelines

pytestmark = [pytest.mark.ovs, pytest.mark.oracle]


@pytest.fixture(scope="module")
def ovs(tmp_path_factory):
    """Two bridges joined by a patch port, with groups, a meter, and addresses learned."""
    require(OVS)
    with live_ovs(tmp_path_factory.mktemp("ovs")) as live:
        live.add_lab()
        live.vswitchd.command("fdb/add", "br0", "p2", "0", "00:00:00:00:00:01")
        live.vswitchd.command("fdb/add", "br1", "q1", "0", "00:00:00:00:00:01")
        live.vswitchd.command("fdb/add", "br0", "p3", "5", "00:00:00:00:00:02")
        yield live


def datapath_ports(live: LiveOvs) -> dict[int, str]:
    """Return the ports by their number in the datapath."""
    shown = live.vswitchd.command("dpif/show")
    return {int(m[2]): m[1] for m in re.finditer(r"^ +(\S+) \d+/(\d+):", shown, re.MULTILINE)}


def sent_to(actions: str, names: dict[int, str]) -> set[str]:
    """Return the ports that datapath actions send to, of copies and by length included."""
    flat = re.sub(r"(clone|check_pkt_len|gt|le)\(", "", actions)
    while (shorter := re.sub(r"[a-z_]\w*\([^()]*\)", "", flat)) != flat:
        flat = shorter
    return {names[int(word)] for word in re.split(r"[,)]", flat) if word.isdigit()}


def walked(answer: LocalWalk) -> set[str]:
    """Return the ports by which copies left."""
    return {end.port for end in answer.ends if end.kind == "output"}


def set_drawn(live: LiveOvs, flows: list[str], others: list[str]) -> None:
    """Put drawn flows into both bridges, unless Open vSwitch refuses them.

    It does for actions on headers that a packet of the match has not, or that are too many.
    """
    try:
        live.set_flows("br0", flows)
        live.set_flows("br1", others)
    except AssertionError as refused:
        if not re.search("OFPBAC_|none of the usable flow formats", str(refused)):
            raise
        reject()


OUTCOME = ("Final flow:", "Datapath actions:", "Translation failed")


def outcome(text: str) -> list[str]:
    """Return the lines of a trace that say what becomes of the packet.

    Numbers of recirculations depend on all that this Open vSwitch was ever asked.
    """
    lines = [line for line in text.splitlines() if line.startswith(OUTCOME)]
    return [re.sub(r"recirc(_id=|\()[0-9a-fx]+", r"recirc\1N", line) for line in lines]


@given(pipelines(), pipelines(), st.lists(packets, min_size=10, max_size=10))
@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_random_pipelines_end_as_open_vswitch_says(ovs, flows, others, sent):
    """What the packet becomes, and every datapath action, agree for every packet."""
    set_drawn(ovs, flows, others)
    snapshot = ovs.vswitchd.snapshot("h0")
    assert not snapshot.problems
    for packet in sent:
        theirs = ovs.vswitchd.trace("br0", packet)
        note(f"{packet}\n{theirs[-3000:]}")
        assert outcome(trace(snapshot, "br0", parse_header(packet)).text) == outcome(theirs)


def test_the_command_says_what_ofproto_trace_says(ovs, capsys):
    """By bridge or in the datapath's notation, with names or numbers, as text or JSON."""
    ovs.set_flows("br0", ["in_port=1,udp actions=ct(table=3)", "table=3,ct_state=+est actions=2"])
    number = next(n for n, name in datapath_ports(ovs).items() if name == "p1")
    key = f"in_port({number}),eth(),eth_type(0x0800),ipv4(proto=17,ttl=9),udp(src=5,dst=6)"
    for words in (("br0", "in_port=p1,udp,nw_ttl=9"), (key,), ("ovs-dummy", key)):
        for states in ((), ("--ct-next", "trk,est"), ("-generate",)):
            theirs = ovs.vswitchd.command("ofproto/trace", *states, *words)
            assert main(["flows", "trace", *states, *words, "--rundir", str(ovs.rundir)]) == 0
            assert outcome(capsys.readouterr().out) == outcome(theirs)
    db = ("--db", f"unix:{ovs.rundir}/db.sock")
    assert main(["flows", "trace", key, "--ct-next", "est|trk", *db, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["datapath_actions"] == "2"


@pytest.mark.parametrize(
    "words",
    [
        ("nope", "in_port=1"),
        ("in_port=1",),
        ("br0", "in_port=nope"),
        ("in_port(77)",),
        ("br0", "in_port=1", "--ct-next", "bogus"),
    ],
)
def test_a_wrong_question_is_misuse(ovs, words, capsys):
    assert main(["flows", "trace", *words, "--rundir", str(ovs.rundir)]) == 2
    assert capsys.readouterr().err.startswith("netagent: ")


@given(pipelines(), pipelines(), st.lists(packets, min_size=10, max_size=10))
@settings(max_examples=settings().max_examples // 4, suppress_health_check=[HealthCheck.too_slow])
def test_walks_send_copies_where_open_vswitch_does(ovs, flows, others, sent):
    """Every port that Open vSwitch sends to is named, and no other; loops are loops."""
    set_drawn(ovs, flows, others)
    snapshot, names = ovs.vswitchd.snapshot("h0"), datapath_ports(ovs)
    for packet in sent:
        theirs = ovs.vswitchd.trace("br0", packet)
        answer = walk(snapshot, "br0", parse_header(packet))
        note(f"{packet}\n{theirs[-3000:]}\n{answer}")
        if "recirc(" in theirs:  # it went on with one answer of several
            continue
        if "over 64 kB of actions" in theirs:  # more copies than a walk tells
            continue
        assert not any(end.kind == "cannot_tell" for end in answer.ends)
        assert "check_pkt_len" in theirs or not any(end.case for end in answer.ends)
        ran_away = "over max translation depth" in theirs or "over 4096 resubmit" in theirs
        assert any(end.kind == "loop" for end in answer.ends) == ran_away
        actions = re.findall(r"^Datapath actions: (.*)$", theirs, re.MULTILINE)
        if not ran_away:
            assert walked(answer) == sent_to(actions[-1], names)


@contextmanager
def underlaid(folder, version, own, route, peers):
    """One bridge with a VXLAN port whose packets the dummy datapath can route and encapsulate."""
    require(OVS)
    with live_ovs(folder) as live:
        live.add_bridge("br-phy", rnic=1)
        live.add_bridge("br-int", c1=1, c2=2)
        options = ("type=vxlan", "options:remote_ip=flow", "options:key=flow")
        # No local_ip: the dummy's routing table cannot know that an address is local.
        live.add_port("br-int", "vx", *options, "ofport_request=9")
        command = live.vswitchd.command
        command(f"netdev-dummy/ip{version}addr", "br-phy", own)
        command("ovs/route/add", route, "br-phy")
        for host in peers:
            command("tnl/neigh/set", "br-phy", host, "aa:55:aa:55:00:01")
        live.set_flows("br-phy", ["actions=normal"])
        yield live


@pytest.fixture(scope="module")
def overlay(tmp_path_factory):
    peers = ("172.30.0.11", "172.30.0.12")
    folder = tmp_path_factory.mktemp("ovs")
    with underlaid(folder, 4, "172.30.0.10/24", "172.30.0.0/24", peers) as live:
        yield live


FLOWS = [
    "in_port=1 actions=set_field:1001->reg0,resubmit(,40)",
    "in_port=9 actions=move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],resubmit(,50)",
    "table=40,priority=5 actions=move:NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31],resubmit(,41)",
    "table=40,dl_dst=00:00:00:00:00:02 actions=set_field:1002->tun_id,resubmit(,41)",
    "table=41,dl_dst=00:00:00:00:00:01 actions=set_field:172.30.0.11->tun_dst,output:9",
    "table=41,dl_dst=00:00:00:00:00:02 actions=set_field:172.30.0.12->tun_dst,output:9",
    "table=41,dl_dst=00:00:00:00:00:03 actions=output:9",
    "table=50,reg0=1001,tun_src=172.30.0.11 actions=output:1",
    "table=50,reg0=1002 actions=set_field:172.30.0.10->tun_dst,output:9",
]


@pytest.mark.parametrize("last", [1, 2, 3, 4])
def test_what_enters_a_tunnel_is_what_open_vswitch_encapsulates(overlay, last):
    """Remote address and VNI of the outer header agree, as does that there is none."""
    overlay.set_flows("br-int", FLOWS)
    packet = f"in_port=1,udp,dl_src=00:00:00:00:00:09,dl_dst=00:00:00:00:00:0{last}"
    snapshot = overlay.vswitchd.snapshot("h0")
    answer = walk(snapshot, "br-int", parse_header(packet))
    text = overlay.vswitchd.trace("br-int", packet)
    assert outcome(trace(snapshot, "br-int", parse_header(packet)).text) == outcome(text)
    pushed = re.findall(r"ipv4\(src=172.30.0.10,dst=([\d.]+).*vni=(0x[0-9a-f]+)", text)
    ours = [(end.tun_dst, hex(end.tun_id)) for end in answer.ends if end.kind == "tunnelled"]
    assert ours == pushed
    assert len(ours) == (last < 3)


@pytest.mark.parametrize("flow", ["actions=NORMAL", "actions=set_field:5->tun_id,output:9,2"])
def test_nothing_enters_a_tunnel_without_a_destination(overlay, flow):
    overlay.set_flows("br-int", [flow])
    packet = "in_port=1,udp,dl_src=02:00:00:00:00:09"
    text = trace(overlay.vswitchd.snapshot("h0"), "br-int", parse_header(packet)).text
    assert outcome(text) == outcome(overlay.vswitchd.trace("br-int", packet))
    assert ">> Not tunneling to our own address" in text


def test_a_tunnel_is_not_built_from_an_address_that_the_host_has_not(overlay):
    overlay.set_flows("br-int", ["in_port=1 actions=set_field:172.30.0.11->tun_dst,output:9"])
    overlay.vsctl("set", "interface", "vx", "options:local_ip=172.30.0.99")
    try:
        snapshot, packet = overlay.vswitchd.snapshot("h0"), "in_port=1,udp"
        text = overlay.vswitchd.trace("br-int", packet)
        assert outcome(trace(snapshot, "br-int", parse_header(packet)).text) == outcome(text)
        end = walk(snapshot, "br-int", parse_header(packet)).end
    finally:
        overlay.vsctl("remove", "interface", "vx", "options", "local_ip")
    assert "Datapath actions: drop" in text
    assert end.reason == "172.30.0.99, from which it is to be sent, is no address of this host"


@pytest.mark.parametrize(("source", "vni"), [(11, 1001), (12, 1001), (11, 1002), (11, 1003)])
def test_what_leaves_a_tunnel_goes_where_open_vswitch_sends_it(overlay, source, vni):
    overlay.set_flows("br-int", FLOWS)
    outer = {"tun_src": f"172.30.0.{source}", "tun_dst": "172.30.0.10", "tun_id": vni}
    answer = walk_ingress(overlay.vswitchd.snapshot("h0"), **outer, header=parse_header("udp"))
    packet = ",".join(["udp", "in_port=9", *(f"{key}={value}" for key, value in outer.items())])
    text = overlay.vswitchd.trace("br-int", packet)
    actions = re.findall(r"^Datapath actions: (.*)$", text, re.MULTILINE)[-1]
    assert walked(answer) == sent_to(actions, datapath_ports(overlay))


@pytest.fixture(scope="module")
def overlay6(tmp_path_factory):
    """As `overlay`, over IPv6, and with a port of one remote."""
    folder = tmp_path_factory.mktemp("ovs")
    peers = ("fd30::11", "fd30::12")
    with underlaid(folder, 6, "fd30::10/64", "fd30::/64", peers) as live:
        fixed = ("type=vxlan", 'options:remote_ip="FD30:0::12"', "options:key=7")
        live.add_port("br-int", "vx12", *fixed, "ofport_request=8")
        yield live


FLOWS6 = [
    "in_port=1,udp6,ipv6_dst=fd00::1 actions=set_field:1001->tun_id,resubmit(,41)",
    "in_port=1,udp6,ipv6_dst=fd00::2 actions=output:8",
    "in_port=1,udp6,ipv6_dst=fd00::3 actions=output:9",
    "in_port=1,icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fd00::1 actions=output:2",
    "table=41,priority=5,dl_dst=0:0:0:0:0:1 actions=set_field:fd30::11->tun_ipv6_dst,output:9",
    "table=41,priority=4 actions=set_field:fd30::99->tun_ipv6_dst,output:9",
    "in_port=9,tun_id=1001,tun_ipv6_src=fd30::11,udp6,ipv6_dst=fd00::9 actions=output:1",
    "in_port=9,tun_id=1002,udp6 actions=set_field:fd30::10->tun_ipv6_dst,output:9",
    "in_port=8,udp6 actions=output:2",
]


@pytest.mark.parametrize(
    ("target", "mac", "sent"),
    [
        ("fd00::1", 1, [("fd30::11", "0x3e9")]),
        ("fd00::1", 2, []),  # no neighbour
        ("fd00::2", 1, [("fd30::12", "0x7")]),
        ("fd00::3", 1, []),  # no destination
        ("fd00::4", 1, []),
    ],
)
def test_what_enters_a_tunnel_over_ipv6_is_what_open_vswitch_encapsulates(
    overlay6, target, mac, sent
):
    overlay6.set_flows("br-int", FLOWS6)
    packet = f"in_port=1,udp6,dl_src=00:00:00:00:00:09,dl_dst=00:00:00:00:00:0{mac}"
    packet = f"{packet},ipv6_src=fd00::9,ipv6_dst={target},udp_dst=4791"
    snapshot = overlay6.vswitchd.snapshot("h0")
    answer = walk(snapshot, "br-int", parse_header(packet))
    text = overlay6.vswitchd.trace("br-int", packet)
    assert outcome(trace(snapshot, "br-int", parse_header(packet)).text) == outcome(text)
    pushed = re.findall(r"ipv6\(src=fd30::10,dst=([\da-f:]+).*vni=(0x[0-9a-f]+)", text)
    ours = [(end.tun_dst, hex(end.tun_id)) for end in answer.ends if end.kind == "tunnelled"]
    assert ours == pushed == sent
    by = [end.tun_dst_by.table if end.tun_dst_by else None for end in answer.ends]
    assert by == [41 if target == "fd00::1" and sent else None]


@pytest.mark.parametrize("nd", ["fd00::1", "fd00::2"])
def test_neighbour_discovery_goes_where_open_vswitch_sends_it(overlay6, nd):
    overlay6.set_flows("br-int", FLOWS6)
    packet = f"in_port=1,icmp6,icmpv6_type=135,icmpv6_code=0,nd_target={nd},ipv6_dst=ff02::1:ff00:1"
    answer = walk(overlay6.vswitchd.snapshot("h0"), "br-int", parse_header(packet))
    text = overlay6.vswitchd.trace("br-int", packet)
    actions = re.findall(r"^Datapath actions: (.*)$", text, re.MULTILINE)[-1]
    assert walked(answer) == sent_to(actions, datapath_ports(overlay6))


@pytest.mark.parametrize(
    ("source", "vni", "port"),
    [
        ("fd30::11", 1001, 9),
        ("fd30::12", 1001, 9),
        ("fd30::11", 1002, 9),
        ("fd30::12", 7, 8),
    ],
)
def test_what_leaves_a_tunnel_over_ipv6_goes_where_open_vswitch_sends_it(
    overlay6, source, vni, port
):
    overlay6.set_flows("br-int", FLOWS6)
    inner = "udp6,ipv6_src=fd00::1,ipv6_dst=fd00::9"
    answer = walk_ingress(
        overlay6.vswitchd.snapshot("h0"),
        tun_src=source, tun_dst="fd30::10", tun_id=vni, header=parse_header(inner),
    )  # fmt: skip
    outer = f"tun_ipv6_src={source},tun_ipv6_dst=fd30::10,tun_id={vni}"
    text = overlay6.vswitchd.trace("br-int", f"in_port={port},{outer},{inner}")
    actions = re.findall(r"^Datapath actions: (.*)$", text, re.MULTILINE)[-1]
    assert walked(answer) == sent_to(actions, datapath_ports(overlay6))
    assert answer.port == ("vx12" if port == 8 else "vx")


TO_THE_FAR_PORT = (
    "set_field:0x10002->tun_metadata3", "set_field:7->tun_id",
    "set_field:172.30.0.11->tun_dst", "output:9",
)  # fmt: skip


@pytest.fixture(scope="module")
def geneve(tmp_path_factory):
    """One bridge with a Geneve port that maps options as OVN does, and another order of fields."""
    require(OVS)
    with live_ovs(tmp_path_factory.mktemp("ovs")) as live:
        live.add_bridge("br-phy", rnic=1)
        live.add_bridge("br-int", c1=1, c2=2)
        options = ("type=geneve", "options:remote_ip=flow", "options:key=flow")
        live.add_port("br-int", "gv", *options, "ofport_request=9")
        live.ofctl("add-tlv-map", "br-int", "{class=0x102,type=0x80,len=4}->tun_metadata3")
        command = live.vswitchd.command
        command("netdev-dummy/ip4addr", "br-phy", "172.30.0.10/24")
        command("ovs/route/add", "172.30.0.0/24", "br-phy")
        command("tnl/neigh/set", "br-phy", "172.30.0.11", "aa:55:aa:55:00:01")
        live.set_flows("br-phy", ["actions=normal"])
        live.set_flows("br-int", [
            f"in_port=1 actions={','.join(TO_THE_FAR_PORT)}",
            "in_port=9,tun_id=7,tun_metadata3=0x10002 actions=output:1",
            "in_port=9,tun_id=7,tun_metadata3=0x20001 actions=output:2",
        ])  # fmt: skip
        yield live


def test_options_that_enter_a_tunnel_are_those_that_open_vswitch_pushes(geneve):
    packet = "in_port=1,udp,dl_src=00:00:00:00:00:09,dl_dst=00:00:00:00:00:01"
    end = walk(geneve.vswitchd.snapshot("h0"), "br-int", parse_header(packet)).end
    text = geneve.vswitchd.trace("br-int", packet)
    (pushed,) = re.findall(r"options\((\{.*?\})\)", text)
    assert (end.kind, end.tun_id) == ("tunnelled", 7)
    assert end.options == pushed == "{class=0x102,type=0x80,len=4,0x10002}"


@pytest.mark.parametrize("value", ["0x10002", "0x20001", "0x30003", None])
def test_options_that_leave_a_tunnel_decide_as_in_open_vswitch(geneve, value):
    options = f"{{class=0x102,type=0x80,len=4,{value}}}" if value else ""
    outer = {"tun_src": "172.30.0.11", "tun_dst": "172.30.0.10", "tun_id": 7}
    answer = walk_ingress(
        geneve.vswitchd.snapshot("h0"), **outer, header=parse_header("udp"), options=options
    )
    said = [f"{key}={text}" for key, text in outer.items()]
    said += [f"tun_metadata3={value}"] if value else []
    text = geneve.vswitchd.trace("br-int", ",".join(["udp", "in_port=9", *said]))
    actions = re.findall(r"^Datapath actions: (.*)$", text, re.MULTILINE)[-1]
    assert walked(answer) == sent_to(actions, datapath_ports(geneve))


def test_a_live_snapshot_is_complete(overlay):
    overlay.set_flows("br-int", FLOWS)
    snapshot = overlay.vswitchd.snapshot("h0")
    assert re.fullmatch(r"\d+\.\d+\.\d+", snapshot.version)
    assert {bridge.name for bridge in snapshot.bridges} == {"br-int", "br-phy"}
    assert snapshot.port("vx").tunnel.remote_ip == "flow"
    assert len(snapshot.by_name["br-int"].flows) == len(FLOWS)
    with pytest.raises(RemoteProtocolError, match="unknown bridge"):
        overlay.vswitchd.trace("nope", "in_port=1")


def test_a_frozen_vswitchd_is_unreachable_in_time(tmp_path):
    """A stopped process keeps its sockets: asking it must end by itself."""
    require(OVS)
    with live_ovs(tmp_path) as live:
        live.add_bridge("br0", p1=1)
        hasty = Vswitchd(tmp_path, timeout_s=1.0)
        pid = int((tmp_path / "ovs-vswitchd.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            for ask in (lambda: hasty.command("version"), lambda: hasty.dump_flows("br0")):
                with pytest.raises(Unreachable):
                    ask()
        finally:
            os.kill(pid, signal.SIGCONT)


def test_the_live_switch_agrees_or_both_answers_are_told(ovs):
    """What was dumped may be older than what is asked."""
    tracked = ["in_port=1,udp actions=ct(table=3)", "table=3,ct_state=+est actions=2"]
    ovs.set_flows("br0", tracked)
    snapshot, packet = ovs.vswitchd.snapshot("h0"), parse_header("in_port=1,udp,nw_ttl=9")
    opinion = compare(snapshot, "br0", packet, ovs.vswitchd.trace("br0", packet))
    assert opinion.kind == "agrees"
    assert "ct,recirc(" in opinion.theirs
    ovs.set_flows("br0", ["in_port=1,udp actions=output:3"])
    differs = compare(snapshot, "br0", packet, ovs.vswitchd.trace("br0", packet))
    assert differs.kind == "differs"
    assert str(differs) == f"ofproto/trace says 3, the tables as dumped say {opinion.ours}"
