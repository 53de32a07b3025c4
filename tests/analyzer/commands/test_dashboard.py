# SPDX-License-Identifier: Apache-2.0

import json

from analyzer import cli
from analyzer.alerts.dashboard import dashboard


def test_the_dashboard_is_printed(capsys):
    assert cli.main(["dashboard"]) == 0
    assert json.loads(capsys.readouterr().out) == dashboard()
