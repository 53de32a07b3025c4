# SPDX-License-Identifier: Apache-2.0
"""A walk held against what the live Open vSwitch says of the same packet."""

from ovs_checks.datapath.essence import essence
from ovs_checks.openflow.packet import Header
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate.datapath import text_of
from ovs_checks.translate.translation import translate

from .values import Opinion

_SAID = "Datapath actions: "


def compare(snapshot: Snapshot, bridge: str, packet: Header, traced: str) -> Opinion:
    """Compare what the tables as dumped make of a packet with the text of `ofproto/trace`.

    Both up to the first recirculation, whose number is Open vSwitch's alone.
    """
    done = translate(snapshot, bridge, packet)
    if done.unknown:
        return unanswered(f"not compared, {done.unknown}")
    ours = text_of(done.steps)
    theirs = traced.partition(_SAID)[2].partition("\n")[0].strip()
    if not theirs:
        return unanswered(traced.strip().rpartition("\n")[2] or "nothing")
    same = essence(ours, {}, exact=True) == essence(theirs, {}, exact=True)
    return Opinion("agrees" if same else "differs", ours, theirs)


def unanswered(reason: str) -> Opinion:
    """Return the opinion of a switch that did not answer."""
    return Opinion("unanswered", "", reason[:200])
