# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from netagent.host.announcing import RdmaState, announced, findings, foremost, unprobed
from netagent.host.facts import HostView, Uplink
from netagent.model.endpoint import Endpoint, RdmaAddress
from netagent.model.finding import MAX_TEXT, Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, rnic
from netagent.wire.unprobed import MOST_PORTS, MOST_TEXT, Unprobed, UnprobedPort, Why

A, B = EndpointId("a", 0), EndpointId("b", 0)
ADDRESS = RdmaAddress("rxe0", "::ffff:10.0.0.1", (17,), 1, 1024)


def endpoint(key):
    return Endpoint(key, "t", "h0", "10.0.0.1", "", "172.30.0.1", "rnic0", "br-int", "p")


def down(key):
    return Finding(FindingKind.ENDPOINT_DOWN, Component(Kind.ENDPOINT, str(key)), "down", 1)


VIEW = HostView(endpoints=(endpoint(A), endpoint(B)), findings=(down(A), down(B)), complete=True)


def test_what_has_no_socket_is_told_as_a_finding_and_not_probed():
    assert [e.id for e in announced(VIEW, {A: "in use"}, RdmaState())] == [B]
    told = findings(VIEW, {A: "in use"}, RdmaState(), wall_ns=7)
    assert told[:2] == VIEW.findings
    assert (told[2].kind, told[2].component.name, told[2].wall_ns) == ("unknown-input", str(A), 7)
    assert "in use" in told[2].text


def test_what_cannot_answer_is_among_what_is_not_probed():
    other = UnprobedPort(port="v", why=Why.NO_TASK)
    view = replace(VIEW, unprobed=Unprobed(ports=(other,) * MOST_PORTS, count=MOST_PORTS))
    assert unprobed(view, {}, RdmaState()) == view.unprobed
    said = unprobed(view, {A: "in use\n" + "x" * 999}, RdmaState())
    assert (said.count, len(said.ports)) == (MOST_PORTS + 1, MOST_PORTS)
    assert (said.ports[0].why, said.ports[0].port, said.ports[0].task) == (Why.MUTE, "p", "t")
    assert len(said.ports[0].text) == MOST_TEXT
    assert said.ports[0].text.isprintable()


@pytest.mark.parametrize("odd", [
    {"address": "4000::1"}, {"mac": "00:" * 19 + "01"}, {"mac": "0a:00:00:01"}, {"mtu": 1 << 16},
])  # fmt: skip
def test_an_odd_endpoint_costs_its_host_no_other(odd):
    view = replace(VIEW, endpoints=(replace(endpoint(A), **odd), endpoint(B)), findings=())
    assert announced(view, {}, RdmaState()) == (endpoint(B),)
    (told,) = findings(view, {}, RdmaState(), wall_ns=7)
    assert (told.kind, told.component.name) == (FindingKind.UNKNOWN_INPUT, str(A))
    by_rdma = RdmaState(lambda _: True, {A: replace(ADDRESS, qkey=-1), B: ADDRESS})
    assert [each.id for each in announced(VIEW, {}, by_rdma)] == [B]
    assert "QKEY" in findings(VIEW, {}, by_rdma, wall_ns=7)[-1].text


def test_a_text_is_cut_and_cleaned_to_what_the_analyzer_takes():
    said = "\x1b[31ma\nb" + "c" * MAX_TEXT
    odd = replace(down(A), text=said, evidence={"port": said})
    (told,) = findings(replace(VIEW, endpoints=(), findings=(odd,)), {}, RdmaState(), wall_ns=1)
    assert len(told.text) == MAX_TEXT
    assert told.text.startswith("?[31ma\nbc")
    assert told.text.endswith("c...")
    assert told.evidence == {"port": told.text}


def test_facts_about_faults_come_before_remarks():
    kinds = (
        FindingKind.UNKNOWN_INPUT, FindingKind.RATE_REDUCED, FindingKind.MISCONFIGURED,
        FindingKind.WRONG_MTU, FindingKind.FLOODED,
    )  # fmt: skip
    told = foremost(replace(down(A), kind=kind) for kind in kinds)
    assert [each.kind for each in told] == [
        FindingKind.WRONG_MTU, FindingKind.FLOODED, FindingKind.RATE_REDUCED,
        FindingKind.UNKNOWN_INPUT, FindingKind.MISCONFIGURED,
    ]  # fmt: skip


def test_by_rdma_an_endpoint_is_announced_once_it_answered_and_ever_after():
    def state(**more):
        return RdmaState(chosen={A: True, B: None}.get, **more)

    assert announced(VIEW, {}, state()) == ()
    (told,) = announced(VIEW, {A: "GID gone"}, state(addresses={A: ADDRESS}))
    assert (told.id, told.rdma) == (A, ADDRESS)
    mute = findings(VIEW, {A: "GID gone"}, state(failed={A: "no device"}), wall_ns=1)[2:]
    assert [finding.text for finding in mute] == ["cannot answer probes: no device"]


def test_an_rnic_that_is_gone_explains_its_interface():
    def told(kind):
        finding = Finding(kind, rnic("h0", "rxe0"), "", 1)
        state = RdmaState(lambda _: True, {A: ADDRESS}, findings=(finding,))
        return findings(VIEW, {}, state, wall_ns=1)

    assert told(FindingKind.RNIC_DOWN)[0] == down(B)
    assert told(FindingKind.GID_CHANGED)[0] == down(B)
    assert told(FindingKind.RNIC_RETRANSMITS)[:2] == VIEW.findings


def test_a_slow_cable_is_one_finding_however_many_devices_share_it():
    def slow(device):
        return Finding(FindingKind.RATE_REDUCED, rnic("h0", device), "slow", 1)

    uplinks = (Uplink(0, "rnic0", "172.30.0.1", "br-phy0", "vxlan0", ("rnic0",)),)
    state = RdmaState(lambda _: True, {A: ADDRESS}, findings=(slow("rxe0"),))
    alone = HostView(endpoints=(endpoint(A),), uplinks=uplinks)
    assert findings(alone, {}, state, wall_ns=1) == (slow("rxe0"),)
    both = HostView(endpoints=(endpoint(A),), findings=(slow("rnic0"),), uplinks=uplinks)
    assert findings(both, {}, state, wall_ns=1) == (slow("rnic0"),)
    other = HostView(endpoints=(endpoint(A),), findings=(slow("rnic1"),), uplinks=uplinks)
    assert findings(other, {}, state, wall_ns=1) == (slow("rnic1"), slow("rxe0"))


def test_a_slow_cable_of_an_rnic_without_a_tunnel_is_one_finding_too():
    slow = Finding(FindingKind.RATE_REDUCED, rnic("h0", "rnic0"), "slow", 1)
    theirs = Finding(FindingKind.RATE_REDUCED, rnic("h0", "rxe0"), "slow", 1)
    state = RdmaState(lambda _: True, {A: ADDRESS}, findings=(theirs,))
    bare = HostView(endpoints=(replace(endpoint(A), bridge=""),), findings=(slow,))
    assert findings(bare, {}, state, wall_ns=1) == (slow,)
    on_another = replace(bare, endpoints=(replace(endpoint(A), bridge="", rnic="rnic1"),))
    assert findings(on_another, {}, state, wall_ns=1) == (slow, theirs)
