# SPDX-License-Identifier: Apache-2.0
"""Check a configuration file without starting anything."""

import argparse
import json
import os
import ssl
from collections.abc import Iterator

from analyzer import config as configuration
from analyzer.actions.broker import Mode
from analyzer.commands.ca import FILE
from analyzer.commands.text import cut
from analyzer.config import Actions, Config, Kubernetes, Ovn, WritableNorthbound
from analyzer.poster import Poster
from analyzer.server import identity
from netagent.model.errors import ConfigError
from netagent.model.topology import DeclaredTopology
from netagent.terminal import USAGE, unusable

EPILOG = """\
examples:
  netagent-analyzer check-config               the installed analyzer's file
  netagent-analyzer check-config analyzer.toml
  netagent-analyzer check-config --config analyzer.toml --json

Checks the declared topology, the TLS files, those of controllers and webhooks
and the hook that cordons, too. Nobody is asked: what a controller answers,
`netagent-analyzer intent` says, and `netagent-analyzer webhooks test NAME`
what a webhook's receiver does.
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
        print(json.dumps(unusable(error)))
        return USAGE
    security = "mutual TLS" if config.tls else "plain HTTP"
    if args.json:
        answer = {"ok": True, "file": path, "listen": config.listen, "security": security}
        print(json.dumps(answer, indent=2))
        return 0
    print(f"{path}: ok")
    for line in _report(config, topology, security):
        print(cut(f"  {line}"))
    return 0


def _report(config: Config, topology: DeclaredTopology, security: str) -> Iterator[str]:
    """Yield what it says, a line each."""
    yield f"listens on {config.listen}, {security}"
    if config.page is not None:
        yield f"page       on {config.page.listen}"
    yield f"database   {config.database}"
    if config.topology:
        switches = len(set(topology.names.values()))
        yield f"topology   {switches} switches, {len(topology.links)} links"
    yield f"admins     {', '.join(config.admins) or 'nobody'}"
    yield f"readers    {', '.join(config.readers) or 'nobody'}"
    if (ovn := config.controllers.ovn) is not None:
        yield f"ovn        {_read_at(ovn)}"
    if (kubernetes := config.controllers.kubernetes) is not None:
        told = ", told of incidents" if kubernetes.tell else ""
        yield f"kubernetes {kubernetes.url}{told}"
    for name, pushed in sorted(config.controllers.pushed.items()):
        yield f"pushed     {name}: by {', '.join(pushed.clients)}"
    for name, tasks in sorted(config.tenants.items()):
        yield f"tenant     {name}: {', '.join(tasks) or 'no task'}"
    yield f"actions    {_said(config.actions)}"
    for webhook in config.webhooks:
        yield f"webhook    {webhook.name}: {'signed' if webhook.secret else 'not signed'}"


def _read_at(ovn: Ovn) -> str:
    if ovn.zones:
        return "each host's own databases, through its agent"
    return f"northbound {', '.join(ovn.northbound)}; southbound {', '.join(ovn.southbound)}"


def _check_files(of: Ovn | Kubernetes | WritableNorthbound | None, name: str, path: str) -> None:
    """Raise ConfigError for files of a controller that it cannot be asked with."""
    files = {key: getattr(of, key, "") for key in ("ca", "cert", "key", "token_file")}
    for key, file in files.items():
        if file and not os.access(file, os.R_OK):
            raise ConfigError(path, f"{name}.{key}: {file} is not there, or cannot be read")
    try:
        context = ssl.create_default_context(cafile=files["ca"] or None)
        if files["cert"]:
            context.load_cert_chain(files["cert"], files["key"])
    except OSError as error:  # ssl.SSLError is one
        named = ", ".join(file for file in dict.fromkeys(files.values()) if file)
        problem = f"{named}: not in PEM, or of different keys ({error})"
        raise ConfigError(path, f"{name}: {problem}") from error


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
    controllers = config.controllers
    _check_files(controllers.ovn, "controllers.ovn", path)
    _check_files(controllers.kubernetes, "controllers.kubernetes", path)
    _check_files(config.actions.northbound, "actions.northbound", path)
    _check_hook(config.actions, path)
    for webhook in config.webhooks:
        Poster(webhook, path)
    return config, topology
