# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.datapath.layers import parse_filters, parse_megaflows, ufid_of

# As documented in Open vSwitch's how-to on tc offload and in public reports.
OFFLOADED = (
    "ufid:8ec2774d-8efe-4b14-a8b5-c53fef16e920, skb_priority(0/0),tunnel(tun_id=0x1,"
    "src=172.31.1.21,dst=172.31.5.23,ttl=0/0,tp_dst=6081,geneve({class=0x102,type=0x80,len=4,"
    "0x10002/0x7fffffff}),flags(+key)),recirc_id(0),in_port(genev_sys_6081),packet_type(ns=0/0,"
    "id=0/0),eth_type(0x0800),ipv4(frag=no), packets:57097, bytes:4076614, used:0.250s, "
    "offloaded:yes, dp:tc, actions:set(eth(src=00:00:31:00:22:00,dst=88:2a:5e:a9:30:af)),"
    "ct(zone=1,nat),recirc(0x2)"
)
SHORT = (
    "recirc_id(0),in_port(3),eth(),eth_type(0x0800),ipv4(frag=no), packets:5, bytes:420, "
    "used:never, flags:SFP., actions:drop"
)
DPDK = (
    "ufid:fc2cca8c-2ae6-4bc0-9c5b-0b8d4e2ad0a2, recirc_id(0),in_port(dpdk0),eth_type(0x0800), "
    "packets:1, bytes:1, used:7.1s, offloaded:partial, dp:dpdk, actions:vhost1, "
    "dp-extra-info:miniflow_bits(5,1)"
)


def test_flows_of_the_datapath():
    text = f"flow-dump from the main thread:\n{OFFLOADED}\n\n{SHORT}\n{DPDK}\nnonsense\n"
    (tc, plain, dpdk), problems = parse_megaflows(text)
    assert tc.ufid == "8ec2774d-8efe-4b14-a8b5-c53fef16e920"
    assert (tc.layer, tc.offloaded, tc.packets, tc.used_s) == ("tc", True, 57097, 0.25)
    assert tc.in_port == "genev_sys_6081"
    assert tc.key.startswith("skb_priority(0/0),tunnel(")
    assert tc.key.endswith(",ipv4(frag=no)")
    assert tc.actions.endswith("ct(zone=1,nat),recirc(0x2)")
    assert (plain.ufid, plain.layer, plain.used_s, plain.actions) == ("", "unknown", None, "drop")
    assert (dpdk.layer, dpdk.offloaded, dpdk.actions) == ("dpdk", True, "vhost1")
    assert problems == ("datapath: line 6: nonsense",)


FILTERS = """\
filter protocol ip pref 2 flower chain 0 \n\
filter protocol ip pref 2 flower chain 0 handle 0x1 \n\
  dst_mac 52:54:00:00:00:02
  eth_type ipv4
  ip_flags nofrag
  in_hw in_hw_count 1
\taction order 1: tunnel_key  set
\tkey_id 100
\t index 1 ref 1 bind 1 installed 14 sec used 1 sec firstused 13 sec
\tAction statistics:
\tSent 1176 bytes 12 pkt (dropped 0, overlimits 0 requeues 0) \n\
\tSent software 98 bytes 1 pkt
\tSent hardware 1078 bytes 11 pkt
\tbacklog 0b 0p requeues 0

\taction order 2: mirred (Egress Redirect to device vxlan_sys_4789) stolen
\tindex 1 ref 1 bind 1 installed 14 sec used 1 sec
\tAction statistics:
\tSent 1176 bytes 12 pkt (dropped 0, overlimits 0 requeues 0) \n\
\tSent hardware 1078 bytes 11 pkt
\tcookie 20f2fc75024373e4cca6e7bedefb1511
\tused_hw_stats delayed

filter block 22 protocol all pref 49152 flower chain 3 handle 0x2
  not_in_hw
\taction order 1: gact action drop
filter protocol all pref 49153 bpf chain 0 handle 0x1 prog direct-action not_in_hw id 417
"""


def test_filters_of_tc():
    one, foreign = parse_filters(FILTERS, "eth0")
    assert (one.device, one.pref, one.chain, one.handle) == ("eth0", 2, 0, "0x1")
    assert (one.in_hw, one.skip_hw) == (True, False)
    assert (one.packets, one.hw_packets, one.installed_s, one.used_s) == (12, 11, 14, 1)
    assert one.ufid == "75fcf220-e473-4302-bee7-a6cc1115fbde"
    assert "mirred (Egress Redirect to device vxlan_sys_4789)" in one.text
    assert (foreign.pref, foreign.chain, foreign.ufid, foreign.in_hw) == (49152, 3, "", False)
    assert (foreign.packets, foreign.hw_packets) == (0, None)


@given(st.binary(min_size=16, max_size=16))
def test_a_cookie_is_the_ufid_s_bytes(data):
    ufid = ufid_of(data.hex())
    assert [len(part) for part in ufid.split("-")] == [8, 4, 4, 4, 12]
    words = ufid.replace("-", "")
    assert b"".join(bytes.fromhex(words[n : n + 8])[::-1] for n in range(0, 32, 8)) == data


pieces = st.sampled_from(
    r"ufid:|in_port(|)|,| |packets:|used:|x|s|actions:|\n|99999|filter |pref 2 |flower |handle 0x1|"
    r"  Sent |pkt|cookie |installed 3 sec".replace(r"\n", "\n").split("|")
)


@pytest.mark.parametrize("read", [parse_megaflows, lambda text: parse_filters(text, "d")])
@given(text=st.text() | st.lists(pieces).map("".join))
def test_whatever_is_dumped_can_be_read(read, text):
    assert read(text) is not None
