# SPDX-License-Identifier: Apache-2.0
"""An inventory on its way, also between versions one apart."""

from msgspec import Struct

from netagent.wire.codec import decode, encode
from netagent.wire.inventory import Inventory, RnicInventory
from netagent.wire.messages import Summary, SummaryHead

WINDOW = {"host": "h0", "instance": "one", "start_ns": 0, "width_ns": 5}
RNIC = RnicInventory(netdev="rnic0", model="15b3:1021", pfc=(), offload=False, mbps=400_000)
TOLD = Inventory(rnics=(RNIC,), kernel="6.1.0", hw_offload=False)


class Older(Struct, frozen=True, kw_only=True):
    """Some fields of a summary as an analyzer from before inventories knew it."""

    host: str
    width_ns: int


def test_an_inventory_goes_with_a_summary_and_keeps_what_is_not_known_apart():
    head = decode(encode(Summary(**WINDOW, inventory=TOLD)), SummaryHead)
    assert head.inventory == TOLD
    (found,) = head.inventory.rnics
    assert (found.pfc, found.dcqcn, found.offload, found.mtu) == ((), None, False, None)


def test_versions_one_apart_understand_each_other():
    new = encode(Summary(**WINDOW, inventory=TOLD))
    assert decode(new, Older) == Older(host="h0", width_ns=5)
    assert decode(encode(WINDOW), Summary).inventory is None
    later = {**WINDOW, "inventory": {"kernel": "6.1.0", "board": {"of": "a later version"}}}
    assert decode(encode(later), SummaryHead).inventory == Inventory(kernel="6.1.0")


def test_what_is_absent_takes_no_bytes():
    assert encode(Inventory()) == b"\x80"
