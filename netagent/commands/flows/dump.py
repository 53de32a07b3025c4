# SPDX-License-Identifier: Apache-2.0
"""``netagent flows``: what flow tables hold, and what they make of a packet."""

import argparse
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from netagent.commands.asking import add_connection, agent_of, print_json
from netagent.model.errors import CapabilityMissing
from netagent.wire.messages import FlowsReply
from netagent.wire.worker import MAX_OUTPUT_BYTES, FlowsWork

if TYPE_CHECKING:
    from ovs_checks.openflow.parse import Dump

EPILOG = """\
examples:
  netagent flows --bridge br-int --table 40
  netagent flows --rundir /var/run/openvswitch --json
  netagent flows --bundle h0.tar.gz --bridge br-int
  netagent flows trace br-int in_port=veth3,udp,nw_dst=10.0.0.12,udp_dst=4791

exit status: 0 dumped; of a QUESTION as its --help says; 2 the question is
wrong; 3 the agent, or Open vSwitch, does not answer
"""

QUESTIONS = {
    "trace": "what the flow tables make of one packet",
    "sweep": "what becomes of many packets at once",
    "layers": "whether OpenFlow, the datapath and hardware agree",
    "lint": "what is wrong with the flow tables whatever packet comes",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--bridge", default="br-int", help="(%(default)s)")
    parser.add_argument("--table", type=int, help="this table only")
    parser.add_argument("--rundir", help="ask the vSwitch that runs here, not an agent")
    parser.add_argument("--bundle", metavar="PATH", help="ask a bundle or a sosreport")
    add_connection(parser)
    questions = parser.add_subparsers(dest="question", metavar="[QUESTION]")
    for name, summary in QUESTIONS.items():
        module = import_module(f"netagent.commands.flows.{name}")
        question = questions.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=module.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(question)
        question.set_defaults(ask=module.run)


def run(arguments: argparse.Namespace) -> int:
    """Print a bridge's flows, or what they make of a packet."""
    if arguments.question:
        code: int = arguments.ask(arguments)
        return code
    reply = local(arguments) if arguments.rundir or arguments.bundle else _of_agent(arguments)
    if arguments.json:
        print_json(reply)
    else:
        _show(reply)
    return 0


def _of_agent(arguments: argparse.Namespace) -> FlowsReply:
    query = {"bridge": arguments.bridge}
    if arguments.table is not None:
        query["table"] = str(arguments.table)
    return agent_of(arguments).ask("GET", f"/v1/flows?{urlencode(query)}", FlowsReply)


def done(work: FlowsWork) -> FlowsReply:
    """Return the answer to what the agent asks; CapabilityMissing for one that is too large."""
    from ovs_checks.sources.vswitchd import Vswitchd  # noqa: PLC0415 - the rim, only when run

    wall_ns = time.time_ns()
    dump = Vswitchd(Path(work.rundir)).dump_flows(work.bridge)
    return _reply(work.bridge, work.table, dump, wall_ns)


def local(arguments: argparse.Namespace) -> FlowsReply:
    """Return the flows of this host's bridge, or of a bundle's."""
    bridge, table = arguments.bridge, arguments.table
    if not arguments.bundle:
        return done(FlowsWork(rundir=arguments.rundir, bridge=bridge, table=table))
    # Imported only where it is used.
    from ovs_checks.openflow.parse import parse_dump  # noqa: PLC0415
    from ovs_checks.sources.answers import open_answers  # noqa: PLC0415

    answers = open_answers(Path(arguments.bundle))
    return _reply(bridge, table, parse_dump(answers.ofctl("dump-flows", bridge)), answers.wall_ns)


def _reply(bridge: str, table: int | None, dump: "Dump", wall_ns: int) -> FlowsReply:
    flows = tuple(flow.text for flow in dump.flows if table is None or flow.table == table)
    if sum(map(len, flows)) > MAX_OUTPUT_BYTES // 2:
        raise CapabilityMissing(f"a dump of {len(flows)} flows", "name a table")
    return FlowsReply(bridge=bridge, wall_ns=wall_ns, flows=flows)


def _show(reply: FlowsReply) -> None:
    for flow in reply.flows:
        print(flow)
