# SPDX-License-Identifier: Apache-2.0
import pytest

from ovs_checks.openflow.parse import parse_flow
from ovs_checks.translate.ends import End, Quote
from ovs_checks.walk.values import LocalWalk

QUOTE = Quote("br", 40, 100, 0xFFFFFFFFFFFFFFFF, None, 7, "priority=100 actions=drop")


def walk_of(*kinds):
    ends = tuple(End(kind, "br", n, "because") for n, kind in enumerate(kinds))
    return LocalWalk("h0", "br", "p1", ends, ())


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        (("dropped", "output", "tunnelled"), 1),
        (("dropped", "cannot_tell"), 1),
        (("missed", "loop", "controller"), 1),
        (("loop", "cannot_tell"), 1),
        (("dropped", "controller"), 1),
        (("dropped", "missed"), 1),
        (("missed", "dropped"), 1),
    ],
)
def test_the_end_that_counts(kinds, chosen):
    assert walk_of(*kinds).end.table == chosen


def test_a_quote_says_where_it_is():
    flow = parse_flow("table=40,cookie=5,n_packets=1,n_bytes=2,priority=9 actions=drop")
    quote = Quote.of("br", flow)
    assert quote == Quote("br", 40, 9, 5, 1, 2, flow.text)
    assert QUOTE.place == "br/table=40"
