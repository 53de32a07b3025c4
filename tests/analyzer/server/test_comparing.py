# SPDX-License-Identifier: Apache-2.0
import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from analyzer.controllers.messages import (
    Differences,
    FewerFlows,
    MissingFlow,
    MissingPort,
    StaleFlows,
)
from analyzer.intent.model import Allowed, Chassis, Intent, Ladder, Placement, Port
from analyzer.roster.driven import DrivenHosts
from analyzer.server import comparing as room
from analyzer.server.comparing import MOST_AT_ONCE, Comparisons
from netagent.model.errors import CapabilityMissing, Unreachable
from netagent.wire.controller import ControllerState, Working
from netagent.wire.messages import FlowsReply

NOW = 10**18
DUMP = ("cookie=0x7, table=33, priority=50,metadata=0x2 actions=drop", "table=40 actions=drop")
FLOW = MissingFlow(
    cookie=7, stage="s", pipeline="ingress", logical_table=1, table=9, priority=1, match="m",
    networks=("a", "b"), owner="port p",
)  # fmt: skip
PORT = MissingPort(port="p", cookie=8, tables=(64, 65), is_here=True)
STALE = StaleFlows(cookie=9, tables=(1,), flows=1)
FEWER = FewerFlows(cookie=5, stage="s", match="m", owner="o", had=2, has=1)
ALL = Differences(
    query=1, missing=(FLOW,), fewer=(FEWER,), ports=(PORT,), stale=(STALE,), compared=5
)
NONE = Differences(query=1, compared=5)
INTENT = Intent(
    "ovn", NOW, {},
    {
        "p": Port("p", allowed=(Allowed("02:", ("10.0.0.1", "fd00::1")), Allowed("06:"))),
        "q": Port("q", hosts=("h1", "h2")),
    },
    {"p": Placement("p", "h1"), "q": Placement("q", "h2"), "r": Placement("r", "h1")},
    {"h1": Chassis("h1", installed=3)}, Ladder(3, 3, 1),
)  # fmt: skip


class Made:
    """Comparisons of a host that answers what a test says, look after look."""

    def __init__(
        self, *answers, intent=INTENT, bridge="br-int", working=Working.CONNECTED, dump=DUMP
    ):
        self.answers, self.asked, self.slept = list(answers), [], []
        driven = DrivenHosts()
        state = ControllerState(source="ovn", chassis="h1", working=working)
        driven.take("h1", NOW, state, NOW)
        self.flows = dump
        controller = SimpleNamespace(intent_of=lambda _host: intent, difference=self.difference)
        self.it = Comparisons(
            controller, driven, self.dump, lambda _host: bridge, lambda: NOW, self.sleep
        )

    async def difference(self, asked, *, host):
        assert host == "h1"
        self.asked.append(asked)
        return self.answers.pop(0)

    async def dump(self, _host, bridge):
        if isinstance(self.flows, Exception):
            raise self.flows
        return FlowsReply(bridge=bridge, wall_ns=NOW, flows=self.flows)

    async def sleep(self, seconds):
        self.slept.append(seconds)

    def read(self, host="h1"):
        return asyncio.run(self.it.read(host))


def test_a_host_that_differs_in_nothing_is_looked_at_once():
    made = Made(NONE)
    told = made.read()
    assert (told.cannot, told.differs, told.notes, told.flows, told.fixed) == ("", False, (), 2, 1)
    assert (told.chassis, told.bridge, made.slept, made.it.asked) == ("h1", "br-int", [], 1)
    (asked,) = made.asked
    assert (asked.chassis, asked.kinds, asked.moving) == ("h1", {"p": "00,11"}, ("q",))
    assert asked.installed == ((33, 7, 2), (40, 0, 0))
    assert len(set(asked.keys)) == 2


def test_what_differs_in_both_looks_is_told():
    made = Made(ALL, ALL)
    assert made.read().found == ALL
    assert made.slept == [room.AGAIN_S]


def test_what_is_there_in_the_second_look_was_on_its_way():
    assert not Made(ALL, NONE).read().differs


def test_what_is_missing_in_the_second_look_alone_may_be_on_its_way():
    other = Differences(
        query=2,
        missing=(FLOW, replace(FLOW, cookie=6)),
        fewer=(FEWER,),
        ports=(MissingPort(port="p", cookie=8, tables=(41, 65), is_here=True),),
        stale=(STALE, StaleFlows(cookie=1, tables=(1,), flows=1)),
    )
    narrow = Differences(
        query=1,
        missing=(replace(FLOW, networks=("b",)),),
        ports=(PORT,), stale=(STALE,),
    )  # fmt: skip
    found = Made(narrow, other).read().found
    assert [(each.cookie, each.networks) for each in found.missing] == [(7, ("b",))]
    assert [each.tables for each in found.ports] == [(65,)]
    assert found.stale == (STALE,)
    assert found.fewer == ()


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"bridge": ""}, "no endpoint of it is on a bridge"),
        ({"dump": Unreachable("h1", "refused")}, "refused"),
        ({"intent": Intent("ovn", NOW, {}, {}, {}, {})}, "no record of h1"),
    ],
)
def test_what_cannot_be_compared_is_said_and_counted(made, why):
    made = Made(NONE, **made)
    told = made.read()
    assert why in told.cannot
    assert (told.differs, made.it.asked, made.it.failed) == (False, 1, 1)


def test_a_host_that_no_controller_drives_has_no_intent():
    assert "no controller drives it" in Made(NONE).read("h9").cannot


def test_of_too_many_flows_none_are_compared(monkeypatch):
    monkeypatch.setattr(room, "MOST_FLOWS", 1)
    assert "more than 1" in Made(NONE).read().cannot


def test_what_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(room, "LIMIT_S", 0.01)
    made = Made()

    async def never(_asked, *, host):
        await asyncio.Event().wait()

    made.it._controller.difference = never
    assert "longer" in made.read().cannot
    assert not made.it._busy


def test_what_may_excuse_a_difference_is_said():
    behind = Intent(
        "ovn", NOW, {"northbound": "refused"}, {}, {}, {"h1": Chassis("h1", installed=2)},
        Ladder(3, 3, 1),
    )  # fmt: skip
    told = Made(NONE, intent=behind, working=Working.CUT_OFF).read()
    assert len(told.notes) == 3
    assert "generation 2 of 3" in told.notes[1]


def test_a_host_is_compared_once_at_a_time_and_few_hosts_together():
    made = Made(NONE)
    made.it._busy.add("h1")
    with pytest.raises(CapabilityMissing):
        made.read()
    made.it._busy = {f"g{number}" for number in range(MOST_AT_ONCE)}
    with pytest.raises(CapabilityMissing):
        made.read()
    assert (made.it.asked, made.it.refused) == (0, 2)
