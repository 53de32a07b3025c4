# SPDX-License-Identifier: Apache-2.0
"""One interface, by both readers of OVSDB: the IDL's replica, and JSON-RPC."""

from types import SimpleNamespace

import pytest

from netagent.adapters.host import ovsdb
from netagent.model.vswitch import Interface, drives, interface_of
from ovs_checks.switch import rows
from ovs_checks.switch.snapshot import Port

FULL = Interface(
    *("vx", "vxlan", 7, {"key": "flow", "local_ip": "1.2.3.4"}, {"rail": "0"}),
    *("02:00:00:00:00:01", None, "up"),
)
REPLICA = {
    "name": "vx",
    "type": "vxlan",
    "ofport": [7],
    "options": {"local_ip": "1.2.3.4", "key": "flow"},
    "external_ids": {"rail": "0"},
    "mac_in_use": ["02:00:00:00:00:01"],
    "admin_state": [],
    "link_state": ["up"],
    "error": [],
}
JSON = {
    "name": "vx",
    "type": "vxlan",
    "ofport": 7,
    "options": ["map", [["local_ip", "1.2.3.4"], ["key", "flow"]]],
    "external_ids": ["map", [["rail", "0"]]],
    "mac_in_use": "02:00:00:00:00:01",
    "link_state": "up",
    "mtu": ["set", []],
}


def by_replica(**changes):
    return interface_of(ovsdb._Columns(SimpleNamespace(**(REPLICA | changes))))


def by_json(**changes):
    return interface_of(rows._Columns(JSON | changes))


def test_both_readers_give_one_value():
    assert by_replica() == by_json() == FULL
    replica = by_replica(ofport=[], mac_in_use=[], options={}, external_ids={}, link_state=[])
    none, empty = ["set", []], ["map", []]
    json = by_json(ofport=none, mac_in_use=none, options=empty, external_ids=empty, link_state=none)
    assert replica == json == Interface("vx", "vxlan")


def test_each_reader_has_columns_that_the_other_does_not_read():
    assert by_replica(error=["no such device"]).error == "no such device"
    assert by_json(mtu=1450).mtu == 1450
    lacking = {name: value for name, value in JSON.items() if name != "mtu"}
    assert interface_of(rows._Columns(lacking)) == FULL


def test_a_number_is_one():
    with pytest.raises(TypeError, match="integer expected"):
        by_json(ofport="7")


def test_a_port_of_a_snapshot_says_what_its_row_does():
    port = Port(
        *("vx", 7, "br-int", "vxlan", (("key", "flow"), ("local_ip", "1.2.3.4"))),
        *((("rail", "0"),), "02:00:00:00:00:01", "up"),
    )
    assert port.interface == FULL


@pytest.mark.parametrize(
    ("ids", "is_so"), [(["ovn-nb-cfg"], True), (["a", "ct-zone-p1"], True), (["ovn-bridge"], False)]
)
def test_a_bridge_that_ovn_controller_marked_is_its_own(ids, is_so):
    assert drives(ids) == is_so
