# SPDX-License-Identifier: Apache-2.0
import pytest

from ovs_checks.openflow.packet import Header
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate.ends import End, Quote
from ovs_checks.walk import vni
from ovs_checks.walk.reach import walk_egress
from ovs_checks.walk.values import LocalWalk
from ovs_checks.walk.vni import infer_vni, walk_siblings
from tests.lab.pipeline import destination_match, tunnel_flow
from tests.lab.workload import Container
from tests.ovs_checks.hosts import A0, A1, adding, host, host6, probe, probe6, six


def wrongly(towards, vni):
    """Return the change that makes a host send to `towards` with another VNI."""
    match = destination_match(towards)

    def change(flows):
        kept = [flow for flow in flows if not (match in flow and "table=40" in flow)]
        return [*kept, tunnel_flow(towards, vni=vni).text()]

    return change


def everything_wrong(flows):
    return [flow.replace("set_field:0x3e9->tun_id", "set_field:0x7->tun_id") for flow in flows]


def opinion(source, destination, *, siblings=True, forward=None, reverse=None):
    there, back = probe(A0, A1), probe(A1, A0)
    return infer_vni(
        walk_egress(source, A0.port, there),
        walk_egress(destination, A1.port, back),
        forward_siblings=walk_siblings(source, A0.port, there) if siblings else (),
        reverse_siblings=walk_siblings(destination, A1.port, back) if siblings else (),
        forward_delivered=forward,
        reverse_delivered=reverse,
    )


def names(found):
    return tuple(map(str, found.components))


def test_a_healthy_pair_agrees():
    found = opinion(host(0), host(1))
    assert (found.expected, found.wrong, names(found)) == (1001, "none", ())


def test_the_odd_one_among_its_siblings_is_wrong():
    found = opinion(host(0, wrongly(A1, 1002)), host(1))
    assert (found.expected, found.wrong) == (1001, "source")
    assert names(found) == ("flow h0/br-int/table=40",)
    found = opinion(host(0), host(1, wrongly(A0, 1002)))
    assert (found.expected, found.wrong) == (1001, "destination")
    assert names(found) == ("flow h1/br-int/table=40",)


@pytest.mark.parametrize(
    ("forward", "reverse", "wrong", "expected"),
    [
        (False, True, "source", 1001),
        (True, False, "destination", 7),
        (False, False, "unknown", None),
        (None, None, "unknown", None),
    ],
)
def test_where_siblings_do_not_help_the_direction_that_works_is_right(
    forward, reverse, wrong, expected
):
    """Every destination of h0 is wrong: its siblings agree with it."""
    source = host(0, everything_wrong)
    found = opinion(source, host(1), forward=forward, reverse=reverse)
    assert (found.wrong, found.expected) == (wrong, expected)
    if wrong == "unknown":
        assert names(found) == ("flow h0/br-int/table=40", "flow h1/br-int/table=40")


def test_without_siblings_or_outcomes_both_are_named():
    found = opinion(host(0, wrongly(A1, 1002)), host(1), siblings=False)
    assert (found.wrong, len(found.components)) == ("unknown", 2)


def test_a_direction_that_reaches_no_tunnel_has_no_vni():
    assert opinion(host(0), Snapshot("h1")).wrong == "unknown"


def test_siblings_are_the_other_destinations_of_the_same_port():
    walks = walk_siblings(host(0), A0.port, probe(A0, A1))
    assert {walk.end.tun_dst for walk in walks} == {"172.30.0.12", "172.30.0.13"}
    assert {walk.end.tun_id for walk in walks} == {Container("train-a", 0).vni}
    assert walk_siblings(Snapshot("h0"), "gone", Header()) == []


def test_siblings_of_an_ipv6_packet_are_by_ipv6_too():
    walks = walk_siblings(host6(0), A0.port, probe6(A0, A1))
    assert {walk.end.tun_dst for walk in walks} == {"fd30::12", "fd30::13"}


@pytest.mark.parametrize(("header", "other"), [(probe(A0, A1), host6), (probe6(A0, A1), host)])
def test_tables_of_the_other_family_hold_no_destinations(header, other, monkeypatch):
    """Else a packet would have addresses of both families, and be walked for nothing."""
    known = Container("train-a", 9).endpoint(0)
    text = f"ip,nw_dst={known.address} actions=drop"
    snapshot = other(0, adding(six(text) if other is host6 else text))
    sent = []
    monkeypatch.setattr(
        vni, "walk_egress", lambda *asked: sent.append(asked[2]) or walk_egress(*asked)
    )
    walk_siblings(snapshot, A0.port, header)
    assert all(bool(one.nw_dst) != bool(one.ipv6_dst) for one in sent)
    assert len(sent) > 1


# --- VNIs that rightly differ ---------------------------------------------------------------------


def sent(vni, **more):
    end = End("tunnelled", "br-int", 39, "", port="t", tun_id=vni, tun_dst="172.30.0.11", **more)
    return LocalWalk("h0", "br-int", "p", (end,), ())


WRITER = Quote("br-int", 19, 1, 1, None, None, "set_field:02:00:00:00:00:01->eth_dst")


@pytest.mark.parametrize(
    ("there", "back", "wrong"),
    [
        (sent(1 << 12 | 2), sent(3 << 12 | 2), "none"),  # OVN by VXLAN: port, and network
        (sent(1 << 12 | 2), sent(3 << 12 | 4), "source"),
        (sent(2), sent(3 << 12 | 2), "source"),
        (sent(1 << 12 | 2, options="{class=0x102}"), sent(3 << 12 | 2), "source"),
        (sent(2, eth_dst_by=WRITER), sent(1), "none"),  # a router writes addresses
        (sent(2), sent(1, eth_dst_by=WRITER), "none"),
    ],
)
def test_vnis_that_name_ports_or_networks_differ_rightly(there, back, wrong):
    found = infer_vni(there, back, forward_delivered=False, reverse_delivered=True)
    assert found.wrong == wrong
