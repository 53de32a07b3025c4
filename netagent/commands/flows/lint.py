# SPDX-License-Identifier: Apache-2.0
"""``netagent flows lint``: what is wrong with flow tables whatever packet comes."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Mapping

from netagent.commands.vswitch import (
    add_place,
    live_snapshot,
    print_finding,
    print_findings,
    snapshots_of,
)
from netagent.model.errors import ConfigError
from netagent.model.path import Component
from ovs_checks.lint.finding import TableFinding
from ovs_checks.lint.tables import CHECKS, check
from ovs_checks.openflow.kept import KeptTables

EPILOG = f"""\
examples:
  netagent flows lint
  netagent flows lint --bundle h0.tar.gz --bundle h1.tar.gz
  netagent flows lint --only shadowed-flow --json
  netagent flows lint --every 30

Checks: {", ".join(list(CHECKS)[:4])},
{", ".join(list(CHECKS)[4:])}. Whether tunnels lead both ways takes the
bundles of both hosts. A warning is likely to cost packets, a note is not.
--every looks again and again, at what changed only, and prints what is new (+)
and what is gone (-), with --json a line each time; Ctrl-C ends it.

exit status: 0 no warning; 1 a warning, or a question has no answer; 2 the
question is wrong; 3 Open vSwitch does not answer
"""

_Key = tuple[str, Component, str]
"""What makes a finding the same one when the tables are read again: check, component, text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--only", action="append", metavar="CHECK", choices=list(CHECKS), help="may be repeated"
    )
    parser.add_argument(
        "--every", type=float, metavar="S", help="look again every so many seconds, 1 to 3600"
    )
    add_place(parser, bundles="several", default=argparse.SUPPRESS)
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what the checks find; return 1 if a warning is among it."""
    if arguments.every is not None:
        return _watch(arguments)
    snapshots = snapshots_of(arguments)
    found = check(snapshots, arguments.only or ())
    unread = {snapshot.host: snapshot.problems for snapshot in snapshots}
    return print_findings(found, unread, as_json=arguments.json)


def _watch(arguments: argparse.Namespace) -> int:
    """Print what comes and goes until interrupted; return 1 if a warning is left."""
    if arguments.bundle or not 1 <= arguments.every <= 3600:
        raise ConfigError("--every", "1 to 3600 seconds, of a live Open vSwitch")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kept: dict[str, KeptTables] = {}
    known: Mapping[_Key, TableFinding] = {}
    try:
        while True:
            snapshot = live_snapshot(arguments, kept)
            found = {
                (one.check, one.component, one.text): one
                for one in check([snapshot], arguments.only or ())
            }
            _tell(snapshot.wall_ns, known, found, as_json=arguments.json)
            known = found
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        return int(any(one.severity == "warning" for one in known.values()))


def _tell(
    wall_ns: int,
    before: Mapping[_Key, TableFinding],
    after: Mapping[_Key, TableFinding],
    *,
    as_json: bool,
) -> None:
    new = [one for key, one in after.items() if key not in before]
    gone = [one for key, one in before.items() if key not in after]
    if as_json:
        told = {"new": [one.to_data() for one in new], "gone": [one.to_data() for one in gone]}
        print(json.dumps({"wall_ns": wall_ns, **told}), flush=True)
        return
    for one in new:
        print_finding(one, "+ ")
    for one in gone:
        print_finding(one, "- ")
    sys.stdout.flush()
