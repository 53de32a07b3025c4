# SPDX-License-Identifier: Apache-2.0
import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from netagent.adapters.host.hops import Hop
from netagent.agent import answers
from netagent.agent.acting import Acting
from netagent.agent.answers import VALIDATE_EVERY_S, Answers, target_of, vteps_of
from netagent.agent.windows import Windows
from netagent.config import LimitsConfig
from netagent.host.facts import HostView, Namespace, Uplink
from netagent.host.shedding import Shed
from netagent.model.encapsulation import GENEVE
from netagent.model.endpoint import Endpoint, RdmaAddress
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, TooSoon
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList, Target
from netagent.wire.messages import (
    CheckRequest,
    EgressQuestion,
    IngressQuestion,
    PathRequest,
    ProbeRequest,
)
from netagent.wire.trace import TraceReply, TraceRequest
from netagent.wire.validate import ValidateReply, ValidateRequest
from netagent.wire.zone import ZoneReply, ZoneRequest

A, B = EndpointId("a", 0), EndpointId("b", 0)
LISTED = Target(A, B, "10.0.0.11", "")
OWN = Endpoint(A, "t", "h0", "10.0.0.10", "", "", "", "", "")
BY_RDMA = replace(OWN, rdma=RdmaAddress("mlx5_0", "::ffff:10.0.0.10", (17,), 1, 1024))


def test_what_is_listed_needs_no_address():
    request = ProbeRequest(source=A, target=B, address="10.0.0.99")
    assert target_of(request, [LISTED], [BY_RDMA]) == LISTED


def test_what_is_not_listed_is_probed_at_its_address():
    request = ProbeRequest(source=A, target=B, address="10.0.0.99")
    assert target_of(request, [], [OWN]).address == "10.0.0.99"
    with pytest.raises(RemoteProtocolError, match="give its address"):
        target_of(ProbeRequest(source=A, target=B), [], [OWN])


def test_an_address_is_not_enough_for_rdma():
    request = ProbeRequest(source=A, target=B, address="10.0.0.99")
    with pytest.raises(RemoteProtocolError, match="probes by RDMA"):
        target_of(request, [], [BY_RDMA])


@pytest.mark.parametrize(
    "address", ["metadata.internal", "10.0.0.999", "", "0.0.0.0", "127.0.0.1", "::1", "224.0.0.1",
                "255.255.255.255", "ff02::1"],
)  # fmt: skip
def test_a_name_is_looked_up_by_nobody_and_nobody_else_is_probed(address):
    request = ProbeRequest(source=A, target=B, address=address)
    with pytest.raises(RemoteProtocolError, match="address"):
        target_of(request, [], [OWN])


@pytest.mark.parametrize(
    "odd",
    [{"size": 0}, {"size": -1}, {"size": 63}, {"size": 9_601}, {"size": 100_000}, {"size": 10**10},
     {"over_ms": -1}, {"over_ms": 20_001}],
)  # fmt: skip
def test_packets_that_no_path_is_looked_at_with_are_refused_before_one_is_sent(odd, service):
    made, _, _ = service()
    for ways in (0, 4):
        request = PathRequest(source=A, target=B, count=1, ways=ways, **odd)
        with pytest.raises(RemoteProtocolError, match=r"bytes|ms"):
            asyncio.run(made.path(request))


def test_ways_are_looked_for_between_vteps_of_listed_pairs_only():
    request = PathRequest(source=A, target=B, ways=4)
    own = replace(OWN, underlay="172.16.0.1", bridge="br-int")
    listed = replace(LISTED, underlay="172.16.0.2")
    assert vteps_of(request, [listed], [own]) == ("172.16.0.1", "172.16.0.2")
    for targets, endpoints in (([], [own]), ([listed], []), ([LISTED], [own])):
        with pytest.raises(RemoteProtocolError, match="not on the ping list"):
            vteps_of(request, targets, endpoints)


def test_no_ways_are_looked_for_where_no_tunnel_leaves():
    """An endpoint without a port sends from within its container, and without an outer header."""
    request = PathRequest(source=A, target=B, ways=4)
    with pytest.raises(CapabilityMissing, match="a/rail0 has no tunnel"):
        vteps_of(request, [LISTED], [replace(OWN, bridge="")])
    bare = replace(LISTED, underlay=LISTED.address)
    with pytest.raises(CapabilityMissing, match="b/rail0 has no tunnel"):
        vteps_of(request, [bare], [replace(OWN, underlay="172.16.0.1", bridge="br-int")])


@pytest.mark.parametrize(("bridge", "underlay", "bare"), [
    ("", "172.16.0.2", "a/rail0"), ("br-int", LISTED.address, "b/rail0"),
])  # fmt: skip
def test_why_no_path_is_traced_where_no_virtual_switch_carries_an_end_is_said(
    service, membership, monkeypatch, bridge, underlay, bare
):
    made, *_ = service()
    targets = (replace(LISTED, underlay=underlay),)
    monkeypatch.setattr(membership, "_pinglist", PingList(1, targets))
    own = replace(OWN, bridge=bridge, underlay="172.16.0.1", rnic="rnic0", port="p")
    membership.on_view(HostView(endpoints=(own,), complete=True))
    with pytest.raises(CapabilityMissing, match=f"no virtual switch carries {bare}"):
        asyncio.run(made.path(PathRequest(source=A, target=B)))


# --- walks ----------------------------------------------------------------------------------------


def test_a_walk_is_told_of_the_router_behind_which_its_container_sends(monkeypatch):
    place, nowhere = Namespace("/run/netns/a", 7), EndpointId("new", 0)
    asked = []

    def hops(namespace, source, targets):
        asked.append((namespace, source, *targets))
        return {"10.0.1.11": Hop("02::1"), "10.0.2.11": Hop(untold="no way"), "10.0.0.11": Hop()}

    monkeypatch.setattr(answers, "first_hops", hops)
    targets = [(A, "10.0.1.11"), (A, "10.0.2.11"), (A, "10.0.0.11"), (B, "10.0.1.11"),
               (nowhere, "10.0.1.11")]  # fmt: skip
    egress = [
        EgressQuestion(
            source=source, target_address=to, target_mac="02::", next_hop="x", untold="y"
        )
        for source, to in targets
    ]
    ingress = IngressQuestion(
        rail=0, tun_src="", tun_dst="", tun_id=1, source_address="", source_mac="",
        target_address="", target_mac="",
    )  # fmt: skip
    own = {A: OWN.address, nowhere: "10.0.0.12"}
    *told, last = answers.routed([*egress, ingress], own, {A: place}.get)
    assert [(each.next_hop, each.untold) for each in told] == [
        ("02::1", ""), ("", "no way"), ("", ""), ("", ""), ("", ""),
    ]  # fmt: skip
    assert last == ingress
    assert asked == [(place, OWN.address, "10.0.1.11", "10.0.2.11", "10.0.0.11")]


# --- comparisons of tables -----------------------------------------------------------------------

COMPARE = ValidateRequest(local=A, remote_address="10.0.0.11", remote_mac="02::")


class Worker:
    """Counts the comparisons that it is asked for."""

    def __init__(self):
        self.asked = []

    async def validate(self, request):
        self.asked.append(request)
        return ValidateReply(host="h0", wall_ns=1, looks=3, flows=0, judged=0, in_hardware=0)


@pytest.fixture
def service(config, adapters, membership, monkeypatch):
    """Return a function that makes an agent's service, its worker, and its clock in seconds."""
    clock = [1.0]
    monkeypatch.setattr(answers, "now_ns", lambda: round(clock[0] * 1e9))

    def make(**limits):
        made = structs.replace(config, limits=LimitsConfig(**limits))
        worker = Worker()
        mine = replace(adapters, vswitch=worker)
        windows = Windows(made, "one", mine, membership)
        return Answers(made, "one", mine, membership, windows, Acting(made)), worker, clock

    return make


def test_tables_are_compared_by_the_worker_and_not_again_at_once(service):
    """A dump disturbs what it shows."""
    made, worker, clock = service()
    assert asyncio.run(made.validate(COMPARE)).host == "h0"
    clock[0] += VALIDATE_EVERY_S - 0.5
    with pytest.raises(TooSoon, match="h0: tables were just compared; ask again in 1 s"):
        asyncio.run(made.validate(COMPARE))
    assert worker.asked == [COMPARE]
    clock[0] += 1
    asyncio.run(made.validate(COMPARE))
    assert len(worker.asked) == 2


def test_databases_are_read_where_the_host_has_some(service, adapters, monkeypatch):
    made, *_ = service()
    reply = ZoneReply(host="h0", databases={})

    async def read(_door, request):
        assert request == ZoneRequest(explaining=True)
        return reply

    monkeypatch.setattr(type(adapters.zone), "read", read)
    assert asyncio.run(made.zone(ZoneRequest(explaining=True))) == reply


def test_a_host_may_be_kept_from_comparing(service):
    made, worker, _ = service(vswitch_validation=False)
    with pytest.raises(CapabilityMissing, match=r"limits\.vswitch_validation is false"):
        asyncio.run(made.validate(COMPARE))
    assert worker.asked == []


def test_a_trace_is_told_what_this_host_s_tunnels_are(service, membership, adapters, monkeypatch):
    asked = []

    async def trace(request):
        asked.append((request.tunnel, request.tunnel_port))
        return TraceReply(kind="path", flow="", netns=1, lasted_ns=1)

    monkeypatch.setattr(adapters.trace_worker, "trace", trace)
    uplink = Uplink(0, "rnic0", "172.30.0.1", "br", "t", ("rnic0",), encapsulation=GENEVE)
    membership.on_view(HostView(uplinks=(uplink,), complete=True))
    made, *_ = service(vswitch_traces=True)
    asyncio.run(made.trace(TraceRequest(kind="path", flow="udp", tunnel="vxlan")))
    assert asked == [("geneve", 6081)]


@pytest.mark.parametrize(
    ("level", "refused"),
    [
        (Shed.NOTHING, set()),
        (Shed.TRACES, {"trace"}),
        (Shed.WALKS, {"trace", "check", "flows", "validate"}),
        (Shed.RARE, {"trace", "check", "flows", "validate"}),
    ],
)
def test_near_its_limits_an_agent_answers_less(service, adapters, monkeypatch, level, refused):
    async def fine(*_):
        return None

    monkeypatch.setattr(adapters.trace_worker, "trace", fine)
    made, worker, _ = service()
    worker.check = worker.flows = worker.validate = fine
    monkeypatch.setattr(made._windows._shedding, "level", level)
    asked = {
        "trace": made.trace(TraceRequest(kind="path", flow="udp")),
        "check": made.check(CheckRequest(questions=())),
        "flows": made.flows("br-int"),
        "validate": made.validate(COMPARE),
    }

    async def ask():
        told = await asyncio.gather(*asked.values(), return_exceptions=True)
        return dict(zip(asked, told, strict=True))

    answers = asyncio.run(ask())
    assert {name for name, answer in answers.items() if answer is not None} == refused
    assert all(isinstance(answers[name], TooSoon) for name in refused)
