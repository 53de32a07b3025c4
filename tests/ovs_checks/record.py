# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.ovs_checks.record OUT.tar.gz`: what this Open vSwitch prints, for tests of every version.

It keeps the tables of two bridges that use each match field and action once, in the way of OVN,
Neutron and Antrea, and what `ofproto/trace` says of some packets.
"""

FLOWS = """\
table=0,priority=100,in_port=1,dl_src=01:00:00:00:00:00/01:00:00:00:00:00 actions=drop
cookie=0xabc,table=0,priority=90,in_port=1 actions=set_field:0x5->reg0,load:0x3->NXM_NX_REG1[0..3],\
set_field:0x7/0xff->metadata,move:NXM_OF_ETH_SRC[0..15]->NXM_NX_REG2[16..31],resubmit(,1)
table=0,priority=80,in_port=2,dl_vlan=5,dl_vlan_pcp=0 actions=pop_vlan,mod_vlan_vid:6,output:3
table=0,priority=80,in_port=2,vlan_tci=0x0000/0x1fff actions=push_vlan:0x88a8,set_field:4103->vlan_vid,NORMAL
table=0,priority=70,in_port=3 actions=ct(table=5,zone=NXM_NX_REG0[0..15],nat)
table=0,priority=60,in_port=4 actions=write_metadata:0x1,goto_table:9
table=0,priority=50,tun_id=0x64,tun_src=10.1.0.1,tun_metadata0=0x3/0xf actions=note:01.02.03,in_port
table=1,priority=10,reg0=0x5,metadata=0x7/0xff,arp,arp_op=1,arp_tpa=10.0.0.9 actions=\
move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:2->arp_op,move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],\
set_field:00:00:00:00:00:09->arp_sha,in_port
table=1,priority=10,ip,nw_frag=later actions=output:3
table=1,priority=9,icmp,icmp_type=8,icmp_code=0 actions=dec_ttl,group:3
table=1,priority=9,udp,tp_dst=4791 actions=set_tunnel:0x64,set_field:10.1.0.2->tun_dst,output:2
table=1,priority=9,tcp,tp_dst=0x50/0xfff0,tcp_flags=+syn-ack actions=stack_push,group:2
table=1,priority=9,sctp,tp_src=7 actions=clone(mod_nw_dst:10.0.0.7,output:2),output:3
table=1,priority=8,ip,nw_dst=10.0.0.0/24,nw_tos=32,nw_ecn=1 actions=mod_nw_tos:8,group:1
table=1,priority=8,ip,nw_src=10.9.0.1,nw_ttl=1 actions=controller(reason=invalid_ttl,max_len=128,id=0)
table=1,priority=7,ip,nw_src=10.0.0.1 actions=conjunction(7,1/2)
table=1,priority=7,ip,nw_dst=10.2.0.0/16 actions=conjunction(7,2/2)
table=1,priority=7,ip,conj_id=7 actions=learn(table=6,idle_timeout=60,hard_timeout=90,priority=5,cookie=0x9,\
NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG3[0..15],\
output:NXM_OF_IN_PORT[]),bundle(hrw,5,active_backup,ofport,members:2,3)
table=1,priority=6,ipv6,ipv6_dst=fe80::/10,ipv6_label=0x5 actions=multipath(symmetric_l4,50,modulo_n,2,0,\
NXM_NX_REG4[0..1]),output:3
table=1,priority=6,icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::7 actions=set_field:00:00:00:00:00:07->nd_sll,output:2
table=1,priority=5,mpls,mpls_label=20,mpls_tc=3,mpls_bos=1 actions=dec_mpls_ttl,set_mpls_ttl(3),output:2
table=1,priority=1 actions=sample(probability=65535,collector_set_id=1,obs_domain_id=2,obs_point_id=3),\
check_pkt_larger(1500)->NXM_NX_REG5[0],resubmit(,2)
table=2,reg5=0x1/0x1 actions=push_mpls:0x8847,set_field:33->mpls_label,output:2
table=2,reg5=0,xreg2=0x0/0xff,xxreg2=0 actions=meter:1,set_queue:7,output:2,pop_queue,exit
table=5,ct_state=+new+trk-inv,ip actions=ct(commit,zone=NXM_NX_REG0[0..15],nat(src=10.3.0.1-10.3.0.9:100-200,random),\
exec(set_field:0x1->ct_mark,set_field:0x2/0xf->ct_label,move:NXM_NX_REG0[]->NXM_NX_CT_LABEL[32..63])),output:1
table=5,ct_state=+est-rel+rpl+trk,ct_zone=5,ct_mark=0x1/0x1,ct_label=0x2/0xf,ip actions=ct_clear,output:1
table=5,ct_nw_src=10.0.0.1,ct_nw_proto=17,ct_tp_dst=53,ct_state=+trk,ip actions=ct(commit,force,alg=ftp)
table=5,priority=1 actions=ct(commit,zone=5,nat(dst=10.3.0.1)),output:reg0
table=9,metadata=0x1,pkt_mark=0x2/0xf,dl_dst=00:00:00:00:00:01 actions=write_actions(set_field:10.0.0.8->ip_dst,output:1),clear_actions
table=9,priority=1,metadata=0x1 actions=write_actions(group:3),set_field:0x4->pkt_mark,flood
table=9,priority=0 actions=output(port=1,max_len=100),all,local
table=40,dl_type=0x88cc,send_flow_rem actions=fin_timeout(idle_timeout=5,hard_timeout=9),strip_vlan,delete_field:tun_metadata0
"""
