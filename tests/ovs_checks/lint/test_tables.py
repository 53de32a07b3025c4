# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.lint.tables import check, reachable, shadows
from ovs_checks.openflow.classifier import covers
from ovs_checks.openflow.parse import parse_dump, parse_flow, parse_header
from ovs_checks.switch.shows import parse_groups
from ovs_checks.switch.snapshot import Bridge, Port, Snapshot
from ovs_checks.walk.host import walk
from tests.lab.shape import vtep
from tests.ovs_checks.hosts import bridge, host, host6, plain_ports, six
from tests.ovs_checks.pipelines import packets, pipelines


def found(flows, name, *, groups="", ports=(1, 2, 3), **more):
    known, wrong = parse_groups(groups, {})
    assert not wrong
    at = replace(bridge("br", flows, ports=plain_ports("br", *ports)), groups=known, **more)
    return check([Snapshot("h0", (at,))], [name])


def texts(flows, name, **more):
    return [(one.severity, one.text) for one in found(flows, name, **more)]


# --- shadowed flows ------------------------------------------------------------------------------


def test_a_flow_that_a_wider_one_of_higher_priority_covers_never_matches():
    flows = """
    cookie=0x1, table=4, priority=10,udp,nw_dst=10.0.0.9,tp_dst=4791 actions=output:2
    cookie=0x2, table=4, priority=20,ip,nw_dst=10.0.0.0/24 actions=drop
    """
    (one,) = found(flows, "shadowed-flow")
    assert (one.severity, str(one.component)) == ("warning", "flow h0/br/table=4")
    assert one.text.startswith("priority 10 never matches: priority 20 matches all that it does")
    assert [(what, "cookie=0x1" in entry) for what, entry in one.quotes] == [
        ("never matches", True),
        ("covers it", False),
    ]


@pytest.mark.parametrize(
    "above",
    [
        "priority=10,ip actions=drop",
        "priority=20,tcp actions=drop",
        "priority=20,ip,nw_dst=10.0.0.0/25 actions=drop",
        "table=1,priority=20,ip actions=drop",
        "priority=20,ip actions=conjunction(1,1/2)",
        "priority=20,ip,frob=1 actions=drop",
        "priority=20,ip,nw_frag=later actions=drop",
    ],
)
def test_what_does_not_cover_is_not_said_to(above):
    assert not texts(
        f"priority=10,udp,nw_dst=10.0.0.0/24 actions=output:2\n{above}", "shadowed-flow"
    )


@pytest.mark.parametrize(
    ("one", "other", "covered"),
    [
        ("priority=2,ip", "priority=1,udp", True),
        ("priority=2,ip,nw_dst=10.0.0.0/24", "priority=1,ip,nw_dst=10.0.0.7", True),
        ("priority=2,ip,nw_dst=10.0.1.0/24", "priority=1,ip,nw_dst=10.0.0.7", False),
        ("priority=1,ip", "priority=1,udp", False),
        ("priority=2,udp", "priority=1,ip", False),
    ],
)
def test_what_covers(one, other, covered):
    first, second = (parse_flow(f"{text} actions=drop") for text in (one, other))
    assert covers(first, second) == covered


def test_a_flow_that_repeats_another_is_a_note():
    flows = "priority=10,udp actions=output:2\npriority=20,ip actions=output:2"
    ((severity, text),) = texts(flows, "shadowed-flow")
    assert (severity, text.endswith("and it does the same")) == ("note", True)


def test_a_pipeline_of_a_controller_may_repeat_itself_and_contradict_itself_it_may_not():
    flows = """
    cookie=0x1,priority=10,udp actions=output:2
    cookie=0x2,priority=20,ip actions=output:2
    cookie=0x3,priority=10,arp actions=drop
    cookie=0x4,priority=20,arp actions=output:2
    """
    assert [severity for severity, _ in texts(flows, "shadowed-flow")] == ["warning", "note"]
    ((severity, text),) = texts(flows, "shadowed-flow", is_driven=True)
    assert (severity, text.endswith("and it does something else")) == ("warning", True)


def test_a_controllers_fixed_flows_may_lie_in_tables_that_nothing_leads_to():
    flows = """
    actions=resubmit(,5)
    table=2, priority=10,reg10=0x1/0x1 actions=resubmit(,5)
    table=3, cookie=0x7, actions=drop
    table=5, actions=drop
    table=9, actions=drop
    """
    unled = [text for _, text in texts(flows, "unreachable-table")]
    assert [text.split()[5] for text in unled] == ["2,", "3,", "9,"]
    assert [text for _, text in texts(flows, "unreachable-table", is_driven=True)] == unled[1:]


@given(pipelines(), st.lists(packets, min_size=1, max_size=20))
def test_no_packet_matches_a_flow_that_is_said_to_be_shadowed(flows, packets):
    table = Bridge("br", parse_dump(flows).flows).tables
    for one in table.values():
        hidden = {id(flow) for flow, _ in shadows(one)}
        for packet in packets:
            hit = one.look_up(parse_header(packet)).flow
            assert id(hit) not in hidden


# --- tables --------------------------------------------------------------------------------------


def test_a_table_that_nothing_leads_to():
    flows = """
    table=0 actions=resubmit(,1),clone(ct(table=2)),write_actions(group:1)
    table=1 actions=goto_table:3
    table=4 actions=resubmit(,5)
    table=5 actions=drop
    table=6 actions=drop
    """
    groups = "group_id=1,type=all,bucket=actions=resubmit(,6)"
    said = texts(flows, "unreachable-table", groups=groups)
    assert [text.partition(",")[0] for _, text in said] == [
        "no flow leads to table 4",
        "no flow leads to table 5",
    ]
    unsure = texts(f"{flows}\npriority=1 actions=frob", "unreachable-table", groups=groups)
    assert [severity for severity, _ in unsure] == ["note", "note"]


@given(pipelines(), packets)
def test_no_packet_comes_to_a_table_that_is_said_to_be_unreachable(flows, packet):
    at = Bridge("br", parse_dump(flows).flows, plain_ports("br", 1, 2, 3))
    reached, unknown = reachable(at)
    steps = walk(Snapshot("h0", (at,)), "br", parse_header(packet)).steps
    places = {step.where.partition("=")[2] for step in steps if step.where.startswith("br/")}
    assert unknown or {int(place) for place in places - {"--"}} <= reached  # an action set's own


# --- what does not exist, groups -----------------------------------------------------------------


def test_what_flows_name_and_does_not_exist():
    flows = """
    in_port=7 actions=output:8,resubmit(9,1),in_port,output:1,group:3,group:4,meter:5,meter:6
    ip actions=bundle(eth_src,0,hrw,ofport,members:2,12),clone(enqueue:13:1)
    """
    groups = "group_id=4,type=ff,bucket=watch_port:14,actions=output:15,output:2"
    said = texts(flows, "missing", groups=groups, meters=(6,))
    assert said == [
        ("warning", "sends to port 8, which does not exist"),
        ("warning", "sends to port 9, which does not exist"),
        ("warning", "sends to group 3, which does not exist"),
        ("warning", "passes meter 5, which does not exist"),
        ("warning", "sends to port 12, which does not exist"),
        ("warning", "sends to port 13, which does not exist"),
        ("warning", "group 4 of br watches port 14, which does not exist"),
        ("warning", "group 4 of br sends to port 15, which does not exist"),
        ("note", "matches port 7, which does not exist"),
    ]


def test_groups_and_meters_that_were_not_told_are_not_missing():
    at = bridge("br", "actions=group:3,meter:4")
    problems = ("br: dump-groups: too old", "br: dump-meters: too old")
    assert not check([Snapshot("h0", (at,), problems=problems)], ["missing"])
    assert len(check([Snapshot("h0", (at,), problems=("bx: dump-groups: x",))], ["missing"])) == 2


def test_a_port_that_could_not_be_opened_is_named():
    at = Bridge("br", ports=(Port("eth9", -1, "br"),))
    (one,) = check([Snapshot("h0", (at,))], ["missing"])
    assert (str(one.component), one.text) == ("vswitch h0", "port eth9 of br could not be opened")


DEAD = """\
group_id=1,type=ff,bucket=watch_port:2,actions=output:2,bucket=watch_group:3,actions=output:1
group_id=2,type=select,bucket=watch_port:2,actions=output:2
group_id=3,type=ff,bucket=watch_group:1,actions=output:1,bucket=watch_group:1,actions=output:1
group_id=4,type=ff,bucket=watch_port:2,watch_group:5,actions=output:1
group_id=5,type=indirect,bucket=actions=output:1
group_id=6,type=all
"""


def test_groups_that_lose_every_packet():
    """Port 2 is down; groups 1 and 3 watch each other, 4 has a way out."""
    down = replace(plain_ports("br", 2)[0], live=False)
    groups, _ = parse_groups(DEAD, {})
    flows = parse_dump("table=7,cookie=0x9 actions=clone(group:2)").flows
    at = Bridge("br", flows, (*plain_ports("br", 1), down), groups=groups)
    said = check([Snapshot("h0", (at,))], ["dead-group"])
    assert [(one.severity, one.text.partition(";")[0]) for one in said] == [
        ("warning", "select group 2 of br has no bucket that is live, and 1 flows send to it"),
        ("note", "ff group 1 of br has no bucket that is live"),
        ("note", "ff group 3 of br has no bucket that is live"),
        ("note", "all group 6 of br has no buckets"),
    ]
    assert str(said[0].component) == "flow h0/br/table=7"
    assert [what for what, _ in said[0].quotes] == ["group", "flow"]


# --- conjunctions --------------------------------------------------------------------------------

GOOD = """\
priority=9,ip,nw_src=10.0.0.1 actions=conjunction(5,1/2)
priority=9,udp,tp_dst=80 actions=conjunction(5,2/2)
priority=9,conj_id=5,ip,cookie=1 actions=output:2
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("", ""), []),
        (("tp_dst=80 actions=conjunction(5,2/2)", "tp_dst=80 actions=conjunction(5,2/3)"),
         ["conj_id 5 is used twice: with 2 and 3 clauses"]),
        (("conjunction(5,2/2)", "conjunction(5,1/2)"),
         ["conj_id 5 never holds: no flow for clause 2 of 2"]),
        (("priority=9,udp", "priority=8,udp"), ["conj_id 5 has conditions of 2 priorities"]),
        (("conj_id=5,ip,cookie=1", "conj_id=6,ip,cookie=1"),
         ["conj_id 5 has conditions, but no flow matches it",
          "conj_id 6 is matched, but has no conditions"]),
        (("output:2\n", "output:2\npriority=9,conj_id=5,ipv6,cookie=2 actions=drop\n"),
         ["conj_id 5 is used twice: flows of 2 cookies match it"]),
        (("output:2\n", "output:2\npriority=9,conj_id=5,ipv6,cookie=1 actions=drop\n"), []),
    ],
)  # fmt: skip
def test_conjunctive_matches(change, said):
    assert [text for _, text in texts(GOOD.replace(*change), "conjunction")] == said


# --- tunnels -------------------------------------------------------------------------------------


def test_the_lab_s_hosts_have_nothing_to_warn_of():
    said = check([host(0), host(1), host(2)])
    assert [one for one in said if one.severity == "warning"] == []


def test_a_tunnel_whose_far_end_sends_nothing_back_is_named():
    def mute(flows):
        return [flow for flow in flows if f"{vtep(0, 0)}->tun_dst" not in flow]

    there, back = host(0), host(1, mute)
    assert len(back.bridges[0].flows) < len(host(1).bridges[0].flows)
    (one,) = check([there, back], ["one-way-tunnel"])
    assert str(one.component) == "tunnel h0/vxlan0"
    assert one.text == f"h1 is sent to at {vtep(1, 0)}, but nothing there sends to {vtep(0, 0)}"
    assert [what for what, _ in one.quotes] == ["tunnel", "flow"]
    assert not check([there], ["one-way-tunnel"])


def tunnelled(name, number, local, remote, key):
    options = (("local_ip", local), ("remote_ip", remote), ("key", key))
    ports = (Port("vx", number, "br", "vxlan", options),)
    return Snapshot(name, (Bridge("br", ports=ports),))


def test_a_tunnel_that_the_far_end_does_not_take_is_named():
    there, other = tunnelled("h0", 1, "1.0.0.1", "1.0.0.2", "5"), ("h1", 1, "1.0.0.2", "1.0.0.1")
    assert not check([there, tunnelled(*other, "5")])
    said = [one.text for one in check([there, tunnelled(*other, "6")])]
    assert said == [
        "h1 has no tunnel that takes what h0 sends to 1.0.0.2",
        "h0 has no tunnel that takes what h1 sends to 1.0.0.1",
    ]


def test_a_tunnel_of_ipv6_is_known_however_its_ends_are_spelt():
    there, other = (
        tunnelled("h0", 1, "fd30::1", "FD30:0::2", "5"),
        ("h1", 1, "fd30:0::2", "FD30::1"),
    )
    assert not check([there, tunnelled(*other, "5")])
    assert [one.text for one in check([there, tunnelled(*other, "6")])] == [
        "h1 has no tunnel that takes what h0 sends to fd30::2",
        "h0 has no tunnel that takes what h1 sends to fd30::1",
    ]


def test_flows_that_write_an_ipv6_remote_are_held_against_the_far_end():
    def mute(flows):
        return [flow for flow in flows if f"{six(vtep(0, 0))}->tun_ipv6_dst" not in flow]

    (one,) = check([host6(0), host6(1, mute)], ["one-way-tunnel"])
    here, there = six(vtep(0, 0)), six(vtep(1, 0))
    assert one.text == f"h1 is sent to at {there}, but nothing there sends to {here}"
    assert [what for what, _ in one.quotes] == ["tunnel", "flow"]
    assert not check([host6(0), host6(1)], ["one-way-tunnel"])


@given(pipelines())
def test_every_check_ends_on_every_pipeline(flows):
    at = Bridge("br", parse_dump(flows).flows, plain_ports("br", 1, 2, 3))
    for one in check([Snapshot("h0", (at,))]):
        assert one.to_data()["check"]
        assert {one.component.kind} <= {"flow", "tunnel", "vswitch"}
    with pytest.raises(KeyError):
        check([], ["nope"])


TO = "set_field:1.0.0.1->tun_dst"
VX = Port("vx", 9, "br", "vxlan", (("key", "flow"), ("local_ip", "1.0.0.2"), ("remote_ip", "flow")))


@pytest.mark.parametrize(
    ("flow", "warned"),
    [
        (f"actions={TO},output:9", False),
        ("actions=load:0x1000001->NXM_NX_TUN_IPV4_DST[],output:9", False),
        ("actions=group:1", False),
        ("actions=move:NXM_NX_TUN_IPV4_SRC[]->NXM_NX_TUN_IPV4_DST[],in_port", False),
        ("actions=learn(table=1,load:NXM_NX_TUN_IPV4_SRC[]->NXM_NX_TUN_IPV4_DST[]),drop", False),
        ("actions=set_field:1.0.0.7->tun_dst,output:9", True),
    ],
)
def test_however_an_address_is_written_it_leads_back(flow, warned):
    groups, _ = parse_groups(f"group_id=1,type=all,bucket=actions={TO},output:9", {})
    far = Bridge("br", parse_dump(flow).flows, (VX,), groups=groups)
    there = tunnelled("h0", 1, "1.0.0.1", "1.0.0.2", "flow")
    found = check([there, Snapshot("h1", (far,))], ["one-way-tunnel"])
    assert bool(found) == warned


def test_what_a_passing_flow_covers_is_a_note():
    flows = "priority=10,udp actions=output:2\npriority=20,hard_timeout=5,udp actions=drop"
    ((severity, text),) = texts(flows, "shadowed-flow")
    assert (severity, text.endswith("for as long as it lasts")) == ("note", True)
    assert not texts("priority=9,conj_id=0,ip actions=drop", "conjunction")


def test_what_is_left_out_is_counted():
    many = "\n".join(f"priority={n + 1},ip actions=output:{n + 100}" for n in range(1500))
    found = [one for one in texts(many, "missing") if "more are left out" in one[1]]
    assert found == [("warning", "500 more are left out")]
