# SPDX-License-Identifier: Apache-2.0
"""``netagent flows``: over the agent's RPC, or (with --rundir) of this host directly."""

import argparse
import time
from pathlib import Path
from urllib.parse import urlencode

from netagent.commands.asking import add_connection, agent_of
from netagent.commands.worker import MAX_OUTPUT_BYTES, print_answer
from netagent.model.errors import CapabilityMissing
from netagent.wire.messages import FlowsReply

EPILOG = """\
examples:
  netagent flows --bridge br-int --table 40
  netagent flows --rundir /var/run/openvswitch --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--bridge", default="br-int", help="(%(default)s)")
    parser.add_argument("--table", type=int, help="this table only")
    parser.add_argument("--rundir", help="ask the vSwitch that runs here, not an agent")
    parser.add_argument("--host", help=argparse.SUPPRESS)
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a bridge's flows."""
    if arguments.rundir:
        return print_answer(lambda: local(arguments), as_json=arguments.json, show=_show)
    query = {"bridge": arguments.bridge}
    if arguments.table is not None:
        query["table"] = str(arguments.table)
    ask = agent_of(arguments).ask
    reply = ask("GET", f"/v1/flows?{urlencode(query)}", FlowsReply)
    return print_answer(lambda: reply, as_json=arguments.json, show=_show)


def local(arguments: argparse.Namespace) -> FlowsReply:
    """Return the flows of this host's bridge."""
    from ovs_checks.vswitchd import Vswitchd  # noqa: PLC0415 - only where it is used

    wall_ns = time.time_ns()
    dump = Vswitchd(Path(arguments.rundir)).dump_flows(arguments.bridge)
    table = arguments.table
    flows = tuple(flow.text for flow in dump.flows if table is None or flow.table == table)
    if sum(map(len, flows)) > MAX_OUTPUT_BYTES // 2:
        raise CapabilityMissing(f"a dump of {len(flows)} flows", "name a table")
    return FlowsReply(bridge=arguments.bridge, wall_ns=wall_ns, flows=flows)


def _show(reply: FlowsReply) -> None:
    for flow in reply.flows:
        print(flow)
