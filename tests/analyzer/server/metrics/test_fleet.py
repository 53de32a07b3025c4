# SPDX-License-Identifier: Apache-2.0

import asyncio
from types import SimpleNamespace

import pytest

from analyzer.config import Config
from analyzer.intake.reports import Report
from analyzer.review.words import Accuracy, Tally
from analyzer.server.metrics.families import MAX_INCIDENTS, WORST
from analyzer.server.metrics.fleet import _agents, costs, fleet, info_of, said
from netagent.model.path import Component, Kind, Layer
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict
from netagent.wire.messages import Health
from tests.analyzer.server.metrics.large import RAILS, fill, running

WIDTH_NS = 5 * 10**9


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    async def inside():
        async with running(tmp_path_factory.mktemp("fleet")) as analyzer:
            await fill(analyzer, rnics=100 * RAILS)
            return {name: list(rows) for name, rows in fleet(analyzer)}

    return asyncio.run(inside())


def test_agents_are_counted_by_state_and_the_worst_are_named(found):
    assert dict(found["agents"]) == {("heard",): 90, ("late",): 0, ("silent",): 10}
    silent = dict(found["agent_silence_seconds"])
    assert sorted(host for (host,) in silent) == [f"gpu-{n:05d}" for n in range(0, 100, 10)]
    assert all(seconds == pytest.approx(900, abs=60) for seconds in silent.values())


def test_the_certificates_that_end_first_are_named():
    ends = {f"h{n}": 1000.0 + n for n in range(100)}
    nobody = SimpleNamespace(agents=list)
    analyzer = SimpleNamespace(
        clock=lambda: 0, config=Config(), registry=nobody, reports=None, ends=ends
    )
    found = dict(_agents(analyzer))["host_certificate_end_timestamp_seconds"]
    assert found == [((f"h{n}",), 1000.0 + n) for n in range(WORST)]


def test_what_agents_cost_is_told_by_percentile_and_of_the_worst():
    reports = {
        f"h{n}": Report(0, Health(cpu_ms=n, rss_kb=n, shed=n % 3), {}, 0, {}) for n in range(1, 101)
    }
    told = {name: dict(rows) for name, rows in costs(reports, WIDTH_NS)}
    share = {"50": 0.01, "90": 0.018, "99": 0.0198, "100": 0.02}
    assert told["agent_cpu_ratio"] == {(p,): pytest.approx(v) for p, v in share.items()}
    assert told["agent_resident_memory_bytes"]["100",] == 102_400
    worst = told["agent_worst_cpu_ratio"]
    assert list(worst) == [(f"h{n}",) for n in range(100, 100 - WORST, -1)]
    assert told["agents_shedding"] == {("traces",): 34, ("walks",): 33, ("rare-targets",): 0}
    assert dict(costs({}, WIDTH_NS))["agent_cpu_ratio"] == []


def test_the_newest_active_incidents_are_named_and_all_are_counted(found):
    assert dict(found["incidents"]) == {("open",): 0, ("confirmed",): 160, ("recovered",): 40}
    named = [labels[0] for labels, _ in found["incident_info"]]
    active = [f"i{n}" for n in range(200) if n % 5]
    assert named == active[:MAX_INCIDENTS]


@pytest.mark.parametrize(
    ("symptom", "severity", "page"),
    [
        (Symptom.UNCONNECTIVITY, "critical", "rnic-loses"),
        (Symptom.LOSS, "warning", "rnic-loses"),
        (Symptom.MASKED, "info", "rnic-masked"),
    ],
)
def test_an_incident_is_as_severe_as_what_is_felt(symptom, severity, page):
    part = Component(Kind.RNIC, "h0/rnic0")
    verdict = Verdict(part, Layer.RNIC, symptom, 0.9, "")
    labels = info_of(Incident("i1", IncidentState.OPEN, verdict, 1, 2, 3))
    assert labels == ("i1", "rnic", severity, symptom.value, "rnic h0/rnic0", page)


def test_an_incident_of_which_nobody_can_tell_the_component_has_none():
    verdict = Verdict(None, None, Symptom.LOSS, 0.0, "insufficient evidence")
    labels = info_of(Incident("i1", IncidentState.OPEN, verdict, 1, 2, 3))
    assert (labels[1], labels[4], labels[5]) == ("", "", "undecided-loses")


def test_what_people_say_of_verdicts_is_counted_by_layer():
    accuracy = Accuracy(Tally(2, 1, 3), {"": Tally(0, 1, 0), "rnic": Tally(2, 0, 3)})
    rows = dict(said(accuracy))
    assert rows["rnic", "right"] == 2
    assert rows["", "wrong"] == 1
    assert sum(rows.values()) == 6
