# SPDX-License-Identifier: Apache-2.0
"""Inquiries over what simulated agents send."""

import itertools
import random
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from analyzer.diagnosis.inquiry import (
    BY_CHANCE,
    FINDINGS_OF_A_HOST,
    STALLED_NAMED,
    USUAL_LOSS,
    Answer,
    Inquiry,
    PairSeen,
    answer,
    lossy,
)
from analyzer.simulate.agents import WIDTH_NS, Agents, Noise
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import Effect, Failure, Family
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, Layer, rnic, switch
from netagent.model.verdict import Incident, IncidentState, Pair, Symptom, Verdict
from netagent.wire.columns import pack_column, unpack
from netagent.wire.messages import FlowColumns

SHAPE = Shape(hosts=8, hosts_per_segment=4, spines=2, replicas=4, stages=2)
TASK = "a-task"
DELIVERED = {"delivered": 4}


class Asked:
    """A task of all endpoints of a simulated fabric."""

    def __init__(self, **options):
        self.agents = Agents(Clos(SHAPE, seed=1), seed=1, **options)
        clos = self.agents.clos
        self.begin_ns = self.agents.start_ns
        self.ends = {each.id: each.host for each in clos.endpoints}
        self.pairs = [
            (clos.endpoints[a].id, clos.endpoints[b].id)
            for a, b in zip(clos.source.tolist(), clos.target.tolist(), strict=True)
        ]
        self.summaries = []

    def windows(self, count=6):
        for _ in range(count):
            self.summaries += self.agents.window()
        return self

    def looked(self, *incidents, walks=DELIVERED, windows=6, expected=None):
        asked = Inquiry(
            TASK, self.begin_ns, self.begin_ns + windows * WIDTH_NS, WIDTH_NS, self.ends,
            self.pairs if expected is None else expected,
        )  # fmt: skip
        for each in self.summaries:
            asked.add(each)
        return asked.looked(incidents, walks)


def incident(component, detected_ns, recovered_ns=None, tasks=(TASK,)):
    a, b = EndpointId("x", 0), EndpointId("y", 0)
    verdict = Verdict(component, Layer.UNDERLAY, Symptom.LOSS, 0.9, "", failing=(Pair(a, b, 1, 1),))
    state = IncidentState.RECOVERED if recovered_ns else IncidentState.OPEN
    return Incident(
        "i1", state, verdict, detected_ns, detected_ns, detected_ns, recovered_ns, tasks
    )


def test_a_task_whose_probes_all_came_back_is_innocent_and_it_is_said_how_well_it_was_looked_at():
    asked = Asked().windows()
    looked = asked.looked()
    said, against, missing = answer(looked)
    assert (said, against, missing) == (Answer.INNOCENT, [], [])
    assert looked.windows == 6
    assert set(looked.hosts.values()) == {6}
    assert looked.sent == SHAPE.rnics * 100 * 6
    assert {each.pair for each in looked.pairs} == set(asked.pairs)
    assert 0 < looked.lost_at_most < 3.1 / looked.sent
    assert looked.rtt_us["median"] == pytest.approx(14, rel=0.05)
    assert looked.rtt_us["median"] < looked.rtt_us["p99"] <= 1.02 * looked.rtt_us["longest"]


def test_what_was_not_looked_at_is_told_and_too_little_is_no_innocence():
    asked = Asked()
    asked.windows(3)
    asked.summaries += [each for each in asked.windows(0).agents.window() if each.host != "h2"]
    asked.windows(2)
    said, _, missing = answer(asked.looked(walks={}))
    assert said is Answer.CANNOT_TELL  # one of six windows is a sixth of the time
    assert "h2 sent no summary of 1 of the windows" in missing
    assert any("flow tables as they were then" in line for line in missing)


def test_windows_that_no_host_has_are_told_once_and_not_by_host():
    asked = Asked()
    asked.windows(3)
    asked.summaries += [each for each in asked.windows(0).agents.window() if each.host != "h2"]
    looked = asked.looked(windows=10)
    _, _, missing = answer(looked)
    assert looked.unheard == 6
    assert [line for line in missing if "no summary" in line or "a summary" in line] == [
        (
            "no host sent a summary of 6 of the windows: the task, or the analyzer, may not have "
            "been there"
        ),
        "h2 sent no summary of 1 of the others",
    ]


def test_of_many_agents_that_stood_still_the_worst_is_told_and_a_few_are_each():
    looked = Asked().windows().looked()
    told = replace(looked, stalled={f"h{n}": 100 + n for n in range(STALLED_NAMED + 1)})
    assert [line for line in answer(told)[2] if "stood still" in line] == [
        (
            "agents of 4 hosts stood still, that of h3 the longest, for 103 ms: what they lost "
            "meanwhile proves nothing"
        )
    ]
    few = answer(replace(looked, stalled={"h0": 7, "h1": 0}))[2]
    assert "h0's agent stood still for 7 ms: what it lost meanwhile proves nothing" in few
    assert not any("h1" in line for line in few)


def test_pairs_in_an_active_incident_are_told_in_words():
    _, against, _ = answer(Asked().windows().looked(walks={"incident": 2, "delivered": 1}))
    assert against == ["walks through the flow tables: 2 of pairs in an active incident"]


def test_pairs_that_nobody_probed_are_told():
    asked = Asked().windows()
    extra = [(EndpointId("c", n), EndpointId("d", n)) for n in range(len(asked.pairs))]
    said, _, missing = answer(asked.looked(expected=[*asked.pairs, *extra]))
    assert said is Answer.CANNOT_TELL
    assert "c/rail0 -> d/rail0 was not probed" in missing


@pytest.mark.parametrize("windows", [0, 6])
def test_without_any_summary_nothing_can_be_told(windows):
    looked = Asked().looked(windows=windows)
    assert answer(looked)[0] is Answer.CANNOT_TELL
    assert looked.lost_at_most == 1.0


def test_a_lossy_link_speaks_against_the_network_by_the_pairs_that_cross_it():
    asked = Asked()
    at = asked.agents.clos.links[0]
    failure = Failure(1, Component(Kind.LINK, " -- ".join(at)), Family.LINK, (Effect(at, 0.2),))
    asked.agents.fail([failure], now_ns=asked.begin_ns)
    said, against, _ = answer(asked.windows().looked())
    assert said is Answer.SUSPECT
    assert all(" lost " in line for line in against)
    assert against


@given(st.integers(0, 1_000_000))
def test_pairs_that_lose_what_healthy_ones_lose_are_not_told(seed):
    rng = np.random.default_rng(seed)
    sent = rng.integers(1, 3_000, 300)
    lost = rng.binomial(sent, USUAL_LOSS / 10)
    ends = EndpointId("a", 0), EndpointId("b", 0)
    pairs = [PairSeen(ends, int(s), int(k), 1) for s, k in zip(sent, lost, strict=True)]
    assert lossy(pairs) == []
    assert BY_CHANCE < 0.01
    assert lossy([*pairs, PairSeen(ends, 1_000, 30, 6)]) == [PairSeen(ends, 1_000, 30, 6)]


@pytest.mark.parametrize(("from_s", "to_s", "concerns"), [
    (-60, -10, False), (-60, 10, True), (-60, None, True), (10, 20, True), (40, None, False),
])  # fmt: skip
def test_incidents_of_the_time_speak_against_it(from_s, to_s, concerns):
    asked = Asked().windows()
    over = asked.begin_ns + to_s * 10**9 if to_s is not None else None
    found = incident(switch("spine-0"), asked.begin_ns + from_s * 10**9, over)
    assert (answer(asked.looked(found))[0] is Answer.SUSPECT) is concerns


def test_a_container_that_never_came_says_nothing_of_the_network():
    asked = Asked()
    found = incident(Component(Kind.CONTAINER, "late"), asked.begin_ns)
    missing = replace(found, verdict=replace(found.verdict, symptom=Symptom.MISSING))
    assert [len(asked.looked(each).incidents) for each in (found, missing)] == [1, 0]


def test_incidents_of_others_concern_it_only_on_its_own_hosts():
    asked = Asked().windows()
    elsewhere = incident(switch("spine-0"), asked.begin_ns, tasks=("other",))
    assert answer(asked.looked(elsewhere))[0] is Answer.INNOCENT
    here = incident(Component(Kind.HOST, "h3"), asked.begin_ns, tasks=())
    assert answer(asked.looked(here))[0] is Answer.SUSPECT


def test_a_masked_fault_of_its_hosts_speaks_against_it():
    asked = Asked().windows()
    found = incident(rnic("h3", "rnic0"), asked.begin_ns, tasks=())
    found = replace(found, verdict=replace(found.verdict, symptom=Symptom.MASKED))
    said, against, _ = answer(asked.looked(found))
    assert (said, against) == (Answer.SUSPECT, [f"incident {found.id}: rnic h3/rnic0, masked"])
    over = replace(found, recovered_ns=found.updated_ns)
    _, [against], _ = answer(asked.looked(over))
    assert against == f"incident {found.id}: rnic h3/rnic0, masked, over by now"


@pytest.mark.parametrize(("walks", "said"), [
    ({"delivered": 3, "dropped": 1}, Answer.SUSPECT), ({"cannot_tell": 2}, Answer.INNOCENT),
])  # fmt: skip
def test_walks_that_end_elsewhere_speak_against_it(walks, said):
    looked = Asked().windows().looked(walks=walks)
    assert answer(looked)[0] is said
    assert any("flow tables" in line for line in answer(looked)[2]) is (said is Answer.INNOCENT)


def test_a_host_speaks_of_its_own_parts():
    asked = Asked()
    own = asked.agents.clos.rnic(8)
    for hosts, kind, said in (
        ({"h1"}, FindingKind.RNIC_DOWN, Answer.SUSPECT),
        ({"h1"}, FindingKind.RATE_REDUCED, Answer.SUSPECT),
        ({"h2"}, FindingKind.RNIC_DOWN, Answer.INNOCENT),
    ):
        failure = Failure(7, own, Family.RNIC, (), finding=kind, hosts=frozenset(hosts))
        asked.agents.fail([failure], now_ns=asked.begin_ns)
        asked.summaries = asked.agents.window()
        begin_ns, asked.begin_ns = asked.begin_ns, asked.summaries[0].start_ns
        assert answer(asked.looked(windows=1))[0] is said
        asked.begin_ns = begin_ns


def test_all_that_a_host_states_of_one_component_is_told_each_once():
    asked = Asked().windows(2)
    stated = tuple(
        Finding(FindingKind.UNKNOWN_INPUT, Component(Kind.VSWITCH, "h1"), name, 1, {"port": name})
        for name in ("c0-r0", "c1-r0")
    )
    asked.summaries = [
        structs.replace(each, findings=stated) if each.host == "h1" else each
        for each in asked.summaries
    ]
    assert asked.looked().findings == stated


def test_a_host_that_finds_something_new_in_every_window_takes_no_more_room():
    asked = Asked().windows(6)
    numbers = itertools.count()
    part = Component(Kind.VSWITCH, "h1")
    asked.summaries = [
        structs.replace(
            each,
            findings=tuple(
                Finding(FindingKind.UNKNOWN_INPUT, part, "odd", 1, {"port": str(next(numbers))})
                for _ in range(64)
            ),
        )
        if each.host == "h1"
        else each
        for each in asked.summaries
    ]
    told = asked.looked().findings
    assert [each.evidence["port"] for each in told] == [str(n) for n in range(FINDINGS_OF_A_HOST)]
    assert next(numbers) > FINDINGS_OF_A_HOST


def test_the_order_of_summaries_changes_nothing():
    asked = Asked(noise=Noise(loss=0.001)).windows(3)
    one = asked.looked(windows=3)
    random.Random(1).shuffle(asked.summaries)
    assert asked.looked(windows=3) == one


def gone(host, at_ns, kind=Kind.AGENT):
    verdict = Verdict(Component(kind, host), Layer.AGENT, Symptom.SILENCE, 0.9, "")
    return Incident("i1", IncidentState.CONFIRMED, verdict, at_ns, at_ns, at_ns)


def without_agent(*more):
    """Let h2's agent be gone from the fourth of six windows on."""
    asked = Asked().windows(3)
    killed = Failure(2, Component(Kind.AGENT, "h2"), Family.AGENT, (), kills="h2")
    asked.agents.fail([killed, *more], now_ns=asked.agents.now_ns)
    asked.windows(3)
    asked.summaries = [unanswered(each) for each in asked.summaries]
    return asked


def unanswered(summary):
    """Let nothing answer where a kernel said that nobody listens: RDMA has no such kernel."""
    flows = summary.flows
    lost, refused = unpack(flows, "lost"), unpack(flows, "refused")
    if not any(refused):
        return summary
    both = map(sum, zip_longest(lost, refused, fillvalue=0))
    lost = pack_column(FlowColumns, "lost", both)
    return structs.replace(summary, flows=structs.replace(flows, lost=lost, refused=b""))


def test_an_agent_that_is_gone_accuses_nobody_and_is_told_as_what_was_not_looked_at():
    asked = without_agent()
    at_ns = asked.begin_ns + 3 * WIDTH_NS
    looked = asked.looked(gone("h2", at_ns))
    said, against, missing = answer(looked)
    assert (said, against) == (Answer.CANNOT_TELL, [])
    assert looked.lost == 0
    assert looked.unanswered["h2"] > 0
    assert any("the agent of h2 was gone" in line for line in missing)
    assert any("probes to h2 that were lost meanwhile" in line for line in missing)


def test_losses_of_others_speak_against_the_network_still():
    at = Asked().agents.clos.links[0]
    link = Failure(1, Component(Kind.LINK, " -- ".join(at)), Family.LINK, (Effect(at, 0.2),))
    asked = without_agent(link)
    looked = asked.looked(gone("h2", asked.begin_ns + 3 * WIDTH_NS))
    said, against, _ = answer(looked)
    assert said is Answer.SUSPECT
    assert all(" lost " in line for line in against)


def test_losses_to_it_while_it_sent_summaries_speak_against_the_network_still():
    asked = Asked()
    at = asked.agents.clos.links[0]
    link = Failure(1, Component(Kind.LINK, " -- ".join(at)), Family.LINK, (Effect(at, 0.2),))
    asked.agents.fail([link], now_ns=asked.begin_ns)
    asked.windows()
    alone = asked.looked()
    for host in sorted(set(asked.ends.values())):
        looked = asked.looked(gone(host, asked.begin_ns))
        assert (looked.pairs, looked.unanswered) == (alone.pairs, {})


def test_a_host_that_is_gone_itself_or_lost_without_a_reason_speaks_against_it():
    asked = without_agent()
    at_ns = asked.begin_ns + 3 * WIDTH_NS
    for incidents in ([], [gone("h2", at_ns, Kind.HOST)], [gone("h3", at_ns)]):
        looked = asked.looked(*incidents)
        assert looked.lost > 0
        assert (answer(looked)[0], looked.unanswered) == (Answer.SUSPECT, {})
