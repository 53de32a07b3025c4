# SPDX-License-Identifier: Apache-2.0
"""The command `netagent-analyzer`: parse, configure logging, exit code."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

import netagent
from analyzer.commands import connection
from analyzer.commands.again import repeated
from analyzer.logs import configure_logging
from netagent.model.errors import CapabilityMissing
from netagent.terminal import (
    USAGE,
    add_json,
    ended,
    is_colored,
    parser_class,
    patiently,
)

VERBS = {
    "serve": "run the analyzer",
    "top": "show incidents and tasks live, until q",
    "tasks": "list training tasks, declared or discovered",
    "declare": "declare a training task, or withdraw it",
    "endpoints": "list endpoints: which container and rail is where",
    "incidents": "list incidents: what is at fault, since when",
    "show": "show one incident: verdict, evidence, alternatives",
    "feedback": "say whether an incident's verdict was right",
    "actions": "say what was done about incidents; do what could be, undo it",
    "open": "open the analyzer's page in a browser, by a link of one use",
    "watch": "follow incidents as they open, are confirmed and recover",
    "diagnose": "walk from one endpoint to another now, hop by hop",
    "innocent": "say whether a task's network was well, and how well it was looked at",
    "uniformity": "say what RNICs and hosts have that most of their kind have not",
    "intent": "show what the SDN controller says should be, and how a host differs",
    "slurm": "declare Slurm's jobs as tasks, for Slurm's hooks",
    "history": "show what a component or a pair lost, by the minute or hour",
    "report": "say what happened in some days: incidents, times, links, tasks",
    "export": "copy history, windows and incidents of a time to a folder, as Parquet",
    "record": "fetch a recording of what the analyzer was given lately, for `replay`",
    "replay": "run a recording again, by this netagent: the same incidents?",
    "mcp": "answer an assistant over stdin and stdout, read-only",
    "localize": "rank what is at fault by flows that were observed elsewhere",
    "skeleton": "infer which endpoint pairs a task uses, from its traffic alone",
    "operators": "say who holds a job up, by logs of its operators",
    "webhooks": "say how it stands with the receivers of events, or try one",
    "alerts": "print rules of alerts for Prometheus",
    "dashboard": "print a dashboard for Grafana",
    "capacity": "say how many RNICs the running analyzer could take, and by what",
    "backup": "let the running analyzer copy all that it stores, but recordings",
    "restore": "put a backup in place, while no analyzer runs",
    "ca": "make the authority that signs hosts' certificates; list them, revoke",
    "invite": "let a host ask for its first certificate",
    "completion": "let a shell complete verbs, tasks, endpoints, incidents",
    "check-config": "check a configuration file without starting anything",
}
"""Only the one that is asked for is imported: some need what the agent does without."""

EXTRA = {"duckdb", "litestar", "matplotlib", "numpy", "scipy"}
"""What the analyzer needs beyond the agent."""

LASTING = frozenset({"serve", "watch", "top", "mcp"})
"""Verbs that go on until they are ended: nobody waits for them."""

EPILOG = f"""\
examples:
  netagent-analyzer serve --config analyzer.toml
  netagent-analyzer incidents --state active
  netagent-analyzer diagnose train-a-0/rail0 train-a-1/rail0
  netagent-analyzer skeleton series.npz
  netagent-analyzer operators dumps/

{connection.EPILOG}
exit status: 0 ok, 1 the answer is negative (each command's --help says what
that means), 2 usage or configuration, 3 the analyzer cannot be reached, or
cannot do it now; 4 `innocent` or `operators` cannot tell. With --json an
error is a JSON object as well (error, remedy)
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    return ended("netagent-analyzer", "--json" in words, lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    args = parser(words).parse_args(words)
    configure_logging(verbose=args.verbose)
    if hasattr(args, "color"):  # before standard output is another one
        args.color = "always" if is_colored(args) else "never"
    if getattr(args, "watch", None):
        return repeated(args.function, args)
    if args.verb in LASTING:
        return int(args.function(args))
    return patiently("netagent-analyzer", args.function, args)


def parser(words: Sequence[str] = (), *, every: bool = False) -> argparse.ArgumentParser:
    """Return the parser; only the verb in `words` gets its arguments, or every verb.

    Raises CapabilityMissing where such a verb needs what is not installed.
    """
    formatter = argparse.RawDescriptionHelpFormatter
    top = parser_class(words)(
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
            add_json(verb)
            verb.set_defaults(function=module.run, parser_of=parser)
    return top


def _module(verb: str) -> ModuleType:
    try:
        return import_module(f"analyzer.commands.{verb.replace('-', '_')}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in EXTRA:
            raise
        remedy = "install the analyzer's extra: pip install 'netagent[analyzer]'"
        raise _NotInstalled(f"{verb} (it needs {error.name})", remedy) from error


class _NotInstalled(CapabilityMissing):
    """A package is missing: to try again is of no use."""

    exit_status = USAGE


if __name__ == "__main__":
    sys.exit(main())
