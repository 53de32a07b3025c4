# SPDX-License-Identifier: Apache-2.0
"""Invite a host to ask for its first certificate."""

import argparse
import json
import sys
from urllib.parse import urlsplit

from analyzer.commands import connection
from analyzer.commands.connection import DEFAULT_URL, Connection
from analyzer.config import ENROL_PORT_AFTER

EPILOG = """\
examples:
  netagent-analyzer invite gpu-0417
  netagent-analyzer invite gpu-0417 --hours 24
  netagent-analyzer invite gpu-0417 --json | jq -er .token |
    ssh gpu-0417 netagent enroll --analyzer https://10.1.0.5:8420 --token -

The token is good once, and ends an earlier one of the same host. Who has it
gets a certificate of that host, for --address or else the one that it asks
from: treat it as a password. It needs an admin's certificate, and an analyzer
with [enrolment].

exit status: 0 invited; 2 it cannot be, or you may not; 3 the analyzer cannot
be reached
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("host", metavar="HOST", help="its name: that of its certificate")
    parser.add_argument("--hours", type=_hours, default=1.0,
                        help="it holds, up to 168 (default: %(default)g)")  # fmt: skip
    parser.add_argument("--address", default="", metavar="IP",
                        help="of its agent's RPC (default: where it asks from)")  # fmt: skip
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Ask for a token, and print what to run on the host."""
    with Connection(args) as analyzer:
        asked = {
            "host": args.host, "address": args.address, "valid_s": round(3600 * args.hours)
        }  # fmt: skip
        answer = analyzer.post("/v1/invitations", asked)
    if args.json:
        print(json.dumps(answer, indent=2))
        return 0
    print(f"on {answer['host']}, as root, within {args.hours:g} h:", file=sys.stderr)
    url = args.url or DEFAULT_URL
    usual = (urlsplit(url).port or 443) + ENROL_PORT_AFTER
    port = f" --port {answer['port']}" if answer["port"] != usual else ""
    print(f"netagent enroll --analyzer {url}{port} --token {answer['token']}")
    return 0


def _hours(text: str) -> float:
    hours = float(text)
    if not 1 / 3600 <= hours <= 168:
        raise argparse.ArgumentTypeError("at most 168, a week")
    return hours
