# SPDX-License-Identifier: Apache-2.0
"""``netagent flows layers``: whether OpenFlow, the datapath and hardware agree."""

import argparse
from pathlib import Path

from netagent.commands.bundle import add_samples, collect
from netagent.commands.vswitch import add_place, print_findings
from ovs_checks.lint.layers import CHECKS, check, layers_of
from ovs_checks.sources.answers import open_answers
from ovs_checks.switch.assemble import assemble

EPILOG = """\
examples:
  netagent flows layers
  netagent flows layers --samples 6 --interval 10 --only offload-churn
  netagent flows layers --bundle h0.tar.gz --json

Holds the datapath's flows (ovs-appctl dpctl/dump-flows -m) against what the
flow tables say, and against the filters that tc holds for them. Checks:
  stale-megaflow    the datapath does something else than the tables say
  not-offloaded     busy in software, while others of its port are not
  in-software       tc has the filter, the NIC has not
  missing-filter    taken for offloaded, but tc has no filter
  orphan-filter     a filter of a flow that the datapath has no longer
  stale-counter     hardware counts packets that Open vSwitch does not see
  offload-churn     offloaded again and again
  offload-order     busy filters behind many masks that carry nothing
  rdma-in-software  packets to UDP port 4791 forwarded by software
What one sample cannot settle is a note; --samples 2 makes it a warning.
Whether the tables are what an SDN controller wants, the analyzer knows:
netagent-analyzer intent diff HOST.

exit status: 0 no warning; 1 a warning, or a question has no answer; 2 the
question is wrong; 3 Open vSwitch does not answer
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--only", action="append", metavar="CHECK", choices=list(CHECKS), help="may be repeated"
    )
    add_samples(parser, 2)
    add_place(parser, bundles="one", default=argparse.SUPPRESS)
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what the checks find; return 1 if a warning is among it."""
    kept = open_answers(Path(arguments.bundle)) if arguments.bundle else collect(arguments)
    snapshot = assemble(kept, kept.host, wall_ns=kept.wall_ns)
    layers = layers_of(kept, snapshot)
    found = check(layers, arguments.only or ())
    refused = [f"{command}: {reason}" for command, reason in getattr(kept, "refused", ())]
    unread = {snapshot.host: (*refused, *snapshot.problems, *layers.last.problems)}
    return print_findings(found, unread, as_json=arguments.json)
