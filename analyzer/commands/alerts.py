# SPDX-License-Identifier: Apache-2.0
"""Print the rules of alerts for Prometheus."""

import argparse

from analyzer.alerts.rules import ALERTS, render, unknown
from netagent.model.errors import ConfigError

EPILOG = """\
examples:
  netagent-analyzer alerts > /etc/prometheus/netagent.rules.yml
  netagent-analyzer alerts --without NetagentPathsUnknown
  netagent-analyzer alerts --page https://analyzer.example:8443
  netagent-analyzer alerts --runbooks https://wiki.example/netagent
  netagent-analyzer alerts --list

With --page an alert leads to its incident (page_url), and to the runbooks
that the page serves to anybody. With neither --page nor --runbooks it names
files of the package, which only the analyzer's own machine has.
docs/metrics.md explains each; `promtool check rules` checks what you change.
exit status: 0; 2 where no alert has that name
"""


def absolute(text: str) -> str:
    """Return a URL that leads there from anywhere. Raises ArgumentTypeError."""
    if not text.startswith(("https://", "http://", "file:///")):
        raise argparse.ArgumentTypeError(f"{text!r} is no URL: begin with https://")
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--without", action="append", default=[], metavar="NAME", help="leave an alert out; repeat"
    )
    parser.add_argument("--page", type=absolute, metavar="URL", help="where the analyzer's page is")
    parser.add_argument(
        "--runbooks",
        type=absolute,
        metavar="URL",
        help="where runbooks are, if not at the page",
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
    print(render(without=args.without, runbooks=args.runbooks or "", page=args.page or ""), end="")
    return 0
