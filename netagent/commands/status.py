# SPDX-License-Identifier: Apache-2.0
"""``netagent status``."""

import argparse

from netagent.commands.asking import add_connection, agent_of, print_json
from netagent.commands.unprobed import unprobed_count
from netagent.wire.controller import ControllerState
from netagent.wire.messages import Status

EPILOG = """\
examples:
  netagent status
  netagent status --url https://198.18.0.10:8421 --ca ca.pem \\
      --cert admin.pem --key admin.key --json

exit status: 0 well; 1 it has findings; 2 the question is wrong; 3 the agent
does not answer
"""


SHED = ("traces", "walks", "rare targets")
"""What an agent near its limits leaves undone, in this order."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print how the agent is; return 1 if it has findings."""
    status = agent_of(arguments).ask("GET", "/v1/status", Status)
    if arguments.json:
        print_json(status)
    else:
        show(status)
    return 1 if status.findings else 0


def controller_line(state: ControllerState) -> str:
    """Return how a host's part of a controller is, in less than a line."""
    installed = "" if state.generation is None else f", generation {state.generation}"
    return f"{state.source} {state.working}{installed}, {len(state.ports)} ports"


def show(status: Status) -> None:
    """Print a status for humans."""
    health = status.health
    print(f"{status.host}: netagent {status.version}, instance {status.instance}")
    print(f"  endpoints  {len(status.endpoints)}, probing {status.targets} targets")
    print(f"  ping list  version {status.pinglist_version}")
    print(f"  process    {health.rss_kb / 1024:.1f} MB, {health.cpu_ms} ms CPU in the window")
    late = f"{health.delayed} sent late, {health.capped} held back by the caps"
    print(f"  probes     {late}, {health.send_errors} refused by the kernel")
    waited = f", {health.queue_us / 1e3:.1f} ms in the responder at most" if health.queue_us else ""
    print(f"  answers    {health.answered}{waited}, {health.bad_frames} frames made no sense")
    if health.unanswered:
        print(f"  flooded    {health.unanswered} probes not answered: more than the cap came")
    if health.shed:
        left = ", ".join(SHED[: health.shed])
        print(f"  shedding   {left}: near the limits of memory or CPU")
    if health.pending:
        print(f"  waiting    {health.pending} probes: addresses are not resolved yet")
    if status.tick_ms:
        print(f"  traffic    {len(status.endpoints)} series, ticks of {status.tick_ms} ms")
    if status.controller:
        print(f"  controller {controller_line(status.controller)}")
    if status.unprobed and status.unprobed.count:
        print(f"  unprobed   {unprobed_count(status.unprobed)}")
    if status.clock:
        offset_ms, error_ms = status.clock.offset_ns / 1e6, status.clock.error_ns / 1e6
        print(f"  clock      {-offset_ms:+.1f} ms off the analyzer's, to {error_ms:.1f} ms")
    print(f"  summaries  {health.spool_dropped} dropped since the start")
    for each in status.endpoints:
        print(f"  {each.id!s:24} {each.address:15} {each.rnic:10} {each.state}")
    for finding in status.findings:
        print(f"  ! {finding.component}: {finding.text}")
