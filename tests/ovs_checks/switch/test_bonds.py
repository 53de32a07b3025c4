# SPDX-License-Identifier: Apache-2.0
import pytest

from ovs_checks.switch.bonds import Bond, Member, parse_bonds

SHOWN = """\
---- bond0 ----
bond_mode: balance-slb
bond may use recirculation: no, Recirc-ID : -1
bond-hash-basis: 3
lb_output action: disabled, bond-id: -1
all members active: true
updelay: 0 ms
downdelay: 0 ms
next rebalance: 9996 ms
lacp_status: off
lacp_fallback_ab: false
active-backup primary: <none>
active member mac: aa:55:aa:55:00:02(p2)

member p1: enabled
  may_enable: true
  hash 7: 12 kB load
  hash 200: 1 kB load

member p2: enabled
  active member
  may_enable: true

---- bond2 ----
bond_mode: active-backup
active member mac: aa:55:aa:55:00:09(none)

member p5: enabled
  active member
  may_enable: true

---- bond1 ----
bond_mode: balance-tcp
bond may use recirculation: yes, Recirc-ID : 5
bond-hash-basis: 0
lb_output action: enabled, bond-id: 5
lacp_status: negotiated
lacp_fallback_ab: true
active slave mac: 00:00:00:00:00:00(none)

slave p3: disabled
  may_enable: true
slave p4: enabled
  may_enable: true
"""


def test_bonds_are_read_whatever_members_are_called():
    assert parse_bonds(SHOWN) == {
        "bond0": Bond(
            "balance-slb",
            (Member("p1", hashes=frozenset({7, 200})), Member("p2")),
            "p2",
            all_active=True,
            basis=3,
        ),
        "bond2": Bond("active-backup", (Member("p5"),), "p5"),
        "bond1": Bond(
            "balance-tcp",
            (Member("p3", enabled=False), Member("p4")),
            "",
            "negotiated",
            lacp_fallback=True,
            recirculation=5,
            lb_output=5,
        ),
    }


@pytest.mark.parametrize("cut", range(0, len(SHOWN), 13))
def test_what_was_cut_off_is_no_error(cut):
    assert set(parse_bonds(SHOWN[:cut])) <= {"bond0", "bond1", "bond2"}
