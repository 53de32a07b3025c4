# SPDX-License-Identifier: Apache-2.0
"""Print Grafana's dashboard."""

import argparse
import json

from analyzer.alerts.dashboard import dashboard

EPILOG = """\
examples:
  netagent-analyzer dashboard > netagent.dashboard.json

Import it in Grafana (Dashboards, New, Import), or put it into a folder that it
provisions dashboards from; then choose your Prometheus as its source.
exit status: 0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no argument."""


def run(_args: argparse.Namespace) -> int:
    """Print the file."""
    print(json.dumps(dashboard(), indent=2))
    return 0
