# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ovs_checks.switch.snapshot import Bucket, Group
from ovs_checks.translate.groups import first_live, hash_algorithm, is_live
from tests.ovs_checks.pipelines import packets
from tests.ovs_checks.translate.contexts import bridge0, context, does, kinds, looked, run, told

WEIGHED = (
    "group_id=1,type=select,selection_method=hash,fields(eth_src,eth_dst,ip_src,tcp_dst),"
    "bucket=bucket_id:0,weight:7,watch_port:1,actions=in_port,"
    "bucket=bucket_id:1,weight:3,watch_port:2,actions=output:2,"
    "bucket=bucket_id:2,weight:3,watch_port:3,actions=output:3"
)
AHEAD = "actions=group:1"


def with_group(text, flows=AHEAD, *, live=(1, 2, 3)):
    """Return a bridge with groups; of its ports only some are live."""
    at = bridge0(flows, groups=text)
    return replace(at, ports=tuple(replace(port, live=port.ofport in live) for port in at.ports))


def test_every_bucket_of_all_gets_the_packet_as_it_came():
    group = "group_id=1,type=all,bucket=actions=dec_ttl,output:2,bucket=actions=dec_ttl,output:3"
    done = run(with_group(group, f"{AHEAD},in_port"), "in_port=1,udp,nw_ttl=9")
    assert [(end.port, end.header.nw_ttl) for end in done.ends] == [("p2", 8), ("p3", 8), ("p1", 9)]


def test_a_bucket_s_actions_are_an_action_set():
    group = "group_id=1,type=indirect,bucket=actions=output:2,dec_ttl,output:3"
    assert does(run(with_group(group))) == "set(ipv4(ttl=63)),p3"


def test_leaving_a_bucket_early_is_not_leaving_the_group():
    group = "group_id=1,type=all,bucket=actions=resubmit(,1),bucket=actions=output:3"
    flows = f"{AHEAD},in_port\ntable=1 actions=output:2,exit"
    assert does(run(with_group(group, flows))) == "p2,p3,p1"


def test_without_the_group_nothing_more_is_done():
    done = run("actions=output:2,group:9,output:3")
    assert does(done) == "p2"
    assert kinds(run("actions=group:9")) == [("dropped", "group 9 does not exist")]


@given(packets, st.sets(st.integers(1, 3)))
def test_what_is_selected_is_live(packet, live):
    lines = told(run(with_group(WEIGHED, live=live), packet))
    chosen = [line for line in lines if line.startswith("using bucket")]
    assert len(chosen) == bool(live)
    assert set(chosen) <= {f"using bucket {port - 1}" for port in live}


@given(packets, st.integers(0, 2))
def test_a_bucket_that_dies_moves_only_the_packets_that_it_had(packet, dead):
    chosen = next(line for line in told(run(with_group(WEIGHED), packet)) if "using" in line)
    assume(chosen != f"using bucket {dead}")
    left = {1, 2, 3} - {dead + 1}
    assert chosen in told(run(with_group(WEIGHED, live=left), packet))


@given(packets)
def test_a_bucket_without_weight_gets_nothing_while_another_is_live(packet):
    nothing = WEIGHED.replace("weight:7", "weight:0").replace("weight:3,watch_port:2", "weight:0")
    assert "using bucket 2" in told(run(with_group(nothing), packet))


def test_only_fields_that_the_packet_has_are_hashed():
    done = run(with_group(WEIGHED), "in_port=1,udp")
    assert looked(done, "nw_src") == 0xFFFFFFFF
    assert (looked(done, "tp_dst"), looked(done, "nw_dst")) == (0, 0)
    assert looked(run(with_group(WEIGHED), "in_port=1,tcp"), "tp_dst") == 0xFFFF


def test_the_first_live_bucket_takes_over():
    failover = (
        "group_id=1,type=ff,bucket=watch_port:2,actions=output:2,"
        "bucket=watch_port:3,actions=output:3"
    )
    assert [does(run(with_group(failover, live=live))) for live in ((2, 3), (3,), ())] == [
        "p2",
        "p3",
        "drop",
    ]
    dead = run(with_group(failover, live=()))
    assert kinds(dead) == [("dropped", "group 1 has no bucket that is live")]
    assert "bucket 0: not live due to port 2" in told(dead)


def test_a_group_without_buckets_is_told_from_one_of_which_none_is_live():
    assert kinds(run(with_group("group_id=1,type=ff"))) == [("dropped", "group 1 has no buckets")]


CHAIN = (
    "group_id=1,type=ff,bucket=watch_group:2,actions=output:2\n"
    "group_id=2,type=ff,bucket=watch_group:3,actions=output:2,bucket=watch_port:3,actions=output:3\n"
    "group_id=3,type=ff,bucket=watch_port:2,actions=output:2"
)


@pytest.mark.parametrize(("live", "alive"), [((2,), True), ((3,), True), ((1,), False)])
def test_a_watched_group_is_live_if_one_of_its_buckets_is(live, alive):
    at = with_group(CHAIN, live=live)
    (bucket,) = at.by_group[1].buckets
    assert is_live(at, bucket) == alive


def test_a_bucket_that_watches_nothing_is_live_and_one_that_watches_what_is_not_there_is_dead():
    at = with_group(CHAIN)
    assert is_live(at, Bucket(0, ()))
    assert not is_live(at, Bucket(0, (), watch_port=9))
    assert not is_live(at, Bucket(0, (), watch_group=9))


def test_groups_that_watch_each_other_are_dead_and_told_of():
    text = (
        "group_id=1,type=ff,bucket=watch_group:2,actions=output:2\n"
        "group_id=2,type=ff,bucket=watch_group:1,actions=output:2"
    )
    at = with_group(text)
    lines = []
    assert not is_live(at, at.by_group[1].buckets[0], lines.append)
    assert len(lines) <= 1


@pytest.mark.parametrize(
    ("weights", "method", "parameter", "expected"),
    [
        ((1, 1), "", 0, (1, 0)),
        ((63, 1), "", 0, (1, 0)),
        ((64, 1), "", 0, None),
        ((64, 1), "dp_hash", 1 << 32 | 7, (1, 7)),
        ((255, 1), "dp_hash", 7, (0, 7)),
        ((256, 1), "dp_hash", 7, None),
        ((0, 0), "", 0, None),
        ((0, 5), "", 0, (1, 0)),
        ((1, 1), "hash", 0, None),
    ],
)
def test_the_datapath_is_asked_for_a_hash_unless_weights_need_too_many(
    weights, method, parameter, expected
):
    buckets = tuple(Bucket(n, (), weight) for n, weight in enumerate(weights))
    assert hash_algorithm(Group(1, "select", buckets, method, parameter)) == expected


PLAIN = "group_id=1,type=select,bucket=actions=output:2,bucket=actions=output:3"


def test_a_hash_of_the_datapath_s_is_asked_for_and_then_selects():
    at = with_group(PLAIN)
    first = run(at)
    assert does(first) == "hash(sym_l4(0)),recirc(0x1)"
    (again,) = first.recirculations
    assert (again.kind, again.group) == ("hash", 1)
    hashed = again.flow._replace(dp_hash=5)
    for pick, port in enumerate(("p2", "p3")):
        assert does(run(at, hashed, state=again.state, picks=(pick,))) == port
    assert run(at, hashed, state=again.state).unknown == (
        "which is selected by a hash: bucket 0 of group 1, bucket 1 of group 1"
    )


def test_only_live_buckets_with_a_weight_may_be_what_the_datapath_selects():
    text = PLAIN.replace("actions=output:2", "watch_port:2,actions=output:2")
    again = run(with_group(text)).recirculations[0]
    hashed = again.flow._replace(dp_hash=5)
    assert does(run(with_group(text, live=(1, 3)), hashed, state=again.state)) == "p3"


def test_a_datapath_that_knows_one_hash_only_is_asked_for_that():
    x = context(at=with_group(PLAIN))
    from_old = run(with_group(PLAIN), features=replace(x.features, max_hash_algorithm=0))
    assert does(from_old) == "hash(l4(0)),recirc(0x1)"


def test_the_first_live_of_none_is_none():
    x = context(at=with_group(CHAIN, live=()))
    assert first_live(x, x.bridge.by_group[1]) is None


def test_a_bucket_that_leads_nowhere_is_why_the_packet_is_dropped():
    group = "group_id=1,type=indirect,bucket=actions=dec_ttl"
    assert kinds(run(with_group(group))) == [("dropped", "bucket 0 sends the packet nowhere")]


def test_a_bucket_that_pushes_too_many_labels_does_not_stop_the_others():
    push = ",".join(["push_mpls:0x8847"] * 4)
    group = "group_id=1,type=all,bucket=actions=resubmit(,1),bucket=actions=output:3"
    done = run(with_group(group, f"{AHEAD}\ntable=1 actions={push},output:2"))
    assert does(done).endswith("p3")
    assert done.error == ""
