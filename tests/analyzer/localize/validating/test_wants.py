# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.localize.validating.wants import (
    CANNOT_NS,
    DEADLINE_S,
    EVERY_NS,
    MAX_EVERY_NS,
    MAX_HOSTS,
    RETRY_NS,
    SPARE_NS,
    Comparisons,
    Look,
    looks_of,
    request_of,
)
from analyzer.questions import Failed, Why
from netagent.model.endpoint import Endpoint, RdmaAddress
from netagent.model.ids import EndpointId
from netagent.model.path import flow_table
from netagent.wire.messages import CheckReply
from tests.analyzer.localize.validating.test_judge import found, reply

A, B, C = (EndpointId(name, 0) for name in "abc")
ENDPOINTS = {
    A: Endpoint(A, "t", "h0", "10.0.0.10", "02::a", "172.30.0.1", "rnic0", "br-int", "p"),
    B: Endpoint(B, "t", "h1", "10.0.0.11", "02::b", "172.30.1.1", "rnic0", "br-int", "q"),
    C: Endpoint(C, "t", "h0", "10.0.0.12", "02::c", "172.30.0.1", "rnic0", "br-int", "r"),
}
LOOK = Look("h0", (A, B))
CLEAN = reply()
STALE = reply(found("stale-megaflow"))


def want(made, look=LOOK, *, now_ns=0):
    """Return whether a comparison is asked for."""
    made.want([(look, request_of(look, ENDPOINTS, port=18515))], now_ns=now_ns)
    return [each for each, _ in made.due()] == [look]


def told(made, said, *, now_ns=0, look=LOOK):
    assert want(made, look, now_ns=now_ns)
    made.answer(look, said, ENDPOINTS, now_ns=now_ns)


def test_each_end_of_a_pair_is_asked_about_what_it_sends_and_gets():
    looks = looks_of((A, B), ENDPOINTS)
    assert looks == [LOOK, Look("h1", (B, A))]
    request = request_of(looks[1], ENDPOINTS, port=18515, source_port=7)
    assert (request.local, request.remote_address, request.remote_mac) == (B, "10.0.0.10", "02::a")
    assert (request.local_underlay, request.remote_underlay) == ("172.30.1.1", "172.30.0.1")
    assert (request.source_port, request.destination_port) == (7, 18515)


def test_a_host_that_has_both_ends_is_asked_once_and_of_no_tunnel():
    (look,) = looks_of((A, C), ENDPOINTS)
    request = request_of(look, ENDPOINTS, port=18515)
    assert (look.host, request.local_underlay, request.remote_underlay) == ("h0", "", "")


def test_rdma_is_asked_by_its_own_port():
    rdma = RdmaAddress("mlx5_0", "::ffff:10.0.0.11", (17,), 1, 1024)
    endpoints = ENDPOINTS | {B: replace(ENDPOINTS[B], rdma=rdma)}
    assert request_of(LOOK, endpoints, port=18515).destination_port == 4791


def test_what_was_found_is_believed_until_it_can_have_been_looked_at_again():
    made = Comparisons()
    told(made, STALE)
    assert not want(made, now_ns=EVERY_NS - 1)
    assert made.known(LOOK, now_ns=EVERY_NS + SPARE_NS - 1) == STALE
    assert made.known(LOOK, now_ns=EVERY_NS + SPARE_NS) is None
    assert made.known(Look("h0", (A, C)), now_ns=1) is None
    told(made, STALE, now_ns=EVERY_NS)
    assert want(made, now_ns=2 * EVERY_NS)


def test_a_host_that_finds_nothing_is_left_alone_twice_as_long_each_time():
    made, now_ns, pause_ns = Comparisons(), 0, EVERY_NS
    for _ in range(6):
        told(made, CLEAN, now_ns=now_ns)
        assert not want(made, now_ns=now_ns + pause_ns - 1)
        assert made.known(LOOK, now_ns=now_ns + pause_ns) == CLEAN
        now_ns, pause_ns = now_ns + pause_ns, min(2 * pause_ns, MAX_EVERY_NS)
    told(made, STALE, now_ns=now_ns)
    assert want(made, now_ns=now_ns + EVERY_NS)


@pytest.mark.parametrize(
    ("said", "why", "pause_ns"),
    [
        (Failed(Why.CANNOT, "no Open vSwitch"), "no Open vSwitch", CANNOT_NS),
        (Failed(Why.ODD, "answers 404"), "answers 404", CANNOT_NS),
        (Failed(Why.BUSY, "just compared"), "just compared", RETRY_NS),
        (Failed(Why.TIMEOUT, "timeout"), "timeout", RETRY_NS),
        (CheckReply(walks=(), wall_ns=1), "something else", CANNOT_NS),
        (reply(host="h1"), "another host", CANNOT_NS),
        (
            reply(found("stale-megaflow", component=flow_table("h1", "br-int", 0))),
            "another host",
            CANNOT_NS,
        ),
    ],
    ids=["cannot", "old", "busy", "timeout", "odd", "other", "accuses"],
)
def test_a_host_that_made_none_is_left_alone_for_all_pairs(said, why, pause_ns):
    made, other = Comparisons(), Look("h0", (A, C))
    told(made, said)
    for look in (LOOK, other):
        assert why in made.known(look, now_ns=pause_ns - 1).text
        assert not want(made, look, now_ns=pause_ns - 1)
    assert made.known(other, now_ns=pause_ns) is None
    told(made, CLEAN, now_ns=pause_ns)
    assert made.known(LOOK, now_ns=pause_ns + 1) == CLEAN


def test_few_hosts_compare_at_one_time_and_each_but_one_pair():
    made = Comparisons()
    looks = [Look(f"h{n}", (A, B)) for n in range(MAX_HOSTS + 2)]
    request = request_of(LOOK, ENDPOINTS, port=1)
    made.want([(look, request) for look in [*looks, LOOK, Look("h0", (A, C))]], now_ns=0)
    assert [look for look, _ in made.due()] == looks[:MAX_HOSTS]
    assert made.due() == []
    made.answer(looks[0], CLEAN, ENDPOINTS, now_ns=1)
    made.want([(look, request) for look in looks], now_ns=2)
    assert [look for look, _ in made.due()] == [looks[MAX_HOSTS]]


def test_a_late_answer_to_what_nobody_asks_any_more_changes_nothing():
    made = Comparisons()
    made.answer(LOOK, STALE, ENDPOINTS, now_ns=1)
    assert made.known(LOOK, now_ns=2) is None


def test_a_host_whose_answer_was_lost_may_be_asked_again():
    made = Comparisons()
    assert want(made)
    assert not want(made, now_ns=round(DEADLINE_S * 1e9))
    assert want(made, now_ns=round(3 * DEADLINE_S * 1e9))


def test_memory_is_bounded_by_what_is_believed():
    made = Comparisons()
    for n in range(50):
        look = Look(f"h{n}", (A, B))
        told(made, reply(host=look.host), look=look, now_ns=n * MAX_EVERY_NS)
    assert len(made._made) + len(made._failed) + len(made._alone) < 10
