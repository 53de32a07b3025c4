# SPDX-License-Identifier: Apache-2.0
"""Print the rules of alerts for Prometheus."""

import argparse

from analyzer.alerts.rules import ALERTS, RUNBOOKS, render, unknown
from netagent.model.errors import ConfigError

EPILOG = """\
examples:
  netagent-analyzer alerts > /etc/prometheus/netagent.rules.yml
  netagent-analyzer alerts --without NetagentPathsUnknown
  netagent-analyzer alerts --runbooks https://wiki.example/netagent
  netagent-analyzer alerts \\
      --runbooks https://analyzer.example:8443/static/runbooks
  netagent-analyzer alerts --list

Alerts link to --runbooks; without it they name files of this project, which
no browser finds. The analyzer's page serves them to anybody, as in the last
example of it.
docs/metrics.md explains each; `promtool check rules` checks what you change.
exit status: 0; 2 where no alert has that name
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--without", action="append", default=[], metavar="NAME", help="leave an alert out; repeat"
    )
    parser.add_argument(
        "--runbooks",
        default=RUNBOOKS,
        metavar="URL",
        help="where runbooks are, for links (default: %(default)s)",
    )
    parser.add_argument("--list", action="store_true", help="print names and severities only")


def run(args: argparse.Namespace) -> int:
    """Print the file."""
    if missing := unknown(args.without):
        raise ConfigError("--without", f"no alert {', '.join(missing)}; --list has their names")
    if args.list:
        for alert in ALERTS:
            if alert.name not in args.without:
                print(f"{alert.name:<30} {alert.severity or 'as the incident'}")
        return 0
    print(render(without=args.without, runbooks=args.runbooks), end="")
    return 0
