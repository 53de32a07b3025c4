# SPDX-License-Identifier: Apache-2.0
"""What an agent makes of answers; tests/analyzer/roster/test_lists.py has the analyzer's too."""

import msgspec
import pytest

from netagent.model.endpoint import RdmaAddress
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.pinglist import Expected, PingList, Target
from netagent.probing.roster import Roster
from netagent.wire.codec import encode
from netagent.wire.messages import Peer
from netagent.wire.roster import Group, GroupChange, Member, Source, TaskChange, Update, named

A, B, C = (EndpointId(name, 0) for name in "abc")
GROUP = Group("t", 0)
RDMA = RdmaAddress("mlx5_0", "::ffff:10.0.0.1", (17,), 1, 1024)


def member(name, host, rdma=None):
    return Member(name, host, f"10.0.0.{host[1:]}", f"172.30.0.{host[1:]}", rdma)


def news(*members, used=None, version=1, whole=True, gone=(), hosts=("h0", "h1")):
    peers = tuple(Peer(host=host, rpc_url=f"http://{host}") for host in hosts)
    return Update(
        version=version,
        rare_share=0.2,
        sources=(Source(A, "t", used),),
        groups=(GroupChange(group=GROUP, whole=whole, put=encode(members), gone=gone),),
        tasks=(TaskChange(task="t", whole=True, put=encode(peers), containers=("a", "b", "c")),),
    )


def followed(*answers):
    roster = Roster("h0")
    for each in answers:
        roster.take(each)
    return roster


def test_the_key_of_a_group_is_that_of_its_local_endpoints():
    given = news(member("a", "h0"), member("b", "h1"))
    assert followed(given).keys == {}
    roster = followed(given, msgspec.structs.replace(given, keys=(b"k" * 16,)))
    assert roster.keys == {A: b"k" * 16}
    with pytest.raises(RemoteProtocolError, match="2 keys for 1 endpoints"):
        roster.take(msgspec.structs.replace(given, version=9, keys=(b"k" * 16, b"l" * 16)))
    assert (roster.version, roster.keys) == (1, {A: b"k" * 16})
    assert followed(given, given).keys == {}


def test_the_list_is_who_is_elsewhere_in_the_group():
    first = news(member("a", "h0"), member("z", "h0"), member("b", "h1"))
    roster = followed(first)
    target = Target(A, B, "10.0.0.1", "172.30.0.1", host="h1")
    assert roster.pinglist() == PingList(1, (target,), 0.2, (Expected((A,), ("a", "b", "c")),))
    assert roster.peers() == (Peer(host="h1", rpc_url="http://h1"),)
    assert roster.sources == named(first.sources)


def test_what_the_task_does_not_use_is_rare():
    roster = followed(news(*(member(n, f"h{k}") for k, n in enumerate("abc")), used=(C,)))
    assert [(t.target, t.rare) for t in roster.pinglist().targets] == [(B, True), (C, False)]


def test_ipv4_and_ipv6_do_not_probe_each_other():
    six = Member("c", "h2", "fd00::2", "172.30.0.2")
    roster = followed(news(member("a", "h0"), member("b", "h1"), six))
    assert [each.target for each in roster.pinglist().targets] == [B]


def test_rdma_and_udp_do_not_probe_each_other():
    roster = followed(news(member("a", "h0"), member("b", "h1", RDMA)))
    assert roster.pinglist().targets == ()


def test_what_changed_is_laid_over_what_is_there():
    roster = followed(
        news(*(member(n, f"h{k}") for k, n in enumerate("ab"))),
        news(member("c", "h2"), whole=False, gone=("b", "never")),
    )
    assert [t.target for t in roster.pinglist().targets] == [C]
    whole = followed(news(member("a", "h0"), member("c", "h2")))
    assert roster.asks() == whole.asks()


def test_groups_that_no_source_has_any_more_are_forgotten():
    roster = followed(news(member("a", "h0"), member("b", "h1")))
    roster.take(Update(version=0, rare_share=0.1, sources=()))
    assert roster.pinglist() == PingList(0, (), 0.1)
    assert roster.peers() == ()
    assert roster.asks() == Roster("h0").asks()


@pytest.mark.parametrize("field", ["groups", "tasks"])
def test_an_answer_that_makes_no_sense_changes_nothing(field):
    roster = followed(news(member("a", "h0"), member("b", "h1")))
    asks, before = roster.asks(), roster.pinglist()
    later = news(member("a", "h0"), version=2)
    (change,) = getattr(later, field)
    torn = msgspec.structs.replace(change, put=b"\xc1")
    with pytest.raises(RemoteProtocolError):
        roster.take(msgspec.structs.replace(later, **{field: (torn,)}))
    assert (roster.asks(), roster.pinglist()) == (asks, before)


def test_a_pair_that_crosses_rails_makes_no_other_used():
    roster = followed(
        news(*(member(n, f"h{k}") for k, n in enumerate("ab")), used=(EndpointId("b", 1),))
    )
    assert [(t.target, t.rare) for t in roster.pinglist().targets] == [(B, True)]
