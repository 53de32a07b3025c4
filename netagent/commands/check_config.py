# SPDX-License-Identifier: Apache-2.0
"""``netagent check-config``."""

import argparse
import json
from pathlib import Path

import msgspec

from netagent.config import AgentConfig, load
from netagent.model.errors import ConfigError

EPILOG = """\
example:
  netagent check-config /etc/netagent/agent.toml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("path", metavar="FILE", help="the agent's TOML file")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the configuration with its defaults; return 2 if it cannot be used."""
    try:
        config = load(arguments.path)
        _check_files(config, arguments.path)
    except ConfigError as error:
        if not arguments.json:
            raise
        problem = {"path": error.path, "line": error.line, "error": error.message}
        print(json.dumps({"ok": False, **problem}))
        return 2
    values = msgspec.to_builtins(config)
    if arguments.json:
        print(json.dumps({"ok": True, "config": values}, indent=2))
        return 0
    print(f"{arguments.path}: fine; with defaults it says")
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
