# SPDX-License-Identifier: Apache-2.0
"""How late, early and doubled words are taken is tested of `DrivenHosts`, in test_driven.py."""

from analyzer.roster.newest import FORGET_NS, Newest, Said

NOW_NS = 1_800_000_000 * 10**9


def test_whatever_hosts_say_the_newest_is_kept_and_forgotten():
    hosts = Newest[str]()
    hosts.take("h1", NOW_NS, "new", NOW_NS)
    hosts.take("h1", NOW_NS - 1, "old", NOW_NS + 1)
    hosts.take("h2", NOW_NS, "x", NOW_NS + 2)
    assert hosts.said["h1"] == Said("new", NOW_NS, NOW_NS)
    hosts.expire(NOW_NS + FORGET_NS + 1)
    assert set(hosts.said) == {"h2"}
    hosts.drop("h2")
    assert not hosts.said
