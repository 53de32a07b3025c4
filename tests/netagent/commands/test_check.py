# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from netagent.cli import main
from netagent.commands import check
from netagent.commands.check import answer_one
from netagent.commands.worker import answered
from netagent.host.ports import ContainerPort
from netagent.model.endpoint import Endpoint
from netagent.model.errors import Unreachable
from netagent.model.ids import EndpointId
from netagent.wire.codec import ContentType, decode
from netagent.wire.conversion import walk_from_wire
from netagent.wire.messages import CheckReply, CheckRequest, EgressQuestion, IngressQuestion
from netagent.wire.worker import CheckWork
from ovs_checks.openflow.notation import format_mac, mac
from ovs_checks.openflow.packet import Header
from ovs_checks.openflow.parse import parse_dump
from ovs_checks.switch.snapshot import Bridge, Port, Snapshot
from ovs_checks.translate.datapath import text_of
from ovs_checks.translate.translation import translate

SILENT = 9999
C0, C1 = EndpointId("c0", 0), EndpointId("c1", 0)
MAC0, MAC1, FAR = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"


def ids(container: str, mac: str, address: str) -> tuple[tuple[str, str], ...]:
    """Return what the orchestrator wrote at a container's port."""
    return (
        ("attached_mac", mac),
        ("ip_addresses", address),
        ("rail", "0"),
        ("sandbox", container),
        ("task", "t"),
    )


FLOWS = f"""\
 cookie=0x1, table=0, n_packets=3, n_bytes=9, priority=100,in_port=1 actions=resubmit(,10)
 cookie=0x2, table=0, n_packets=3, n_bytes=9, priority=100,in_port=9 actions=resubmit(,50)
 cookie=0x3, table=10, priority=100,udp,dl_src={MAC0},dl_dst={MAC1},nw_src=10.0.0.10,tp_src=40000,tp_dst=18515 actions=output:2
 cookie=0x4, table=10, priority=90,dl_dst={FAR} actions=set_field:0x3e9->tun_id,set_field:172.30.0.11->tun_dst,output:9
 cookie=0x5, table=50, priority=90,tun_id=0x3e9,dl_dst={MAC0} actions=output:1
"""  # noqa: E501 - as Open vSwitch prints it
TUNNEL = (("key", "flow"), ("local_ip", "172.30.0.10"), ("remote_ip", "flow"))
SNAPSHOT = Snapshot(
    "h0",
    (
        Bridge(
            "br-int",
            parse_dump(FLOWS).flows,
            (
                Port("c0-r0", 1, "br-int", external_ids=ids("c0", MAC0, "10.0.0.10")),
                Port("c1-r0", 2, "br-int", external_ids=ids("c1", MAC1, "10.0.0.11")),
                Port("vxlan0", 9, "br-int", "vxlan", TUNNEL),
            ),
        ),
    ),
    "3.1",
    77,
)
PLACE = ["--rundir", "/nowhere", "--bridge", "br-int", "--host", "h0"]


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    """Give the packets that the live switch was asked about."""

    class Vswitchd:
        def __init__(self, rundir: Path, *, timeout_s: float = 5.0) -> None:
            assert rundir == Path("/nowhere")

        def snapshot(self, host: str) -> Snapshot:
            assert host == "h0"
            return SNAPSHOT

        def trace(self, bridge: str, packet: Header) -> str:
            """Answer as the tables say; be silent about packets to ports that were not probed."""
            traced.append((bridge, packet))
            if packet.tp_dst == SILENT:
                raise Unreachable("vswitchd", "timeout")
            done = translate(SNAPSHOT, bridge, packet)
            return f"Flow: udp\nDatapath actions: {text_of(done.steps)}\n"

    traced: list[tuple[str, Header]] = []
    monkeypatch.setattr("ovs_checks.sources.vswitchd.Vswitchd", Vswitchd)
    monkeypatch.setattr("time.sleep", slept.append)
    slept.clear()
    return traced


slept: list[float] = []


def egress(source: EndpointId = C0, to: str = MAC1, address: str = "10.0.0.11") -> EgressQuestion:
    return EgressQuestion(source=source, target_address=address, target_mac=to)


def ask(*questions) -> tuple[int, str]:
    request = CheckRequest(questions=questions)
    work = CheckWork(rundir="/nowhere", bridge="br-int", host="h0", request=request)
    code, output = answered(lambda: check.done(work))
    return code, output.decode()


def ends(out: str) -> list[str]:
    reply = decode(out.encode(), CheckReply, ContentType.JSON)
    assert reply.wall_ns == 77
    return [walk_from_wire(walk).end.kind for walk in reply.walks]


def test_the_worker_answers_each_question_in_order():
    ingress = IngressQuestion(
        rail=0,
        tun_src="172.30.0.11",
        tun_dst="172.30.0.10",
        tun_id=1001,
        source_address="10.0.0.12",
        source_mac=FAR,
        target_address="10.0.0.10",
        target_mac=MAC0,
    )
    far = egress(to=FAR, address="10.0.0.12")
    unknown = egress(source=EndpointId("nobody", 3))
    code, out = ask(egress(), far, ingress, unknown)
    assert code == 0
    assert ends(out) == ["output", "tunnelled", "output", "missed"]


def test_the_worker_sends_to_the_router_what_is_asked_for(traced):
    routed = structs.replace(
        egress(address="10.9.0.1"), next_hop=FAR, protocol="tcp", destination_port=443,
        connection="reply",
    )  # fmt: skip
    code, out = ask(routed, structs.replace(egress(), untold="its router does not answer"))
    assert code == 0
    assert ends(out) == ["tunnelled", "cannot_tell"]
    assert "its router does not answer" in out
    [(_, packet)] = traced
    assert (format_mac(packet.eth_dst), packet.nw_proto, packet.tp_dst) == (FAR, 6, 443)


def test_the_worker_walks_for_endpoints_that_its_agent_knows_and_tables_do_not_say():
    pod, bare = EndpointId("pod", 0), EndpointId("bare", 0)
    known = (
        Endpoint(pod, "t", "h0", "10.0.0.10", MAC0, "172.30.0.10", "rnic0", "br-int", "c0-r0"),
        Endpoint(bare, "t", "h0", "10.0.0.10", MAC0, "10.0.0.10", "rnic0", "", "c0-r0"),
    )
    request = CheckRequest(questions=(egress(source=pod), egress(source=bare)))
    work = CheckWork(
        rundir="/nowhere", bridge="br-int", host="h0", request=request, endpoints=known
    )
    code, output = answered(lambda: check.done(work))
    assert (code, ends(output.decode())) == (0, ["output", "missed"])


def test_a_human_is_answered_by_the_rules_of_the_agents_file(tmp_path, capsys, monkeypatch):
    pod = (("attached_mac", MAC0), ("iface-id", "ml_pod"), ("ip_addresses", "10.0.0.10/24"))
    bridge = SNAPSHOT.bridges[0]
    ports = (replace(bridge.ports[0], external_ids=(*pod, ("sandbox", "abc"))), *bridge.ports[1:])
    snapshot = replace(SNAPSHOT, bridges=(replace(bridge, ports=ports),))
    monkeypatch.setitem(globals(), "SNAPSHOT", snapshot)
    file = tmp_path / "agent.toml"
    file.write_text(
        'host = "h0"\n[analyzer]\nurl = "http://127.0.0.1:1"\n[ovs]\nrundir = "/nowhere"\n'
        '[endpoints]\ncontroller = "ovn-kubernetes"\nrail = "0"\n'
    )
    assert main(["check", "abc/rail0", "c1/rail0", "--config", str(file)]) == 0
    assert capsys.readouterr().out.startswith("h0: in by c0-r0\n")


def test_the_live_switch_is_asked_about_some_packets_those_that_are_lost_first(traced):
    """No more than ten of a request, and twenty a second."""
    lost = egress(to="02:00:00:00:00:99")
    code, out = ask(*[egress()] * 12, lost)
    assert code == 0
    reply = decode(out.encode(), CheckReply, ContentType.JSON)
    opinions = [walk_from_wire(walk).opinion for walk in reply.walks]
    assert [opinion is not None for opinion in opinions] == [True] * 9 + [False] * 3 + [True]
    assert {opinion.kind for opinion in opinions if opinion} == {"agrees"}
    bridge, packet = traced[0]
    assert (bridge, packet.eth_dst, packet.in_port) == ("br-int", mac(lost.target_mac), 1)
    assert slept == [0.05] * 10


def test_a_live_switch_that_does_not_answer_changes_no_answer(capsys):
    assert main(["check", "c0/rail0", "10.0.0.12", "--mac", FAR, f"--port={SILENT}", *PLACE]) == 0
    assert "ofproto/trace did not answer: vswitchd: timeout" in capsys.readouterr().out


def test_a_switch_that_was_slow_once_is_not_asked_again(traced):
    silent = EgressQuestion(
        source=C0, target_address="10.0.0.11", target_mac=MAC1, destination_port=SILENT
    )
    _, out = ask(silent, egress(), egress())
    assert ends(out) == ["missed", "output", "output"]
    assert len(traced) == 1


def test_a_question_that_makes_no_sense_is_told_as_json():
    code, out = ask(egress(to="02::"))
    assert code == 2
    assert "not an Ethernet address" in json.loads(out)["error"]


def test_for_humans_the_walk_is_a_tree(capsys):
    assert main(["check", "c0/rail0", "c1/rail0", *PLACE]) == 0
    text = capsys.readouterr().out
    assert text.startswith("h0: in by c0-r0\n  br-int/table=0: ")
    assert text.splitlines()[-2].startswith("output")
    assert text.splitlines()[-1].startswith("ofproto/trace agrees: ")


def test_a_far_target_is_an_address_and_its_mac(capsys):
    assert main(["check", "c0/rail0", "10.0.0.12", "--mac", FAR, *PLACE]) == 0
    assert "tunnelled to 172.30.0.11 with VNI 1001" in capsys.readouterr().out
    assert main(["check", "c1/rail0", "10.0.0.12", "--mac", FAR, *PLACE]) == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["c0/rail0", "10.0.0.12"], "needs the --mac"),
        (["c0/rail0", "c9/rail0"], "no endpoint of this host"),
        (["c0/rail0", "c9"], "no endpoint of this host"),
        (["c0/rail0"], "name a source and a target"),
    ],
)
def test_what_is_missing_on_the_command_line_is_misuse(capsys, words, text):
    assert main(["check", *words, *PLACE]) == 2
    assert text in capsys.readouterr().err


def test_the_place_comes_from_the_agent_s_file_where_nothing_else_says_it(tmp_path, capsys):
    file = tmp_path / "agent.toml"
    text = 'host = "h0"\n[analyzer]\nurl = "http://127.0.0.1:1"\n[ovs]\nrundir = "/nowhere"\n'
    file.write_text(text)
    assert main(["check", "c0/rail0", "c1/rail0", "--config", str(file)]) == 0
    assert capsys.readouterr().out


def test_without_ovsdb_the_remedy_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.undo()
    place = ["--rundir", str(tmp_path), *PLACE[2:]]
    assert main(["check", "c0/rail0", "c1/rail0", *place]) == 3
    assert "start ovsdb-server" in capsys.readouterr().err


# --- IPv6 ----------------------------------------------------------------------------------------

FLOWS6 = f"""\
 table=0, priority=100,udp6,in_port=1,ipv6_src=fd00::a,ipv6_dst=fd00::b actions=output:2
 table=0, priority=90,ipv6,in_port=1,dl_dst={FAR} actions=set_field:0x3e9->tun_id,set_field:fd30::2->tun_ipv6_dst,output:9
 table=0, priority=90,udp6,in_port=9,tun_id=0x3e9,tun_ipv6_src=fd30::2,ipv6_dst=fd00::a actions=output:1
"""  # noqa: E501 - as Open vSwitch prints it
TUNNEL6 = (("key", "flow"), ("local_ip", "fd30::1"), ("remote_ip", "flow"))
SNAPSHOT6 = replace(
    SNAPSHOT,
    bridges=(
        replace(
            SNAPSHOT.bridges[0],
            flows=parse_dump(FLOWS6).flows,
            ports=(
                *SNAPSHOT.bridges[0].ports[:2],
                Port("vxlan0", 9, "br-int", "vxlan", TUNNEL6),
            ),
        ),
    ),
)
PORTS6 = {C0: ContainerPort(C0, "t", "c0-r0", "fd00::a", MAC0)}


def test_questions_about_ipv6_endpoints_are_answered_with_ipv6_packets():
    near = answer_one(egress(address="fd00::b"), SNAPSHOT6, PORTS6).end
    assert (near.kind, near.port) == ("output", "c1-r0")
    far = answer_one(egress(to=FAR, address="fd00::c"), SNAPSHOT6, PORTS6).end
    assert (far.kind, far.tun_src, far.tun_dst, far.tun_id) == (
        "tunnelled", "fd30::1", "fd30::2", 1001,
    )  # fmt: skip
    question = IngressQuestion(
        rail=0, tun_src="fd30::2", tun_dst="fd30::1", tun_id=1001, source_address="fd00::c",
        source_mac=FAR, target_address="fd00::a", target_mac=MAC0,
    )  # fmt: skip
    assert answer_one(question, SNAPSHOT6, PORTS6).end.port == "c0-r0"


def test_of_ends_of_two_families_nothing_can_be_told_and_other_questions_are_answered(traced):
    code, out = ask(egress(address="fd00::b"), egress())
    assert (code, ends(out)) == (0, ["cannot_tell", "output"])
    assert len(traced) == 1
    assert "no packet goes from 10.0.0.10 to fd00::b: one is IPv4, one IPv6" in out


def test_on_the_command_line_a_target_of_another_family_is_said(capsys):
    assert main(["check", "c0/rail0", "fd00::b", "--mac", MAC1, *PLACE]) == 1
    assert "one is IPv4, one IPv6" in capsys.readouterr().out
