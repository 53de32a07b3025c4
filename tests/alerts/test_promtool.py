# SPDX-License-Identifier: Apache-2.0
"""Rules, metrics and the dashboard's expressions, as Prometheus' own tool reads them."""

import asyncio
import json
import subprocess
import time

import pytest
from prometheus_client import CollectorRegistry, exposition

from analyzer.alerts.rules import ALERTS, RUNBOOKS, render
from analyzer.server.metrics.families import registry_of
from analyzer.server.metrics.scrape import gathered
from netagent.metrics import Told, families
from tests.analyzer.alerts.expressions import as_rules, dashboard_exprs
from tests.analyzer.server.metrics.large import fill, running, told
from tests.conftest import PROMETHEUS, require
from tests.netagent.test_metrics import READS, status

pytestmark = pytest.mark.prometheus

MINUTES = 30
UP = {'netagent_build_info{version="1"}': "1"}
INCIDENT = (
    'netagent_incident_info{{incident="i1",layer="rnic",severity="{}",symptom="loss",'
    'component="rnic h1/rnic0",runbook="rnic-loses"}}'
)
FLOWS = {"netagent_flows": "100", "netagent_flows_path_unknown": "5"}
AGENTS = {'netagent_agents{state="heard"}': "99", 'netagent_agents{state="late"}': "0"}
HEALTH = UP | FLOWS | AGENTS | {
    'netagent_agents{state="silent"}': "1",
    "netagent_judge_late_seconds": "0.2",
    "netagent_storing_seconds": "0.1",
    "netagent_window_age_seconds": "7",
    "netagent_refused_summaries_total": "5",
    'netagent_intent_away{controller="ovn"}': "0",
    'netagent_findings{kind="rnic-down"}': "3",
    'netagent_questions_total{question="check",outcome="answered"}': "0+5",
    'netagent_questions_total{question="check",outcome="busy"}': "0+5",
    'netagent_questions_total{question="status",outcome="timeout"}': "0+5",
    "netagent_certificate_end_timestamp_seconds": str(80 * 86_400),
    'netagent_host_certificate_end_timestamp_seconds{host="h1"}': str(80 * 86_400),
    "netagent_certificates_not_taken": "0",
    "netagent_disk_refuses": "0",
    "netagent_disk_short": "0",
    "netagent_summaries_trimmed_for_space_total": "7",
    "netagent_judge_starts_total": "1 1 1 2",  # one that died is started again
    'netagent_webhook_oldest_seconds{webhook="pager"}': "12",
    'netagent_webhook_events_refused_total{webhook="pager"}': "2",
    'netagent_webhook_events_dropped_total{webhook="pager"}': "1",
}  # fmt: skip
"""Series of an analyzer that is well, with what was wrong long ago, as promtool writes values."""
FIRES = {
    "NetagentIncidentCritical": [{INCIDENT.format("critical"): "1"}],
    "NetagentIncident": [{INCIDENT.format("warning"): "1"}, {INCIDENT.format("info"): "1"}],
    "NetagentAgentsSilent": [{'netagent_agents{state="silent"}': "3"}],
    "NetagentAnalyzerGone": [dict.fromkeys(UP)],
    "NetagentAnalyzerBehind": [
        {"netagent_judge_late_seconds": "11"},
        {"netagent_storing_seconds": "6"},
        {"netagent_window_age_seconds": "61"},
        {"netagent_refused_summaries_total": "0+1"},
    ],
    "NetagentControllerStandsStill": [
        {'netagent_intent_away{controller="ovn"}': "0.25"},
        {"netagent_kubernetes_away": "1"},
        {'netagent_findings{kind="controller-stale"}': "1"},
        {'netagent_findings{kind="translation-stale"}': "1"},
    ],
    "NetagentPathsUnknown": [{"netagent_flows_path_unknown": "21"}],
    "NetagentTablesUnread": [
        {'netagent_questions_total{question="check",outcome="cannot"}': "0+1"},
        {'netagent_questions_total{question="validate",outcome="odd"}': "0+1"},
        {'netagent_findings{kind="unknown-input"}': "1"},
    ],
    "NetagentCertificateEnds": [
        {"netagent_certificate_end_timestamp_seconds": str(13 * 86_400)},
        {"netagent_certificates_not_taken": "1"},
        {'netagent_host_certificate_end_timestamp_seconds{host="h1"}': str(13 * 86_400)},
    ],
    "NetagentDisk": [
        {"netagent_disk_refuses": "1"},
        {"netagent_disk_short": "1"},
        {"netagent_summaries_trimmed_for_space_total": "0+1"},
    ],
    "NetagentJudgeRestarts": [{"netagent_judge_starts_total": "1+1"}],
    "NetagentWebhooksUndelivered": [
        {'netagent_webhook_oldest_seconds{webhook="pager"}': "301"},
        {'netagent_webhook_events_refused_total{webhook="pager"}': "0+1"},
        {'netagent_webhook_events_dropped_total{webhook="pager"}': "0+1"},
    ],
}
"""Alert -> what each of its reasons looks like; None: the series is not there."""
CASES = [(name, case) for name, cases in FIRES.items() for case in cases]


@pytest.fixture(scope="module", autouse=True)
def _promtool():
    require(PROMETHEUS)


def promtool(*words, given=None):
    done = subprocess.run(["promtool", *words], input=given, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def values(text):
    """Return values of every minute: the last one of several goes on."""
    *first, last = text.split()
    return " ".join([*first, f"{last}x{MINUTES}"])


def quiet(series):
    """Return a test of promtool by which no alert fires after a while."""
    given = [{"series": k, "values": values(v)} for k, v in series.items() if v is not None]
    checks = [{"eval_time": "25m", "alertname": alert.name, "exp_alerts": []} for alert in ALERTS]
    return {"interval": "1m", "input_series": given, "alert_rule_test": checks}


def outcome(folder, cases):
    (folder / "rules.yml").write_text(render())
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    (folder / "test.yml").write_text(json.dumps(document))
    return promtool("test", "rules", str(folder / "test.yml"))


def test_promtool_takes_the_rules_and_those_without_some(tmp_path):
    for without in ([], ["NetagentDisk"], [alert.name for alert in ALERTS]):
        file = tmp_path / "rules.yml"
        file.write_text(render(without=without))
        status, said = promtool("check", "rules", str(file))
        assert status == 0, said
        assert f"{len(ALERTS) - len(without)} rules found" in said or not len(ALERTS) - len(without)


def test_each_expression_of_the_dashboard_is_promql(tmp_path):
    file = tmp_path / "exprs.yml"
    file.write_text(as_rules(dashboard_exprs()))
    status, said = promtool("check", "rules", str(file))
    assert status == 0, said


def test_nothing_fires_in_health(tmp_path):
    status, said = outcome(tmp_path, [quiet(HEALTH)])
    assert status == 0, said


def test_every_alert_has_its_cases():
    assert set(FIRES) == {alert.name for alert in ALERTS}


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_an_alert_fires_by_each_of_its_reasons_alone_and_others_keep_silent(tmp_path, name, fault):
    """It says what fires where it is told that nothing does: that is what is read here."""
    status, said = outcome(tmp_path, [quiet(HEALTH | fault)])
    assert status == 1, said
    fired = {alert.name for alert in ALERTS if f"alertname: {alert.name}," in said}
    assert fired == {name}, said
    [alert] = [alert for alert in ALERTS if alert.name == name]
    assert alert.severity in said
    assert "runbook_url" in said
    assert "no value" not in said
    assert "<error" not in said


def test_an_incident_is_told_with_all_that_its_series_says(tmp_path):
    given = HEALTH | {INCIDENT.format("warning"): "1 1 1 1 1 _"}
    labels = {
        "incident": "i1", "layer": "rnic", "severity": "warning", "symptom": "loss",
        "component": "rnic h1/rnic0", "runbook": "rnic-loses",
    }  # fmt: skip
    annotations = {
        "summary": "rnic h1/rnic0: loss (rnic)",
        "description": "Incident i1. Its evidence: netagent-analyzer show i1",
        "runbook_url": f"{RUNBOOKS}/rnic-loses.md",
    }
    series = [
        {"series": name, "values": "1x3" if "incident" in name else values(text)}
        for name, text in given.items()
    ]
    expected = [{"exp_labels": labels, "exp_annotations": annotations}]
    checks = [
        {"eval_time": "2m", "alertname": "NetagentIncident", "exp_alerts": expected},
        {"eval_time": "20m", "alertname": "NetagentIncident", "exp_alerts": []},  # it is over
    ]
    tests = [{"interval": "1m", "input_series": series, "alert_rule_test": checks}]
    status, said = outcome(tmp_path, tests)
    assert status == 0, said


def test_promtool_finds_nothing_odd_in_what_a_large_cluster_says(tmp_path):
    async def inside():
        async with running(tmp_path) as analyzer:
            await fill(analyzer, rnics=800)
            return gathered(analyzer, told(time.time_ns()), 0)

    text = exposition.generate_latest(registry_of(asyncio.run(inside())))
    status, said = promtool("check", "metrics", given=text)
    assert (status, said) == (0, "")


def test_promtool_finds_nothing_odd_in_what_an_agent_says():
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Told(list(families(asyncio.run(status()), READS))))
    status_, said = promtool("check", "metrics", given=exposition.generate_latest(registry))
    assert (status_, said) == (0, "")
