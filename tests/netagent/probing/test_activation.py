# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.endpoint import Endpoint, EndpointState, RdmaAddress
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.pinglist import Expected, PingList, Target
from netagent.probing.activation import MAX_HOSTS, Activation
from netagent.wire.messages import Announcement

RDMA = RdmaAddress("mlx5_0", "::ffff:10.0.0.1", (17,), 1, 1024)


def endpoint(host, rail=0, **more):
    return Endpoint(
        EndpointId(f"c{host}", rail),
        "t",
        f"h{host}",
        f"10.0.{rail}.{host}",
        "",
        f"172.16.0.{host}",
        "",
        "",
        "",
        **more,
    )


def target(own, theirs, *, rare=False):
    return Target(
        own.id, theirs.id, theirs.address, theirs.underlay, theirs.rdma, rare, theirs.host
    )


def said(host, *endpoints, generation=1, instance="one"):
    return Announcement(
        host=f"h{host}", instance=instance, generation=generation, endpoints=endpoints
    )


OWN = [endpoint(0, 0), endpoint(0, 1)]
EXPECTED = Expected((OWN[0].id, OWN[1].id), ("c0", "c1", "c2"))


def started(*targets):
    activation = Activation()
    activation.use(PingList(7, targets, expected=(EXPECTED,)), asked_ns=0)
    return activation


def pairs(activation, own=OWN):
    return [(str(t.source), str(t.target)) for t in activation.active(own).targets]


def test_a_preloaded_list_has_no_target_until_its_host_announces_it():
    activation = started()
    assert pairs(activation) == []
    assert activation.hear(said(1, endpoint(1, 0), endpoint(1, 1)), now_ns=1)
    assert pairs(activation) == [("c0/rail0", "c1/rail0"), ("c0/rail1", "c1/rail1")]
    (first, _) = activation.active(OWN).targets
    assert first == target(OWN[0], endpoint(1, 0))
    assert activation.active(OWN).version == 7


def test_what_is_no_longer_announced_is_no_longer_probed():
    activation = started(target(OWN[0], endpoint(1, 0)), target(OWN[0], endpoint(2, 0)))
    activation.hear(said(1, replace(endpoint(1, 0), state=EndpointState.CRASHED)), now_ns=1)
    assert pairs(activation) == [("c0/rail0", "c2/rail0")]
    activation.hear(said(1, endpoint(1, 0), generation=2), now_ns=2)
    assert len(pairs(activation)) == 2
    activation.hear(said(1, generation=3), now_ns=3)
    assert pairs(activation) == [("c0/rail0", "c2/rail0")]


def test_an_address_that_changes_is_taken_over_and_a_rare_target_stays_rare():
    activation = started(target(OWN[0], endpoint(1, 0), rare=True))
    moved = replace(endpoint(1, 0), address="10.0.0.99")
    activation.hear(said(1, moved), now_ns=1)
    assert activation.active(OWN).targets == (target(OWN[0], moved, rare=True),)


@pytest.mark.parametrize(
    "stranger",
    [
        replace(endpoint(1, 0), id=EndpointId("c9", 0)),
        replace(endpoint(1, 0), id=EndpointId("c1", 5)),
        replace(endpoint(1, 0), rdma=RDMA),
        replace(endpoint(1, 0), address="fd00::1"),
    ],
)
def test_who_is_not_expected_is_not_probed(stranger):
    activation = started()
    activation.hear(said(1, stranger), now_ns=1)
    assert pairs(activation) == []


def test_no_endpoint_of_the_own_host_is_probed():
    activation = started()
    activation.hear(said(0, endpoint(0, 0)), now_ns=1)
    assert pairs(activation, [replace(OWN[0], id=EndpointId("c2", 0))]) == []


def test_an_announcement_that_was_overtaken_changes_nothing():
    activation = started()
    activation.hear(said(1, endpoint(1, 0), generation=5), now_ns=1)
    assert not activation.hear(said(1, generation=4), now_ns=2)
    assert pairs(activation) == [("c0/rail0", "c1/rail0")]
    assert activation.hear(said(1, generation=1, instance="two"), now_ns=3)
    assert pairs(activation) == []


def test_what_is_asked_later_knows_better_and_an_answer_under_way_does_not():
    activation = started()
    activation.hear(said(1, endpoint(1, 0)), now_ns=100)
    activation.use(PingList(8, expected=(EXPECTED,)), asked_ns=99)
    assert pairs(activation) == [("c0/rail0", "c1/rail0")]
    activation.use(PingList(9, expected=(EXPECTED,)), asked_ns=101)
    assert pairs(activation) == []


def test_a_list_that_did_not_change_ends_announcements_too():
    activation = started(target(OWN[0], endpoint(1, 0)))
    activation.hear(said(1), now_ns=100)
    assert pairs(activation) == []
    activation.use(None, asked_ns=101)  # it came back meanwhile, and could not announce that
    assert pairs(activation) == [("c0/rail0", "c1/rail0")]
    # What was overtaken before stays so.
    activation.hear(said(1, endpoint(1, 0), generation=5), now_ns=102)
    activation.use(None, asked_ns=103)
    assert not activation.hear(said(1, generation=4), now_ns=104)


def test_a_container_of_another_host_is_not_taken_over_before_that_host_lets_go():
    activation = started(target(OWN[0], endpoint(1, 0)))
    claimed = replace(endpoint(1, 0), host="h2", address="10.0.0.66")
    activation.hear(said(2, claimed), now_ns=1)
    assert activation.active(OWN).targets == (target(OWN[0], endpoint(1, 0)),)
    activation.hear(said(1, endpoint(1, 0), generation=2), now_ns=2)  # it says that it has it
    assert activation.active(OWN).targets == (target(OWN[0], endpoint(1, 0)),)
    activation.hear(said(1, generation=3), now_ns=3)
    assert activation.active(OWN).targets == (target(OWN[0], claimed),)


def test_nobody_speaks_for_another_host_and_a_later_schema_is_refused():
    activation = started()
    with pytest.raises(RemoteProtocolError, match="another host"):
        activation.hear(said(1, endpoint(2, 0)), now_ns=1)
    with pytest.raises(RemoteProtocolError, match="schema"):
        activation.hear(Announcement(schema=99, host="h1", instance="one", generation=1), now_ns=1)


@pytest.mark.parametrize(
    "odd",
    [
        replace(endpoint(1, 0), address="nowhere"),
        replace(endpoint(1, 0), rdma=replace(RDMA, gid="no-gid")),
        replace(endpoint(1, 0), rdma=replace(RDMA, qpns=())),
    ],
)
def test_an_address_that_makes_no_sense_is_refused(odd):
    activation = started()
    with pytest.raises(RemoteProtocolError, match="c1/rail0"):
        activation.hear(said(1, odd), now_ns=1)
    assert pairs(activation) == []


def test_announcements_are_bounded():
    activation = started()
    for host in range(1, MAX_HOSTS + 10):
        activation.hear(said(host), now_ns=host)
    assert len(activation._heard) == MAX_HOSTS


HOSTS = 5


@given(st.lists(st.tuples(st.integers(1, HOSTS - 1), st.sets(st.integers(0, 1))), max_size=30))
def test_whatever_is_announced_the_list_is_who_is_up_last(events):
    """Against the naive answer: of each host, what it said last."""
    activation = Activation()
    group = Expected(EXPECTED.sources, tuple(f"c{n}" for n in range(HOSTS)))
    activation.use(PingList(1, expected=(group,)), asked_ns=0)
    last = {}
    for generation, (host, rails) in enumerate(events):
        told = [endpoint(host, rail) for rail in sorted(rails)]
        activation.hear(said(host, *told, generation=generation), now_ns=generation)
        last[host] = rails
    expected = {(f"c0/rail{r}", f"c{host}/rail{r}") for host, rails in last.items() for r in rails}
    assert set(pairs(activation)) == expected
