# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from analyzer import cli
from analyzer.alerts.rules import ALERTS, render


def test_the_rules_are_printed_as_they_are_shipped(capsys):
    assert cli.main(["alerts"]) == 0
    assert capsys.readouterr().out == render()


def test_alerts_are_left_out_by_name_and_a_wrong_name_is_an_error(capsys):
    words = ["alerts", "--without", "NetagentDisk", "--without", "NetagentIncident"]
    assert cli.main([*words, "--runbooks", "https://wiki/n"]) == 0
    out = capsys.readouterr().out
    assert out == render(without=["NetagentDisk", "NetagentIncident"], runbooks="https://wiki/n")
    assert cli.main(["alerts", "--without", "Disk"]) == 2
    told = capsys.readouterr()
    assert (told.out, "no alert Disk" in told.err) == ("", True)
    assert cli.main(["alerts", "--without", "Disk", "--json"]) == 2
    assert "no alert Disk" in json.loads(capsys.readouterr().out)["error"]


def test_the_page_is_where_one_says_and_has_to_be_a_url(capsys):
    assert cli.main(["alerts", "--page", "https://a:8443"]) == 0
    assert capsys.readouterr().out == render(page="https://a:8443")
    with pytest.raises(SystemExit):
        cli.main(["alerts", "--page", "a:8443"])
    assert "begin with https://" in capsys.readouterr().err


def test_names_are_listed_with_how_severe_they_are(capsys):
    assert cli.main(["alerts", "--list", "--without", "NetagentDisk"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        alert.name for alert in ALERTS if alert.name != "NetagentDisk"
    ]
    assert "critical" in lines[0]
