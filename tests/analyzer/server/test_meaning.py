# SPDX-License-Identifier: Apache-2.0
import asyncio
from types import SimpleNamespace

import pytest

from analyzer.controllers.messages import Flows, Meanings
from analyzer.intent.logical import LogicalFlow
from analyzer.intent.model import Chassis, Intent, Placement, Port
from analyzer.localize.observations import Policy
from analyzer.questions import MeaningRequest, Meant
from analyzer.roster.driven import DrivenHosts
from analyzer.server.meaning import Meanings as Answers
from analyzer.server.meaning import keys, places
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, Unreachable
from netagent.wire.controller import ControllerState, PluggedPort
from netagent.wire.messages import FlowsReply
from netagent.wire.walk import End, Quote

NOW = 10**18
DUMP = (
    "cookie=0xcb4a233a, table=33, priority=50,metadata=0x2 actions=set_field:0x4->reg15",
    "cookie=0x0, table=39, priority=100,reg15=0x4,metadata=0x2 actions=output:4",
    "table=40, priority=0 actions=set_field:0x5->metadata",
    "cookie=0x7, table=1, metadata=0x1/0xff actions=drop",
)


def state(host, *ports):
    plugged = tuple(PluggedPort(name=name, interface=f"{name}-i") for name in ports)
    return ControllerState(source="ovn", chassis=host, ports=plugged)


def meaning(
    meant, *, chassis=("h1", "h2"), placed="", away=(), ports=("p",), host="h1", came="", macs=(),
    of_h2=None, of_h1=(), h1_is="h1", more=(),
):  # fmt: skip
    asked, asking_host = [], host

    async def answer(question, *, host):
        assert host == asking_host
        asked.append(question)
        return Meanings(query=1, meant=(meant,))

    async def dump(host, bridge):
        return FlowsReply(bridge=bridge, wall_ns=NOW, flows=DUMP)

    intent = Intent(
        "ovn", NOW, dict(away),
        {
            name: Port(name, is_enabled=name != "off", macs=dict(macs).get(name, ()))
            for name in ports
        },
        {"p": Placement("p", placed)}, {name: Chassis(name, name) for name in chassis},
    )  # fmt: skip
    driven = DrivenHosts()
    driven.take("h1", NOW, state(h1_is, *of_h1), NOW)
    for each in more:
        driven.take(each, NOW, state(each), NOW)
    driven.take("h2", NOW, of_h2 or state("h2", "p"), NOW)
    made = Answers(SimpleNamespace(intent_of=lambda _host: intent, meaning=answer), driven, dump)
    dropped = End(kind="dropped", bridge="br-int", table=0, reason="drop")
    asking = MeaningRequest(bridge="br-int", ends=(dropped,), ports=(came,) if came else ())
    return asyncio.run(made.read(host, asking, 60.0)).meant[0], asked


def test_flows_are_read_as_they_are_printed():
    assert places(DUMP) == ((33, 0xCB4A233A, 2), (39, 0, 2), (40, 0, 0), (1, 7, 0))


def test_what_a_flow_is_known_by_is_its_table_priority_and_match():
    one, again, other, lasting, numbered, anew = keys((
        "cookie=0x1, duration=1s, table=3, n_packets=1, idle_age=7, priority=5,ip actions=drop",
        "cookie=0x2, duration=9s, table=3, n_packets=0, n_bytes=0, priority=5,ip actions=output:1",
        "cookie=0x1, duration=1.2s, table=3, n_packets=1, n_bytes=1, priority=6,ip actions=drop",
        "cookie=0x1, table=33, idle_timeout=7, priority=5,ip actions=drop",
        "cookie=0x1, table=33, conj_id=7,ip actions=drop",
        "cookie=0x1, table=33, conj_id=8,ip actions=drop",
    ))  # fmt: skip
    assert one == again != other
    assert (lasting, numbered) == (0, anew)


def test_the_reader_is_asked_with_the_flows_and_what_is_disabled():
    told, (asked,) = meaning(Meant(meaning="refused"), ports=("p", "off"))
    assert told == Meant(meaning="refused")
    assert (asked.chassis, asked.disabled, len(asked.installed)) == ("h1", ("off",), len(DUMP))


UNKNOWN = Meant(meaning="unknown", text="dropped")
MAC = "02:00:00:00:00:01"


@pytest.mark.parametrize(("macs", "part"), [({"p": (MAC.upper(),)}, "port p"), ({}, "")])
def test_an_interface_that_calls_itself_something_else_is_known_by_its_hardware_address(macs, part):
    plugged = PluggedPort(name="typo", interface="p-i", mac=MAC)
    state_of_h2 = ControllerState(source="ovn", chassis="h2", ports=(plugged,))
    told, _ = meaning(UNKNOWN, host="h2", came="p-i", macs=macs, of_h2=state_of_h2)
    assert told.part == part


def test_a_hardware_address_of_two_ports_tells_nothing():
    plugged = PluggedPort(name="typo", interface="p-i", mac=MAC)
    state_of_h2 = ControllerState(source="ovn", chassis="h2", ports=(plugged,))
    both = {"p": (MAC,), "q": (MAC,)}
    told, _ = meaning(
        UNKNOWN, host="h2", came="p-i", macs=both, of_h2=state_of_h2, ports=("p", "q")
    )
    assert told == UNKNOWN


def test_a_host_that_claims_a_port_which_another_one_has_accuses_nobody():
    """As one with a stolen key may, of pairs of its own."""
    liar = state("h2", "p")
    told, _ = meaning(UNKNOWN, host="h2", came="p-i", placed="h1", of_h2=liar, of_h1=("p",))
    assert told == UNKNOWN


def test_a_host_that_says_that_it_is_another_one_is_told_nothing_of_that_one():
    with pytest.raises(CapabilityMissing):
        meaning(UNKNOWN, host="h2", of_h2=state("h1", "p"))


def test_who_says_that_it_is_another_host_with_a_port_excuses_nobody():
    liar = state("h2", "p")
    told, _ = meaning(UNKNOWN, host="h2", came="p-i", placed="h3", chassis=("h1", "h2", "h3"))
    assert told.part == "port p"
    told, _ = meaning(
        UNKNOWN, host="h2", came="p-i", placed="h3", chassis=("h1", "h2", "h3"), of_h2=liar,
        of_h1=("p",), h1_is="h3", more=("h3",),
    )  # fmt: skip
    assert told.part == "port p"


NOWHERE = Meant(meaning="missing", part="port p", by="port p", text="nowhere")


def test_what_comes_by_a_port_that_the_controller_has_elsewhere_is_its_fault():
    told, _ = meaning(UNKNOWN, host="h2", came="p-i", placed="h1")
    assert (told.meaning, told.part) == ("missing", "port p")
    assert "has it at h1" in told.text
    assert "no host" in meaning(UNKNOWN, host="h2", came="p-i")[0].text
    assert meaning(UNKNOWN, host="h2", came="p-i", chassis=("h1",))[0].part == "h2"


@pytest.mark.parametrize(
    "known",
    [
        {"placed": "h2"},
        {"away": {"OVN_Southbound": "refused"}},
        {"ports": ()},
        {"came": "another"},
        {"came": ""},
    ],
)
def test_what_comes_by_a_port_that_is_here_is_no_fault_of_its_binding(known):
    assert meaning(UNKNOWN, **({"host": "h2", "came": "p-i"} | known))[0] == UNKNOWN


def test_a_port_that_is_nowhere_is_at_fault_or_its_host_where_that_is_not_known():
    assert meaning(NOWHERE)[0].part == "port p"
    told, _ = meaning(NOWHERE, chassis=("h1",))
    assert told.part == "h2"
    assert "no record of h2" in told.text


def test_whatever_ends_at_a_host_of_which_there_is_no_record_is_its_controllers():
    """Its flows are those of before, and lead nowhere; nobody is asked what they mean."""
    told, asked = meaning(Meant(meaning="unknown"), chassis=("h2",))
    assert (told.meaning, told.part, asked) == ("missing", "h1", [])
    told, asked = meaning(Meant(meaning="unknown"), chassis=("h2",), away={"x": "refused"})
    assert (told.part, len(asked)) == ("", 1)


@pytest.mark.parametrize(
    "known", [{"placed": "h2"}, {"away": {"OVN_Southbound": "refused"}}, {"ports": ()}]
)
def test_a_port_that_is_somewhere_or_that_nobody_knows_now_is_not_accused(known):
    assert meaning(NOWHERE, **known)[0].part == ""


def test_a_host_that_no_controller_drives_has_no_intent():
    driven = DrivenHosts()
    driven.take("h8", 1, ControllerState(source="acme", chassis="c8"), 1)
    made = Answers(None, driven, None)
    with pytest.raises(CapabilityMissing):
        asyncio.run(made.read("h8", MeaningRequest(bridge="br-int", ends=()), 60.0))
    with pytest.raises(CapabilityMissing):
        asyncio.run(made.read("h9", MeaningRequest(bridge="br-int", ends=()), 60.0))


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_what_a_policy_refused_stays_refused_while_nobody_can_be_asked(how):
    fails = False

    async def answer(_question, *, host):
        assert host == "h1"
        if fails and how == "hangs":
            await asyncio.Event().wait()
        if fails:
            raise RemoteProtocolError("no leader")
        return Meanings(query=1, meant=(Meant(meaning="refused", by="ACL quarantine"), UNKNOWN))

    async def dump(_host, bridge):
        return FlowsReply(bridge=bridge, wall_ns=NOW, flows=DUMP)

    driven = DrivenHosts()
    driven.take("h1", NOW, state("h1"), NOW)
    intent = Intent("ovn", NOW, chassis={"h1": Chassis("h1", "h1")})
    controller = SimpleNamespace(intent_of=lambda _host: intent, meaning=answer)
    made = Answers(controller, driven, dump)
    ends = [stopped_by(7), stopped_by(9), stopped_by(11)]

    async def inside():
        nonlocal fails
        asked = MeaningRequest(bridge="br-int", ends=tuple(ends[:2]))
        first = await made.read("h1", asked, 60.0)
        fails = True
        second = await made.read("h1", MeaningRequest(bridge="br-int", ends=tuple(ends)), 0.05)
        with pytest.raises((RemoteProtocolError, Unreachable)):
            await made.read("h1", MeaningRequest(bridge="br-int", ends=(ends[2],)), 0.05)
        return first, second

    first, second = asyncio.run(inside())
    assert [each.meaning for each in first.meant] == ["refused", "unknown"]
    assert second.meant == (first.meant[0], Meant(), Meant())


def stopped_by(cookie):
    flow = Quote(bridge="br-int", table=44, priority=1, cookie=cookie, text="actions=drop")
    return End(kind="dropped", bridge="br-int", table=44, reason="drop", flow=flow)


@pytest.mark.parametrize("known", [True, False])
def test_policies_have_the_names_of_their_acls(known):
    async def flows(prefixes, *, host):
        assert host == "h1"
        if not known:
            raise CapabilityMissing("reading", "ask later")
        assert list(prefixes) == ["000000ab", "000000ef", "cd000000"]
        found = (
            LogicalFlow(
                "000000ab-1", "egress", 4, 1, "ip4", "drop;", stage="ls_out_acl", hint="h1"
            ),
            LogicalFlow(
                "cd000000-1", "ingress", 1, 1, "1", "drop;", stage="ls_in_l2_lkup", hint="h"
            ),
            LogicalFlow(
                "000000ef-1", "egress", 9, 50, "reg0[15] == 1", "drop;",
                stage="ls_out_apply_port_sec",
            ),
            LogicalFlow(
                "000000aa-1", "egress", 4, 1, "ip4", 'reg0[1] = 1; log(name="x"); next;',
                stage="ls_out_acl", hint="h1",
            ),
        )  # fmt: skip
        return Flows(query=1, flows=found, owners={"h1": "ACL quarantine"})

    together = SimpleNamespace(flows=flows, together=lambda hosts: [sorted(hosts)])
    made = Answers(together, DrivenHosts(), None)
    told = asyncio.run(made.policies({"h1": {0xAB, 0xEF}, "h2": {0xCD000000}}))
    acl, secured = Policy("ACL quarantine"), Policy("port security", "target")
    assert told == ({("h1", 0xAB): acl, ("h1", 0xEF): secured} if known else {})


def test_a_cookie_that_a_policys_flow_shares_with_another_one_is_no_policys():
    async def flows(_prefixes, *, host):
        stages = ("ls_out_acl", "ls_in_l2_lkup")
        found = (
            LogicalFlow(f"000000ab-{n}", "egress", 4, 1, "1", "drop;", stage=stage, hint="h1")
            for n, stage in enumerate(stages)
        )
        return Flows(query=1, flows=tuple(found), owners={"h1": "ACL quarantine"})

    together = SimpleNamespace(flows=flows, together=lambda hosts: [sorted(hosts)])
    made = Answers(together, DrivenHosts(), None)
    assert asyncio.run(made.policies({"h1": {0xAB}})) == {}


def test_a_zone_s_policies_are_of_its_own_host_s_flows():
    """What another one says of the same cookie is nobody's word."""

    async def flows(prefixes, *, host):
        assert list(prefixes) == ["000000ab"]
        if host == "h1":
            return Flows(query=1, flows=())
        found = LogicalFlow(
            "000000ab-1", "egress", 4, 1, "ip4", "drop;", stage="ls_out_acl", hint="h1"
        )
        return Flows(query=1, flows=(found,), owners={"h1": "ACL a lie"})

    apart = SimpleNamespace(flows=flows, together=lambda hosts: [[each] for each in sorted(hosts)])
    told = asyncio.run(Answers(apart, DrivenHosts(), None).policies({"h1": {0xAB}, "h2": {0xAB}}))
    assert told == {("h2", 0xAB): Policy("ACL a lie")}
