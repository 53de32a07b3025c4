# SPDX-License-Identifier: Apache-2.0
"""Grafana's dashboard of netagent, as values: one panel for each question that one asks. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 8, 8
"""Of a panel, in Grafana's grid of 24 columns. Chosen: three in a row can be read."""
SCHEMA = 38
"""Version of Grafana's model; later Grafanas take it, too. Chosen: Grafana 10's."""
_LOSS = (
    "sum by (task, source_rail) (rate(netagent_probes_lost_total[$__rate_interval])) / "
    "sum by (task, source_rail) (rate(netagent_probes_sent_total[$__rate_interval]))"
)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: each query is an expression and its legend."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    """As Grafana calls it."""
    kind: str = "timeseries"


def _quantile(share: float) -> str:
    rate = "sum by (task, le) (rate(netagent_rtt_seconds_bucket[$__rate_interval]))"
    return f"histogram_quantile({share}, {rate})"


PANELS = (
    Panel("Active incidents", (("netagent_incident_info", ""),), kind="table"),
    Panel(
        "Incidents", (('sum(netagent_incidents{state=~"open|confirmed"})', "active"),), kind="stat"
    ),
    Panel("Findings", (("netagent_findings > 0", "{{kind}}"),)),
    Panel("Probes lost", ((_LOSS, "{{task}} rail {{source_rail}}"),), "percentunit"),
    Panel(
        "Round trips", ((_quantile(0.5), "{{task}} median"), (_quantile(0.99), "{{task}} 99 %")),
        "s",
    ),
    Panel(
        "Time between two probes of a flow",
        (("max by (task) (netagent_round_seconds)", "{{task}}"),), "s",
    ),
    Panel("Agents", (("netagent_agents", "{{state}}"),)),
    Panel("Silent or late the longest", (("netagent_agent_silence_seconds", "{{host}}"),), "s"),
    Panel(
        "Probes that prove less by our own making",
        (("rate(netagent_probes_impaired_total[$__rate_interval])", "{{reason}}"),), "pps",
    ),
    Panel("CPU of agents", (("netagent_agent_cpu_ratio", "{{percentile}} %"),), "percentunit"),
    Panel(
        "Memory of agents", (("netagent_agent_resident_memory_bytes", "{{percentile}} %"),), "bytes"
    ),
    Panel(
        "Agents that cost most", (("topk(10, netagent_agent_worst_cpu_ratio)", "{{host}}"),),
        "percentunit",
    ),
    Panel(
        "How far behind the analyzer is",
        (
            ("netagent_storing_seconds", "storing"), ("netagent_judge_late_seconds", "judging"),
            ("netagent_window_age_seconds", "newest window judged"),
            ("max(netagent_webhook_oldest_seconds)", "telling"),
        ),
        "s",
    ),
    Panel(
        "Summaries",
        (
            ("rate(netagent_summaries_total[$__rate_interval])", "stored"),
            ("rate(netagent_refused_summaries_total[$__rate_interval])", "refused"),
            ("rate(netagent_bad_summaries_total[$__rate_interval])", "unusable"),
        ),
        "cps",
    ),
    Panel("Free on its disk", (("netagent_disk_free_bytes", "free"),), "bytes"),
    Panel(
        "Questions to agents",
        (
            (
                "sum by (question, outcome) (rate(netagent_questions_total[$__rate_interval]))",
                "{{question}} {{outcome}}",
            ),
        ),
        "cps",
    ),
    Panel(
        "Flows whose path is not known",
        (("netagent_flows_path_unknown / netagent_flows", "unknown"),), "percentunit",
    ),
    Panel(
        "Counters of RNICs",
        (("topk(10, rate(netagent_rnic_hw_total[$__rate_interval]))", "{{counter}}"),), "cps",
    ),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return Grafana's model of it; the data source is asked for when it is imported."""
    return {
        "title": "netagent",
        "uid": "netagent",
        "description": "What stalls training tasks, and how well it is looked at.",
        "tags": ["netagent"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "type": "datasource",
                    "query": "prometheus",
                    "label": "Source",
                }
            ]
        },
        "panels": list(_panels()),
    }


def _panels() -> Iterator[dict[str, Any]]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for number, panel in enumerate(PANELS):
        is_table = panel.kind == "table"
        yield {
            "id": number + 1,
            "type": panel.kind,
            "title": panel.title,
            "datasource": source,
            "gridPos": {
                "x": number % 3 * WIDTH, "y": number // 3 * HEIGHT, "w": WIDTH, "h": HEIGHT,
            },
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "options": {},
            "targets": [
                {
                    "refId": chr(ord("A") + place), "datasource": source, "expr": expr,
                    "legendFormat": legend, "instant": is_table,
                    "format": "table" if is_table else "time_series",
                }
                for place, (expr, legend) in enumerate(panel.queries)
            ],
        }  # fmt: skip
