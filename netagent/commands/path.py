# SPDX-License-Identifier: Apache-2.0
"""``netagent path``."""

import argparse

from netagent.commands.asking import add_connection, agent_of, endpoint, print_json
from netagent.wire.messages import PathReply, PathRequest

EPILOG = """\
example:
  netagent path train-a-0/rail0 train-a-2/rail0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("source", type=endpoint, help="endpoint of the agent's host")
    parser.add_argument("target", type=endpoint, help="CONTAINER/railN")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the outer path of each flow; return 1 if none is known."""
    request = PathRequest(source=arguments.source, target=arguments.target)
    reply = agent_of(arguments).ask("POST", "/v1/path", PathReply, request)
    if arguments.json:
        print_json(reply)
    else:
        print(f"{'PORT':>5} {'OUTER':>5}  HOPS")
        for each in reply.paths:
            hops = " ".join(hop or "*" for hop in each.hops) or "(not traced)"
            print(f"{each.source_port:5} {each.outer_port or '-':>5}  {hops}")
    return 0 if any(each.hops for each in reply.paths) else 1
