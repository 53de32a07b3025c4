# SPDX-License-Identifier: Apache-2.0
"""``netagent flows lint``: what is wrong with flow tables whatever packet comes."""

import argparse

from netagent.commands.vswitch import add_place, print_findings, snapshots_of
from ovs_checks.hygiene import CHECKS, check

EPILOG = f"""\
examples:
  netagent flows lint
  netagent flows lint --bundle h0.tar.gz --bundle h1.tar.gz
  netagent flows lint --only shadowed-flow --json

Checks: {", ".join(list(CHECKS)[:4])},
{", ".join(list(CHECKS)[4:])}. Whether tunnels lead both ways takes the
bundles of both hosts. A warning is likely to cost packets, a note is not.

Exit code 0: no warning; 1: a warning, or a question has no answer; 2: the
question is wrong.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--only", action="append", metavar="CHECK", choices=list(CHECKS), help="may be repeated"
    )
    add_place(parser, bundles="several", default=argparse.SUPPRESS)
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what the checks find; return 1 if a warning is among it."""
    snapshots = snapshots_of(arguments)
    found = check(snapshots, arguments.only or ())
    unread = {snapshot.host: snapshot.problems for snapshot in snapshots}
    return print_findings(found, unread, as_json=arguments.json)
