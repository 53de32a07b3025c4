# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

from netagent.collect.news import AGAIN_NS, News
from netagent.wire.inventory import Inventory

WIDTH_NS = 5_000_000_000
START_NS = 1_800_000_000 * 10**9
OLD, NEW = Inventory(kernel="6.1.0"), Inventory(kernel="6.12.0")


def said(host, *inventories):
    """Return what is said in windows one after the other."""
    news = News[Inventory](host)
    return [
        news.of(each, start_ns=START_NS + number * WIDTH_NS)
        for number, each in enumerate(inventories)
    ]


def test_it_is_said_at_once_and_then_once_a_minute():
    told = [number for number, each in enumerate(said("h0", *[OLD] * 60)) if each == OLD]
    assert told[0] == 0
    assert {after - before for before, after in pairwise(told[1:])} == {AGAIN_NS // WIDTH_NS}


def test_hosts_do_not_say_it_in_one_and_the_same_window():
    def second(host):
        return [number for number, each in enumerate(said(host, *[OLD] * 13)) if each][1]

    assert len({second(f"h{number}") for number in range(40)}) > 6


def test_what_changes_is_said_at_once_and_what_is_not_known_never():
    assert said("h0", None, None, OLD, NEW)[2:] == [OLD, NEW]
    assert said("h0", *[None] * 20) == [None] * 20
