# SPDX-License-Identifier: Apache-2.0
"""``netagent run``."""

import argparse
import asyncio
import os
import signal

from netagent.adapters.workers.vswitch import VswitchWorker
from netagent.agent.assembly import Agent
from netagent.config import AgentConfig, load
from netagent.handshakes import MOST_OF_AGENT, bound_handshakes
from netagent.model.errors import CapabilityMissing
from netagent.notify import Notifier
from netagent.server import HttpServer, RpcServer

EPILOG = """\
example:
  netagent run --config /etc/netagent/agent.toml

Runs in the host's network namespace, as root, until SIGTERM; then it tells the
analyzer that its endpoints leave, so that a planned stop is no failure.

exit status: 0 stopped as asked; 2 its file cannot be used; 3 something that it
needs is not there
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--config", metavar="FILE", default="/etc/netagent/agent.toml",
                        help="the agent's TOML file (default: %(default)s)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the agent until SIGTERM or SIGINT."""
    os.umask(0o077)  # what it keeps names containers and addresses of the cluster
    config = load(arguments.config)
    return asyncio.run(_serve(config))


async def _serve(config: AgentConfig) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    bound_handshakes(loop, most=MOST_OF_AGENT)
    vswitch = VswitchWorker(config)
    agent = Agent(config, vswitch)
    server = RpcServer(config, agent.answers, agent.renewal.trust)
    figures = _metrics(config, agent)

    def end_revoked() -> None:
        for each in (server, *figures):
            each.end_revoked()

    agent.renewal.on_look = end_revoked
    await _start(server, "rpc", config.rpc.listen)
    for each in figures:
        await _start(each, "metrics", config.metrics.listen)
    notifier = Notifier()
    lives = asyncio.create_task(notifier.live())
    work = asyncio.create_task(agent.run())
    stopping = asyncio.create_task(stop.wait())
    notifier.ready(f"host {config.host}, reports to {config.analyzer.url}")
    try:
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        notifier.stopping()
        stopping.cancel()
        lives.cancel()
        work.cancel()
        await asyncio.wait({work})
        for each in (server, *figures):
            await each.stop()
        await vswitch.close()
    if not work.cancelled() and (error := work.exception()) is not None:
        raise error
    return 0


def _metrics(config: AgentConfig, agent: Agent) -> list[HttpServer]:
    """Return the server of metrics, where there shall be one."""
    if not config.metrics.listen:
        return []
    # A megabyte, for those who ask for it (docs/metrics.md).
    from netagent.metrics import metrics_server  # noqa: PLC0415

    return [metrics_server(config, agent.read(), agent.renewal.trust)]


async def _start(server: HttpServer, section: str, listen: str) -> None:
    try:
        await server.start()
    except OSError as taken:
        remedy = f"free it, or change {section}.listen ({os.strerror(taken.errno or 0)})"
        raise CapabilityMissing(f"the address {listen} of {section}", remedy) from taken
