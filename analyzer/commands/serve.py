# SPDX-License-Identifier: Apache-2.0
"""Run the analyzer."""

import argparse
import asyncio
import os
import sys

from analyzer import config
from analyzer.server import serve
from netagent.notify import Notifier

EPILOG = """\
examples:
  netagent-analyzer serve --config analyzer.toml
  netagent-analyzer serve --config analyzer.toml 2>analyzer.log &

The log goes to stderr: JSON lines, or plain text on a terminal. SIGTERM stops
it within three seconds. What it acknowledged survives any kind of death.
exit status: 0 stopped as asked, 2 the configuration cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--config", metavar="FILE", required=True, help="TOML file")


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    os.umask(0o077)  # what it keeps names containers and addresses of the cluster
    asyncio.run(_serve(config.load(args.config), args.config))
    return 0


async def _serve(settings: config.Config, path: str) -> None:
    notifier = Notifier()
    # Only from when it is ready: until then systemd's limit is that of the start.
    lives: list[asyncio.Task[None]] = []

    def ready(url: str) -> None:
        notifier.ready(f"listens on {url}")
        lives.append(asyncio.create_task(notifier.live()))
        _announce(url)

    await serve(settings, path, ready=ready, stopping=notifier.stopping)


def _announce(url: str) -> None:
    if sys.stderr.isatty():
        print(f"netagent-analyzer listens on {url}", file=sys.stderr)
