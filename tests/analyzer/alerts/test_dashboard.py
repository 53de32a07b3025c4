# SPDX-License-Identifier: Apache-2.0

import json

from analyzer.alerts.dashboard import PANELS, WIDTH, dashboard
from tests.analyzer.alerts.expressions import FOLDER, dashboard_exprs, labels, names, scraped


def test_the_file_of_the_package_is_what_the_command_prints():
    text = (FOLDER / "netagent.dashboard.json").read_text()
    assert text == json.dumps(dashboard(), indent=2) + "\n"


def test_every_expression_asks_for_metrics_and_labels_that_there_are():
    known = scraped()
    exprs = dashboard_exprs()
    assert len(exprs) == sum(len(panel.queries) for panel in PANELS)
    for expr in exprs:
        asked = names(expr)
        assert asked, expr
        assert asked <= set(known), expr
        there = {label for name in asked for label in known[name].labels} | {"le"}
        assert labels(expr) <= there, expr


def test_no_two_panels_lie_on_each_other():
    places = [tuple(panel["gridPos"].values()) for panel in dashboard()["panels"]]
    assert len(set(places)) == len(PANELS)
    assert all(x + w <= 3 * WIDTH for x, _, w, _ in places)
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
