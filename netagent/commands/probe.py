# SPDX-License-Identifier: Apache-2.0
"""``netagent probe``."""

import argparse
import textwrap
from collections.abc import Iterator, Sequence

from netagent.commands.asking import add_connection, agent_of, endpoint, print_json
from netagent.wire.messages import ProbeAnswer, ProbeReply, ProbeRequest

EPILOG = """\
examples:
  netagent probe train-a-0/rail0 train-a-2/rail0
  netagent probe train-a-0/rail0 train-a-9/rail0 --address 10.0.0.19 -c 4

NETWORK, PROBER and RESPONDER say where the time went. Where the kernel or the
RNIC stamps packets, the responder's part of a probe comes with the next reply
on the same port, so the last reply of each port has no times.

exit status: 0 all probes are answered; 1 one was not; 2 the question is wrong;
3 the agent does not answer
"""

WIDTH = 79
"""Columns of the text. Chosen: a terminal of 80 columns."""
LAST, INCOMPLETE = "last of its port", "stamp missing"
_WHY = {
    LAST: "what the responder took comes with the next reply on the same port, and none came: "
    "the times of the last reply of each port are not known",
    INCOMPLETE: "a later reply came, but the stamp of a kernel did not, on this host or on the "
    "responder's, or a clock was set meanwhile",
}


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
        for text in lines(reply.probes):
            print(text)
    answered = sum(each.outcome == "replied" for each in reply.probes)
    return 0 if answered == len(reply.probes) > 0 else 1


def lines(answers: Sequence[ProbeAnswer]) -> Iterator[str]:
    """Return a line per probe for humans, and why answered ones have no times, if some have none.

    Lines have at most 79 characters.
    """
    reasons = [_untimed(answers, n) for n in range(len(answers))]
    for answer, reason in zip(answers, reasons, strict=True):
        yield line(answer) + (f" ({reason})" if reason else "")
    for reason, why in _WHY.items():
        if reason in reasons:
            yield from textwrap.wrap(f"{reason}: {why}", WIDTH, subsequent_indent="  ")


def _untimed(answers: Sequence[ProbeAnswer], n: int) -> str:
    # All three times come at once or not at all: see `netagent.probing.session`.
    answer = answers[n]
    if answer.outcome != "replied" or answer.network_ns is not None:
        return ""
    port = answer.source_port
    later = any(each.outcome == "replied" and each.source_port == port for each in answers[n + 1 :])
    return INCOMPLETE if later else LAST


def line(answer: ProbeAnswer) -> str:
    """Return one probe for humans."""
    spans = (answer.network_ns, answer.prober_ns, answer.responder_ns)
    cells = " ".join(f"{'-' if ns is None else f'{ns / 1e3:.1f}':>10}" for ns in spans)
    return f"{answer.source_port:5} {answer.size:5} {cells} {answer.outcome}"
