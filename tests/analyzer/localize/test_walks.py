# SPDX-License-Identifier: Apache-2.0
"""Overlay walks of failing pairs: real questions, answered over the lab's own flow tables."""

from dataclasses import replace

import pytest
from msgspec import structs

from analyzer.detect.flows import Flows, FlowView
from analyzer.localize import overlay
from analyzer.localize.case import Case, unordered
from analyzer.localize.contract import Context
from analyzer.localize.overlay import Overlay
from analyzer.localize.sentences import sentences
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.tracing.doubts import Doubts
from analyzer.localize.voting.counting import asking
from analyzer.localize.voting.counting.counts import Wanted
from analyzer.localize.walks import Packet
from analyzer.questions import Failed, Why
from analyzer.roster.registry import Registry
from netagent.commands.check import answer_one
from netagent.host.ports import ContainerPort
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.wire.conversion import walk_to_wire
from netagent.wire.messages import (
    CheckReply,
    EgressQuestion,
    IngressQuestion,
    Registration,
    Service,
)
from tests.analyzer.asking import drive
from tests.lab.pipeline import destination_match, tunnel_flow
from tests.lab.shape import vtep
from tests.ovs_checks.hosts import A2, CONTAINERS, host, host6, six


def endpoint(container, rail):
    found = container.endpoint(rail)
    return Endpoint(
        EndpointId(container.id, rail), container.task, f"h{container.host}", found.address,
        found.mac, vtep(container.host, rail), f"rnic{rail}", "br-int", found.port,
    )  # fmt: skip


ENDPOINTS = {e.id: e for c in CONTAINERS for rail in (0, 1) for e in [endpoint(c, rail)]}
A, B, C = (EndpointId(f"train-a-{n}", 0) for n in (0, 2, 1))
TO_B = destination_match(A2)


def registry():
    made = Registry()
    for name in {e.host for e in ENDPOINTS.values()}:
        mine = tuple(e for e in ENDPOINTS.values() if e.host == name)
        made.apply(
            Registration(host=name, instance="i", generation=1, rpc_url="", endpoints=mine), 0
        )
    return made


class Agents:
    """Four agents, whose flow tables `change` may disturb by host number."""

    def __init__(self, change=None, dead=(), host=host, endpoints=ENDPOINTS, roster=None):
        self.change, self.dead = change or {}, dead
        self.host, self.endpoints = host, endpoints
        self.roster = roster or registry()
        self.asked = []

    def reply(self, ask):
        name, request = ask.host, ask.request
        self.asked.append(name)
        if name in self.dead:
            return Failed(Why.TIMEOUT, "timeout")
        number = int(name[1:])
        snapshot = self.host(number, self.change.get(number, list))
        ports = {
            e.id: ContainerPort(e.id, e.task, e.port, e.address, e.mac)
            for e in self.endpoints.values()
            if e.host == name
        }
        walks = [walk_to_wire(answer_one(q, snapshot, ports)) for q in request.questions]
        return CheckReply(walks=tuple(walks), wall_ns=1)


def view(source, target, *, lost):
    return FlowView(FlowId(source, target, 1), 6, lost, 0, 2, 0, lost, 1000)


def diagnose(agents, *, dead=((A, B), (B, A)), healthy=((A, C), (C, A), (B, C), (C, B))):
    """Return what is explained of pairs that cannot talk, and what is missing."""
    flows = [view(*pair, lost=6) for pair in dead] + [view(*pair, lost=0) for pair in healthy]
    case = Case(Window(0, 5), agents.endpoints, Flows.of(flows))
    context = Context(agents.roster, LearnedTopology(), Doubts(18515), 18515)
    return drive(Overlay(context).explain(case), agents.reply), case.missing


def without(flows):
    return [f for f in flows if not (TO_B in f and "table=40," in f)]


@pytest.mark.parametrize(
    ("change", "component", "words"),
    [
        (without, "flow h0/br-int/table=40", "missed"),
        (
            lambda flows: [*flows, f"table=40,priority=200,{TO_B},actions=resubmit(,30)"],
            "flow h0/br-int/table=40",
            "loop",
        ),
        (
            lambda flows: [*flows, f"table=30,priority=200,{TO_B},actions=drop"],
            "flow h0/br-int/table=30",
            "dropped",
        ),
        (
            lambda flows: [*without(flows), tunnel_flow(A2, remote=vtep(3, 0)).text()],
            "flow h0/br-int/table=40",
            "wrong tunnel",
        ),
        (
            lambda flows: [*without(flows), tunnel_flow(A2, vni=1501).text()],
            "flow h0/br-int/table=40",
            "wrong vni",
        ),
    ],
    ids=["deleted", "loop", "drop", "wrong remote", "wrong VNI"],
)
def test_the_entry_at_fault_is_named_and_accounts_for_both_directions(change, component, words):
    explained, missing = diagnose(Agents({0: change}))
    assert missing == []
    (found,) = explained
    assert str(found.verdict.component) == component
    assert found.verdict.summary.startswith(words)
    assert found.verdict.confidence > 0.95
    assert {unordered((v.flow.source, v.flow.target)) for v in found.flows} == {unordered((A, B))}
    assert any("table=" in line for line in sentences(found.verdict.evidence))


def test_a_fault_at_the_far_end_is_named_there():
    gone = f"reg2={A2.ofport:#x}"
    change = {2: lambda flows: [f for f in flows if not (gone in f and "table=50," in f)]}
    explained, _ = diagnose(Agents(change))
    assert [str(e.verdict.component) for e in explained] == ["flow h2/br-int/table=50"]


def test_a_host_that_speaks_of_another_ones_tables_is_not_believed():
    class Liar(Agents):
        def reply(self, ask):
            reply = super().reply(ask)
            lies = [structs.replace(walk, host="h3") for walk in reply.walks]
            return structs.replace(reply, walks=tuple(lies)) if ask.host == "h0" else reply

    explained, missing = diagnose(Liar({0: without}))
    assert explained == []
    assert any("another host" in line for line in missing)


class Liar(Agents):
    """h0 says that its flow sends what it does not, and drops what A is sent."""

    def __init__(self, change, *, onward="lost", **said):
        super().__init__(change)
        self.said, self.onward = said, onward

    def reply(self, ask):
        reply = super().reply(ask)
        if ask.host != "h0":
            return reply
        if isinstance(ask.request.questions[0], IngressQuestion):
            if self.onward == "silent":
                return Failed(Why.TIMEOUT, "timeout")
            lies = [self.change_ends(walk, kind="missed") for walk in reply.walks]
            return structs.replace(reply, walks=tuple(lies)) if self.onward == "lost" else reply
        lies = [self.change_ends(walk, **self.said) for walk in reply.walks]
        return structs.replace(reply, walks=tuple(lies))

    @staticmethod
    def change_ends(walk, header=("", ""), written=(), **said):
        ends = [
            structs.replace(
                end, header=end.header.replace(*header), **dict.fromkeys(written, end.flow), **said
            )
            for end in walk.ends
        ]
        return structs.replace(walk, ends=tuple(ends))


MAC_B = f"eth_dst={ENDPOINTS[B].mac}"
FILTERS = [
    "table=30,priority=200,ip,nw_dst=10.0.0.99,actions=drop",
    "table=30,priority=200,dl_src=02:00:00:00:00:99,actions=drop",
    f"table=30,priority=200,dl_dst=02:00:00:00:00:98,actions=output:{A2.ofport}",
    "table=30,priority=200,dl_dst=02:00:00:00:00:99,actions=drop",
]
"""Of a far end: nobody's packets are lost by them but those that nobody sends."""


@pytest.mark.parametrize(
    "lie",
    [
        {"tun_id": 77, "onward": "silent"},
        {"tun_id": 77},
        {"tun_id": 77, "written": ["eth_dst_by"], "onward": "fine"},
        {"header": (f"nw_dst={A2.address}", "nw_dst=10.0.0.99"), "written": ["nw_dst_by"]},
        {
            "header": (f"eth_src={ENDPOINTS[A].mac}", "eth_src=02:00:00:00:00:99"),
            "written": ["eth_dst_by"],
        },
        {"header": (MAC_B, "eth_dst=02:00:00:00:00:98"), "written": ["eth_dst_by"]},
        {"header": (MAC_B, "eth_dst=02:00:00:00:00:99"), "written": ["eth_dst_by"]},
    ],
    ids=["key", "key, lost", "key, router", "address", "sender", "another's", "nobody's"],
)
def test_no_tables_are_named_for_a_packet_that_another_host_makes_up(lie):
    """Not even where the liar's own part is not known to be one, or is named."""
    explained, missing = diagnose(Liar({2: lambda flows: [*flows, *FILTERS]}, **lie))
    named = {str(each.verdict.component) for each in explained}
    assert [name for name in named if not name.split(" ")[1].startswith("h0/")] == []
    assert named or any("h0 sends it" in text for text in missing)


def test_no_tables_are_named_where_nothing_is_known_of_the_way_back():
    class HalfSilent(Liar):
        def reply(self, ask):
            is_back = isinstance(ask.request.questions[0], EgressQuestion) and ask.host == "h2"
            return Failed(Why.TIMEOUT, "timeout") if is_back else super().reply(ask)

    explained, missing = diagnose(HalfSilent({}, tun_id=77))
    assert explained == []
    assert any("h0 sends it in a way of its own" in text for text in missing)


def from_h0_alone(number, change=list):
    """Return a host whose tunnels take what comes from h0's own address."""
    found = host(number, change)
    fixed = (("key", "flow"), ("local_ip", vtep(number, 0)), ("remote_ip", vtep(0, 0)))
    ports = [replace(p, options=fixed) if p.options else p for p in found.bridges[0].ports]
    return replace(found, bridges=(replace(found.bridges[0], ports=tuple(ports)),))


def test_no_tunnel_is_named_for_a_packet_from_an_address_that_its_host_makes_up():
    liar = Liar({}, tun_src="172.30.0.99", onward="fine")
    liar.host = lambda number, change: (from_h0_alone if number == 2 else host)(number, change)
    explained, missing = diagnose(liar)
    assert explained == []
    assert any("h0 sends it from 172.30.0.99" in text for text in missing)


def test_whole_tables_accuse_nobody():
    assert diagnose(Agents()) == ([], [])


def test_an_agent_that_does_not_answer_is_missing_evidence_and_no_verdict():
    explained, missing = diagnose(Agents(dead=("h2",)))
    assert explained == []
    assert any("h2" in text for text in missing)


def test_each_host_is_asked_once_per_round():
    agents = Agents()
    diagnose(agents)
    assert sorted(agents.asked) == sorted(["h0", "h2"] * 2)


def test_pairs_are_chosen_from_every_group_and_bounded():
    dead = [(a, b) for a in ENDPOINTS for b in ENDPOINTS if a != b and a.rail == b.rail]
    chosen = overlay.choose(dead, ENDPOINTS)
    assert len(chosen) <= 2 * overlay.MAX_PAIRS
    assert all((b, a) in chosen for a, b in chosen)


def test_counts_that_cannot_be_had_are_left_out():
    wanted = [Wanted(FlowId(A, B, 1))]
    work = asking.count(wanted, ENDPOINTS, LearnedTopology(), large=False)
    assert drive(work, lambda _: Failed(Why.TIMEOUT, "timeout")) == []


# --- IPv6 ----------------------------------------------------------------------------------------

ENDPOINTS6 = {
    key: replace(e, address=six(e.address), underlay=six(e.underlay))
    for key, e in ENDPOINTS.items()
}


class Underlays:
    """Who has which end of a tunnel; of a registry, walks ask nothing else."""

    def host_of_underlay(self, address):
        return next(
            ((e.host, e.id.rail) for e in ENDPOINTS6.values() if e.underlay == address), None
        )


def ipv6(change=None):
    """Return the agents of a cluster of IPv6 endpoints over IPv6 tunnels."""
    return Agents(change, host=host6, endpoints=ENDPOINTS6, roster=Underlays())


def test_whole_tables_of_ipv6_accuse_nobody():
    agents = ipv6()
    assert diagnose(agents) == ([], [])
    assert sorted(agents.asked) == sorted(["h0", "h2"] * 2)


@pytest.mark.parametrize(
    ("host_number", "change", "component", "words"),
    [
        (0, without, "flow h0/br-int/table=40", "missed"),
        (
            0,
            lambda flows: [*without(flows), six(tunnel_flow(A2, remote=vtep(3, 0)).text())],
            "flow h0/br-int/table=40",
            "wrong tunnel",
        ),
        (
            0,
            lambda flows: [*without(flows), six(tunnel_flow(A2, vni=1501).text())],
            "flow h0/br-int/table=40",
            "wrong vni",
        ),
        (
            2,
            lambda flows: [
                *flows,
                f"table=30,priority=200,ipv6,ipv6_dst={six(A2.address)},actions=drop",
            ],
            "flow h2/br-int/table=30",
            "dropped",
        ),
        (
            0,
            lambda flows: [
                *without(flows),
                six(tunnel_flow(A2).text()).replace(
                    "actions=", "ipv6,actions=set_field:fd00::99->ipv6_dst,"
                ),
            ],
            "flow h0/br-int/table=40",
            "wrong address",
        ),
    ],
    ids=["deleted", "wrong remote", "wrong VNI", "drop at the far end", "rewritten"],
)
def test_the_entry_at_fault_is_named_for_ipv6_endpoints(host_number, change, component, words):
    explained, missing = diagnose(ipv6({host_number: change}))
    assert missing == []
    (found,) = explained
    assert str(found.verdict.component) == component
    assert found.verdict.summary.startswith(words)


# --- what is asked for -------------------------------------------------------------------------


def asked_with(service, agents=None):
    """Return the questions, there and back, with what is asked for instead of a probe."""
    agents, asked = agents or Agents(), []

    def reply(ask):
        asked.extend(ask.request.questions)
        return agents.reply(ask)

    packets = {(A, B): Packet(service), (B, A): Packet(service, is_reply=True)}
    context = Context(agents.roster, LearnedTopology(), Doubts(18515), 18515)
    pairs = [(A, B), (B, A)]
    asking = overlay.reaches_of(pairs, (), ENDPOINTS, context, packets=packets)
    reaches, *_ = drive(asking, reply)
    return reaches, asked


def test_the_first_packet_of_a_connection_is_walked_and_its_reply():
    reaches, asked = asked_with(Service(protocol="tcp", port=443, source_port=50_000))
    assert [reach.outcome for reach in reaches.values()] == ["delivered"] * 2
    told = {(q.connection, q.protocol, q.source_port, q.destination_port) for q in asked}
    assert told == {("new connection", "tcp", 50_000, 443), ("reply", "tcp", 443, 50_000)}


def test_a_load_balancer_is_what_the_source_sends_to_and_the_target_gets_what_it_makes_of_it():
    balanced = f"set_field:{ENDPOINTS[B].address}->ip_dst,resubmit(,30)"
    change = f"table=10,priority=200,ip,nw_dst=10.96.0.1,actions={balanced}"
    service = Service(protocol="tcp", port=443, address="10.96.0.1")
    _, asked = asked_with(service, Agents({0: lambda flows: [*flows, change]}))
    near = {q.target_address for q in asked if isinstance(q, EgressQuestion)}
    assert near == {"10.96.0.1", ENDPOINTS[A].address}
    far = {q.target_address for q in asked if isinstance(q, IngressQuestion)}
    assert far == {ENDPOINTS[A].address, ENDPOINTS[B].address}


def test_an_address_that_no_load_balancer_has_does_not_become_the_targets():
    reaches, _ = asked_with(Service(protocol="tcp", port=443, address="10.96.0.1"))
    assert reaches[A, B].outcome != "delivered"
    assert reaches[B, A].outcome == "delivered"
