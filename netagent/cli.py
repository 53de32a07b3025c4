# SPDX-License-Identifier: Apache-2.0
"""The command line: verbs, logging, exit codes.

A verb is a module of `netagent.commands` with `add_arguments(parser)` and `run(arguments)`, which
returns the exit status; only the verb in use is imported. docs/cli.md has the statuses.
"""

import argparse
import json
import sys
from collections.abc import MutableMapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from netagent import __version__
from netagent.terminal import add_json, ended, parser_class, patiently

VERBS = {
    "run": "run the agent of this host",
    "enroll": "get this host's certificate from the analyzer, by its token",
    "check-config": "say whether a configuration file can be used",
    "doctor": "say what this host can and cannot do, with remedies",
    "endpoints": "list this host's endpoints, read from OVSDB and netlink",
    "rnics": "list this host's RDMA devices, their hardware and counters",
    "check": "walk this host's flow tables for a packet",
    "status": "ask a running agent how it is",
    "path": "have a running agent trace the outer paths of a pair",
    "probe": "have a running agent probe a target now",
    "flows": "dump a bridge's flows, or trace a packet through them",
    "bundle": "write what Open vSwitch, tc and ip say to one file",
    "trace": "count a flow's packets at each stage of the virtual switch",
}

MODULES = {"check-config": "check_config", "flows": "flows.dump"}
"""Verb -> its module, where that has another name."""

HIDDEN = {"answer": "answer questions of the agent that started this process"}

EPILOG = """\
examples:
  netagent check-config /etc/netagent/agent.toml
  netagent doctor --config /etc/netagent/agent.toml
  netagent run --config /etc/netagent/agent.toml
  netagent status --config /etc/netagent/agent.toml --json

exit status: 0 ok, 1 the answer is negative (each verb's --help says what that
means), 2 usage or configuration, 3 no answer: who is asked cannot be reached,
or something is missing here. With --json an error is a JSON object as well
(error, remedy)
"""

LASTING = frozenset({"run"})
"""Verbs that go on until they are ended: nobody waits for them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _keep_small()
    arguments = parser(words).parse_args(words)
    configure_logging(verbose=arguments.verb == "run")

    def run() -> int:
        if arguments.verb in LASTING or arguments.verb in HIDDEN:
            return int(arguments.function(arguments))
        return patiently("netagent", arguments.function, arguments)

    return ended("netagent", getattr(arguments, "json", False), run)


def parser(words: Sequence[str] = (), *, every: bool = False) -> argparse.ArgumentParser:
    """Return the parser; only the verb in `words` gets its arguments, or every verb."""
    top = parser_class(words)(
        prog="netagent",
        description="Probes, traces and explains the network of one GPU server.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"netagent {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    asked = next((word for word in words if not word.startswith("-")), None)
    for name, summary in (VERBS | {n: s for n, s in HIDDEN.items() if n == asked}).items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if every or name == asked:
            module = import_module(f"netagent.commands.{MODULES.get(name, name)}")
            verb.epilog = getattr(module, "EPILOG", None)
            module.add_arguments(verb)
            if name not in HIDDEN:
                add_json(verb)
            verb.set_defaults(function=module.run)
    return top


def _keep_small() -> None:
    """Keep structlog, httpx and uvicorn from importing what only people at terminals need.

    They load rich where some other package installed it, and their own command lines: megabytes of
    a process that logs JSON. All do without it: the former where it cannot be imported, uvicorn
    with names in its place that nobody calls.
    """
    for name in ("rich", "httpx._main"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type] # None: cannot be imported
    unused = ModuleType("uvicorn.main")
    unused.__dict__.update(Server=None, main=None, run=None)
    sys.modules.setdefault(unused.__name__, unused)


def configure_logging(*, verbose: bool) -> None:
    """Send events as JSON lines to stderr: all but debug, or (not `verbose`) warnings only."""
    import logging  # noqa: PLC0415 - some verbs are over before this would be imported

    import structlog  # noqa: PLC0415 - only verbs that log need it

    level = logging.INFO if verbose else logging.WARNING
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            RateLimit(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_to_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )

    class Forward(logging.Handler):
        """Hands what libraries log to structlog."""

        def emit(self, record: logging.LogRecord) -> None:
            structlog.get_logger().log(
                record.levelno, "library_logged", logger=record.name, text=record.getMessage()
            )

    logging.basicConfig(level=logging.WARNING, handlers=[Forward()], force=True)


def _to_json(event: Any, **_: Any) -> str:
    return json.dumps(event, default=str, ensure_ascii=False)


class RateLimit:
    """A structlog processor that bounds how often one event is logged; it says what it dropped."""

    BURST = 10
    """Times one event is logged per period."""
    PERIOD_S = 10.0
    EVENTS = 256
    """Kinds of event with an allowance of their own; all further ones share one."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}  # event -> start of period, logged, dropped

    def __call__(
        self, _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Pass `event` on, or raise structlog.DropEvent."""
        import time  # noqa: PLC0415 - only verbs that log need it

        return self.limit(event, now_s=time.monotonic())

    def limit(self, event: MutableMapping[str, Any], *, now_s: float) -> MutableMapping[str, Any]:
        """Do so as of `now_s`."""
        import structlog  # noqa: PLC0415 - only verbs that log need it

        name = str(event.get("event"))
        if name not in self._seen and len(self._seen) >= self.EVENTS:
            name = ""
        entry = self._seen.setdefault(name, [now_s, 0, 0])
        if now_s - entry[0] >= self.PERIOD_S:
            if entry[2]:
                event["suppressed"] = int(entry[2])
            entry[:] = [now_s, 0, 0]
        if entry[1] >= self.BURST:
            entry[2] += 1
            raise structlog.DropEvent
        entry[1] += 1
        return event


if __name__ == "__main__":
    sys.exit(main())
