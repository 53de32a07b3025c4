# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.ovs_checks.record OUT.tar.gz`: record what the Open vSwitch of PATH prints.

Two bridges hold `dumps/every-kind.flows`, which uses match fields and actions once each, in the
way of OVN, Neutron and Antrea; `ofproto/trace` is asked what becomes of some packets.
"""

import sys
import tempfile
from itertools import count
from pathlib import Path

from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.bundle import Recorder, pack
from tests.ovs_checks.live import live_ovs

FLOWS = Path(__file__).parent / "dumps" / "every-kind.flows"
PACKETS = (
    "in_port=1,dl_src=01:00:00:00:00:05",
    "in_port=1,arp,dl_src=00:00:00:00:00:05,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.9",
    "in_port=1,icmp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=9,icmp_type=8",
    "in_port=1,icmp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=1,icmp_type=8",
    "in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=9,udp_dst=4791",
    "in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=9,tcp_dst=80,tcp_flags=syn",
    "in_port=1,sctp,nw_src=10.0.0.1,nw_dst=10.8.0.2,nw_ttl=9,sctp_src=7",
    "in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=32,nw_ecn=1,nw_ttl=9",
    "in_port=1,udp,nw_src=10.9.0.1,nw_dst=10.8.0.2,nw_ttl=1",
    "in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.2.0.2,nw_ttl=9",
    "in_port=1,udp6,ipv6_src=fe80::1,ipv6_dst=fe80::2,ipv6_label=5,nw_ttl=9",
    "in_port=1,mpls,mpls_label=20,mpls_tc=3,mpls_bos=1,mpls_ttl=9",
    "in_port=1,dl_type=0x88cc",
    "in_port=2,udp,dl_vlan=5,dl_vlan_pcp=0,nw_ttl=9",
    "in_port=2,udp,nw_ttl=9",
    "in_port=3,udp,nw_src=10.0.0.1,nw_ttl=9",
    "in_port=4,udp,dl_dst=00:00:00:00:00:01,pkt_mark=2,nw_ttl=9",
    "in_port=4,udp,nw_ttl=9",
)


def main(path: Path) -> None:
    """Record, and write the bundle."""
    clock = count(0, 1_000_000_000)
    with tempfile.TemporaryDirectory() as folder, live_ovs(Path(folder)) as live:
        live.add_lab()
        for bridge in ("br0", "br1"):
            live.set_flows(bridge, FLOWS.read_text().splitlines())
        recorder = Recorder(live.vswitchd, "h0", lambda: next(clock))
        assemble(recorder, "h0")
        for packet in PACKETS:
            recorder.command("ofproto/trace", "br0", packet)
        path.write_bytes(pack(recorder.bundle(), version="1"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
