# SPDX-License-Identifier: Apache-2.0
"""The command `netagent-analyzer`: parse, configure logging, exit code."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

import netagent
from analyzer.commands import connection
from analyzer.commands.connection import Refused
from analyzer.logs import configure_logging
from netagent.model.errors import (
    CapabilityMissing,
    ConfigError,
    NetAgentError,
    Unreachable,
    plain_of,
)

VERBS = {
    "serve": "run the analyzer",
    "tasks": "list training tasks, declared or discovered",
    "endpoints": "list endpoints: which container and rail is where",
    "incidents": "list incidents: what is at fault, since when",
    "show": "show one incident: verdict, evidence, alternatives",
    "actions": "say what was done about incidents; do what could be, undo it",
    "open": "open the analyzer's page in a browser, by a link of one use",
    "watch": "follow incidents as they open, are confirmed and recover",
    "diagnose": "walk from one endpoint to another now, hop by hop",
    "innocent": "say whether a task's network was well, and how well it was looked at",
    "uniformity": "say what RNICs and hosts have that most of their kind have not",
    "intent": "show what the SDN controller says should be, and how a host differs",
    "slurm": "declare Slurm's jobs as tasks, for Slurm's hooks",
    "history": "show what a component or a pair lost, by the minute or hour",
    "export": "copy history, windows and incidents of a time to a folder, as Parquet",
    "record": "fetch a recording of what the analyzer was given lately, for `replay`",
    "replay": "run a recording again, by this netagent: the same incidents?",
    "localize": "rank what is at fault by flows that were observed elsewhere",
    "skeleton": "infer which endpoint pairs a task uses, from its traffic alone",
    "webhooks": "say how it stands with the receivers of events, or try one",
    "capacity": "say how many RNICs the running analyzer could take, and by what",
    "backup": "let the running analyzer copy all that it stores, but recordings",
    "restore": "put a backup in place, while no analyzer runs",
    "ca": "make the authority that signs hosts' certificates; list them, revoke",
    "invite": "let a host ask for its first certificate",
    "check-config": "check a configuration file without starting anything",
}
"""Only the one that is asked for is imported: some need what the agent does without."""

EXTRA = {"duckdb", "litestar", "matplotlib", "numpy", "scipy"}
"""What the analyzer needs beyond the agent."""

OK, NEGATIVE, USAGE, UNREACHABLE = 0, 1, 2, 3

SIGPIPE_STATUS = 141
"""Exit status that a shell reports for a command killed by SIGPIPE: 128 + 13."""

EPILOG = f"""\
examples:
  netagent-analyzer serve --config analyzer.toml
  netagent-analyzer incidents --state active
  netagent-analyzer diagnose train-a-0/rail0 train-a-1/rail0
  netagent-analyzer skeleton series.npz

{connection.EPILOG}
exit status: 0 ok, 1 the answer is negative (each command's --help says what
that means), 2 usage or configuration, 3 the analyzer cannot be reached, or
cannot do it now; 4 `innocent` cannot tell. With --json an error is a JSON
object as well (error, remedy)
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away, as `| head` does. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SIGPIPE_STATUS
    except KeyboardInterrupt:
        return 130
    return status


def _run(words: Sequence[str]) -> int:
    as_json = False
    try:
        args = parser(words).parse_args(words)
        as_json = getattr(args, "json", False)
        configure_logging(verbose=args.verbose)
        status: int = args.function(args)
    except NetAgentError as error:
        print(f"netagent-analyzer: {error}", file=sys.stderr)
        if as_json:
            print(json.dumps(plain_of(error)))
        return _status(error)
    return status


def parser(words: Sequence[str] = (), *, every: bool = False) -> argparse.ArgumentParser:
    """Return the parser; only the verb in `words` gets its arguments, or every verb.

    Raises CapabilityMissing where such a verb needs what is not installed.
    """
    formatter = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="netagent-analyzer",
        description="Names the network component that stalls a training task.",
        epilog=EPILOG,
        formatter_class=formatter,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {netagent.__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    asked = next((word for word in words if not word.startswith("-")), None)
    for name, text in VERBS.items():
        description = f"{text[0].upper()}{text[1:]}" + ("" if text.endswith("?") else ".")
        verb = verbs.add_parser(name, help=text, description=description, formatter_class=formatter)
        if every or name == asked:
            module = _module(name)
            verb.epilog = module.EPILOG
            verb.add_argument("-v", "--verbose", action="store_true", help="log more, to stderr")
            module.add_arguments(verb)
            verb.set_defaults(function=module.run)
    return top


def _module(verb: str) -> ModuleType:
    try:
        return import_module(f"analyzer.commands.{verb.replace('-', '_')}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in EXTRA:
            raise
        remedy = "install the analyzer's extra: pip install 'netagent[analyzer]'"
        raise CapabilityMissing(f"{verb} (it needs {error.name})", remedy) from error


def _status(error: NetAgentError) -> int:
    if isinstance(error, Unreachable):
        return UNREACHABLE
    if isinstance(error, Refused):
        if error.status >= 500:
            return UNREACHABLE
        return NEGATIVE if error.status == 404 else USAGE
    return USAGE if isinstance(error, ConfigError | CapabilityMissing) else NEGATIVE


if __name__ == "__main__":
    sys.exit(main())
