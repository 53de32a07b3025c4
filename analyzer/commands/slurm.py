# SPDX-License-Identifier: Apache-2.0
"""Declare Slurm's jobs as tasks, as hooks of Slurm call it: no job ever fails or waits for it."""

import argparse
import os
import signal
import subprocess
import sys
from typing import Any
from urllib.parse import quote

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.intent.slurm import check_template, containers_of, ended, job_of
from netagent.model.errors import CapabilityMissing, NetAgentError, RemoteProtocolError

EPILOG = """\
examples:
  netagent-analyzer slurm prolog      # of PrologSlurmctld: declare the job
  netagent-analyzer slurm epilog      # of EpilogSlurmctld: withdraw it
  netagent-analyzer slurm sweep       # withdraw what hooks missed

The job is read from SLURM_JOB_ID, SLURM_JOB_USER and SLURM_JOB_NODELIST, and
becomes the task slurm.USER.JOB: of the containers that agents have on its
hosts now, or of one for each host, called by --container. sweep withdraws
tasks of jobs that squeue does not know (docs/slurm.md).
exit status: 0, of prolog and epilog whatever becomes of it, with a line on
stderr where nothing did; of sweep 3 where squeue fails, or the analyzer
cannot be reached
"""

SQUEUE_S = 30.0
"""Seconds that squeue may take. Chosen: a busy controller answers within some."""
WITHIN_S = 5.0
"""Seconds that a hook may take. Chosen: jobs start no later for anybody to notice."""
OVER_S = 30.0
"""Most of them. Chosen: Slurm itself gives a hook up after a while (PrologEpilogTimeout)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("action", choices=("prolog", "epilog", "sweep"), help="what to do")
    text = "containers' names, such as {host} or {user}-{job}-{host}"
    parser.add_argument("--container", metavar="TEXT", type=_template, help=text)
    text = "seconds that a hook may take (default: %(default)s)"
    parser.add_argument("--within", metavar="S", type=_within, default=WITHIN_S, help=text)
    text = "the command that sweep asks for jobs (default: %(default)s)"
    parser.add_argument("--squeue", metavar="PATH", default="squeue", help=text)
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Do what a hook asks for; return 0, as a job must not fail for it."""
    if args.action == "sweep":
        with Connection(args) as analyzer:
            return _sweep(analyzer, args.squeue)
    before = signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, args.within)
    try:
        with Connection(args) as analyzer:
            print(
                _declare(analyzer, args.container or "")
                if args.action == "prolog"
                else _end(analyzer)
            )
    except (NetAgentError, _Late) as error:
        print(f"netagent-analyzer slurm: {args.action}: {error}", file=sys.stderr)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return 0


class _Late(BaseException):
    """The time is over; no library between takes it for an error of its own."""


def _late(*_: object) -> None:
    raise _Late("the analyzer did not answer in time")


def _declare(analyzer: Connection, template: str) -> str:
    job = job_of(os.environ, with_hosts=True)
    rails: set[int] = set()
    known: list[tuple[str, str]] = []
    if not template:
        for each in analyzer.all("/v1/endpoints", "endpoints")["endpoints"]:
            if each["host"] in job.hosts:
                container, _, rail = each["id"].rpartition("/rail")
                known.append((container, each["host"]))
                rails.add(int(rail))
    found = containers_of(job, template, known)
    if not found:
        raise RemoteProtocolError(f"no agent has a container on {len(job.hosts)} hosts of the job")
    containers, hosts = zip(*found, strict=True)
    body: dict[str, Any] = {"containers": containers, "hosts": hosts, "rails": sorted(rails)}
    analyzer.put(_path(job.task), body)
    return f"{job.task}: {len(found)} containers on {len(set(hosts))} of {len(job.hosts)} hosts"


def _end(analyzer: Connection) -> str:
    task = job_of(os.environ, with_hosts=False).task
    known = analyzer.delete(_path(task))["known"]
    return f"{task}: {'withdrawn' if known else 'was not declared'}"


def _sweep(analyzer: Connection, squeue: str) -> int:
    tasks = analyzer.all("/v1/tasks", "tasks")["tasks"]
    # Asked after the tasks: a job that is declared meanwhile is no task of these.
    gone = ended((task["id"] for task in tasks if task["declared"]), _jobs(squeue))
    for task in gone:
        analyzer.delete(_path(task))
        print(f"{task}: withdrawn")
    return 0


def _jobs(squeue: str) -> list[str]:
    """Return the numbers of all jobs that wait or run; raises CapabilityMissing."""
    command = [squeue, "-h", "-o", "%A"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SQUEUE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CapabilityMissing("squeue", str(error)) from error
    if done.returncode:
        raise CapabilityMissing("squeue", done.stderr.strip() or f"it ends with {done.returncode}")
    return done.stdout.split()


def _path(task: str) -> str:
    return f"/v1/tasks/{quote(task, safe='')}"


def _template(text: str) -> str:
    try:
        check_template(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _within(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= OVER_S:
        raise argparse.ArgumentTypeError(f"more than 0 and at most {OVER_S:g} seconds")
    return seconds
