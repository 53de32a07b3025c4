# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.roster import invitations
from analyzer.roster.invitations import Invitations
from netagent.model.errors import RemoteProtocolError


def test_a_secret_is_good_once():
    open_ = Invitations()
    open_.invite("h0", "s", until_ns=10, now_ns=0)
    assert open_.redeem("s", now_ns=5).host == "h0"
    assert open_.redeem("s", now_ns=5) is None


def test_an_invitation_ends():
    open_ = Invitations()
    open_.invite("h0", "s", until_ns=10, now_ns=0)
    assert open_.redeem("s", now_ns=10) is None


def test_a_host_is_invited_anew_and_the_former_secret_is_void():
    open_ = Invitations()
    open_.invite("h0", "one", until_ns=10, now_ns=0)
    open_.invite("h0", "two", until_ns=10, now_ns=0)
    assert open_.redeem("one", now_ns=1) is None
    assert open_.redeem("two", now_ns=1).host == "h0"


def test_no_more_are_open_than_may_be(monkeypatch):
    monkeypatch.setattr(invitations, "MOST", 2)
    open_ = Invitations()
    for name in "ab":
        open_.invite(name, name, until_ns=10, now_ns=0)
    with pytest.raises(RemoteProtocolError, match="2 invitations"):
        open_.invite("c", "c", until_ns=10, now_ns=0)
    open_.invite("c", "c", until_ns=30, now_ns=11)  # the others have ended
    assert len(open_) == 1


def test_what_is_kept_holds_no_secret():
    open_ = Invitations()
    open_.invite("h0", "a secret", until_ns=10, now_ns=0)
    [kept] = open_
    assert "a secret" not in repr(kept)
    assert Invitations([kept]).redeem("a secret", now_ns=1) == kept


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), max_size=30))
def test_each_host_has_one_invitation_at_most(asked):
    open_ = Invitations()
    for number, (host, now_ns) in enumerate(asked):
        open_.invite(host, str(number), until_ns=now_ns + 5, now_ns=now_ns)
        hosts = [each.host for each in open_]
        assert len(hosts) == len(set(hosts))
