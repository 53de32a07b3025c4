# SPDX-License-Identifier: Apache-2.0
"""Pairs over the lab's own pipeline; the underlay as `ip -j` tells of it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import Unreachable
from netagent.model.ids import EndpointId
from ovs_checks.switch.underlay import Underlay, read_underlay
from ovs_checks.walk.pairs import Attached, Site, check_pair
from tests.lab.shape import vtep
from tests.ovs_checks.hosts import A0, A1, CONTAINERS, host, host6, name_of, six, without

SOURCE, TARGET = EndpointId("train-a-0", 0), EndpointId("train-a-1", 0)


def underlay(mtu=1550, state="REACHABLE", routes=()):
    told = {
        "ip -j route show table all": [
            {"dst": "default", "dev": "mgmt0", "gateway": "192.0.2.1"},
            {"dst": "172.30.0.0/24", "dev": "up0", "metric": 100},
            {"dst": "172.30.0.10", "dev": "up0", "table": "local", "type": "local"},
            {"dst": "ff00::/8", "dev": "up0", "table": "local", "type": "multicast"},
            {"dst": "nonsense"},
            *routes,
        ],
        "ip -j -s -d link": [{"ifname": "up0", "mtu": mtu}, {"ifname": "up1", "mtu": 1000}],
        "ip -j neigh": [{"dst": vtep(1, 0), "dev": "up0", "state": [state]}],
        "ip -j addr": [{"addr_info": [{"local": vtep(0, 0)}]}, {"addr_info": "?"}],
    }
    found, problems = read_underlay(lambda command: json.dumps(told[command]))
    assert not problems
    return found


def site(number, change=list, below=None):
    endpoints = {}
    for container in CONTAINERS:
        if container.host == number:
            at = container.endpoint(0)
            endpoints[EndpointId(container.id, 0)] = Attached(at.port, at.address, at.mac, 1500)
    return Site(host(number, change), endpoints, below or Underlay())


def check(*sites):
    return check_pair(sites, SOURCE, TARGET)


def test_a_pair_of_healthy_hosts_arrives_there_and_back():
    pair = check(site(0), site(1))
    assert pair.delivered
    assert name_of(pair.there.tunnel) == "tunnel h0/vxlan0"
    assert name_of(pair.back.tunnel) == "tunnel h1/vxlan0"
    assert check(site(0, below=underlay()), site(1)).delivered


def test_each_direction_has_its_own_fault():
    pair = check(site(0, without(A1.mac, 40)), site(1, without(A0.mac, 40)))
    assert [name_of(reach.component) for reach in (pair.there, pair.back)] == [
        "flow h0/br-int/table=40",
        "flow h1/br-int/table=40",
    ]
    back = check(site(0), site(1, without(A0.mac, 40)))
    assert (back.there.outcome, back.back.outcome, back.delivered) == ("delivered", "missed", False)


def test_the_sender_is_blamed_for_a_wrong_vni():
    """The far end misses what comes with it; the way back tells which is right."""
    wrong = [
        flow.replace("set_field:0x3e9->tun_id", "set_field:0x5dd->tun_id")
        for flow in site(0).snapshot.bridges[0].flows
        for flow in [flow.text]
    ]
    pair = check(site(0, lambda _: wrong), site(1))
    assert (pair.there.outcome, name_of(pair.there.component)) == (
        "wrong_vni",
        "flow h0/br-int/table=40",
    )


def test_a_host_whose_bundle_lacks_is_said():
    with pytest.raises(LookupError, match="no host here has train-a-1/rail0"):
        check(site(0))


@pytest.mark.parametrize(
    ("below", "reason"),
    [
        (underlay(mtu=1549), "up0 carries 1549 bytes, a packet of 1500 needs 1550 in vxlan"),
        (underlay(state="FAILED"), f"{vtep(1, 0)} does not answer on up0"),
        (
            underlay(routes=[{"dst": vtep(1, 0), "type": "unreachable"}]),
            f"no route leads to {vtep(1, 0)}",
        ),
        (
            underlay(routes=[{"dst": f"{vtep(1, 0)}/32", "type": "local", "table": "local"}]),
            f"{vtep(1, 0)} is an address of this host",
        ),
    ],
)
def test_what_keeps_a_tunnel_s_packets_from_leaving_is_named(below, reason):
    pair = check(site(0, below=below), site(1))
    assert (pair.there.outcome, name_of(pair.there.component)) == (
        "no_underlay",
        "tunnel h0/vxlan0",
    )
    assert pair.there.reason == f"the flow tables deliver, but {reason}"
    assert pair.back.outcome == "delivered"


def test_routes_are_chosen_by_prefix_then_metric_and_all_hops_must_fail():
    many = underlay(
        routes=[
            {"dst": "172.30.0.0/24", "dev": "up1", "metric": 10},
            {"dst": "172.30.0.12", "nexthops": [{"dev": "up0"}, {"dev": "up1"}]},
        ]
    )
    assert many.route("172.30.0.11")["dev"] == "up1"
    assert many.route("8.8.8.8")["dev"] == "mgmt0"
    assert many.fault("172.30.0.11", kind="vxlan", mtu=1500).startswith("up1 carries 1000")
    assert many.fault("172.30.0.12", kind="vxlan", mtu=1500) == ""
    assert many.fault("172.30.0.12", kind="vxlan", mtu=1501).startswith("up0 carries 1550")
    assert many.fault("172.30.0.11", kind="stt", mtu=1500) == ""
    assert Underlay().fault("1.2.3.4", kind="vxlan", mtu=9000) == ""


def test_a_bridge_s_uplinks_carry_what_leaves_by_it():
    behind = {"up0": ["p0", "p1"]}
    below = underlay()
    links = {"up0": {"mtu": 9000}, "p0": {"mtu": 1400}, "p1": {"mtu": 1549}}
    narrow = Underlay(below.routes, (), links)
    told = narrow.fault(vtep(1, 0), kind="vxlan", mtu=1500, uplinks=behind)
    assert told.startswith("p1 carries 1549 bytes")
    wide = Underlay(below.routes, (), {**links, "p1": {"mtu": 1550}})
    assert wide.fault(vtep(1, 0), kind="vxlan", mtu=1500, uplinks=behind) == ""


def test_what_the_host_did_not_tell_is_a_problem():
    def told(command):
        if "neigh" in command:
            raise Unreachable("bundle", "ip is not installed")
        return "{" if "route" in command else "[]"

    found, problems = read_underlay(told)
    assert found == Underlay()
    assert len(problems) == 2


odd = st.sampled_from([None, 5, "x", [], {}, [5], "default", "1.0.0.0/8", "up0", ["FAILED"], 1400])
rows = st.lists(
    st.dictionaries(
        st.sampled_from(
            [
                "dst",
                "dev",
                "gateway",
                "metric",
                "table",
                "type",
                "nexthops",
                "mtu",
                "ifname",
                "state",
            ]
        ),
        odd,
    )
)


@given(st.text() | rows.map(json.dumps))
def test_whatever_ip_prints_can_be_read(text):
    said = read_underlay(lambda _: text)[0].fault("1.2.3.4", kind="vxlan", mtu=1500)
    assert isinstance(said, str)


def unnamed(one):
    """Return a site whose tunnels have no address of their own."""
    bridges = []
    for bridge in one.snapshot.bridges:
        ports = [
            replace(p, options=tuple(o for o in p.options if o[0] != "local_ip"))
            for p in bridge.ports
        ]
        bridges.append(replace(bridge, ports=tuple(ports)))
    return replace(one, snapshot=replace(one.snapshot, bridges=tuple(bridges)))


def test_a_host_whose_addresses_are_not_known_is_not_blamed():
    pair = check(unnamed(site(0)), unnamed(site(1)))
    assert (pair.there.outcome, name_of(pair.there.component)) == ("cannot_tell", "vswitch h1")
    assert "nothing tells the addresses of h1" in pair.there.reason
    told = check(
        unnamed(site(0, below=underlay())),
        unnamed(site(1, below=Underlay(addresses=frozenset({vtep(1, 0)})))),
    )
    assert told.delivered


def test_of_several_tunnels_the_one_that_leads_there_counts():
    first = f"set_field:0x3e9->tun_id,set_field:{vtep(2, 0)}->tun_dst,output:1,"

    def spread(flows):
        return [
            flow.replace("actions=", f"actions={first}")
            if "table=40" in flow and A1.mac in flow
            else flow
            for flow in flows
        ]

    assert check(site(0, spread), site(1)).delivered


def test_who_is_blamed_for_a_vni_does_not_hang_on_the_other_way_s_underlay():
    def wrong(flows):
        return [
            flow.replace("set_field:0x3e9->tun_id", "set_field:0x5dd->tun_id") for flow in flows
        ]

    for below in (Underlay(), underlay(mtu=1400)):
        back = check(site(0, below=below), site(1, wrong)).back
        assert (back.outcome, name_of(back.component)) == ("wrong_vni", "flow h1/br-int/table=40")


def test_a_route_that_only_rules_lead_to_is_no_missing_route():
    told = [
        {"dst": "default", "dev": "up9", "gateway": "fe80::1", "pref": "medium"},
        {"dst": "default", "dev": "up0", "table": "101"},
        {"dst": "1.0.0.0/8", "dev": "up0", "metric": "x"},
        {"dst": "1.0.0.0/8", "nexthops": 5},
    ]
    found, _ = read_underlay(lambda command: json.dumps(told) if "route" in command else "[]")
    assert len(found.routes) == 2
    assert found.fault("1.2.3.4", kind="vxlan", mtu=1500) == ""
    only_v6 = Underlay(found.routes[:1])
    assert only_v6.fault("1.2.3.4", kind="vxlan", mtu=1500) == "no route leads to 1.2.3.4"


# --- IPv6 ----------------------------------------------------------------------------------------


def site6(number, change=list, below=None):
    """Return a site whose endpoints and tunnels have IPv6 addresses only."""
    at4 = site(number, below=below)
    endpoints = {key: replace(at, address=six(at.address)) for key, at in at4.endpoints.items()}
    return replace(at4, snapshot=host6(number, change), endpoints=endpoints)


def below6(mtu=1570, state="REACHABLE"):
    """Return an underlay of IPv6, as `ip -j` tells of one."""
    told = {
        "ip -j route show table all": [
            {"dst": "fd30::/64", "dev": "up0", "metric": 1024, "pref": "medium"},
            {"dst": six(vtep(0, 0)), "dev": "up0", "table": "local", "type": "local"},
            {"dst": "fd30::", "dev": "up0", "table": "local", "type": "anycast"},
        ],
        "ip -j -s -d link": [{"ifname": "up0", "mtu": mtu}],
        "ip -j neigh": [{"dst": six(vtep(1, 0)), "dev": "up0", "state": [state]}],
        "ip -j addr": [{"addr_info": [{"local": six(vtep(0, 0))}]}],
    }
    found, problems = read_underlay(lambda command: json.dumps(told[command]))
    assert not problems
    return found


def test_a_pair_of_ipv6_endpoints_over_ipv6_tunnels_arrives_there_and_back():
    pair = check(site6(0, below=below6()), site6(1))
    assert pair.delivered, (pair.there.verdict, pair.back.verdict)
    assert name_of(pair.there.tunnel) == "tunnel h0/vxlan0"


def test_each_direction_has_its_own_fault_by_ipv6():
    pair = check(site6(0, without(A1.mac, 40)), site6(1, without(A0.mac, 40)))
    assert [name_of(reach.component) for reach in (pair.there, pair.back)] == [
        "flow h0/br-int/table=40",
        "flow h1/br-int/table=40",
    ]


def test_a_tunnel_to_another_host_by_ipv6_names_both_addresses_and_the_flow():
    def change(flows):
        return [flow.replace(six(vtep(1, 0)), six(vtep(2, 0))) for flow in flows]

    there = check(site6(0, change), site6(1)).there
    assert there.outcome == "wrong_tunnel"
    assert there.reason == f"tunnelled to {six(vtep(2, 0))}, but h1 is at {six(vtep(1, 0))}"
    assert name_of(there.component) == "flow h0/br-int/table=40"


def test_the_sender_is_blamed_for_a_wrong_vni_by_ipv6():
    def change(flows):
        return [f.replace("set_field:0x3e9->tun_id", "set_field:0x5dd->tun_id") for f in flows]

    there = check(site6(0, change), site6(1)).there
    assert (there.outcome, name_of(there.component)) == ("wrong_vni", "flow h0/br-int/table=40")


def test_a_tunnel_is_known_however_its_address_is_spelt():
    def spelt(one):
        (bridge,) = one.snapshot.bridges
        ports = tuple(
            replace(port, options=tuple((k, v.upper().replace("::", ":0::")) if ":" in v else (k, v)
                                        for k, v in port.options))
            for port in bridge.ports
        )  # fmt: skip
        snapshot = replace(one.snapshot, bridges=(replace(bridge, ports=ports),))
        return replace(one, snapshot=snapshot)

    far = spelt(site6(1))
    assert "FD30:0::" in str(far.snapshot.bridges[0].ports)
    assert check(spelt(site6(0)), far).delivered


@pytest.mark.parametrize(
    ("below", "reason"),
    [
        (below6(mtu=1569), "up0 carries 1569 bytes, a packet of 1500 needs 1570 in vxlan"),
        (below6(state="FAILED"), f"{six(vtep(1, 0))} does not answer on up0"),
    ],
)
def test_what_keeps_an_ipv6_tunnel_s_packets_from_leaving_is_named(below, reason):
    there = check(site6(0, below=below), site6(1)).there
    assert (there.outcome, there.reason) == (
        "no_underlay",
        f"the flow tables deliver, but {reason}",
    )


def test_ends_of_two_families_have_no_packets():
    with pytest.raises(ValueError, match="one is IPv4, one IPv6"):
        check(site(0), site6(1))
