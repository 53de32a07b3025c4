# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.path import Component, Kind, Layer, flow_table, link, rnic, vswitch

names = st.text(min_size=1)


@given(st.sampled_from(Kind), names)
def test_a_component_is_read_as_it_was_written(kind, name):
    component = Component(kind, name)
    assert Component.parse(str(component)) == component


@given(names, names)
def test_a_link_is_the_same_whichever_way_round(a, b):
    assert link(a, b) == link(b, a)


@pytest.mark.parametrize("text", ["", "switch", "switch ", "gateway g1"])
def test_what_is_no_component_is_refused(text):
    with pytest.raises(ValueError, match=r"no component|no kind of component: switch, link, "):
        Component.parse(text)


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_lives_in_a_layer(kind):
    assert isinstance(Component(kind, "x").layer, Layer)


def test_parts_of_two_hosts_with_one_name_are_two():
    assert rnic("h0", "rnic0") != rnic("h1", "rnic0")
    assert flow_table("h0", "br-int", 40) != flow_table("h0", "br-int", 41)
    assert (vswitch("h0").layer, rnic("h0", "rnic0").layer) == (Layer.OVERLAY, Layer.RNIC)
