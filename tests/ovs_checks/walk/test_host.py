# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.wire.conversion import walk_from_wire, walk_to_wire
from ovs_checks.openflow.notation import mac
from ovs_checks.openflow.parse import parse_dump, parse_header
from ovs_checks.switch.bonds import Bond, Member
from ovs_checks.switch.rows import with_tree
from ovs_checks.switch.shows import parse_groups, parse_tree
from ovs_checks.switch.snapshot import Bridge, FdbEntry, Lane, Port, Snapshot
from ovs_checks.translate import context
from ovs_checks.translate.text import trace
from ovs_checks.walk.host import CONNECTIONS, walk
from tests.ovs_checks.hosts import bridge, plain_ports
from tests.ovs_checks.pipelines import packets, pipelines

VXLAN = Port("vx", 9, "br", "vxlan", (("key", "flow"), ("remote_ip", "flow")))
GRE = Port("gre", 8, "br", "gre", (("key", "7"), ("local_ip", "flow"), ("remote_ip", "9.9.9.9")))


def walk_text(flows, packet="in_port=1,udp,nw_ttl=64", *, ports=(), fdb="", others=()):
    ports = (*plain_ports("br", 1, 2, 3), *ports)
    snapshot = Snapshot("h0", (bridge("br", flows, ports=ports, fdb=fdb), *others))
    return walk(snapshot, "br", parse_header(packet))


def ends(walked):
    return [(end.kind, end.port or end.reason) for end in walked.ends]


def test_a_rewrite_survives_the_return_from_a_resubmit():
    flows = """
    priority=1 actions=resubmit(,1),output:NXM_NX_REG0[]
    table=1 actions=load:2->NXM_NX_REG0[]
    """
    assert ends(walk_text(flows)) == [
        ("dropped", "its actions send the packet nowhere"),
        ("output", "p2"),
    ]


def test_resubmit_by_another_port_changes_only_the_lookup():
    flows = "in_port=1 actions=resubmit(2,)\nin_port=2 actions=output:2,output:1,IN_PORT"
    assert ends(walk_text(flows)) == [("output", "p2"), ("output", "p1")]


def test_a_drop_quotes_the_flow_with_its_cookie_and_counters():
    text = "cookie=0x7, table=0, n_packets=5, n_bytes=60, priority=9,ip actions=drop"
    end = walk_text(f"{text}\npriority=1 actions=output:2").end
    assert (end.kind, end.reason) == ("dropped", "drop")
    quote = end.flow
    assert (quote.bridge, quote.table, quote.priority, quote.cookie) == ("br", 0, 9, 7)
    assert (quote.n_packets, quote.n_bytes, quote.text) == (5, 60, text)
    assert end.nearest is None


def test_a_miss_names_the_nearest_flow_and_the_field():
    flows = "actions=resubmit(,4)\ntable=4,ip,nw_dst=10.0.0.9 actions=output:2"
    walked = walk_text(flows, "in_port=1,udp,nw_dst=10.0.0.1")
    assert (walked.end.kind, walked.end.table, walked.end.field) == ("missed", 4, "nw_dst")
    assert "nw_dst=10.0.0.9" in walked.end.nearest.text
    assert walk_text("actions=resubmit(,4)").end.reason == "the table is empty"


def test_a_table_s_default_drop_names_the_nearest_flow_too():
    flows = "priority=0 actions=drop\nip,nw_dst=10.0.0.9 actions=output:2"
    end = walk_text(flows).end
    assert (end.kind, end.field) == ("dropped", "nw_dst")


def test_a_loop_gives_the_cycle_and_drops_every_copy():
    flows = """
    actions=output:2,resubmit(,3)
    table=3 actions=resubmit(,4)
    table=4 actions=resubmit(,3)
    """
    walked = walk_text(flows)
    assert ends(walked) == [("loop", "the packet comes back as it was")]
    assert [quote.table for quote in walked.end.cycle] == [3, 4]


def test_a_copy_that_connection_tracking_was_to_give_back_is_lost_in_a_loop_too():
    flows = """
    actions=ct(table=3),resubmit(,7)
    table=3 actions=output:2
    table=7 actions=resubmit(,7)
    """
    assert ends(walk_text(flows)) == [("loop", "the packet comes back as it was")]


def test_a_loop_that_counts_the_time_to_live_down_is_one_at_64_levels():
    walked = walk_text("actions=dec_ttl,resubmit(,0)", "in_port=1,udp,nw_ttl=255")
    assert walked.end.kind == "loop"
    assert "64 lookups deep" in walked.end.reason
    assert [quote.table for quote in walked.end.cycle] == [0]
    assert walk_text("actions=dec_ttl,resubmit(,0)", "in_port=1,udp,nw_ttl=60").end.reason == (
        "its time to live ran out"
    )


def test_too_many_lookups_are_a_loop():
    flows = [f"table={n} actions=resubmit(,{n + 1}),resubmit(,{n + 1})" for n in range(14)]
    end = walk_text("\n".join(flows)).end
    assert (end.kind, "4096 lookups" in end.reason) == ("loop", True)


def test_a_loop_is_one_however_many_copies_left_before(monkeypatch):
    monkeypatch.setattr(context, "MAX_COPIES", 3)
    flows = "actions=output:2,output:2,output:2,output:2,resubmit(,1)\ntable=1 actions=resubmit(,1)"
    assert ends(walk_text(flows)) == [("loop", "the packet comes back as it was")]


def test_a_visit_that_returned_is_no_loop():
    flows = "actions=resubmit(,3),resubmit(,3),output:2\ntable=3 actions=note:00"
    assert walk_text(flows).end.kind == "output"


def test_a_hairpin_is_no_loop():
    """An ARP responder answers by the port that the question came from."""
    flows = """
    arp,arp_op=1 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],load:2->NXM_OF_ARP_OP[],IN_PORT
    """
    end = walk_text(flows, "in_port=1,arp,arp_op=1,dl_src=00:00:00:00:00:01").end
    assert (end.kind, end.port, end.header.nw_proto, end.header.eth_dst) == ("output", "p1", 2, 1)


PATCH = (Port("pa", 4, "br", "patch", (("peer", "pb"),)),)
PEER = Port("pb", 5, "up", "patch", (("peer", "pa"),))


def test_patch_ports_forget_metadata_and_come_back_unchanged():
    up = bridge(
        "up",
        "in_port=5,reg0=0,tun_id=0 actions="
        "load:9->NXM_NX_REG0[],mod_dl_dst:00:00:00:00:00:09,output:7",
        ports=(PEER, *plain_ports("up", 7)),
    )
    flows = "actions=load:1->NXM_NX_REG0[],set_tunnel:5,output:4,output:2"
    walked = walk_text(flows, ports=PATCH, others=(up,))
    assert ends(walked) == [("output", "p7"), ("output", "p2")]
    assert walked.ends[0].header.eth_dst == 9
    assert (walked.ends[1].header.reg0, walked.ends[1].header.eth_dst) == (1, 0)


def test_a_hairpin_through_a_patch_port_is_no_loop_but_going_round_is():
    there = "in_port=1 actions=output:4\nin_port=4 actions={}"
    up = bridge("up", "actions=IN_PORT", ports=(PEER,))
    back = walk_text(there.format("output:2"), ports=PATCH, others=(up,))
    assert ends(back) == [("output", "p2")]
    round_and_round = walk_text(there.format("IN_PORT"), ports=PATCH, others=(up,))
    assert round_and_round.end.kind == "loop"
    assert {quote.bridge for quote in round_and_round.end.cycle} == {"br", "up"}


def test_what_goes_wrong_behind_a_patch_port_stays_there():
    """A loop, an exit and a miss in the peer's bridge do not touch the copies of this one."""
    for flows in ("actions=resubmit(,0)", "actions=exit", "ip,in_port=1 actions=drop"):
        up = bridge("up", flows, ports=(PEER,))
        walked = walk_text("actions=output:4,output:2", ports=PATCH, others=(up,))
        assert walked.end.kind == "output"
        assert len(walked.ends) == 2
    alone = walk_text("actions=output:4", ports=PATCH).end
    assert (alone.kind, alone.reason) == ("dropped", "patch port pa has no peer 'pb'")


def test_exit_stops_all_tables():
    flows = "actions=resubmit(,1),output:2\ntable=1 actions=output:3,exit,output:2"
    assert ends(walk_text(flows)) == [("output", "p3")]


def test_normal_switches_by_learned_addresses():
    fdb = "2 0 00:00:00:00:00:02 1\n1 0 00:00:00:00:00:01 1\n3 5 00:00:00:00:00:02 1"
    to = "in_port=1,dl_dst=00:00:00:00:00:0{}{}"
    assert ends(walk_text("actions=NORMAL", to.format(2, ""), fdb=fdb)) == [("output", "p2")]
    tagged = walk_text("actions=NORMAL", to.format(2, ",dl_vlan=5"), fdb=fdb)
    assert ends(tagged) == [("output", "p3")]
    flooded = [("output", "p2"), ("output", "p3")]
    assert ends(walk_text("actions=NORMAL", to.format(9, ""), fdb=fdb)) == flooded
    group = "in_port=1,dl_dst=01:00:00:00:00:01"
    assert ends(walk_text("actions=NORMAL", group, fdb=fdb)) == flooded
    assert (
        "learned at the port" in walk_text("actions=NORMAL", to.format(1, ""), fdb=fdb).end.reason
    )


@pytest.mark.parametrize(
    ("packet", "ports", "kind", "reason"),
    [
        ("in_port=1,dl_dst=01:80:c2:00:00:03", (), "dropped", "link-local"),
        ("in_port=77", (), "dropped", "port 77"),
    ],
)
def test_normal_s_refusals_and_limits(packet, ports, kind, reason):
    end = walk_text("actions=NORMAL", packet, ports=ports).end
    assert (end.kind, reason in end.reason) == (kind, True)


def over_bond(bond, packet="in_port=1"):
    ports = plain_ports("br", 1, 2, 3)
    lanes = (Lane("p1", (1,)), Lane("bond0", (2, 3), bond=bond))
    flows = parse_dump("actions=NORMAL").flows
    return Snapshot("h0", (Bridge("br", flows, ports, lanes=lanes),)), parse_header(packet)


BOTH = (Member("p2"), Member("p3"))


def test_normal_does_not_guess_how_a_bond_stands():
    snapshot, packet = over_bond(None)
    end = walk(snapshot, "br", packet).end
    said = "NORMAL with bond bond0: how it stands is not known"
    assert (end.kind, end.reason) == ("cannot_tell", said)


def test_each_member_that_a_hash_may_select_is_a_case():
    snapshot, packet = over_bond(Bond("balance-slb", BOTH, "p2"))
    walked = walk(snapshot, "br", packet)
    assert [(end.kind, end.port, end.case) for end in walked.ends] == [
        ("output", "p2", "member p2 of bond bond0"),
        ("output", "p3", "member p3 of bond bond0"),
    ]
    assert "member p2 of bond bond0" in trace(snapshot, "br", packet).unknown


def test_hashes_that_choose_together_make_every_case():
    ports = plain_ports("br", 1, 2, 3, 4, 5, 6)
    three = Bond("balance-slb", (*BOTH, Member("p4")), "p2")
    two = Bond("balance-slb", (Member("p5"), Member("p6")), "p5")
    lanes = (Lane("p1", (1,)), Lane("a", (2, 3, 4), bond=three), Lane("b", (5, 6), bond=two))
    at = Bridge("br", parse_dump("actions=NORMAL").flows, ports, lanes=lanes)
    walked = walk(Snapshot("h0", (at,)), "br", parse_header("in_port=1"))
    cases: dict[str, set[str]] = {}
    for end in walked.ends:
        cases.setdefault(end.case, set()).add(end.port)
    assert cases == {
        f"member {one} of bond a, member {other} of bond b": {one, other}
        for one in ("p2", "p3", "p4")
        for other in ("p5", "p6")
    }


def treed(states, action="2"):
    at = Bridge("br", parse_dump(f"actions={action}").flows, plain_ports("br", 1, 2, 3))
    at = with_tree(replace(at, spanning_tree="STP"), states)
    return walk(Snapshot("h0", (at,)), "br", parse_header("in_port=1"))


@pytest.mark.parametrize(
    ("shown", "action", "ends"),
    [
        ({}, "2", [("output", "p2")]),
        ({"p2": "blocked"}, "2", [("dropped", "p2")]),
        ({"p2": "blocked"}, "ALL", [("output", "p2"), ("output", "p3")]),
        ({"p2": "blocked"}, "FLOOD", [("output", "p3")]),
        ({"p1": "learning"}, "2", [("dropped", "")]),
        (None, "2", [("cannot_tell", "")]),
        (None, "drop", [("cannot_tell", "")]),
    ],
)
def test_a_spanning_tree_lets_ports_forward_or_nobody_knows(shown, action, ends):
    assert [(end.kind, end.port) for end in treed(shown, action).ends][-len(ends) :] == ends


def test_a_tree_is_read_from_what_it_shows():
    shown = """---- br0 ----
  Interface  Role       State      Cost  Pri.Nbr
  ---------- ---------- ---------- ----- -------
  p1         designated forwarding 19    128.1
  p2         alternate  blocking   19    128.2
  p3         Alternate  Discarding 200000000128.3
"""
    assert parse_tree(shown) == {"p1": "forwarding", "p2": "blocked", "p3": "blocked"}


@pytest.mark.parametrize(
    ("bond", "actions"),
    [
        (Bond("active-backup", BOTH, "p3"), "p3"),
        (Bond("active-backup", BOTH), "drop"),
        (Bond("balance-slb", (Member("p2", enabled=False), Member("p3"))), "p3"),
        (Bond("balance-slb", (Member("p2"), Member("p3", hashes=frozenset(range(256))))), "p3"),
        (Bond("balance-tcp", BOTH, "p2"), "drop"),
        (Bond("balance-tcp", BOTH, "p2", "configured", lacp_fallback=True), "p2"),
        (Bond("balance-tcp", BOTH, lacp="negotiated", basis=7, recirculation=9),
         "hash(l4(7)),recirc(0x9)"),
        (Bond("balance-tcp", BOTH, lacp="negotiated", recirculation=9, lb_output=9),
         "lb_output(9)"),
    ],
)  # fmt: skip
def test_what_leaves_by_a_bond(bond, actions):
    snapshot, packet = over_bond(bond)
    assert trace(snapshot, "br", packet).datapath_actions == actions


@pytest.mark.parametrize(
    ("bond", "packet", "reason"),
    [
        (Bond("active-backup", BOTH, "p3"), "in_port=2", "takes nothing in by p2 now"),
        (Bond("active-backup", BOTH, "p2"), "in_port=2", ""),
        (Bond("balance-slb", BOTH, "p3"), "in_port=2,dl_dst=ff:ff:ff:ff:ff:ff", "takes nothing in"),
        (Bond("balance-slb", BOTH, "p3", all_active=True), "in_port=2,dl_dst=3:0:0:0:0:1", ""),
        (Bond("balance-slb", BOTH, "p3"), "in_port=2", ""),
        (Bond("balance-slb", BOTH, "p3"), "in_port=2,dl_src=02:00:00:00:00:01", "sent itself"),
        (Bond("balance-slb", BOTH, "p2"),
         "in_port=2,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=2", ""),
        (Bond("balance-tcp", BOTH, "p2"), "in_port=2", "takes nothing in"),
        (Bond("balance-tcp", (Member("p2", enabled=False),), lacp="negotiated"), "in_port=2", ""),
        (Bond("balance-tcp", BOTH[1:], lacp="negotiated"), "in_port=2", "takes nothing in"),
    ],
)  # fmt: skip
def test_what_comes_in_by_a_bond(bond, packet, reason):
    snapshot, header = over_bond(bond, packet)
    learned = (FdbEntry(1, 0, mac("02:00:00:00:00:01"), 1),)
    snapshot = replace(snapshot, bridges=(replace(snapshot.bridges[0], fdb=learned),))
    end = walk(snapshot, "br", header).end
    assert (end.kind, reason in end.reason) == ("dropped" if reason else "output", True)


def test_flood_and_all_leave_out_the_way_in():
    for action in ("FLOOD", "ALL"):
        assert ends(walk_text(f"actions={action}")) == [("output", "p2"), ("output", "p3")]


@pytest.mark.parametrize(
    ("action", "kind", "reason"),
    [
        ("output:1", "dropped", "p1 is the port that it came in by"),
        ("output:77", "dropped", "port 77 does not exist"),
        ("output:65535", "dropped", "its actions send the packet nowhere"),
        ("CONTROLLER:100", "controller", "sent to the controller"),
        ("output:CONTROLLER", "controller", "sent to the controller"),
        ("TABLE", "loop", "the packet comes back as it was"),
        ("group:1", "dropped", "group 1 does not exist"),
        ("frob(1),output:2", "cannot_tell", "action not understood (column 9): frob(1)"),
    ],
)
def test_single_actions(action, kind, reason):
    end = walk_text(f"actions={action}").end
    assert (end.kind, end.reason) == (kind, reason)


def test_what_is_not_understood_ends_the_walk_but_not_what_was_sent_before():
    assert ends(walk_text("actions=output:2,frob:1,output:3")) == [
        ("output", "p2"),
        ("cannot_tell", "action not understood (column 18): frob:1"),
    ]
    doubtful = walk_text("actions=resubmit(,1),output:2\ntable=1,frob=1 actions=drop").end
    reason = "field not understood (column 9): frob=1"
    assert (doubtful.kind, doubtful.reason) == ("cannot_tell", reason)


CT = "priority=1,ip actions=ct(zone=5,table=3)\ntable=3,priority=1,ip actions=output:2"


def test_connection_tracking_makes_cases():
    """A case that ends elsewhere makes the answer depend; if all agree, it depends on nothing."""
    same = walk_text(CT)
    assert list(same.cases) == ["new connection", "established connection", "reply"]
    assert (same.end.kind, same.end.port) == ("output", "p2")
    end = walk_text(f"{CT}\ntable=3,priority=9,ip,ct_state=+new,cookie=7 actions=drop").end
    assert (end.kind, end.port) == ("cannot_tell", "")
    assert end.reason == (
        "it depends: new connection: dropped by br/table=3; "
        "established connection: output p2; reply: output p2"
    )


@pytest.mark.parametrize(
    ("connection", "kind"),
    [("new connection", "dropped"), ("reply", "output"), ("established connection", "output")],
)
def test_a_packet_of_a_connection_has_one_case(connection, kind):
    text = f"{CT}\ntable=3,priority=9,ip,ct_state=+new,cookie=7 actions=drop"
    snapshot = Snapshot("h0", (bridge("br", text, ports=plain_ports("br", 1, 2)),))
    walked = walk(snapshot, "br", parse_header("in_port=1,udp,nw_ttl=64"), connection)
    assert (list(walked.cases), walked.end.kind) == ([""], kind)


@pytest.mark.parametrize(
    ("actions", "kind"),
    [
        ("controller(userdata=00)", "controller"),
        ("controller(userdata=00),set_field:1->reg0", "controller"),
        ("controller(userdata=00),resubmit(,1)", "dropped"),  # a policy logs, and another one drops
        ("controller(userdata=00),output:2", "output"),
    ],
)
def test_a_controller_that_gets_a_copy_takes_nothing_on(actions, kind):
    walked = walk_text(f"actions={actions}\ntable=1,priority=0 actions=drop")
    assert [end.kind for end in walked.ends] == [kind]


LARGER = """\
actions=check_pkt_larger(1500)->NXM_NX_REG0[0],resubmit(,1)
table=1,reg0=1,cookie=7 actions=drop
table=1,reg0=0,ip actions=ct(table=3)
table=1,reg0=0,arp actions=output:2
table=3 actions=output:2
"""


def test_the_length_of_a_packet_makes_cases():
    """Nobody has said how long it is; behind connection tracking there are cases of both."""
    end = walk_text(LARGER, "in_port=1,arp").end
    assert (end.kind, end.reason) == (
        "cannot_tell",
        "it depends: over 1500 bytes: dropped by br/table=1; up to 1500 bytes: output p2",
    )
    assert list(walk_text(LARGER).cases) == [
        "over 1500 bytes",
        *(f"up to 1500 bytes, {name}" for name in CONNECTIONS),
    ]
    same = walk_text(LARGER.replace("=drop", "=output:2"), "in_port=1,arp")
    assert (same.end.kind, same.end.port) == ("output", "p2")


def test_cases_that_lose_the_packet_or_send_it_alike_agree():
    """By which flow a case does it is no difference to whoever waits for the packet."""
    est = "table=3,priority=9,ip,ct_state=+est,cookie=9 actions="
    walked = walk_text(f"{CT}\n{est}output:2")
    assert (walked.end.kind, walked.end.port) == ("output", "p2")
    lost = CT.replace("output:2", "drop")
    end = walk_text(f"{lost}\n{est}load:1->NXM_NX_REG1[]").end
    assert (end.kind, end.reason, end.case) == ("dropped", "drop", "new connection")


def tunnelled(established):
    flows = CT.replace("output:2", "set_field:1.1.1.1->tun_dst,output:9")
    flows += f"\ntable=3,priority=9,ip,ct_state=+est actions={established},output:9"
    return walk_text(flows, ports=(VXLAN,))


@pytest.mark.parametrize("action", ["1.2.3.4->tun_dst", "7->tun_id", "3->ip_ttl"])
def test_cases_that_leave_by_one_tunnel_in_different_ways_differ(action):
    same = tunnelled("set_field:1->reg0,set_field:4->pkt_mark,set_field:1.1.1.1->tun_dst")
    assert same.tunnelled == same.ends[0]
    differ = tunnelled(f"set_field:1.1.1.1->tun_dst,set_field:{action}")
    assert differ.tunnelled is None
    said = "it depends: new connection: tunnelled vx to 1.1.1.1 with VNI 0; established connection"
    assert differ.end.reason.startswith(said)


def test_a_connection_is_in_one_state_for_all_zones():
    twice = f"{CT}\ntable=3,priority=9,ct_state=+new,ip,reg0=0 actions="
    twice += "load:1->NXM_NX_REG0[],ct(zone=6,table=4)\n"
    for state, port in (("+new", "p3"), ("+est", "p1")):
        twice += f"table=4,ct_state={state},ip actions=output:{port[1]}\n"
    walked = walk_text(twice, "in_port=77,udp")
    assert next(iter(walked.cases)) == "new connection"
    assert [end.port for end in walked.cases["new connection"]] == ["p3"]
    assert "output p1" not in walked.end.reason


def test_a_hash_of_the_datapath_makes_cases_of_the_live_buckets():
    groups, _ = parse_groups(
        "group_id=1,type=select,bucket=bucket_id:1,watch_port:2,actions=output:2,"
        "bucket=bucket_id:2,actions=output:3,bucket=bucket_id:3,watch_port:77,actions=output:1",
        {},
    )
    flows = parse_dump("actions=group:1").flows
    at = Bridge("br", flows, plain_ports("br", 1, 2, 3), groups=groups)
    walked = walk(Snapshot("h0", (at,)), "br", parse_header("in_port=1,udp"))
    cases = {case: [end.port for end in ends] for case, ends in walked.cases.items()}
    assert cases == {"bucket 1 of group 1": ["p2"], "bucket 2 of group 1": ["p3"]}
    assert walked.end.kind == "cannot_tell"


def test_cases_are_bounded():
    flows = "ip actions=ct(table=1),ct(table=1),ct(table=1)\ntable=1,ip actions=resubmit(,0)"
    walked = walk_text(flows)
    assert any("recirculations and cases" in end.reason for end in walked.ends)
    assert walked.end.kind == "cannot_tell"


def test_a_bucket_that_was_not_walked_is_not_taken_for_delivering():
    buckets = ",".join(f"bucket=actions=output:{2 + n // 64}" for n in range(100))
    groups, _ = parse_groups(f"group_id=1,type=select,selection_method=dp_hash,{buckets}", {})
    flows = parse_dump("actions=group:1").flows
    at = Bridge("br", flows, plain_ports("br", 1, 2, 3), groups=groups)
    walked = walk(Snapshot("h0", (at,)), "br", parse_header("in_port=1,udp"))
    assert walked.end.kind == "cannot_tell"
    assert walked.towards(lambda end: end.port == "p2").kind == "cannot_tell"
    assert "what was not followed" in walked.cases


def test_tunnels_take_address_and_key_from_the_packet_or_the_port():
    flows = """
    priority=1 actions=load:5->NXM_NX_REG0[],resubmit(,1)
    table=1 actions=move:NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31],resubmit(,2)
    table=2 actions=set_field:1.2.3.4->tun_dst,set_field:1.2.3.5->tun_src,output:9,output:8
    """
    by_flow, by_port = walk_text(flows, ports=(VXLAN, GRE)).ends
    assert (by_flow.tun_dst, by_flow.tun_id, by_flow.tun_src) == ("1.2.3.4", 5, "")
    assert (by_flow.tun_dst_by.table, by_flow.tun_id_by.table) == (2, 0)
    assert (by_port.tun_dst, by_port.tun_id, by_port.tun_src) == ("9.9.9.9", 7, "1.2.3.5")
    assert (by_port.tun_dst_by, by_port.tun_id_by) == (None, None)


def test_a_tunnel_over_ipv6_with_an_address_of_its_own_is_a_tunnel():
    port = Port("six", 9, "br", "vxlan", (("remote_ip", "fd00::2"),))
    assert walk_text("actions=output:9", ports=(port,)).end.tun_dst == "fd00::2"


def test_tunnels_refuse_no_address_and_our_own():
    assert "no tunnel destination" in walk_text("actions=output:9", ports=(VXLAN,)).end.reason
    back = walk_text(
        "actions=set_field:1.2.3.4->tun_dst,output:9",
        "in_port=1,tun_dst=1.2.3.4,tun_src=1.2.3.5",
        ports=(VXLAN,),
    )
    assert "address at which it came in" in back.end.reason


V6 = Port("v6", 7, "br", "vxlan", (("key", "5"), ("remote_ip", "fc00::2")))
OVER_V4 = "set(tunnel(tun_id=0x7,dst=9.9.9.9,ttl=64,tp_src=9,flags(df|key))),gre"
OVER_V6 = "set(tunnel(tun_id=0x5,ipv6_dst=fc00::2,ttl=64,tp_dst=4789,flags(df|key))),v6"


@pytest.mark.parametrize(
    ("version", "over_v4", "over_v6"),
    [
        ("", OVER_V4, OVER_V6),
        ("3.3.0", OVER_V4, OVER_V6),
        ("3.4.1", OVER_V4, OVER_V6.replace("df|", "df|csum|")),
        ("3.5.0", OVER_V4.replace("tp_src=9,", ""), OVER_V6.replace("df|", "df|csum|")),
        ("10.0.0", OVER_V4.replace("tp_src=9,", ""), OVER_V6.replace("df|", "df|csum|")),
    ],
)
def test_tunnels_are_told_as_the_release_does_it(version, over_v4, over_v6):
    """From 3.4 on, checksums over IPv6 are the default; from 3.5 on, no source port goes on."""
    flows = parse_dump("in_port=1 actions=output:8\nin_port=2 actions=output:7").flows
    at = Bridge("br", flows, (*plain_ports("br", 1, 2), GRE, V6))
    snapshot = Snapshot("h0", (at,), version=version)
    for packet, told in (
        ("in_port=1,udp,tun_dst=7.7.7.7,tun_tp_src=9", over_v4),
        ("in_port=2,udp", over_v6),
    ):
        assert trace(snapshot, "br", parse_header(packet)).datapath_actions == told


def test_tables_do_not_see_ports_of_fragments():
    flows = "priority=9,udp,tp_dst=80 actions=drop\npriority=1 actions=output:2"
    assert walk_text(flows, "in_port=1,udp,udp_dst=80").end.kind == "dropped"
    assert walk_text(flows, "in_port=1,udp,udp_dst=80,nw_frag=first").end.kind == "output"


def test_the_number_of_copies_is_bounded():
    flows = [f"table={n} actions=resubmit(,{n + 1}),resubmit(,{n + 1})" for n in range(8)]
    flows.append(f"table=8 actions={','.join(['output:2'] * 40)}")
    walked = walk_text("\n".join(flows))
    assert [end.kind for end in walked.ends[context.MAX_COPIES :]] == ["cannot_tell", "loop"]
    assert walked.ends[-1].reason.startswith("over 64 kB of actions")


def test_the_walk_names_the_port_it_began_at():
    walked = walk_text("actions=output:2")
    assert (walked.host, walked.bridge, walked.port) == ("h0", "br", "p1")
    assert walk_text("actions=output:2", "in_port=77").port == ""
    with pytest.raises(KeyError):
        walk(Snapshot("h0"), "br", parse_header("in_port=1"))


@given(pipelines(), pipelines(), packets)
def test_every_walk_ends_and_survives_the_journey(flows, other, packet):
    up = Bridge("up", parse_dump("\n".join(other)).flows, (PEER, *plain_ports("up", 1, 2)))
    walked = walk_text("\n".join(flows), packet, ports=(*PATCH, VXLAN), others=(up,))
    assert walked.ends
    assert walk_from_wire(walk_to_wire(walked)) == walked


_WORDS = """ip arp udp reg0=1 in_port=1 nw_dst=10.0.0.1 actions=drop actions=output:2 actions= ,
resubmit(,0) resubmit(2,1) load:7->NXM_OF_ARP_OP[] mod_tp_dst:700 table=1 priority=3
move:OXM_OF_PKT_REG0[]->NXM_NX_TUN_ID[] output:NXM_NX_REG0[] set_field:5->in_port"""
words = st.sampled_from(_WORDS.split())


@given(st.lists(st.lists(words, min_size=1, max_size=6).map(",".join), max_size=8), packets)
def test_whatever_was_parsed_can_be_walked(lines, packet):
    flows = parse_dump("\n".join(lines)).flows
    snapshot = Snapshot("h", (Bridge("br", flows, plain_ports("br", 1, 2)),))
    walked = walk(snapshot, "br", parse_header(packet))
    assert walk_from_wire(walk_to_wire(walked)) == walked
