# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent.model import Chassis
from analyzer.intent.owners import owners

RECORDS = {
    "c0": Chassis("c0", hostname="h0.example"),
    "c1": Chassis("c1", hostname="h1"),
    "odd": Chassis("odd", hostname="localhost"),
}
HOSTS = ("h0", "h1.example", "h2")


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ({"h0": "c0", "h1.example": "c1"}, {"c0": "h0", "c1": "h1.example"}),
        ({"h2": "c0", "h0": "c0"}, {"c0": "h0"}),  # who says so first is not who it is
        ({"h2": "c0"}, {}),  # nor where the one that it is is silent
        ({"h2": "odd"}, {"odd": "h2"}),  # its record names nobody
        ({"h2": "odd", "h0": "odd"}, {"odd": "h2"}),
        ({"h0": "new", "h2": ""}, {"new": "h0"}),  # no record of it so far; no name at all
    ],
)
def test_a_chassis_is_the_host_that_its_record_names_else_who_said_so_first(claims, found):
    assert owners(claims, RECORDS, HOSTS) == found


def test_hosts_that_differ_in_their_domains_alone_may_each_be_it():
    hosts = ("h1.east", "h1.west")
    assert owners({"h1.west": "c1"}, RECORDS, hosts) == {"c1": "h1.west"}


@given(st.dictionaries(st.sampled_from(HOSTS), st.sampled_from(["", "c0", "c1", "odd", "new"])))
def test_whatever_others_say_a_host_keeps_the_record_that_names_it(claims):
    assert owners({**claims, "h0": "c0"}, RECORDS, HOSTS)["c0"] == "h0"
