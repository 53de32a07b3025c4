# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from analyzer.alerts.rules import ALERTS, render, unknown
from tests.analyzer.alerts.expressions import FOLDER, labels, names, scraped

NAMES = [alert.name for alert in ALERTS]


def test_the_file_of_the_package_is_what_the_command_prints():
    assert (FOLDER / "netagent.rules.yml").read_text() == render()


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_asks_for_metrics_and_labels_that_there_are(alert):
    known = scraped()
    asked = names(alert.expr)
    assert asked
    assert asked <= set(known)
    assert labels(alert.expr) <= {label for name in asked for label in known[name].labels}


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_says_what_is_the_case_and_where_to_read_on(alert):
    assert re.fullmatch("Netagent[A-Z][A-Za-z]+", alert.name)
    assert alert.severity in {"critical", "warning", ""}
    assert alert.summary
    assert alert.description.strip()
    assert re.fullmatch(r"[a-z-]+|\{\{ \$labels\.runbook \}\}", alert.runbook)
    known = scraped()
    told = {label for name in names(alert.expr) for label in known[name].labels}
    used = re.findall(r"\$labels\.(\w+)", alert.summary + alert.description + alert.runbook)
    assert set(used) <= told


def test_there_are_eight_to_twelve_and_each_name_is_one():
    assert 8 <= len(set(NAMES)) == len(NAMES) <= 12


def test_one_is_switched_off_by_its_name_and_runbooks_are_where_one_says():
    text = render(without=["NetagentDisk"], runbooks="https://wiki/n/")
    assert re.findall(r"alert: (\w+)", text) == [n for n in NAMES if n != "NetagentDisk"]
    assert '"https://wiki/n/analyzer-itself.md"' in text
    assert '"https://wiki/n/{{ $labels.runbook }}.md"' in text
    assert unknown(["NetagentDisk", "Other"]) == ["Other"]
    assert render(without=NAMES).endswith("groups: []\n")


def test_links_lead_there_from_anywhere():
    urls = re.findall(r'runbook_url: "(.*)"', render())
    assert len(urls) == len(ALERTS)
    assert all(url.startswith("file:///usr/share/doc/netagent-analyzer/runbooks/") for url in urls)
    assert "page_url" not in render()


def test_with_a_page_an_alert_leads_to_its_incident_and_to_the_runbook_that_is_served():
    text = render(page="https://a:8443/")
    urls = re.findall(r'page_url: "(.*)"', text)
    assert urls[:3] == [
        *2 * ["https://a:8443/#/incident/{{ $labels.incident }}"], "https://a:8443/#/now",
    ]  # fmt: skip
    assert len(urls) == len(ALERTS)
    assert '"https://a:8443/static/runbooks/analyzer-itself.md"' in text
    assert '"https://wiki/analyzer-itself.md"' in render(page="https://a", runbooks="https://wiki")


def test_names_of_metrics_are_read_out_of_expressions():
    expr = 'sum without (state) (a_b{x="c_d", y!~"e"}[5m]) / on (z) f_total > 0 or absent(g)'
    assert (names(expr), labels(expr)) == ({"a_b", "f_total", "g"}, {"state", "x", "y", "z"})
