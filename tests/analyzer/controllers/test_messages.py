# SPDX-License-Identifier: Apache-2.0
"""What goes between the analyzer and a reader of a controller comes out as it went in."""

import pytest

from analyzer.controllers import messages
from analyzer.controllers.messages import HEAD, MAX_FRAME_BYTES, MOST_TOLD
from analyzer.intent.changes import PORTS, Changes
from analyzer.intent.logical import LogicalFlow
from analyzer.intent.model import Allowed, Chassis, Encapsulation, Ladder, Placement, Port
from netagent.model.errors import RemoteProtocolError

PORT = Port("p", "net", "ns/pod", "", ("02:",), ("10.0.0.1",), ("h1",), allowed=(Allowed("02:"),))
CHANGES = Changes(
    "ovn", 7, {"p": PORT, "gone": None}, {"p": Placement("p", "h1", moves=3)},
    {"h1": Chassis("h1", "node", (Encapsulation("geneve", "10.1.0.1"),), installed=0)},
    Ladder(2, None, 5), {"southbound": "refused"}, (PORTS,), is_whole=False,
)  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        messages.Ready(pid=7),
        messages.Told(changes=CHANGES),
        messages.Source(database="northbound", remote="unix:/db", lacks=("A.b",)),
        messages.Flows(query=1, flows=(LogicalFlow("u", "ingress", 1, 2, "m", "a"),), more=3),
        messages.NoFlows(query=1, error="no"),
        messages.Differences(
            query=1, ports=(messages.MissingPort(port="p", cookie=1, tables=(65,), is_here=True),)
        ),
    ],
)
def test_what_a_reader_says_is_understood(message):
    frame = messages.framed(message)
    assert HEAD.unpack(frame[: HEAD.size]) == (len(frame) - HEAD.size,)
    assert messages.up(frame[HEAD.size :]) == message


@pytest.mark.parametrize(
    "message",
    [
        messages.Open(northbound=("unix:/nb",), southbound=("ssl:h:1",), ca="a", cert="b", key="c"),
        messages.AskFlows(query=2, prefixes=("1a2b3c4d",), datapath=3),
        messages.AskDifference(query=2, chassis="h", installed=((1, 2, 3),), kinds={"p": "10"}),
    ],
)
def test_what_a_reader_is_told_is_understood(message):
    assert messages.down(messages.framed(message)[HEAD.size :]) == message


def test_what_is_no_message_is_refused():
    for read in (messages.up, messages.down):
        with pytest.raises(RemoteProtocolError):
            read(b"\xc1")


def test_as_much_as_is_told_together_fits_into_a_message():
    """Of ports with sixteen addresses each that are also what they may send from."""
    addresses = tuple(f"fd00:0:0:0:ffff:ffff:ffff:{number:04x}" for number in range(16))
    allowed = (Allowed("02:00:00:00:00:01", addresses),)
    port = Port("n" * 256, "n" * 256, "p" * 300, "c" * 64, ("02:",), addresses, allowed=allowed)
    changes = Changes("ovn", 1, {f"{number}{port.name}": port for number in range(MOST_TOLD)})
    assert len(messages.framed(messages.Told(changes=changes))) < MAX_FRAME_BYTES / 4


def test_as_much_as_differs_at_most_fits_into_a_message():
    flow = messages.MissingFlow(
        cookie=2**32, stage="ls_in_l2_lkup", pipeline="ingress", logical_table=25, table=33,
        priority=50, match="\u4e00" * messages.MOST_MATCH, networks=("n" * 256,), owner="o" * 90,
    )  # fmt: skip
    unclear = messages.UnclearFlow(cookie=1, stage="s", match=flow.match, owner=flow.owner)
    most = messages.MOST_DIFFERENT
    said = messages.Differences(query=1, missing=(flow,) * most, unclear=(unclear,) * most)
    assert len(messages.framed(said)) < MAX_FRAME_BYTES
