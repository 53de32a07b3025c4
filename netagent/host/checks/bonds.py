# SPDX-License-Identifier: Apache-2.0
"""Bonds that carry rails: more than one member each."""

from collections.abc import Iterator

from netagent.host.checks.contract import Checked, Inspected, State


def bonds(seen: Inspected) -> Iterator[Checked]:
    """Check that each bond that carries a rail has at least two members."""
    rails = [uplink for uplink in seen.view.uplinks if uplink.bond]
    alone = [uplink for uplink in rails if len(uplink.members) < 2]
    for uplink in alone:
        has = f"only {uplink.members[0]}" if uplink.members else "no device"
        text = (
            f"{uplink.bond} of rail {uplink.rail} has {has}: a bond that is none, without a spare"
        )
        remedy = "look for the member that left: ip -d link, dmesg, ovs-appctl bond/show"
        yield Checked("bonds", State.WRONG, text, remedy, seen.itself)
    if not rails:
        yield Checked("bonds", State.OK, "no rail is carried by one")
    elif not alone:
        said = ", ".join(f"{each.bond}: {' '.join(each.members)}" for each in rails)
        yield Checked("bonds", State.OK, said)
