# SPDX-License-Identifier: Apache-2.0
"""Open the analyzer's page in a browser."""

import argparse
import json
import webbrowser

from analyzer.commands import connection
from analyzer.commands.connection import Connection, readable

EPILOG = """\
examples:
  netagent-analyzer open
  netagent-analyzer open --print           a link for a browser elsewhere
  netagent-analyzer open --print --for tenant-a

The link is good for one use, within five minutes; who opens it sees for twelve
hours what your certificate may see, or --for a tenant of the configuration.
exit status: 0; 1 where no browser could be started (the link is printed), or
the analyzer has no page; 2 usage, or you may not; 3 the analyzer cannot be
reached
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--print", action="store_true", help="print the link, open no browser")
    parser.add_argument(
        "--for", metavar="TENANT", default="", help="see as that tenant (administrators)"
    )
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Ask for a link, and open it."""
    whose: str = getattr(args, "for")
    with Connection(args) as analyzer:
        answer = analyzer.post("/v1/sessions", {"for": whose} if whose else {})
    if args.json:
        print(json.dumps(answer))
        return 0
    url: str = readable(answer["url"])
    is_page = url.startswith(("https://", "http://"))  # any other would start another program
    if not args.print and is_page and webbrowser.open(url):
        return 0
    print(url)
    return 0 if args.print else 1
