# SPDX-License-Identifier: Apache-2.0
from netagent.model.topology import DeclaredTopology, Uplink

DECLARED = DeclaredTopology(
    {"10.0.0.1": "leaf-0", "10.0.0.2": "leaf-0"},
    uplinks=(Uplink("h0", "rnic0", "leaf-0"), Uplink("h0", "rnic1", "leaf-1")),
)


def test_several_addresses_may_be_of_one_switch_and_others_are_their_own_name():
    named = [DECLARED.name(f"10.0.0.{n}") for n in (1, 2, 3)]
    assert named == ["leaf-0", "leaf-0", "10.0.0.3"]


def test_a_leaf_is_that_of_the_host_s_own_rnic():
    assert (DECLARED.leaf("h0", "rnic0"), DECLARED.leaf("h0", "rnic1")) == ("leaf-0", "leaf-1")
    assert DECLARED.leaf("h1", "rnic0") is None
    assert DECLARED.leaf("h0", "rnic2") is None
