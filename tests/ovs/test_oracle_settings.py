# SPDX-License-Identifier: Apache-2.0
"""The oracle on what is no flow: settings of bridges and ports, whole frames, the stand-in."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from netagent.cli import main
from ovs_checks.datapath.key import parse_key
from ovs_checks.openflow.frame import read_frame
from ovs_checks.openflow.packet import limit_tags
from ovs_checks.openflow.parse import parse_header
from ovs_checks.translate.text import trace
from ovs_checks.walk.reach import entry
from tests.conftest import OVS, require
from tests.ovs_checks.live import LiveOvs, live_ovs
from tests.waiting import wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.oracle]
TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def ovs(tmp_path):
    """One bridge with three ports and one bond of two."""
    require(OVS)
    with live_ovs(tmp_path) as live:
        live.add_bridge("br0", p1=1, p2=2, p3=3)
        live.vsctl(
            *("add-bond", "br0", "bond0", "b1", "b2", "--"),
            *("set", "interface", "b1", "type=dummy", "ofport_request=5", "--"),
            *("set", "interface", "b2", "type=dummy", "ofport_request=6"),
        )
        yield live


def said(text: str) -> tuple[str, list[str]]:
    """Return the packet's line, and what becomes of it: the order of a flood is not told."""
    flow = next(line for line in text.splitlines() if line.startswith("Flow:"))
    actions = re.findall(r"^(?:Datapath actions: |Translation failed)(.*)$", text, re.MULTILINE)
    steps = re.findall(r"(?:[^,(]|\([^()]*(?:\([^()]*\)[^()]*)*\))+", actions[-1])
    flooded = any(word in text for word in ("flooding", "FLOOD", "ALL\n"))
    return flow, [*(sorted(steps) if flooded else steps), str(len(actions))]


def agree(live: LiveOvs, *packets: str) -> None:
    snapshot = live.vswitchd.snapshot("h0")
    assert not snapshot.problems
    for packet in packets:
        theirs = live.vswitchd.trace("br0", packet)
        ours = trace(snapshot, "br0", parse_header(packet)).text
        assert "Cannot tell" not in ours, ours
        assert said(ours) == said(theirs), f"{ours}\n{theirs}"


BROADCAST = "in_port=%d,dl_src=02:00:00:00:00:09,dl_dst=ff:ff:ff:ff:ff:ff"
MEMBERS = tuple(BROADCAST % port for port in (1, 5, 6))
UNICAST = "in_port=%d,udp,dl_src=02:00:00:00:00:09,dl_dst=02:00:00:00:00:01,nw_src=10.0.0.1"


@pytest.mark.parametrize(
    "bond",
    [
        ("bond_mode=active-backup",),
        ("bond_mode=active-backup", "other_config:bond-primary=b2"),
        ("bond_mode=balance-tcp",),
        ("bond_mode=balance-tcp", "lacp=active"),
        ("bond_mode=balance-tcp", "lacp=active", "other_config:lacp-fallback-ab=true"),
    ],
)
def test_a_bond_takes_and_sends_what_open_vswitch_lets_it(ovs, bond):
    ovs.vsctl("set", "port", "bond0", *bond)
    ovs.set_flows("br0", ["actions=NORMAL"])
    ovs.vswitchd.command("fdb/add", "br0", "b1", "0", "02:00:00:00:00:01")
    agree(ovs, *MEMBERS, *(UNICAST % port for port in (1, 5, 6)))


def test_a_bond_whose_members_share_traffic_out_is_told_by_its_hash_or_not_at_all(ovs):
    ovs.vsctl("set", "port", "bond0", "bond_mode=balance-slb")
    ovs.set_flows("br0", ["actions=NORMAL"])
    agree(ovs, *MEMBERS[1:], *(UNICAST % port for port in (5, 6)))
    snapshot = ovs.vswitchd.snapshot("h0")
    unsure = trace(snapshot, "br0", parse_header(MEMBERS[0])).unknown
    assert unsure == "which is selected by a hash: member b1 of bond bond0, member b2 of bond bond0"
    ovs.vswitchd.command("netdev-dummy/set-admin-state", "b2", "down")

    def enabled() -> tuple[str, ...]:
        return ovs.vswitchd.snapshot("h0").by_name["br0"].by_lane[5].bond.enabled

    wait_until(lambda: enabled() == ("b1",), "b2 to be disabled")
    agree(ovs, *MEMBERS)


@pytest.mark.parametrize(
    ("vsctl", "flows", "packets"),
    [
        (("set", "bridge", "br0", "stp_enable=true"), ["actions=NORMAL"],
         (*MEMBERS, "in_port=1,dl_type=0x5ff,dl_dst=01:80:c2:00:00:00")),
        (("set", "bridge", "br0", "rstp_enable=true"),
         ["in_port=1 actions=2", "in_port=3 actions=ALL", "priority=1 actions=1"],
         (*MEMBERS, "in_port=2,dl_type=0x5ff,dl_dst=01:80:c2:00:00:00")),
        (("set", "port", "p1", "vlan_mode=native-untagged", "tag=5"), ["actions=NORMAL"],
         (BROADCAST % 1, BROADCAST % 2, f"{BROADCAST % 2},dl_vlan=5")),
        (("set", "port", "p1", "vlan_mode=native-tagged", "tag=5", "trunks=0,7"),
         ["actions=NORMAL"], (BROADCAST % 1, BROADCAST % 2, f"{BROADCAST % 2},dl_vlan=5")),
        (("set", "port", "p2", "qos=@q", "--", "--id=@q", "create", "qos", "type=linux-htb",
          "queues=1=@a,2=@b", "--", "--id=@a", "create", "queue", "dscp=10", "--", "--id=@b",
          "create", "queue", "external_ids:of=test"),
         ["in_port=1 actions=enqueue:2:1,enqueue:2:2,output:2",
          "priority=1 actions=set_queue:1,output:2"],
         (UNICAST % 1, UNICAST % 3, BROADCAST % 3)),
    ],
)  # fmt: skip
def test_settings_do_what_open_vswitch_lets_them(ovs, vsctl, flows, packets):
    ovs.vsctl(*vsctl)
    ovs.set_flows("br0", flows)
    agree(ovs, *packets)


@pytest.mark.parametrize("setting", ["no-flood", "no-forward", "no-receive"])
def test_settings_of_ports_do_what_open_vswitch_lets_them(ovs, setting):
    target = f"unix:{ovs.rundir}/br0.mgmt"
    ovs.run("ovs-ofctl", "mod-port", target, "2", setting)
    ovs.set_flows(
        "br0", ["in_port=1 actions=FLOOD", "in_port=2 actions=ALL", "priority=1 actions=NORMAL"]
    )
    agree(ovs, *(BROADCAST % port for port in (1, 2, 3)))


@pytest.mark.parametrize("mode", ["drop", "nx-match", "normal"])
def test_fragments_match_as_open_vswitch_lets_them(ovs, mode):
    ovs.run("ovs-ofctl", "set-frags", f"unix:{ovs.rundir}/br0.mgmt", mode)
    ovs.set_flows("br0", ["udp,tp_dst=7 actions=2", "priority=1,ip actions=3"])
    kinds = ("no", "first", "later")
    agree(ovs, *(f"in_port=1,udp,udp_dst=7,nw_frag={kind}" for kind in kinds))


def test_flows_that_ovs_ofctl_cannot_read_come_from_the_daemon(ovs):
    ovs.vsctl("set", "port", "bond0", "bond_mode=active-backup")
    flows = ["in_port=1 actions=resubmit(,1)", "in_port=2 actions=output:3"]
    ovs.set_flows("br0", [*flows, "table=1 actions=debug_slow,output:2"])
    snapshot = ovs.vswitchd.snapshot("h0")
    assert snapshot.problems == ("br0: ovs-ofctl cannot read all flows: OFPBAC_BAD_VENDOR_TYPE",)
    for packet in ("in_port=1", "in_port=2"):
        theirs = ovs.vswitchd.trace("br0", packet)
        assert said(trace(snapshot, "br0", parse_header(packet)).text) == said(theirs)


@pytest.mark.parametrize(
    ("settings", "flow"),
    [
        (("type=erspan", "options:erspan_ver=1", "options:erspan_idx=0x7"), "actions=9"),
        (("type=erspan", "options:erspan_ver=2", "options:erspan_dir=1",
          "options:erspan_hwid=0x7"), "actions=9"),
        (("type=vxlan", "options:exts=gbp"), "actions=set_field:5->tun_gbp_id,9,2"),
        (("type=gre", "options:seq=true"), "actions=9,2"),
    ],
)  # fmt: skip
def test_tunnels_of_any_type_are_told_to_the_datapath(ovs, settings, flow):
    ovs.add_port("br0", "t9", "ofport_request=9", "options:remote_ip=10.9.9.9", "options:key=3",
                 *settings)  # fmt: skip
    ovs.vswitchd.command("dpif/set-dp-features", "br0", "tnl_push_pop", "false")
    ovs.set_flows("br0", [flow])
    agree(ovs, UNICAST % 1)


@pytest.mark.parametrize("feature", ["clone", "trunc", "masked_set_action"])
def test_what_the_datapath_may_not_do_is_done_otherwise(ovs, feature):
    ovs.vswitchd.command("dpif/set-dp-features", "br0", feature, "false")
    ovs.set_flows("br0", ["udp actions=clone(ct(commit),2),mod_nw_src:9.9.9.9,3"])
    agree(ovs, f"{UNICAST % 1},nw_ttl=9")


def test_samples_are_told_where_somebody_collects_them(ovs):
    sample = "sample(probability=%d,collector_set_id=1,obs_domain_id=2,obs_point_id=3%s)"
    flow = ",".join([sample % (65535, ""), sample % (6553, ",sampling_port=2"), "2"])
    ovs.set_flows("br0", [f"actions={flow}"])
    agree(ovs, UNICAST % 1)
    ovs.vsctl(
        *("--id=@b", "get", "bridge", "br0", "--", "--id=@i", "create", "ipfix"),
        *('targets="127.0.0.1:4739"', "--", "create", "flow_sample_collector_set", "id=1"),
        *("bridge=@b", "ipfix=@i"),
    )
    agree(ovs, UNICAST % 1)


def test_names_of_ports_stand_for_their_numbers(ovs, capsys):
    flows = ["in_port=1 actions=output(port=2,max_len=66),set_field:1->reg0,3,LOCAL"]
    ovs.set_flows("br0", flows)
    words = ("br0", "in_port=p1,udp", "--names")
    assert main(["flows", "trace", "--rundir", str(ovs.rundir), *words]) == 0
    ours, theirs = capsys.readouterr().out, ovs.vswitchd.command("ofproto/trace", *words)
    told = re.compile(r"^(?:Flow|Final flow|Megaflow|Datapath actions): .*", re.MULTILINE)
    assert told.findall(ours) == told.findall(theirs)


def test_a_whole_packet_is_one_after_connection_tracking_too(ovs, capsys):
    ovs.set_flows("br0", ["udp actions=ct(table=1)", "table=1 actions=controller,2"])
    assert main(["flows", "trace", "--rundir", str(ovs.rundir), "br0", "udp", "-generate"]) == 0
    assert "dont_send=0" in capsys.readouterr().out


# --- frames --------------------------------------------------------------------------------------

V4 = "45000024000040003f110000" + "0a0000010a000002"
PARTS = {
    "tag": ("8100200a", "88a80005"),
    "arp": ("0806" + "00010800060400010200000000010a0000010000000000000a000002",),
    "ipv4": (f"0800{V4}", f"0800{V4[:12]}2000{V4[16:]}", f"0800{V4[:12]}2005{V4[16:]}", "08004400"),
    "ipv6": ("86dd6010000000183aff" + "fe80" + "00" * 13 + "01" + "ff02" + "00" * 13 + "02",),
    "other": ("0900", "0026aaaa030000000800", "0026424203", "88470001004000020140"),
    "udp": ("12b712b7001000000102030405060708",),
    "nd": ("8700000000000001" + "fe80" + "00" * 13 + "02", "0101020000000001"),
}


@st.composite
def frames(draw):
    """Frames of parts that belong together, or not, some cut off."""
    parts = [draw(st.sampled_from(("020000000002020000000001", "ffffffffffff020000000001")))]
    parts += draw(st.lists(st.sampled_from(PARTS["tag"]), max_size=2))
    kinds = ("arp", "ipv4", "ipv6", "other")
    parts.append(draw(st.sampled_from(kinds).flatmap(lambda kind: st.sampled_from(PARTS[kind]))))
    tails = PARTS["udp"] + PARTS["nd"]
    parts += draw(st.lists(st.one_of(st.sampled_from(tails), st.binary(max_size=8).map(bytes.hex))))
    text = "".join(parts)
    return text[: draw(st.integers(14, max(14, len(text) // 2))) * 2].ljust(28, "0")


@given(st.lists(frames(), min_size=10, max_size=10), st.sampled_from(["0", "1"]))
@settings(
    max_examples=settings().max_examples // 10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_frame_is_read_as_open_vswitch_reads_it(ovs, sent, limit):
    ovs.vsctl("set", "open_vswitch", ".", f"other_config:vlan-limit={limit}")
    ovs.set_flows("br0", ["actions=drop"])
    snapshot = ovs.vswitchd.snapshot("h0")
    for frame in sent:
        note(frame)
        theirs = ovs.vswitchd.command("ofproto/trace", "br0", "in_port=1", frame)
        header = read_frame(bytes.fromhex(frame), parse_header("in_port=1"))
        ours = trace(snapshot, "br0", limit_tags(header, snapshot.max_tags)).text
        assert said(ours)[0] == said(theirs)[0]


@pytest.mark.parametrize("limit", ["0", "1"])
def test_tags_behind_the_limit_are_not_looked_at(ovs, limit):
    ovs.vsctl("set", "open_vswitch", ".", f"other_config:vlan-limit={limit}")
    ovs.set_flows("br0", ["actions=drop"])
    key = "in_port(%d),eth(),eth_type(0x8100),vlan(vid=6,pcp=0),encap(eth_type(0x8100),"
    key += "vlan(vid=7,pcp=1),encap(eth_type(0x0800),ipv4(proto=17,ttl=3),udp(src=1,dst=2)))"
    snapshot = ovs.vswitchd.snapshot("h0")
    key %= snapshot.port("p1").datapath
    theirs = ovs.vswitchd.command("ofproto/trace", key)
    assert said(trace(snapshot, *entry(snapshot, parse_key(key))).text) == said(theirs)


# --- the stand-in --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("ofproto/trace", "br0", "in_port=1,udp"),
        ("ofproto/trace", "br0", "--ct-next", "trk,est", "in_port=1,udp", "-generate"),
        ("-t", "ovs-vswitchd", "ofproto/trace", "br0", "in_port=p2", "02" * 14),
        ("--timeout=9", "ofproto/trace", "in_port(1),eth(),eth_type(0x0800),ipv4(proto=17),udp()"),
        ("ofproto/trace", "nope", "in_port=1"),
        ("ofproto/trace", "br0", "in_port=1", "nothex", "more"),
        ("fdb/show", "br0"),
    ],
)
def test_what_stands_in_for_ovs_appctl_answers_like_it(ovs, words):
    ovs.set_flows("br0", ["udp actions=ct(table=1)", "table=1 actions=2", "priority=1 actions=3"])
    own = {**os.environ, "OVS_RUNDIR": str(ovs.rundir), "PATH": f"{TOOLS}:{os.environ['PATH']}",
           "NETAGENT": f"{sys.executable} -m netagent"}  # fmt: skip

    def run(name: str) -> tuple[bool, str]:
        done = subprocess.run(
            [name, *words], env=own, cwd=TOOLS.parent, capture_output=True, text=True, check=False
        )
        actions = re.findall(r"^(?:Final flow|Datapath actions): .*", done.stdout, re.MULTILINE)
        told = "\n".join(actions) or done.stdout
        return done.returncode == 0, re.sub(r"recirc(_id=|\()0x[0-9a-f]+", r"recirc\1N", told)

    assert run("ovs-appctl") == run(shutil.which("ovs-appctl"))


def test_the_command_takes_frames(ovs, capsys):
    ovs.set_flows("br0", ["in_port=1,udp actions=controller,2"])
    frame = "0200000000020200000000010800" + V4 + PARTS["udp"][0]
    where = ("--rundir", str(ovs.rundir))
    assert main(["flows", "trace", *where, "br0", "in_port=p1", frame]) == 0
    ours = capsys.readouterr().out
    assert said(ours) == said(ovs.vswitchd.command("ofproto/trace", "br0", "in_port=p1", frame))
    assert "dont_send=0" in ours
    assert main(["flows", "trace", *where, "br0", "in_port=1", "zz"]) == 2
