# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.intent.differences.contract import Difference
from analyzer.localize.intended import KEPT_NS, UNTOLD, Apart, astray, read
from analyzer.questions import CHANGED, Failed, MeaningReply, Meant, Why
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import controller, flow_table, tunnel, vswitch
from ovs_checks.translate.ends import End, Quote
from ovs_checks.walk.reach import Reach
from ovs_checks.walk.values import LocalWalk
from tests.analyzer.cluster import endpoint

PAIR = EndpointId("a", 0), EndpointId("b", 0)
OTHER = EndpointId("a", 1), EndpointId("b", 1)
FLOW = Quote("br-int", 40, 0, 0, 0, 0, "priority=0 actions=drop")


def walk(kind="dropped", host="h1", bridge="br-int"):
    end = End(kind, bridge, 40, "drop", flow=FLOW)
    return LocalWalk(host, "br-int", "a-0", (end,), ())


def stopped(host="h1", outcome="dropped"):
    return Reach(outcome, flow_table(host, "br-int", 40), "drop", FLOW)


def told(reaches, egress, ingress, *replies):
    missing = []
    asking = read(reaches, egress, ingress, missing)
    try:
        asks = next(asking)
        asking.send(replies)
    except StopIteration as done:
        reaches, _ = done.value
        return ([] if not replies else asks), reaches, missing
    raise AssertionError("it asks twice")


@pytest.mark.parametrize(("why", "said"), [(Why.TIMEOUT, {PAIR: UNTOLD}), (Why.CANNOT, {})])
def test_a_controller_that_is_too_late_may_want_what_is_so(why, said):
    asking = read({PAIR: stopped()}, {PAIR: walk()}, {}, [])
    next(asking)
    with pytest.raises(StopIteration) as done:
        asking.send([Failed(why, "why")])
    assert done.value.value == ({PAIR: stopped()}, said)


def meant(**values):
    return MeaningReply(meant=(Meant(text="why", **values),))


def test_what_arrives_is_not_asked_about():
    reaches = {PAIR: Reach("delivered", None, "")}
    assert told(reaches, {PAIR: walk("output")}, {}) == ([], reaches, [])


@pytest.mark.parametrize(
    ("reply", "component", "outcome"),
    [
        (meant(meaning="missing", part="port p"), controller("port p"), "dropped"),
        (meant(meaning="missing", part="h2"), controller("h2"), "dropped"),
        (meant(meaning="missing", table=33), flow_table("h1", "br-int", 33), "missed"),
        (meant(meaning="missing"), flow_table("h1", "br-int", 40), "dropped"),
        (meant(meaning="unasked"), flow_table("h1", "br-int", 40), "dropped"),
        (meant(), flow_table("h1", "br-int", 40), "dropped"),
    ],
)
def test_what_is_missing_is_at_fault_and_what_nobody_knows_stays(reply, component, outcome):
    _, found, _ = told({PAIR: stopped()}, {PAIR: walk()}, {}, reply)
    assert (found[PAIR].component, found[PAIR].outcome) == (component, outcome)


@pytest.mark.parametrize("meaning", ["refused", CHANGED])
def test_what_a_policy_refuses_or_what_changes_now_is_no_fault(meaning):
    _, found, missing = told({PAIR: stopped()}, {PAIR: walk()}, {}, meant(meaning=meaning))
    assert found == {PAIR: None}
    assert missing == []


BACK = PAIR[1], PAIR[0]
ARRIVES = Reach("delivered", None, "")
UNREAD = Reach("cannot_tell", None, "no answer")


@pytest.mark.parametrize(
    ("told", "said", "is_still"),
    [
        ({}, {}, True),  # no walk was answered
        ({PAIR: UNREAD, BACK: ARRIVES}, {}, True),
        ({PAIR: stopped(), BACK: ARRIVES}, {}, True),  # the controller was not
        ({PAIR: stopped(), BACK: ARRIVES}, {PAIR: "unasked"}, True),
        ({PAIR: stopped(), BACK: ARRIVES}, {PAIR: UNTOLD}, True),
        ({PAIR: ARRIVES, BACK: ARRIVES}, {}, False),
        ({PAIR: stopped(), BACK: ARRIVES}, {PAIR: "missing"}, False),
        ({PAIR: None, BACK: ARRIVES}, {PAIR: CHANGED}, False),
        ({PAIR: None, BACK: ARRIVES}, {PAIR: "refused"}, False),  # it is said, and need not be kept
    ],
)
def test_a_policy_stands_while_nobody_can_be_asked(told, said, is_still):
    apart = Apart()
    assert apart.saw([PAIR, BACK], {PAIR: None, BACK: ARRIVES}, {PAIR: "refused"}, 7) == set()
    still = apart.saw([PAIR, BACK, OTHER], told, said, 7 + KEPT_NS - 1)
    assert still == ({PAIR} if is_still else set())
    again = apart.saw([BACK], {}, {}, 7 + KEPT_NS)
    assert again == ({PAIR} if "refused" in said.values() else set())


ENDS = {key: endpoint(f"h{key.container}", key.container) for pair in (PAIR, OTHER) for key in pair}
OFFERS, CLAIMS = (
    Difference(Finding(kind, controller(part), "what differs", 1), **whom)
    for kind, part, whom in (
        (FindingKind.TUNNEL_ADDRESS_WRONG, "tunnel hb", {"hosts": ("hb",)}),
        (FindingKind.PORT_CONTESTED, "port b", {"endpoints": (PAIR[1],)}),
    )
)


@pytest.mark.parametrize(
    ("pair", "outcome", "component", "blamed"),
    [
        (PAIR, "wrong_tunnel", tunnel("ha", "ovn-hb-0"), {"tunnel hb", "port b"}),
        (PAIR, "wrong_port", flow_table("hc", "br-int", 65), {"tunnel hb", "port b"}),
        (BACK, "missed", vswitch("ha"), {"tunnel hb"}),
        (BACK, "missed", tunnel("ha", "vx0"), {"tunnel hb"}),
        (BACK, "wrong_tunnel", tunnel("hb", "ovn-ha-0"), set()),
        (PAIR, "missed", vswitch("hb"), set()),
        (BACK, "missed", flow_table("ha", "br-int", 33), set()),
        (PAIR, "dropped", flow_table("ha", "br-int", 40), set()),
    ],
)
def test_who_misled_the_controller_is_at_fault_for_where_others_send(
    pair, outcome, component, blamed
):
    reaches = {pair: Reach(outcome, component, "why")}
    assert astray(reaches, ENDS, ()) == reaches
    for difference in (OFFERS, CLAIMS):
        accused, found = difference.finding.component, astray(reaches, ENDS, [difference])[pair]
        assert found.component == (accused if accused.name in blamed else component)


@pytest.mark.parametrize("kind", ["controller", "missed"])
def test_a_packet_that_goes_to_a_controller_is_asked_about_too(kind):
    reaches = {PAIR: stopped(outcome="cannot_tell")}
    asks, found, _ = told(reaches, {PAIR: walk(kind)}, {}, meant(meaning="refused"))
    assert asks[0].request.ends[0].kind == kind
    assert found == {PAIR: None}


def test_the_host_is_asked_on_which_the_packet_is_stopped_each_once():
    reaches = {PAIR: stopped("h2"), OTHER: stopped("h2")}
    egress = dict.fromkeys(reaches, walk("tunnelled"))
    ingress = dict.fromkeys(reaches, walk(host="h2"))
    reply = MeaningReply(meant=(Meant(meaning="refused"), Meant()))
    asks, found, _ = told(reaches, egress, ingress, reply)
    assert [(each.host, each.request.bridge, len(each.request.ends)) for each in asks] == [
        ("h2", "br-int", 2)
    ]
    assert asks[0].request.ports == ("a-0", "a-0")
    assert [each is None for each in found.values()] == [True, False]


@pytest.mark.parametrize(
    "reply", [Failed(Why.CANNOT, "no controller drives it"), MeaningReply(meant=())]
)
def test_without_an_answer_all_stays_and_it_is_missed(reply):
    reaches = {PAIR: stopped()}
    _, found, missing = told(reaches, {PAIR: walk()}, {}, reply)
    assert found == reaches
    assert "controller of h1" in missing[0]


def test_of_a_host_one_bridge_is_asked_about_however_many_it_says_that_there_are():
    pairs = [(EndpointId(f"a{n}", 0), EndpointId("b", 0)) for n in range(9)]
    bridges = ["br-int", "br-int", *(f"br{n}" for n in range(7))]
    egress = {p: walk(bridge=bridge) for p, bridge in zip(pairs, bridges, strict=True)}
    reply = MeaningReply(meant=(Meant(meaning="refused"),) * 2)
    asks, found, missing = told({pair: stopped() for pair in pairs}, egress, {}, reply)
    assert [(each.request.bridge, len(each.request.ends)) for each in asks] == [("br-int", 2)]
    assert [pair for pair in pairs if found[pair] is None] == pairs[:2]
    assert len(missing) == 1
