# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from typing import Any

import pytest

from tests.lab import alerting
from tests.lab.alerting import Alerted, Report, Watch
from tests.lab.demo import FAULTS
from tests.lab.shape import Transport
from tests.lab.state import Fault, Truth

TRUTH = ("rnic", "rnic h1/rnic0")
FOUND = Alerted("rnic-down", TRUTH, "NetagentIncidentCritical", "critical", 6.0, 9.0)
GOOD = Report(faults=[FOUND], series=200)


FAULT = Fault("rnic-down", "h1/rnic0", {}, Truth(*TRUTH))


class Told(Watch):
    def __init__(self, *alerts: dict[str, Any]) -> None:
        self.alerts = alerts

    def told(self) -> dict[str, dict[str, Any]]:
        return {str(number): alert for number, alert in enumerate(self.alerts)}


def alert(
    name: str = "NetagentIncident", layer: str = "rnic", component: str = "rnic h1/rnic0"
) -> dict[str, Any]:
    labels = {"alertname": name, "layer": layer, "component": component}
    return {"status": "firing", "labels": labels}


def test_the_right_alert_in_time_and_alone_is_good() -> None:
    assert GOOD.good
    assert GOOD.lines()[0] == (
        "rnic-down: NetagentIncidentCritical (critical) after 6.0 s, over after 9.0 s"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        replace(GOOD, faults=[]),
        replace(GOOD, healthy=["NetagentDisk"]),
        replace(GOOD, linted="no help"),
        replace(GOOD, unanswered=["x"]),
        replace(GOOD, series=0),
        replace(GOOD, faults=[replace(FOUND, arrived_s=None)]),
        replace(GOOD, faults=[replace(FOUND, arrived_s=60.0)]),
        replace(GOOD, faults=[replace(FOUND, resolved_s=None)]),
        replace(GOOD, faults=[replace(FOUND, resolved_s=100.0)]),
        replace(GOOD, faults=[replace(FOUND, others=("NetagentDisk",))]),
    ],
)
def test_anything_else_is_not(wrong: Report) -> None:
    assert not wrong.good


def test_an_alert_is_the_faults_where_layer_and_component_are() -> None:
    watch = Told(alert(component="rnic h0/rnic0"), alert())
    assert alerting._named_by(watch, FAULT) is watch.alerts[1]
    assert alerting._named_by(Told(alert(layer="host"), alert("NetagentDisk")), FAULT) is None
    assert alerting._is_of(alert(layer="host"), FAULT)  # it was said otherwise at first
    assert not alerting._is_of(alert("NetagentDisk"), FAULT)


def test_the_faults_are_of_six_layers_or_kinds_and_the_labs() -> None:
    assert len(set(alerting.FAULTS)) == 6
    assert set(alerting.FAULTS) - set(FAULTS[Transport.UDP]) == {"narrow-port"}
