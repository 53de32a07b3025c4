# SPDX-License-Identifier: Apache-2.0
from netagent.host.facts import Link
from tests.netagent.host.small_host import physical, vswitch


def test_a_bridge_is_found_by_name():
    view = vswitch()
    assert view.bridge("br-phy1") == physical(1)
    assert view.bridge("nowhere") is None


def test_a_bridge_lists_the_interfaces_of_all_its_ports():
    names = [each.name for each in physical(0, "a", "b").interfaces()]
    assert names == ["br-phy0", "a", "b"]


def test_a_device_is_usable_with_both_will_and_carrier():
    assert Link(1, "x").usable
    assert not Link(1, "x", up=False).usable
    assert not Link(1, "x", carrier=False).usable
