# SPDX-License-Identifier: Apache-2.0
"""Check a configuration file without starting anything."""

import argparse
import json
import os

from analyzer import config as configuration
from analyzer.actions.broker import Mode
from analyzer.commands.ca import FILE
from analyzer.commands.text import cut
from analyzer.config import Actions
from analyzer.controllers.kubernetes import Api
from analyzer.poster import Poster
from analyzer.server import identity
from netagent.model.errors import ConfigError
from netagent.model.topology import DeclaredTopology

EPILOG = """\
examples:
  netagent-analyzer check-config               the installed analyzer's file
  netagent-analyzer check-config analyzer.toml
  netagent-analyzer check-config --config analyzer.toml --json

Checks the declared topology, the TLS files, the webhooks' files and the hook
that cordons, too; what the webhooks' receivers say,
`netagent-analyzer webhooks test NAME` asks.
exit status: 0 it can be used, 2 it cannot; the error names file and line
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("path", metavar="FILE", nargs="?", help="the analyzer's TOML file")
    text = "the same (default: %(default)s)"
    parser.add_argument("--config", metavar="FILE", default=FILE, help=text)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Load all that the configuration names."""
    path = args.path or args.config
    try:
        config, topology = _load(path)
    except ConfigError as error:
        if not args.json:
            raise
        print(
            json.dumps(
                {"ok": False, "file": error.path, "line": error.line, "error": error.message}
            )
        )
        return 2
    security = "mutual TLS" if config.tls else "plain HTTP"
    if args.json:
        print(json.dumps({"ok": True, "listen": config.listen, "security": security}))
        return 0
    print(f"{path}: ok")
    print(f"  listens on {config.listen}, {security}")
    if config.page is not None:
        print(f"  page       on {config.page.listen}")
    print(f"  database   {config.database}")
    if config.topology:
        switches = len(set(topology.names.values()))
        print(f"  topology   {switches} switches, {len(topology.links)} links")
    print(f"  admins     {', '.join(config.admins) or 'nobody'}")
    print(f"  readers    {', '.join(config.readers) or 'nobody'}")
    if (kubernetes := config.controllers.kubernetes) is not None:
        told = ", told of incidents" if kubernetes.tell else ""
        print(f"  kubernetes {kubernetes.url}{told}")
    for name, pushed in sorted(config.controllers.pushed.items()):
        print(cut(f"  pushed     {name}: by {', '.join(pushed.clients)}"))
    for name, tasks in sorted(config.tenants.items()):
        print(f"  tenant     {name}: {', '.join(tasks) or 'no task'}")
    print(cut(f"  actions    {_said(config.actions)}"))
    for webhook in config.webhooks:
        print(f"  webhook    {webhook.name}: {'signed' if webhook.secret else 'not signed'}")
    return 0


def _check_hook(actions: Actions, path: str) -> None:
    """Raise ConfigError for commands that nobody can run."""
    for name in ("cordon_command", "port_command"):
        command: tuple[str, ...] = getattr(actions, name)
        if command and not os.access(command[0], os.X_OK):
            raise ConfigError(path, f"actions.{name}: {command[0]} cannot be run")


def _said(actions: Actions) -> str:
    match actions.mode:
        case Mode.OBSERVE:
            return "none are proposed"
        case Mode.ADVISE:
            return "are advised, and done by persons"
        case Mode.ACT:
            verbs = ", ".join(actions.verbs) or "nothing"
            return f"{verbs}: {actions.per_hour} an hour, on {actions.share:.0%} of the hosts"


def _load(path: str) -> tuple[configuration.Config, DeclaredTopology]:
    """Return the configuration and the topology it names. Raises ConfigError, also for files."""
    config = configuration.load(path)
    topology = DeclaredTopology()
    if config.topology:
        topology = configuration.load_topology(config.topology)
    if config.tls is not None:
        identity.trust_of(config.tls, path)
    if config.controllers.kubernetes is not None:
        Api(config.controllers.kubernetes, path)
    _check_hook(config.actions, path)
    for webhook in config.webhooks:
        Poster(webhook, path)
    return config, topology
