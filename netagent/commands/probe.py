# SPDX-License-Identifier: Apache-2.0
"""``netagent probe``."""

import argparse

from netagent.commands.asking import add_connection, agent_of, endpoint, print_json
from netagent.wire.messages import ProbeAnswer, ProbeReply, ProbeRequest

EPILOG = """\
examples:
  netagent probe train-a-0/rail0 train-a-2/rail0
  netagent probe train-a-0/rail0 train-a-9/rail0 --address 10.0.0.19 -c 4
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("source", type=endpoint, help="endpoint of the agent's host")
    parser.add_argument("target", type=endpoint, help="CONTAINER/railN")
    parser.add_argument("-c", "--count", type=int, default=10, help="probes (%(default)s)")
    parser.add_argument("--address", help="overlay address, if not on the ping list (UDP only)")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one line per probe; return 1 if one was not answered."""
    request = ProbeRequest(
        source=arguments.source,
        target=arguments.target,
        count=arguments.count,
        address=arguments.address,
    )
    reply = agent_of(arguments).ask("POST", "/v1/probe", ProbeReply, request)
    if arguments.json:
        print_json(reply)
    else:
        print(f"{'PORT':>5} {'BYTES':>5} {'NETWORK':>10} {'PROBER':>10} {'RESPONDER':>10} (us)")
        for each in reply.probes:
            print(line(each))
    answered = sum(each.outcome == "replied" for each in reply.probes)
    return 0 if answered == len(reply.probes) > 0 else 1


def line(answer: ProbeAnswer) -> str:
    """Return one probe for humans."""
    spans = (answer.network_ns, answer.prober_ns, answer.responder_ns)
    cells = " ".join(f"{'-' if ns is None else f'{ns / 1e3:.1f}':>10}" for ns in spans)
    return f"{answer.source_port:5} {answer.size:5} {cells} {answer.outcome}"
