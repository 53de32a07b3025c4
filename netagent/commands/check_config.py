# SPDX-License-Identifier: Apache-2.0
"""``netagent check-config``."""

import argparse
import json
from pathlib import Path

import msgspec

from netagent.commands.asking import CONFIG
from netagent.config import AgentConfig, load
from netagent.model.errors import ConfigError
from netagent.terminal import USAGE, unusable

EPILOG = """\
examples:
  netagent check-config                              the installed agent's file
  netagent check-config --config agent.toml --json

Checks the files that it names, too.
exit status: 0 it can be used, 2 it cannot; the error names file and line
"""

NO_RAILS = """\
endpoints are on the rails of tunnels, and ovs.rails names no RNIC: where
  tunnels say no rail themselves, as OVN's do not, no endpoint is found"""
"""What is no error, since others than the controller may have labelled the tunnels."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("path", metavar="FILE", nargs="?", help="the agent's TOML file")
    text = "the same; by default %(default)s"
    parser.add_argument("--config", metavar="FILE", default=CONFIG, help=text)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the configuration with its defaults; return 2 if it cannot be used."""
    path = arguments.path or arguments.config
    try:
        config = load(path)
        _check_files(config, path)
    except ConfigError as error:
        if not arguments.json:
            raise
        print(json.dumps(unusable(error)))
        return USAGE
    values = msgspec.to_builtins(config)
    if arguments.json:
        print(json.dumps({"ok": True, "file": path, "config": values}, indent=2))
        return 0
    print(f"{path}: ok; with defaults it says")
    rules = config.endpoints.rules()
    if rules is not None and rules.rail is None and not config.ovs.rails:
        print(f"warning: {NO_RAILS}")
    for key, value in values.items():
        for name, setting in value.items() if isinstance(value, dict) else [("", value)]:
            print(f"  {f'{key}.{name}' if name else key} = {json.dumps(setting)}")
    return 0


def _check_files(config: AgentConfig, path: str) -> None:
    """Raise ConfigError for files that are named but cannot be read."""
    for name in ("ca", "cert", "key") if config.tls else ():
        file = Path(getattr(config.tls, name))
        try:
            file.read_bytes()
        except OSError as error:
            raise ConfigError(path, f"tls.{name}: {file}: {error.strerror}") from error
