# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpf.trace.journey import (
    EGRESS,
    INGRESS,
    LOCAL_PORT,
    PLACES,
    TUNNEL_PORT,
    UPCALL_QUEUE,
    WRONG_VNI,
    Dropped,
    HostView,
    diagnose,
    diagnose_one,
    diagnose_upcalls,
    view_of,
)

OUT, IN = EGRESS[1:], INGRESS[:-1]  # Soft-RoCE's stages where it is used
TUNNEL = frozenset({"vxlan_sys_4789"})


def view(stages, counts, **more) -> HostView:
    return HostView(dict(zip(stages, counts, strict=True)), **more)


def passing(stages, count=100, lost_behind=None, left=0, **more) -> HostView:
    """Return `count` packets at each stage, and `left` behind the stage `lost_behind`."""
    counts, lost = [], False
    for stage in stages:
        counts.append(left if lost else count)
        lost = lost or stage == lost_behind
    return view(stages, counts, **more)


def test_where_nothing_vanishes_nothing_is_named():
    verdict = diagnose(sender=passing(OUT, output_devices=TUNNEL), receiver=passing(IN))
    assert (verdict.where, verdict.missing, verdict.entered) == (None, (), 100)
    assert str(verdict) == "no packet vanished of 100"


WAY = [("sender", stage) for stage in OUT] + [("receiver", stage) for stage in IN]


@given(
    st.integers(0, len(WAY) - 2),
    st.integers(1, 10_000),
    st.floats(0, 0.9),
    st.sets(st.sampled_from(sorted({*OUT, *IN} - {"port_receive", "uplink_receive"}))),
)
def test_a_loss_is_found_between_the_nearest_stages_that_were_counted(at, count, share, unseen):
    """`unseen`: stages that this kernel cannot count; a gap is named by both its ends."""
    left = int(count * share)
    if count - left <= max(1, count * 0.01):
        left = 0
        count = max(count, 10)
    counts = [count if index <= at else left for index in range(len(WAY))]
    seen = [
        (host, stage, packets)
        for (host, stage), packets in zip(WAY, counts, strict=True)
        if stage not in unseen
    ]
    views = {
        host: HostView({s: n for h, s, n in seen if h == host}, output_devices=TUNNEL)
        for host in ("sender", "receiver")
    }
    verdict = diagnose(**views)
    if min(len(each.packets) for each in views.values()) < 2:
        assert verdict.where is None
        assert "at least two stages" in str(verdict)
        return
    ends = [i for i in range(len(seen) - 1) if seen[i][2] != seen[i + 1][2]]
    if "uplink_transmit" in unseen and ends and seen[ends[0]][0] != seen[ends[0] + 1][0]:
        assert verdict.where is None  # the gap spans both hosts, and one end cannot be counted
        return
    assert len(ends) == 1 or not ends
    if not ends:
        assert verdict.where is None
        return
    before, after = seen[ends[0]][1], seen[ends[0] + 1][1]
    assert verdict.where == PLACES.get((before, after), f"between {before} and {after}")
    assert (verdict.lost, verdict.entered) == (count - left, count)
    crossing = seen[ends[0]][0] != seen[ends[0] + 1][0]
    assert verdict.host == ("underlay" if crossing else seen[ends[0]][0])


@given(st.lists(st.integers(0, 1000), min_size=len(OUT), max_size=len(OUT)),
       st.lists(st.integers(0, 1000), min_size=len(IN), max_size=len(IN)))  # fmt: skip
def test_any_counts_give_a_verdict_that_holds(out, into):
    """What is named lost packets indeed; nothing is named where no stage lost any."""
    verdict = diagnose(sender=view(OUT, out, output_devices=TUNNEL), receiver=view(IN, into))
    if verdict.where:
        assert 0 < verdict.lost <= verdict.entered
        assert verdict.host in {"sender", "receiver", "underlay"}
    elif not verdict.missing:
        ways = [*pairwise([*out, into[0]]), *pairwise(into)]
        assert all(a - b <= max(1, a * 0.01) for a, b in ways)


def test_a_few_packets_on_their_way_are_no_loss():
    assert diagnose(sender=passing(OUT, 1000, "lookup", 991)).where is None
    assert diagnose(sender=passing(OUT, 1000, "lookup", 980)).where is not None
    assert diagnose(sender=passing(OUT, 5, "lookup", 4)).where is None


def test_a_drop_names_even_a_small_loss():
    drop = Dropped("TC_EGRESS", "__dev_queue_xmit+0x9f0", "encapsulate", "up0", 1)
    verdict = diagnose(sender=passing(OUT, 5, "encapsulate", 4, drops=(drop,)))
    assert verdict.where == "uplink transmit (after encapsulation)"
    assert str(drop) in verdict.evidence
    assert str(drop) == "1 dropped after encapsulate on up0: TC_EGRESS at __dev_queue_xmit+0x9f0"


def test_a_loss_without_a_drop_shows_the_packets_size():
    sender = passing(OUT, 20, "encapsulate", mean_bytes={"encapsulate": 1442})
    assert any("1442 bytes" in line for line in diagnose(sender=sender).evidence)


def test_failed_upcalls_name_the_queue():
    failed = {"EAGAIN": 40}
    verdict = diagnose(sender=passing(OUT, 100, "lookup", 60, failed_upcalls=failed))
    assert (verdict.where, verdict.lost) == (UPCALL_QUEUE, 40)
    assert "40 upcalls failed: EAGAIN" in verdict.evidence


def test_unanswered_upcalls_name_ovs_vswitchd():
    verdict = diagnose(sender=passing(OUT, 100, "lookup", 60))
    assert verdict.where == "ovs-vswitchd (upcalls not answered)"
    assert not any("no tunnel port" in line for line in verdict.evidence)


def test_unanswered_upcalls_of_a_tunnels_packets_may_be_of_a_vni_that_no_port_takes():
    """Open vSwitch 3.1 answers none of them; packets every 1.2 s never meet the flow that drops."""
    sender = passing(OUT, 20, output_devices=TUNNEL)
    receiver = passing(IN, 20, "lookup", 8, vnis=frozenset({100}))
    verdict = diagnose(sender=sender, receiver=receiver)
    assert (verdict.where, verdict.host) == (PLACES["lookup", "actions"], "receiver")
    assert any("VNI 100" in line and "no tunnel port" in line for line in verdict.evidence)
    receiver = passing(IN, 20, "lookup", 8, vnis=frozenset({100}), failed_upcalls={"EAGAIN": 12})
    verdict = diagnose(sender=sender, receiver=receiver)
    assert verdict.where == UPCALL_QUEUE
    assert not any("no tunnel port" in line for line in verdict.evidence)


def test_the_larger_of_two_losses_is_named_and_the_other_is_evidence():
    counts = [100, 100, 90, 40, 40, 40, 40]
    verdict = diagnose(sender=view(OUT, counts))
    assert (verdict.where, verdict.lost) == ("datapath action drop", 50)
    assert any("also ovs-vswitchd" in line and "10 of 100" in line for line in verdict.evidence)


def test_a_drop_of_what_came_from_a_tunnel_says_that_no_port_may_take_it():
    verdict = diagnose(receiver=passing(IN, 20, "actions", vnis=frozenset({999})))
    assert verdict.where == "datapath action drop"
    assert any("VNI 999" in line and "no tunnel port" in line for line in verdict.evidence)


def test_another_vni_than_asked_for():
    foreign = dict.fromkeys(OUT[3:], 20)
    sender = HostView(
        {**dict.fromkeys(OUT[:3], 20), **dict.fromkeys(OUT[3:], 0)}, foreign,
        output_devices=TUNNEL, vnis=frozenset({999}),
    )  # fmt: skip
    verdict = diagnose(sender=sender)
    assert (verdict.where, verdict.lost) == (WRONG_VNI, 20)
    assert "VNI 999" in verdict.evidence[0]
    receiver = HostView(
        dict.fromkeys(IN, 0), {"uplink_receive": 20, "decapsulate": 20}, vnis=frozenset({999})
    )
    assert diagnose(receiver=receiver).where == TUNNEL_PORT


def test_another_tenants_packets_are_no_loss():
    """Both count before the VNI is known; behind, the other's are foreign."""
    packets = {**dict.fromkeys(OUT[:3], 12), **dict.fromkeys(OUT[3:], 5)}
    sender = HostView(packets, dict.fromkeys(OUT[3:], 7), output_devices=TUNNEL)
    assert diagnose(sender=sender).where is None


def test_a_packet_that_stays_on_the_host():
    local = [stage for stage in OUT if stage not in {"encapsulate", "uplink_transmit"}]
    counts = dict.fromkeys(OUT, 0) | dict.fromkeys(local, 9)
    here = HostView(counts, output_devices=frozenset({"p1"}))
    assert diagnose_one(here).where is None
    assert diagnose(sender=here, receiver=passing(IN, 0)).where == LOCAL_PORT


def test_soft_roce_counts_where_it_is_used():
    sender = passing(EGRESS, 10, "rxe_transmit")
    assert diagnose(sender=sender).where == "the container's stack, before the switch"
    receiver = passing(INGRESS, 10, "port_transmit")
    verdict = diagnose(sender=passing(EGRESS, 10, output_devices=TUNNEL), receiver=receiver)
    assert verdict.where == "the container's stack, behind the switch"
    assert diagnose(receiver=receiver).where is None  # perhaps no RoCE at all


@pytest.mark.parametrize(
    ("views", "text"),
    [
        ({"sender": passing(OUT, 0)}, "no packet of the flow came in"),
        ({"receiver": passing(IN, 0)}, "no packet of the flow arrived"),
        ({"sender": HostView({"port_receive": 5})}, "at least two stages"),
        ({"sender": HostView({"port_receive": 5, "tunnel_receive": 5})}, "both directions"),
        ({}, "no packet of the flow arrived"),
    ],
)
def test_what_cannot_be_told_says_what_is_missing(views, text):
    verdict = diagnose(**views)
    assert verdict.where is None
    assert text in str(verdict)
    assert str(verdict).startswith("cannot tell: ")


def test_one_host_is_either_end():
    assert diagnose_one(passing(IN, 10, "uplink_receive")).host == "receiver"
    assert diagnose_one(passing(OUT, 10, "lookup")).host == "sender"


def test_a_result_is_read():
    row = {"packets": 5, "foreign": 1, "bytes": 500}
    read = view_of(
        {
            "stages": [{"stage": "lookup", **row}, {"stage": "output", **row, "packets": 0}],
            "drops": [{"reason": "R", "location": "f+1", "after": "", "device": "d", "packets": 2}],
            "upcalls": [
                {"command": "miss", "result": "ok", "packets": 9},
                {"command": "miss", "result": "EAGAIN", "packets": 3},
                {"command": "action", "result": "EAGAIN", "packets": 1},
            ],
            "ports": [
                {"stage": "output", "device": "p1", "vni": 100, "packets": 1},
                {"stage": "lookup", "device": "p2", "vni": 0, "packets": 1},
            ],
        }
    )
    assert read == HostView(
        {"lookup": 5, "output": 0},
        {"lookup": 1, "output": 1},
        (Dropped("R", "f+1", "", "d", 2),),
        {"EAGAIN": 3},
        frozenset({"p1"}),
        frozenset({100}),
        {"lookup": 100},
    )


def test_another_tenants_packets_hide_no_loss_of_their_neighbours_with_the_same_addresses():
    """Tenant A loses all of its 20; B, with the same addresses and another VNI, none of its 20."""
    foreign = dict.fromkeys(OUT[3:], 20)
    sent = HostView(
        {**dict.fromkeys(OUT[:3], 40), **dict.fromkeys(OUT[3:], 20)}, foreign, output_devices=TUNNEL
    )
    arrived = HostView(dict.fromkeys(IN, 0), dict.fromkeys(IN, 20))
    assert diagnose(sender=sent, receiver=arrived).where == "underlay"
    switch = dict(zip(OUT, (40, 40, *[0] * len(OUT[2:])), strict=True))
    dropped = HostView(switch, dict.fromkeys(OUT[2:], 20), output_devices=TUNNEL)
    assert diagnose(sender=dropped).where == PLACES["lookup", "actions"]


@pytest.mark.parametrize(
    ("packets", "failed", "where", "lost"),
    [
        ({"port_receive": 90, "tunnel_receive": 90, "lookup": 180, "actions": 180}, {}, None, 0),
        ({"lookup": 100, "actions": 60}, {}, PLACES["lookup", "actions"], 40),
        ({"lookup": 100, "actions": 90}, {"EAGAIN": 10}, UPCALL_QUEUE, 10),
    ],
)
def test_upcalls_are_judged_for_both_directions_together(packets, failed, where, lost):
    verdict = diagnose_upcalls(HostView(packets, failed_upcalls=failed))
    assert (verdict.where, verdict.lost, verdict.missing) == (where, lost, ())


def test_upcalls_of_a_flow_that_is_not_there_cannot_be_told():
    assert diagnose_upcalls(HostView({"lookup": 0, "actions": 0})).missing


def test_a_host_that_gets_packets_from_a_tunnel_is_the_receiver():
    packets = dict.fromkeys(INGRESS[2:-1], 9) | {"port_receive": 0}
    assert str(diagnose_one(HostView(packets))) == "no packet vanished of 9"
