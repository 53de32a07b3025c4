# SPDX-License-Identifier: Apache-2.0
"""Questions about two hosts of the lab, with the lab's own pipeline and its overlay faults."""

from dataclasses import replace

import pytest

from netagent.wire.conversion import walk_from_wire, walk_to_wire
from ovs_checks.openflow.notation import mac
from ovs_checks.openflow.packet import Header
from ovs_checks.switch.snapshot import Bridge, Port, Snapshot, TunnelOption
from ovs_checks.walk.opinion import compare, unanswered
from ovs_checks.walk.reach import Destination, Reach, compose, walk_egress, walk_ingress
from ovs_checks.walk.values import Opinion
from ovs_checks.walk.vni import options_agree
from tests.lab.pipeline import destination_match, tunnel_flow
from tests.lab.shape import tunnel_ofport, vtep
from tests.ovs_checks.hosts import (
    A0,
    A1,
    A2,
    adding,
    bridge,
    host,
    host6,
    name_of,
    probe,
    probe6,
    six,
    without,
)


def ask(source, destination, *, vni=1001, header=None, journey=True, target_mac=None, address=""):
    """Ask whether A0 reaches A1 over two snapshots; the walks travel as data in between."""
    header = header or probe(A0, A1)
    egress = walk_egress(source, A0.port, header)
    if journey:
        egress = walk_from_wire(walk_to_wire(egress))
    expected = Destination("h1", A1.port, vtep(1, 0), target_mac, address)
    end, ingress = egress.end, None
    if end.kind == "tunnelled" and end.tun_dst == vtep(1, 0) and destination:
        ingress = walk_ingress(
            destination,
            tun_dst=end.tun_dst,
            tun_src=end.tun_src,
            tun_id=end.tun_id,
            header=end.header,
        )
    return compose(egress, ingress, expected, expected_vni=vni)


TO_A1 = destination_match(A1)


def test_healthy_hosts_deliver():
    reach = ask(host(0), host(1))
    assert (reach.outcome, name_of(reach.component)) == ("delivered", "")
    assert name_of(reach.tunnel) == "tunnel h0/vxlan0"
    tree = reach.tree()
    assert "h0: in by train-a-0-r0" in tree
    assert "br-int/table=40" in tree
    assert tree.endswith("delivered: delivered to train-a-1-r0 on h1")


def test_a_deleted_flow_is_a_miss_in_its_table():
    reach = ask(host(0, without(TO_A1, 40)), host(1))
    assert (reach.outcome, name_of(reach.component)) == ("missed", "flow h0/br-int/table=40")
    assert "table=40" in reach.nearest.text
    assert reach.reason.endswith("the nearest flow differs in dl_dst")
    *_, verdict, quoted = reach.tree().splitlines()
    assert verdict.endswith("[flow h0/br-int/table=40]")
    assert quoted == f"  nearest br-int/table=40: {reach.nearest.text}"


def test_a_loop_blames_the_flow_that_sends_back():
    again = f"table=40,priority=200,{TO_A1},actions=resubmit(,30)"
    reach = ask(host(0, adding(again)), host(1))
    assert (reach.outcome, name_of(reach.component)) == ("loop", "flow h0/br-int/table=40")
    assert reach.flow.text == again


def test_a_drop_of_higher_priority_is_quoted():
    drop = f"cookie=0x9,table=30,priority=200,n_packets=4,{TO_A1},actions=drop"
    reach = ask(host(0, adding(drop)), host(1))
    assert (reach.outcome, name_of(reach.component)) == ("dropped", "flow h0/br-int/table=30")
    assert (reach.flow.cookie, reach.flow.n_packets) == (9, 4)


def test_a_wrong_remote_blames_the_flow_that_set_it():
    wrong = tunnel_flow(A1, remote=vtep(2, 0)).text()
    reach = ask(host(0, lambda flows: [*without(TO_A1, 40)(flows), wrong]), host(1))
    assert (reach.outcome, name_of(reach.component)) == ("wrong_tunnel", "flow h0/br-int/table=40")
    assert name_of(reach.tunnel) == "tunnel h0/vxlan0"
    assert reach.flow.text == wrong
    assert "172.30.0.12" in reach.reason


def test_a_wrong_vni_blames_the_flow_that_set_it():
    wrong = tunnel_flow(A1, vni=1002).text()
    source = host(0, lambda flows: [*without(TO_A1, 40)(flows), wrong])
    reach = ask(source, host(1))
    assert (reach.outcome, name_of(reach.component)) == ("wrong_vni", "flow h0/br-int/table=40")
    assert reach.flow.text == wrong
    unknowing = ask(source, host(1), vni=None)
    assert (unknowing.outcome, name_of(unknowing.component)) == (
        "missed",
        "flow h1/br-int/table=30",
    )


def test_a_fault_at_the_far_end_is_found_there():
    reach = ask(host(0), host(1, without(f"reg2={A1.ofport:#x}", 50)))
    assert (reach.outcome, name_of(reach.component)) == ("missed", "flow h1/br-int/table=50")


def test_a_wrong_port_at_the_far_end_blames_the_flow_that_sent_there():
    wrong = f"table=50,priority=200,reg2={A1.ofport:#x},actions=output:116"
    reach = ask(host(0), host(1, adding(wrong)))
    assert (reach.outcome, name_of(reach.component)) == ("wrong_port", "flow h1/br-int/table=50")
    assert "train-b-1-r0" in reach.reason


NOBODY = "02:00:00:00:00:99"
MAC = mac(A1.mac)
REWRITTEN = f"actions=set_field:{NOBODY}->eth_dst"


def test_what_is_delivered_under_another_address_blames_the_flow_that_wrote_it():
    wrong = f"table=50,priority=200,reg2={A1.ofport:#x},{REWRITTEN},output:{A1.ofport}"
    assert ask(host(0), host(1), target_mac=MAC).outcome == "delivered"
    reach = ask(host(0), host(1, adding(wrong)), target_mac=MAC)
    assert (reach.outcome, name_of(reach.component)) == ("wrong_mac", "flow h1/br-int/table=50")
    assert reach.flow.priority == 200
    assert reach.reason.endswith(f"under the address {NOBODY}, but it is {A1.mac}")
    assert ask(host(0), host(1, adding(wrong))).outcome == "delivered"


def test_what_is_sent_under_another_address_blames_the_source_and_no_table_that_misses_it():
    wrong = f"table=30,priority=200,{TO_A1},{REWRITTEN},set_field:0x3e9->tun_id"
    wrong += f",set_field:{vtep(1, 0)}->tun_dst,output:1"
    reach = ask(host(0, adding(wrong)), host(1), target_mac=MAC)
    assert (reach.outcome, name_of(reach.component)) == ("wrong_mac", "flow h0/br-int/table=30")
    assert "then no flow matches" in reach.reason


ELSEWHERE = "10.0.0.250"
ADDRESS = A1.address


@pytest.mark.parametrize("here", [0, 1])
def test_what_arrives_for_another_ip_address_blames_the_flow_that_wrote_it(here):
    rewritten = f"actions=set_field:{ELSEWHERE}->ip_dst"
    sent = f"table=40,priority=200,ip,{TO_A1},{rewritten},set_field:0x3e9->tun_id"
    sent += f",set_field:{vtep(1, 0)}->tun_dst,output:1"
    handed = f"table=50,priority=200,ip,reg2={A1.ofport:#x},{rewritten},output:{A1.ofport}"
    broken = adding([sent, handed][here])
    hosts = [host(0, *([broken] if here == 0 else [])), host(1, *([broken] if here == 1 else []))]
    assert ask(host(0), host(1), address=ADDRESS).outcome == "delivered"
    reach = ask(*hosts, address=ADDRESS)
    table = [40, 50][here]
    assert reach.outcome == "wrong_address"
    assert name_of(reach.component) == f"flow h{here}/br-int/table={table}"
    assert (reach.flow.table, reach.flow.priority) == (table, 200)
    assert reach.reason.endswith(f"under the address {ELSEWHERE}, but it is {A1.address}")


def test_an_ip_address_that_is_written_back_is_no_fault():
    sent = f"table=40,priority=200,ip,{TO_A1},actions=set_field:{ELSEWHERE}->ip_dst"
    sent += f",set_field:0x3e9->tun_id,set_field:{vtep(1, 0)}->tun_dst,output:1"
    back = f"table=50,priority=200,ip,reg2={A1.ofport:#x},actions=set_field:{A1.address}->ip_dst"
    back += f",output:{A1.ofport}"
    assert ask(host(0, adding(sent)), host(1, adding(back)), address=ADDRESS).outcome == "delivered"


def test_an_address_that_nobody_rewrote_is_no_fault_of_the_source():
    header = probe(A0, A1)._replace(eth_dst=mac(NOBODY))
    anyone = "table=30,priority=1,reg1=0,actions=resubmit(,40)"
    tunnelled = "table=40,priority=1,reg1=0,actions=set_field:0x3e9->tun_id"
    tunnelled += f",set_field:{vtep(1, 0)}->tun_dst,output:1"
    reach = ask(host(0, adding(anyone, tunnelled)), host(1), header=header, target_mac=MAC)
    assert (reach.outcome, name_of(reach.component)) == ("missed", "flow h1/br-int/table=30")


def test_what_is_not_understood_is_said():
    unknown = f"table=30,priority=200,{TO_A1},actions=encap(nsh)"
    reach = ask(host(0, adding(unknown)), host(1))
    assert (reach.outcome, name_of(reach.component)) == ("cannot_tell", "flow h0/br-int/table=30")
    assert "encap(nsh)" in reach.reason
    consumed = f"table=30,priority=200,{TO_A1},actions=CONTROLLER:100"
    assert ask(host(0, adding(consumed)), host(1)).outcome == "cannot_tell"


def test_a_far_end_that_was_not_walked_cannot_be_told():
    reach = ask(host(0), None)
    assert (reach.outcome, name_of(reach.component)) == ("cannot_tell", "vswitch h1")


def test_delivery_to_some_port_of_the_source_is_wrong():
    local = f"table=30,priority=200,{TO_A1},actions=output:116"
    reach = ask(host(0, adding(local)), host(1))
    assert (reach.outcome, name_of(reach.component)) == ("wrong_port", "flow h0/br-int/table=30")


def test_a_neighbour_on_the_same_host_is_delivered_without_a_tunnel():
    snapshot = host(0)
    sibling = A0.container.endpoint(1)
    local = f"in_port={A0.ofport},priority=200,actions=output:{sibling.ofport}"
    egress = walk_egress(host(0, adding(local)), A0.port, probe(A0, sibling))
    reach = compose(egress, None, Destination("h0", sibling.port, vtep(0, 0)))
    assert (reach.outcome, name_of(reach.component), name_of(reach.tunnel)) == ("delivered", "", "")
    assert snapshot.host == "h0"


def test_an_unknown_port_is_a_miss_of_the_vswitch():
    egress = walk_egress(Snapshot("h0"), "gone", Header())
    reach = compose(egress, None, Destination("h1", "p", "1.2.3.4"))
    assert (reach.outcome, name_of(reach.component)) == ("missed", "vswitch h0")


def test_a_packet_that_is_tunnelled_back_is_a_loop():
    back = (
        f"table=30,priority=200,{TO_A1},actions=set_field:{vtep(0, 0)}->tun_dst,"
        "set_field:0x3e9->tun_id,in_port"
    )
    reach = ask(host(0), host(1, adding(back)))
    assert (reach.outcome, name_of(reach.component)) == ("loop", "flow h1/br-int/table=30")
    on = back.replace(vtep(0, 0), vtep(2, 0))
    reach = ask(host(0), host(1, adding(on)))
    assert (reach.outcome, name_of(reach.component)) == ("wrong_tunnel", "flow h1/br-int/table=30")


def vxlan(name, number, **options):
    return Port(name, number, "br", "vxlan", tuple(sorted(options.items())))


BY_KEY = vxlan("key5", 1, remote_ip="flow", key="5")
BY_REMOTE = vxlan("remote", 2, remote_ip="1.1.1.1", key="flow")
BY_LOCAL = vxlan("local", 3, remote_ip="flow", key="flow", local_ip="2.2.2.2")
ANY = vxlan("any", 4, remote_ip="flow", key="flow")


@pytest.mark.parametrize(
    ("outer", "port"),
    [
        (("2.2.2.2", "1.1.1.1", 5), "key5"),
        (("2.2.2.2", "1.1.1.1", 6), "remote"),
        (("2.2.2.2", "1.1.1.2", 6), "local"),
        (("2.2.2.3", "1.1.1.2", 6), "any"),
        (("2.2.2.3", "", 6), "remote"),
    ],
)
def test_the_most_specific_tunnel_port_takes_a_packet(outer, port):
    broken = replace(BY_KEY, name="broken", ofport=-1)
    ports = (broken, ANY, BY_LOCAL, BY_REMOTE, BY_KEY)
    snapshot = Snapshot("h1", (bridge("br", "actions=LOCAL", ports=ports),))
    tun_dst, tun_src, tun_id = outer
    walked = walk_ingress(
        snapshot, tun_dst=tun_dst, tun_src=tun_src, tun_id=tun_id, header=Header(reg0=7)
    )
    assert walked.port == port
    assert (walked.end.header.tun_id, walked.end.header.reg0) == (tun_id, 0)


def test_a_packet_that_no_tunnel_port_takes_is_missed_by_the_port_of_that_address():
    local = replace(BY_LOCAL, options=(*BY_LOCAL.options[:1], ("local_ip", "2.2.2.2")))
    snapshot = Snapshot("h1", (Bridge("br", ports=(local,)),))
    for address, component in (("2.2.2.2", "tunnel h1/local"), ("2.2.2.9", "vswitch h1")):
        walked = walk_ingress(
            snapshot, tun_dst=address, tun_src="1.1.1.1", tun_id=5, header=Header()
        )
        egress = walk_egress(host(0), A0.port, probe(A0, A2))
        reach = compose(egress, walked, Destination("h1", "p", vtep(2, 0)))
        assert (reach.outcome, name_of(reach.component)) == ("missed", component)


def test_the_tree_needs_no_component():
    assert Reach("delivered", None, "there").tree() == "delivered: there"


@pytest.mark.parametrize("table", [40, 50])
def test_a_destination_reached_in_one_case_of_several_cannot_be_told(table):
    """What reaches it as an established connection only is not delivered, nor blamed on a flow."""
    tracked = adding(
        f"table={table},priority=900,ip,ct_state=-trk actions=ct(table={table})",
        f"table={table},priority=800,ip,ct_state=+new actions=drop",
    )
    reach = ask(host(0, tracked), host(1)) if table == 40 else ask(host(0), host(1, tracked))
    assert (reach.outcome, reach.flow) == ("cannot_tell", None)
    assert name_of(reach.component) == ("vswitch h0" if table == 40 else "vswitch h1")
    assert f"new connection: dropped by br-int/table={table}" in reach.reason
    assert "established connection: " in reach.reason


def test_a_flow_that_is_hidden_by_the_one_at_fault_is_quoted():
    """Whether the wider flow drops the packet, or sends it elsewhere."""
    head = f"cookie=0x9,table=40,priority=200,dl_dst={A1.mac} actions="
    dropped = ask(host(0, adding(f"{head}drop")), host(1))
    assert (dropped.outcome, dropped.flow.cookie) == ("dropped", 9)
    assert "table=40" in dropped.shadowed.text
    assert dropped.reason == "drop; it covers a flow of priority 100, which never matches"
    astray = tunnel_flow(A1, remote=vtep(3, 0)).actions
    wrong = ask(host(0, adding(head + astray)), host(1))
    assert (wrong.outcome, wrong.shadowed) == ("wrong_tunnel", dropped.shadowed)
    narrower = f"cookie=0x9,table=40,priority=200,udp,dl_dst={A1.mac},tp_dst=4791 actions=drop"
    assert ask(host(0, adding(narrower)), host(1)).shadowed is None


def test_nobody_is_blamed_where_the_live_switch_does_otherwise():
    """The verdict stands if it agrees, or does not answer."""
    expected = Destination("h1", A1.port, vtep(1, 0))
    egress = walk_egress(host(0, without(A1.mac, 40)), A0.port, probe(A0, A1))
    assert egress.opinion is None
    for opinion in (Opinion("agrees", "drop", "drop"), unanswered("timeout")):
        told = walk_from_wire(walk_to_wire(replace(egress, opinion=opinion)))
        reach = compose(told, None, expected)
        assert (reach.outcome, name_of(reach.component)) == ("missed", "flow h0/br-int/table=40")
        assert str(opinion) in reach.tree()
    differs = replace(egress, opinion=Opinion("differs", "drop", "3"))
    reach = compose(differs, None, expected)
    assert (reach.outcome, name_of(reach.component), reach.flow) == (
        "cannot_tell",
        "vswitch h0",
        None,
    )
    assert reach.reason == "h0: ofproto/trace says 3, the tables as dumped say drop"


def test_an_answer_without_actions_is_no_opinion():
    packet = probe(A0, A1)._replace(in_port=A0.ofport)
    said = compare(host(0), "br-int", packet, "Flow: ip\nbridge not found")
    assert (said.kind, said.theirs) == ("unanswered", "bridge not found")
    assert compare(host(0), "br-int", packet, "").theirs == "nothing"


def test_what_we_cannot_tell_is_not_held_against_the_live_switch():
    at = bridge("br", "actions=output:2,frob", ports=())
    said = compare(Snapshot("h0", (at,)), "br", Header(in_port=1), "Datapath actions: 2")
    assert said.kind == "unanswered"
    assert "frob" in said.theirs


# --- Geneve --------------------------------------------------------------------------------------

LOGICAL_PORTS = "{class=0x102,type=0x80,len=4,0x10002}"
"""Ingress and egress port of OVN's logical switch (ovn-architecture(7))."""


def over_geneve(number, flows, index):
    """Return a host whose bridge maps OVN's option to the field `index`."""
    own, other = vtep(number, 0), vtep(1 - number, 0)
    options = (("key", "flow"), ("remote_ip", other))
    ports = (
        Port(A0.port, 1, "br-int"),
        Port(A1.port, 2, "br-int"),
        Port("gv", 9, "br-int", "geneve", options),
    )
    made = bridge("br-int", flows, ports=ports)
    made = replace(made, options=(TunnelOption(0x102, 0x80, 4, index),))
    assert own != other
    return Snapshot(f"h{number}", (made,))


NEAR = "in_port=1 actions=set_field:0x10002->tun_metadata0,set_field:7->tun_id,output:9"


@pytest.mark.parametrize(
    ("metadata", "action", "outcome"),
    [
        ("0x10002", "output:2", "delivered"),
        ("0x10003", "output:2", "missed"),
        ("0x10002", "drop", "dropped"),
    ],
)
def test_options_of_geneve_reach_the_far_host_s_tables(metadata, action, outcome):
    """They travel by class and type: each bridge has them in a field of its own choice."""
    far = over_geneve(1, f"in_port=9,tun_id=7,tun_metadata5={metadata} actions={action}", 5)
    egress = walk_from_wire(
        walk_to_wire(walk_egress(over_geneve(0, NEAR, 0), A0.port, probe(A0, A1)))
    )
    end = egress.end
    assert (end.kind, end.options) == ("tunnelled", LOGICAL_PORTS)
    ingress = walk_ingress(
        far,
        tun_dst=vtep(1, 0),
        tun_src="",
        tun_id=end.tun_id,
        options=end.options,
        header=end.header,
    )
    there = Destination("h1", A1.port, vtep(1, 0))
    assert compose(egress, ingress, there, trusts_options=True).outcome == outcome
    doubted = compose(egress, ingress, there)
    assert doubted.outcome == ("delivered" if outcome == "delivered" else "cannot_tell")
    assert doubted.outcome == "delivered" or f"options {LOGICAL_PORTS}" in doubted.reason
    trusted = compose(egress, ingress, there, trusts_options=True)
    assert doubted.flow == trusted.flow  # its controller may know what it is for


@pytest.mark.parametrize(
    ("there", "back", "agree"),
    [
        (None, None, True),
        (0x10002, 0x20001, True),
        (0x10002, 0x10002, False),
        (0x10002, 0x30001, False),
        (0x10002, None, False),
        (0x80010002, 0x20001, True),  # the first bit is reserved
    ],
)
def test_options_of_both_directions_bear_each_other_out_where_they_name_the_same_ports(
    there, back, agree
):
    def sends(number, value):
        option = f"set_field:{value:#x}->tun_metadata0," if value is not None else ""
        flows = f"in_port=1 actions={option}set_field:7->tun_id,output:9"
        return walk_egress(over_geneve(number, flows, 0), A0.port, probe(A0, A1))

    assert options_agree(sends(0, there), sends(1, back)) is agree
    if there is not None:
        assert not options_agree(sends(0, there), None)


def test_what_is_no_option_is_refused():
    far = over_geneve(1, "in_port=9 actions=output:2", 0)
    for text in (
        "{class=0x102}",
        "x",
        "{class=0x99999,type=1,len=4,1}",
        "{class=1,type=1,len=4,0x1ffffffff}",
    ):
        with pytest.raises(ValueError, match=r"."):
            walk_ingress(
                far, tun_dst="2.2.2.2", tun_src="", tun_id=7, options=text, header=Header()
            )


def test_endings_that_differ_in_options_alone_are_not_alike():
    """Else the far tables would be asked about one of them."""
    send = "actions=set_field:{}->tun_metadata0,set_field:7->tun_id,output:9"
    flows = ["in_port=1,actions=ct(table=1)"]
    flows += [f"table=1,ct_state=+{s} {send.format(n)}" for s, n in (("new", 1), ("est", 2))]
    walked = walk_egress(over_geneve(0, "\n".join(flows), 0), A0.port, probe(A0, A1))
    assert {end.options[-4:] for end in walked.ends if end.kind == "tunnelled"} == {
        ",0x1}"[-4:],
        ",0x2}"[-4:],
    }
    assert walked.tunnelled is None


# --- IPv6 ----------------------------------------------------------------------------------------


def ask6(source, destination):
    """Ask whether A0 reaches A1 by IPv6 over IPv6 tunnels; the walks travel as data in between."""
    egress = walk_from_wire(walk_to_wire(walk_egress(source, A0.port, probe6(A0, A1))))
    end = egress.end
    assert (end.kind, end.tun_src, end.tun_dst) == (
        "tunnelled",
        six(vtep(0, 0)),
        six(vtep(1, 0)),
    )
    outer = {"tun_dst": end.tun_dst.upper(), "tun_src": end.tun_src, "tun_id": end.tun_id}
    ingress = walk_ingress(destination, **outer, header=end.header)
    ingress = walk_from_wire(walk_to_wire(ingress))
    expected = Destination("h1", A1.port, six(vtep(1, 0)), mac(A1.mac), six(A1.address))
    return compose(egress, ingress, expected)


def test_healthy_hosts_deliver_by_ipv6():
    assert ask6(host6(0), host6(1)).outcome == "delivered"


@pytest.mark.parametrize(("origin", "outcome"), [(0, "dropped"), (2, "delivered")])
def test_tables_look_at_where_an_ipv6_tunnel_came_from(origin, outcome):
    match = f"in_port={tunnel_ofport(0)},tun_ipv6_src={six(vtep(origin, 0))}"
    refusing = f"table=0,priority=200,{match},tun_ipv6_dst={six(vtep(1, 0))} actions=drop"
    assert ask6(host6(0), host6(1, adding(refusing))).outcome == outcome


@pytest.mark.parametrize("here", [0, 1])
def test_what_arrives_for_another_ipv6_address_blames_the_flow_that_wrote_it(here):
    rewritten = "actions=set_field:fd00::250->ipv6_dst"
    sent = f"table=40,priority=200,ipv6,{TO_A1},{rewritten},set_field:0x3e9->tun_id"
    sent += f",set_field:{six(vtep(1, 0))}->tun_ipv6_dst,output:1"
    handed = f"table=50,priority=200,ipv6,reg2={A1.ofport:#x},{rewritten},output:{A1.ofport}"
    hosts = [host6(0), host6(1)]
    hosts[here] = host6(here, adding([sent, handed][here]))
    reach = ask6(*hosts)
    table = [40, 50][here]
    assert (reach.outcome, name_of(reach.component)) == (
        "wrong_address",
        f"flow h{here}/br-int/table={table}",
    )
    assert reach.reason.endswith(f"under the address fd00::250, but it is {six(A1.address)}")


def test_no_tunnel_takes_what_comes_for_another_address_of_ipv6():
    walked = walk_ingress(
        host6(1), tun_dst="fd30::99", tun_src="fd30::1", tun_id=1, header=probe6(A0, A1)
    )
    assert walked.end.kind == "missed"
    assert walked.end.reason == ("no tunnel port takes what fd30::1 sends to fd30::99 with key 1")
