# SPDX-License-Identifier: Apache-2.0
"""Slurm's jobs as tasks: its lists of hosts, and which containers a job has. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from netagent.model.errors import RemoteProtocolError

PREFIX = "slurm."
"""How tasks of Slurm's jobs begin: ``slurm.USER.JOB``."""
MOST_HOSTS = 65_536
"""Most hosts of a job. Chosen: Slurm's own limit of nodes (MAX_SLURM_NODES was 65,536)."""
MOST_TEXT = 1 << 20
"""Most characters of a list. Chosen: as many hosts, each by its name."""
_GROUP = re.compile(r"([^\[\],\s]*)(?:\[([0-9,-]+)\])?")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_KEY = re.compile(r"\{([^{}]*)\}")


def hosts_of(text: str) -> tuple[str, ...]:
    """Return the hosts of a list such as ``nid[001-003,7],login1``, in its order.

    As `scontrol show hostnames` has them: a range keeps the digits of its first number, several
    ranges of one name vary the last one fastest. Raises RemoteProtocolError.
    """
    if len(text) > MOST_TEXT:
        raise RemoteProtocolError(f"a list of hosts of {len(text)} characters")
    found: list[str] = []
    at = 0
    while at < len(text):
        names = [""]
        while at < len(text) and text[at] != ",":
            group = _GROUP.match(text, at)
            if group is None or group.end() == at:
                raise _odd(text)
            parts = [group[1]] if group[2] is None else [
                group[1] + number for number in _numbers(group[2], text)
            ]  # fmt: skip
            if len(names) * len(parts) + len(found) > MOST_HOSTS:
                raise RemoteProtocolError(f"{text[:80]!r} has more than {MOST_HOSTS} hosts")
            names = [name + part for name in names for part in parts]
            at = group.end()
        if names == [""]:
            raise _odd(text)
        found += names
        at += 1
    if text.endswith(","):
        raise _odd(text)
    return tuple(found)


def _numbers(ranges: str, text: str) -> Iterator[str]:
    count = 0
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise _odd(text)
        first, last = int(found[1]), int(found[2] or found[1])
        count += last - first + 1
        if count > MOST_HOSTS:
            raise RemoteProtocolError(f"{text[:80]!r} has more than {MOST_HOSTS} hosts")
        for number in range(first, last + 1):
            yield str(number).zfill(len(found[1]))


def _odd(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{text[:80]!r} is no list of hosts")


@dataclass(frozen=True, slots=True)
class Job:
    """What Slurm tells a hook of a job."""

    id: str
    user: str
    hosts: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        """The task that it is."""
        return f"{PREFIX}{self.user}.{self.id}"


def job_of(environ: Mapping[str, str], *, with_hosts: bool) -> Job:
    """Return the job of a hook's environment (slurm.conf(5)). Raises RemoteProtocolError."""
    number, user = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_JOB_USER", "")
    if not re.fullmatch("[0-9]{1,10}", number):
        raise RemoteProtocolError(f"SLURM_JOB_ID is {number!r}: is this a hook of Slurm?")
    if not _WORD.fullmatch(user):
        raise RemoteProtocolError(f"SLURM_JOB_USER is {user!r}, no name of a user")
    hosts = hosts_of(environ.get("SLURM_JOB_NODELIST", "")) if with_hosts else ()
    if with_hosts and not hosts:
        raise RemoteProtocolError("SLURM_JOB_NODELIST names no host")
    return Job(number, user, hosts)


def ended(tasks: Iterable[str], running: Iterable[str]) -> list[str]:
    """Return which tasks are of jobs that are not among those that run, by their numbers."""
    alive = set(running)
    mine = (task for task in tasks if task.startswith(PREFIX))
    return sorted(task for task in mine if task.rpartition(".")[2] not in alive)


def check_template(template: str) -> None:
    """Raise ValueError for a text that names no container of a host."""
    keys = set(_KEY.findall(template))
    if "host" not in keys or not keys <= {"host", "job", "user"}:
        raise ValueError(f"{template!r} is no text with {{host}}, and {{job}} or {{user}} at most")


def containers_of(
    job: Job, template: str, known: Iterable[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Return the containers of a job and their hosts, host after host.

    By `template`, one for each host; without it, those `known` (container, host) to be there.
    """
    if template:
        return tuple((_named(template, job, host), host) for host in job.hosts)
    order = {host: n for n, host in enumerate(job.hosts)}
    mine = {(order[host], container): host for container, host in known if host in order}
    return tuple((container, mine[n, container]) for n, container in sorted(mine))


def _named(template: str, job: Job, host: str) -> str:
    values = {"host": host, "job": job.id, "user": job.user}
    return _KEY.sub(lambda key: values[key[1]], template)
