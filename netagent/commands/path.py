# SPDX-License-Identifier: Apache-2.0
"""``netagent path``."""

import argparse

from netagent.commands.asking import add_connection, agent_of, endpoint, print_json
from netagent.wire.messages import PathReply, PathRequest

EPILOG = """\
examples:
  netagent path train-a-0/rail0 train-a-2/rail0
  netagent path train-a-0/rail0 train-a-2/rail0 --ways 8 --count 50

With --ways the host looks for ways between the two VTEPs with packets of its
own, whatever way the flows of the pair take; so it works where the RNIC
encapsulates and no outer header is seen. With --count it sends as many packets
to each router of each way and shows how many arrived.

exit status: 0; 1 if no way is known; 3 the agent does not answer
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("source", type=endpoint, help="endpoint of the agent's host")
    parser.add_argument("target", type=endpoint, help="CONTAINER/railN")
    parser.add_argument("--ways", type=int, default=0, metavar="N", help="find up to N ways")
    parser.add_argument("--count", type=int, default=0, metavar="N", help="packets per router")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the outer path of each flow, or each way; return 1 if none is known."""
    request = PathRequest(
        source=arguments.source, target=arguments.target,
        ways=max(0, arguments.ways), count=max(0, arguments.count),
    )  # fmt: skip
    reply = agent_of(arguments).ask("POST", "/v1/path", PathReply, request)
    if arguments.json:
        print_json(reply)
    else:
        print(f"{'PORT':>5} {'OUTER':>5}  HOPS")
        for each in reply.paths:
            hops = " ".join(hop or "*" for hop in each.hops) or "(not traced)"
            print(f"{each.source_port or '-':>5} {each.outer_port or '-':>5}  {hops}")
            if each.sent:
                reached = " ".join(map(str, each.answered))
                print(f"{'':13}of {each.sent} packets each, {reached} arrived")
    return 0 if any(each.hops for each in reply.paths) else 1
