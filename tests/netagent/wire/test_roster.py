# SPDX-License-Identifier: Apache-2.0
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.codec import array, decode, encode
from netagent.wire.messages import Peer
from netagent.wire.roster import (
    MAX_HELD,
    Follow,
    Member,
    Source,
    Update,
    digest_of,
    digest_of_all,
    member_of,
    named,
)
from tests.analyzer.cluster import endpoint

ENTRIES = [
    Member("a", "h0", "10.0.0.1", "172.30.0.1"),
    Member("a", "h0", "10.0.0.2", "172.30.0.1"),
    Peer(host="h0", rpc_url="http://h0"),
    Peer(host="h0", rpc_url="http://h1"),
    ("a",),
    (),
]


def test_members_are_of_endpoints():
    there = endpoint("h0", "a0", 3)
    assert member_of(there) == Member("a0", "h0", there.address, there.underlay, there.rdma)


def test_digests_tell_contents_apart():
    assert len({digest_of(each) for each in ENTRIES}) == len(ENTRIES)


@given(st.permutations(ENTRIES), st.integers(0, len(ENTRIES)))
def test_a_digest_of_a_set_tells_sets_apart_and_not_their_order(entries, kept):
    digests = [digest_of(each) for each in entries]
    assert digest_of_all(sorted(digests)) == digest_of_all(sorted(map(digest_of, ENTRIES)))
    fewer = digest_of_all(sorted(digests[:kept]))
    assert (fewer == digest_of_all(sorted(digests))) == (kept == len(digests))


@pytest.mark.parametrize(
    "asked",
    [
        {"groups": [[["t", 0], b"\0" * 17]]},
        {"tasks": [["t", b"", b"\0" * 17]]},
        {"groups": [[["t", 0], b""]] * (MAX_HELD + 1)},
        {"tasks": [["t", b"", b""]] * (MAX_HELD + 1)},
    ],
    ids=["digest", "digest of containers", "groups", "tasks"],
)
def test_a_question_of_more_than_an_agent_has_is_refused(asked):
    with pytest.raises(RemoteProtocolError):
        decode(encode(asked), Follow)


def test_a_name_is_of_63_bits_and_0_for_nothing():
    assert named(()) == 0
    sources = [(Source(EndpointId("a", n), "t"),) for n in range(100)]
    assert len({named(each) for each in sources}) == 100
    assert all(0 < named(each) < 2**63 for each in sources)


def test_entries_that_are_encoded_already_are_an_array():
    for count in (0, 1, 15, 16, 70_000):
        assert decode(array([encode(n) for n in range(count)]), list[int]) == list(range(count))


@pytest.mark.parametrize("wait_s", [-1, 61, 1e9, float("nan")])
def test_nobody_waits_longer_than_a_long_poll(wait_s):
    with pytest.raises(RemoteProtocolError):
        decode(encode({"wait_s": wait_s}), Follow)


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_message_or_refused(body):
    for kind in (Follow, Update):
        with contextlib.suppress(RemoteProtocolError):
            assert isinstance(decode(body, kind), kind)
