# SPDX-License-Identifier: Apache-2.0
"""Say whether the verdict of an incident was right."""

import argparse
import json
from urllib.parse import quote

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from netagent.model.errors import ConfigError
from netagent.model.path import Component

EPILOG = """\
examples:
  netagent-analyzer feedback i6b0005c6-c96d right
  netagent-analyzer feedback i6b0005c6-c96d wrong \\
      --component 'link leaf-1 -- spine-2' --note 'the optic was dirty'

Your word is kept beside the verdict, with the name in your certificate and
the time; a later one takes its place. `show` prints it, `report` and
/v1/status count it. It changes no verdict. It needs an admin's certificate.
exit status: 0 it is kept; 1 there is no such incident; 2 usage, or you may
not; 3 the analyzer cannot be reached, or cannot store it now
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("incident", metavar="INCIDENT", help="as `incidents` lists it")
    parser.add_argument(
        "word", choices=("right", "wrong"), metavar="right|wrong", help="what the verdict was"
    )
    parser.add_argument("--component", metavar="'KIND NAME'", help="what was at fault instead")
    parser.add_argument("--note", metavar="TEXT", help="how you know, or what it was")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Tell the analyzer."""
    if args.component:
        try:
            Component.parse(args.component)
        except ValueError as error:
            raise ConfigError("--component", str(error)) from error
    body = {
        "right": args.word == "right",
        "component": args.component or "",
        "note": args.note or "",
    }
    with Connection(args) as analyzer:
        answer = analyzer.post(f"/v1/incidents/{quote(args.incident, safe='')}/feedback", body)
    print(json.dumps(answer, indent=2) if args.json else f"{args.incident}: {args.word}, kept")
    return 0
