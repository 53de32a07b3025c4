# SPDX-License-Identifier: Apache-2.0
"""``netagent endpoints``."""

import argparse
import asyncio
import json
import textwrap
from collections.abc import Iterable

import msgspec

from netagent.adapters.host.watcher import Watcher
from netagent.commands.unprobed import unprobed_count, unprobed_lines
from netagent.concurrency import timeout
from netagent.config import AgentConfig, load
from netagent.host.facts import HostView
from netagent.model.errors import CapabilityMissing

EPILOG = """\
examples:
  netagent endpoints --config /etc/netagent/agent.toml
  netagent endpoints --json | jq '.endpoints[].id'
  netagent endpoints --unprobed        the ports that are no endpoint, and why

Tunnels, patch and internal ports, and the RNICs of rails are never endpoints,
and are left out of --unprobed.

exit status: 0 well; 1 something is wrong with it; 2 the agent's file is wrong;
3 OVSDB does not answer
"""

WAIT_S = 3.0
"""Seconds to wait for OVSDB. Chosen: it answers within one unless it is down."""

_NAMED = 3
"""Endpoints, of several, that are named. Chosen: to be read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--config", default="/etc/netagent/agent.toml", help="the agent's file (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the whole view as JSON")
    parser.add_argument("--unprobed", action="store_true", help="list ports that are no endpoint")


def run(arguments: argparse.Namespace) -> int:
    """Print what this host carries; return 1 if something is wrong with it."""
    config = load(arguments.config)
    view = asyncio.run(first_view(config))
    if arguments.json:
        print(json.dumps(_plain(view), indent=2))
    elif arguments.unprobed:
        for line in unprobed_lines(view.unprobed):
            print(line)
    else:
        _show(view)
    return 1 if view.findings else 0


async def first_view(config: AgentConfig, *, wait_s: float | None = None) -> HostView:
    """Return the first complete view of the host; raises CapabilityMissing without OVSDB."""
    views: asyncio.Queue[HostView] = asyncio.Queue()
    watching = asyncio.create_task(Watcher(config).run(views.put_nowait))
    try:
        async with timeout(WAIT_S if wait_s is None else wait_s):
            while not watching.done():
                getting = asyncio.create_task(views.get())
                await asyncio.wait({getting, watching}, return_when=asyncio.FIRST_COMPLETED)
                if getting.done() and getting.result().complete:
                    return getting.result()
                getting.cancel()
        await watching
    except TimeoutError as error:
        remedy = f"start ovsdb-server; it must listen on {config.ovs.rundir}/db.sock"
        raise CapabilityMissing("OVSDB", remedy) from error
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    raise CapabilityMissing("host view", "see the error above")


def _plain(view: HostView) -> dict[str, object]:
    namespaces = {str(key): msgspec.to_builtins(each) for key, each in view.namespaces.items()}
    return {
        "endpoints": [msgspec.to_builtins(e) | {"id": str(e.id)} for e in view.endpoints],
        "namespaces": namespaces,
        "uplinks": [msgspec.to_builtins(each) for each in view.uplinks],
        "findings": [msgspec.to_builtins(each) for each in view.findings],
        "unprobed": msgspec.to_builtins(view.unprobed),
    }


def _show(view: HostView) -> None:
    addresses = max((len(each.address) for each in view.endpoints), default=0)
    underlays = max((len(each.underlay) for each in view.endpoints), default=0)
    widths = (19, 10, max(15, addresses), max(15, underlays), 8)
    _row(widths, "ENDPOINT", "TASK", "ADDRESS", "UNDERLAY", "RNIC", "STATE")
    for each in view.endpoints:
        _row(widths, str(each.id), each.task, each.address, each.underlay, each.rnic, each.state)
    if not view.endpoints:
        print("(none)")
    if untraced := untraced_of(view):
        print(textwrap.fill(untraced, 79, break_on_hyphens=False))
    for finding in view.findings:
        print(f"! {finding.component}: {finding.text}")
    if view.unprobed.count:
        print(f"{unprobed_count(view.unprobed)}; see --unprobed")


def untraced_of(view: HostView) -> str:
    """Return of which endpoints no path is traced, and why; "" where there are none."""
    bare = [str(each.id) for each in view.endpoints if not each.bridge]
    if not bare:
        return ""
    more = f" and {len(bare) - _NAMED} more" if len(bare) > _NAMED else ""
    named = f"{', '.join(bare[:_NAMED])}{more}"
    return f"paths of {named} are not traced: no virtual switch carries them"


def _row(widths: Iterable[int], *cells: str) -> None:
    """Print one line, below 80 columns for IPv4; what does not fit is in the JSON."""
    *most, last = cells
    print(*(f"{cell:{width}.{width}}" for cell, width in zip(most, widths, strict=True)), last)
