# SPDX-License-Identifier: Apache-2.0
"""``netagent flows``: what flow tables hold, and what they make of a packet."""

import argparse
import time
from pathlib import Path
from urllib.parse import urlencode

from netagent.commands.asking import add_connection, agent_of
from netagent.commands.vswitch import add_place
from netagent.commands.worker import MAX_OUTPUT_BYTES, print_answer
from netagent.model.errors import CapabilityMissing
from netagent.wire.messages import FlowsReply

EPILOG = """\
examples:
  netagent flows --bridge br-int --table 40
  netagent flows --rundir /var/run/openvswitch --json
  netagent flows --bundle h0.tar.gz --bridge br-int
  netagent flows trace br-int in_port=veth3,udp,nw_dst=10.0.0.12,udp_dst=4791
"""

TRACE_EPILOG = """\
examples:
  netagent flows trace br-int in_port=veth3,udp,nw_dst=10.0.0.12,udp_dst=4791
  netagent flows trace br-int in_port=3,tcp --ct-next trk,est --ct-next trk,new
  netagent flows trace --bundle h0.tar.gz br-int in_port=3,udp
  netagent flows trace 'in_port(2),eth(),eth_type(0x0800),ipv4(proto=17),udp()'

Prints what ovs-appctl ofproto/trace prints, from one dump and without
loading the vSwitch further. FLOW is in the notation of flows, with names or
numbers of ports; or in the datapath's, as ovs-appctl dpctl/dump-flows has it,
and then needs no BRIDGE. Nothing is learned from the packet.

Open vSwitch is found like the ovs-* tools do: by --db, or OVS_RUNDIR.
Exit code 0: traced; 1: it met what it cannot decide, or Open vSwitch does
not answer; 2: the question is wrong.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--bridge", default="br-int", help="(%(default)s)")
    parser.add_argument("--table", type=int, help="this table only")
    parser.add_argument("--rundir", help="ask the vSwitch that runs here, not an agent")
    parser.add_argument("--bundle", metavar="PATH", help="ask a bundle or a sosreport")
    parser.add_argument("--host", help=argparse.SUPPRESS)
    add_connection(parser)
    questions = parser.add_subparsers(dest="question", metavar="[QUESTION]")
    asked = questions.add_parser(
        "trace",
        help="what the flow tables make of one packet",
        description="What the flow tables make of one packet.",
        epilog=TRACE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    asked.add_argument("entered", nargs="?", metavar="BRIDGE", help="that the packet enters")
    asked.add_argument("flow", metavar="FLOW", help="the packet; see below")
    asked.add_argument(
        "--ct-next",
        action="append",
        default=[],
        metavar="FLAGS",
        help="what connection tracking says next (trk,new)",
    )
    asked.add_argument(
        *("-generate", "--generate"), action="store_true", help="accepted, and changes nothing"
    )
    add_place(asked, bundles=True)
    asked.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print a bridge's flows, or what they make of a packet."""
    if arguments.question:
        from netagent.commands import flows_trace  # noqa: PLC0415 - only where it is used

        return flows_trace.run(arguments)
    if arguments.rundir or arguments.bundle:
        return print_answer(lambda: local(arguments), as_json=arguments.json, show=_show)
    query = {"bridge": arguments.bridge}
    if arguments.table is not None:
        query["table"] = str(arguments.table)
    ask = agent_of(arguments).ask
    reply = ask("GET", f"/v1/flows?{urlencode(query)}", FlowsReply)
    return print_answer(lambda: reply, as_json=arguments.json, show=_show)


def local(arguments: argparse.Namespace) -> FlowsReply:
    """Return the flows of this host's bridge, or of a bundle's."""
    # Imported only where it is used.
    from ovs_checks.answers import open_answers  # noqa: PLC0415
    from ovs_checks.parse import parse_dump  # noqa: PLC0415
    from ovs_checks.vswitchd import Vswitchd  # noqa: PLC0415

    if arguments.bundle:
        answers = open_answers(Path(arguments.bundle))
        wall_ns = answers.wall_ns
        dump = parse_dump(answers.ofctl("dump-flows", arguments.bridge))
    else:
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
