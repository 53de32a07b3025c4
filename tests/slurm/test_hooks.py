# SPDX-License-Identifier: Apache-2.0
"""The hooks of docs/slurm.md under a real slurmctld and slurmd: a job is a task while it runs."""

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import httpx
import pytest

from analyzer.intent.slurm import hosts_of
from netagent.wire.codec import encode
from tests.analyzer.cluster import endpoint, registration
from tests.analyzer.server.process import ROOT, Process
from tests.analyzer.server.test_routes import MSGPACK
from tests.conftest import SLURM, SLURM_FOLDER, require
from tests.waiting import wait_until

pytestmark = pytest.mark.slurm

LIBRARIES = SLURM_FOLDER / "usr/lib/x86_64-linux-gnu"
NODES = ("nid001", "nid002", "nid003", "nid7")
CONF = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldPort={port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
PrologSlurmctld={folder}/prolog
EpilogSlurmctld={folder}/epilog
{nodes}
PartitionName=all Nodes=nid[001-003],nid7 Default=YES State=UP
"""


def port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        found: int = made.getsockname()[1]
        return found


class Slurm:
    """A controller and four nodes on this machine; `with` starts and ends them."""

    def __init__(self, folder: Path, hook: str) -> None:
        """Let `hook` be the text of both hooks."""
        self._folder, name = folder, socket.gethostname()
        folder.mkdir()
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={name} NodeAddr=127.0.0.1 Port={port()} CPUs=1"
            for node in NODES
        )
        text = CONF.format(
            host=name, plugins=LIBRARIES / "slurm-wlm", folder=folder, port=port(), nodes=nodes
        )
        (folder / "slurm.conf").write_text(text)
        for action in ("prolog", "epilog"):
            (folder / action).write_text(hook)
            (folder / action).chmod(0o755)
        for each in ("state", *(f"spool/{node}" for node in NODES)):
            (folder / each).mkdir(parents=True)
        self._environ = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{LIBRARIES}:{LIBRARIES / 'slurm-wlm'}",
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    def run(self, command: str, *words: str) -> str:
        """Run one of Slurm's commands."""
        done = subprocess.run(
            [SLURM_FOLDER / "usr/bin" / command, *words], env=self._environ, timeout=30,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout

    def sweep(self, url: str) -> str:
        """Let netagent ask squeue; return what it says."""
        words = ("slurm", "sweep", "--url", url, "--squeue", str(SLURM_FOLDER / "usr/bin/squeue"))
        environ = {**self._environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "analyzer.cli", *words]
        return subprocess.run(
            command, env=environ, timeout=60, capture_output=True, text=True, check=True
        ).stdout

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start its daemons, and kill them."""
        try:
            self._start("slurmctld", "-D", "-c")
            for node in NODES:
                self._start("slurmd", "-D", "-N", node)
            wait_until(lambda: "idle 4" in self.run("sinfo", "-h", "-o", "%T %D"), "nodes", 60)
            yield
        finally:
            for each in reversed(self._daemons):
                each.kill()
                each.wait()

    def _start(self, name: str, *words: str) -> None:
        # slurmd finds slurmstepd at one place alone: a mount that nobody else sees.
        sbin = SLURM_FOLDER / "usr/sbin"
        mount = f"mount -t overlay overlay -o lowerdir={sbin}:/usr/sbin /usr/sbin"
        command = f"{mount} && exec {shlex.join([f'/usr/sbin/{name}', *words])}"
        with (self._folder / f"{name}{''.join(words)}.log").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    ["unshare", "-mpf", "--kill-child", "bash", "-c", command],
                    env=self._environ, stdout=log, stderr=log,
                )
            )  # fmt: skip


def documented(url: str) -> str:
    """Return the hook of docs/slurm.md, with this netagent and this analyzer."""
    text = (ROOT / "docs/slurm.md").read_text(encoding="utf-8")
    found = re.search(r"^```sh\n(#!/bin/sh\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found
    text, count = re.subn(r"(NETAGENT_ANALYZER_URL)=\S+", rf"\1={url}", found[1])
    assert count == 1
    text = re.sub(r"^export NETAGENT_CA=.*\n", "", text, flags=re.MULTILINE)  # it speaks HTTP
    command = f"env PYTHONPATH={ROOT} {sys.executable} -m analyzer.cli slurm"
    assert "netagent-analyzer slurm" in text
    return text.replace("netagent-analyzer slurm", command)


def test_a_job_is_a_task_while_it_runs(tmp_path: Path) -> None:
    require(SLURM)
    with Process(tmp_path) as server:
        for host in NODES:
            message = registration(host, endpoint(host, f"c-{host}", task="idle"))
            path = f"{server.url}/v1/hosts/{host}/endpoints"
            assert httpx.put(path, content=encode(message), headers=MSGPACK).is_success
        job = tmp_path / "job.sh"
        job.write_text(f"#!/bin/sh\nuntil [ -e {tmp_path}/end ]; do sleep 0.1; done\n")
        slurm = Slurm(tmp_path / "slurm", documented(server.url))

        def tasks() -> dict[str, list[str]]:
            told = httpx.get(f"{server.url}/v1/tasks").json()["tasks"]
            return {each["id"]: each["hosts"] for each in told}

        with slurm.running():
            said = slurm.run("sbatch", "-N", "3", "-w", "nid[001-002],nid7", "-o", "/dev/null",
                             str(job))  # fmt: skip
            number = said.split()[-1]
            task = f"slurm.root.{number}"
            wait_until(lambda: task in tasks(), "the task", 60)
            assert sorted(tasks()[task]) == ["nid001", "nid002", "nid7"]
            ended = f"{server.url}/v1/tasks/slurm.root.999999"
            assert httpx.put(ended, json={"containers": ["x"]}).is_success
            assert slurm.sweep(server.url) == "slurm.root.999999: withdrawn\n"
            assert task in tasks()
            (tmp_path / "end").touch()
            wait_until(lambda: task not in tasks(), "its end", 60)
            server.kill()
            said = slurm.run("sbatch", "-N", "1", "-o", "/dev/null", str(job))
            number = said.split()[-1]
            of = ("show", "job", number)
            wait_until(lambda: "JobState=COMPLETED" in slurm.run("scontrol", *of), "a job", 60)
            assert "Restarts=0" in slurm.run("scontrol", *of)  # without an analyzer, too


def test_lists_are_what_scontrol_makes_of_them(tmp_path: Path) -> None:
    require(SLURM)
    slurm, rng = Slurm(tmp_path / "slurm", ""), Random(7)
    for _ in range(100):
        parts = []
        for _ in range(rng.randint(1, 3)):
            first = rng.randint(0, 120)
            last, width = first + rng.randint(0, 12), rng.randint(1, 4)
            more = rng.randint(0, 99)
            parts.append(
                f"{rng.choice(['n', 'a-', 'r1x'])}[{first:0{width}}-{last:0{width}},{more}]"
            )
        text = ",".join(parts)
        assert list(hosts_of(text)) == slurm.run("scontrol", "show", "hostnames", text).split()
