# SPDX-License-Identifier: Apache-2.0
"""Alerts over the analyzer's metrics, as a file of rules for Prometheus. Pure.

Each says by itself that it is over: an incident's series ends with the incident.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

RUNBOOKS = "file:///usr/share/doc/netagent-analyzer/runbooks"
"""Where runbooks are by default: where the package has them."""
SERVED = "static/runbooks"
"""Where the analyzer's page has them."""
INCIDENT = "incident/{{ $labels.incident }}"
HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Alerts of netagent, as `netagent-analyzer alerts` prints them: it also leaves some out
# (--without), and says where the analyzer's page is (--page) or your runbooks are (--runbooks):
# without these, runbook_url names files of the package. docs/metrics.md explains each.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert."""

    name: str
    expr: str
    holds: str = ""
    """For how long it has to be so, as Prometheus writes durations; "": at once."""
    severity: str
    """"" where the series says it."""
    summary: str
    description: str
    runbook: str
    """Name of the page; may be a template."""
    view: str = "now"
    """Which view of the analyzer's page shows more; may be a template."""


ALERTS = (
    Alert(
        name="NetagentIncidentCritical",
        expr='netagent_incident_info{severity="critical"} == 1',
        severity="critical",
        summary="{{ with $labels.component }}{{ . }}{{ else }}Nobody can tell which part{{ end }} "
        "cuts endpoints off ({{ $labels.layer }})",
        description="Incident {{ $labels.incident }}: {{ $labels.symptom }}. Its evidence: "
        "netagent-analyzer show {{ $labels.incident }}",
        runbook="{{ $labels.runbook }}",
        view=INCIDENT,
    ),
    Alert(
        name="NetagentIncident",
        expr='netagent_incident_info{severity!="critical"} == 1',
        severity="",
        summary="{{ with $labels.component }}{{ . }}{{ else }}Nobody can tell which part{{ end }}: "
        "{{ $labels.symptom }} ({{ $labels.layer }})",
        description="Incident {{ $labels.incident }}. Its evidence: netagent-analyzer show "
        "{{ $labels.incident }}",
        runbook="{{ $labels.runbook }}",
        view=INCIDENT,
    ),
    Alert(
        name="NetagentAgentsSilent",
        expr='sum without (state) (netagent_agents{state="silent"})\n'
        "  / sum without (state) (netagent_agents) > 0.02",
        holds="1m",
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the agents are silent",
        description="What their hosts do to tasks is not seen. netagent_agent_silence_seconds "
        "names the worst; a host that left for good is forgotten by DELETE /v1/hosts/HOST.",
        runbook="agent-silent",
    ),
    Alert(
        name="NetagentAnalyzerGone",
        expr="absent(netagent_build_info)",
        holds="2m",
        severity="critical",
        summary="No analyzer of netagent is scraped",
        description="It does not run, or Prometheus does not reach it: nobody is told of faults.",
        runbook="analyzer-itself",
    ),
    Alert(
        name="NetagentAnalyzerBehind",
        expr="netagent_judge_late_seconds > 10\n"
        "or netagent_storing_seconds > 5\n"
        "or (netagent_window_age_seconds > 60\n"
        '  and ignoring (state) netagent_agents{state="heard"} > 0)\n'
        "or increase(netagent_refused_summaries_total[5m]) > 0",
        holds="1m",
        severity="warning",
        summary="The analyzer is behind: faults are told late",
        description="It stores, judges or takes summaries later than they come. Its disk, or "
        "`netagent-analyzer capacity`, says why.",
        runbook="analyzer-itself",
    ),
    Alert(
        name="NetagentControllerStandsStill",
        expr="netagent_intent_away > 0\n"
        "or netagent_kubernetes_away > 0\n"
        'or netagent_findings{kind=~"controller-away|controller-stale|translation-stale"} > 0',
        holds="2m",
        severity="warning",
        summary="A controller stands still, or is not heard {{ $labels.controller }}"
        "{{ $labels.kind }}",
        description="What it wants now is not known or not installed. netagent-analyzer intent "
        "says which one, and what hosts have instead.",
        runbook="controller-masked",
    ),
    Alert(
        name="NetagentPathsUnknown",
        expr="netagent_flows_path_unknown / netagent_flows > 0.2",
        holds="10m",
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the flows take paths that nobody knows",
        description="A fault of a switch or link that they cross may not be named. Routers that "
        "answer no TTL-exceeded, or agents that may not trace, are the usual reasons.",
        runbook="undecided-loses",
    ),
    Alert(
        name="NetagentTablesUnread",
        expr="sum without (question, outcome) (increase(netagent_questions_total{\n"
        '  question=~"check|validate", outcome!~"answered|busy"}[15m])) > 3\n'
        'or netagent_findings{kind="unknown-input"} > 0',
        holds="5m",
        severity="warning",
        summary="Flow tables of some hosts cannot be read",
        description="Faults in them are not named. The analyzer's log says which host refused what "
        "(not_answered), GET /v1/findings what was not understood.",
        runbook="findings",
    ),
    Alert(
        name="NetagentCertificateEnds",
        expr="netagent_certificate_end_timestamp_seconds - time() < 14 * 86400\n"
        "or netagent_host_certificate_end_timestamp_seconds - time() < 14 * 86400\n"
        "or netagent_certificates_not_taken == 1",
        severity="warning",
        summary="The certificate of {{ with $labels.host }}{{ . }}{{ else }}the analyzer"
        "{{ end }} ends soon, or the next one cannot be used",
        description="Once the analyzer's has ended no agent delivers; once a host's has, that one "
        "is silent. One that enrolled renews its own a month before: its log says why not.",
        runbook="analyzer-itself",
    ),
    Alert(
        name="NetagentDisk",
        expr="netagent_disk_refuses == 1\n"
        "or netagent_disk_short == 1\n"
        "or increase(netagent_summaries_trimmed_for_space_total[15m]) > 0",
        severity="critical",
        summary="The analyzer's disk refuses, or runs short",
        description="Summaries are refused, or the oldest deleted. Free space under the database's "
        "folder.",
        runbook="analyzer-itself",
    ),
    Alert(
        name="NetagentJudgeRestarts",
        expr="increase(netagent_judge_starts_total[1h]) > 2",
        severity="warning",
        summary="The judge was started {{ $value | humanize }} times in an hour",
        description="Windows that end meanwhile are not judged. The analyzer's log says how it "
        "died (judge_gone).",
        runbook="analyzer-itself",
    ),
    Alert(
        name="NetagentWebhooksUndelivered",
        expr="netagent_webhook_oldest_seconds > 300\n"
        "or increase(netagent_webhook_events_refused_total[15m]) > 0\n"
        "or increase(netagent_webhook_events_dropped_total[15m]) > 0",
        severity="warning",
        summary="{{ $labels.webhook }} does not take what it should be told",
        description="netagent-analyzer webhooks says what it answered last.",
        runbook="analyzer-itself",
    ),
)  # fmt: skip


def render(*, without: Collection[str] = (), runbooks: str = "", page: str = "") -> str:
    """Return the file of rules, those named `without` left out.

    `page` is the URL of the analyzer's page, which has the runbooks unless they are elsewhere.
    """
    page = page.rstrip("/")
    runbooks = runbooks.rstrip("/") or (f"{page}/{SERVED}" if page else RUNBOOKS)
    lines = ["groups:", "  - name: netagent", "    rules:"]
    for alert in ALERTS:
        if alert.name not in without:
            lines += _rule(alert, runbooks, page)
    return HEAD + "\n".join(lines if len(lines) > 3 else ["groups: []"]) + "\n"


def unknown(names: Iterable[str]) -> list[str]:
    """Return the names that no alert has."""
    known = {alert.name for alert in ALERTS}
    return [name for name in names if name not in known]


def _rule(alert: Alert, runbooks: str, page: str) -> Iterator[str]:
    yield f"      - alert: {alert.name}"
    yield "        expr: |-"
    yield from (f"          {line}" for line in alert.expr.splitlines())
    if alert.holds:
        yield f"        for: {alert.holds}"
    if alert.severity:
        yield "        labels:"
        yield f"          severity: {alert.severity}"
    yield "        annotations:"
    # JSON's strings are YAML's.
    yield f"          summary: {json.dumps(alert.summary)}"
    yield f"          description: {json.dumps(alert.description)}"
    yield f"          runbook_url: {json.dumps(f'{runbooks}/{alert.runbook}.md')}"
    if page:
        yield f"          page_url: {json.dumps(f'{page}/#/{alert.view}')}"
