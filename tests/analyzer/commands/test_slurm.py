# SPDX-License-Identifier: Apache-2.0
"""The hooks, against an analyzer as a process, and against none."""

import os
import socket
import time

import httpx
import pytest

from analyzer.cli import main
from analyzer.commands import slurm
from netagent.wire.codec import encode
from tests.analyzer.cluster import endpoint, registration
from tests.analyzer.server.test_routes import MSGPACK
from tests.analyzer.server.within import Within

ENVIRON = {"SLURM_JOB_ID": "17", "SLURM_JOB_USER": "ada", "SLURM_JOB_NODELIST": "nid[001-002,7]"}


@pytest.fixture
def job(monkeypatch):
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NETAGENT_ANALYZER_URL", raising=False)


def hook(capsys, url, action, *more):
    """Return what a hook says, which never fails."""
    assert main(["slurm", action, "--url", url, *more]) == 0
    said = capsys.readouterr()
    return said.out.strip(), said.err.strip()


def register(url, host, *endpoints):
    message = registration(host, *endpoints)
    answer = httpx.put(f"{url}/v1/hosts/{host}/endpoints", content=encode(message), headers=MSGPACK)
    assert answer.status_code == 200, answer.text


def tasks(url):
    return {each["id"]: each for each in httpx.get(f"{url}/v1/tasks").json()["tasks"]}


def test_a_job_is_a_task_from_its_prolog_to_its_epilog(tmp_path, job, capsys):
    with Within(tmp_path) as server:
        for host in ("nid001", "nid7", "nid8"):
            rails = (endpoint(host, f"c-{host}", rail, task="idle") for rail in (0, 1))
            register(server.url, host, *rails)
        said, _ = hook(capsys, server.url, "prolog")
        assert said == "slurm.ada.17: 2 containers on 2 of 3 hosts"
        task = tasks(server.url)["slurm.ada.17"]
        assert (task["containers"], task["hosts"], task["rails"]) == (
            ["c-nid001", "c-nid7"], ["nid001", "nid7"], [0, 1],
        )  # fmt: skip
        assert (task["endpoints_registered"], task["endpoints_expected"]) == (4, 4)
        found = httpx.get(f"{server.url}/v1/endpoints", params={"task": "slurm.ada.17"}).json()
        assert len(found["endpoints"]) == 4
        assert hook(capsys, server.url, "epilog")[0] == "slurm.ada.17: withdrawn"
        assert tasks(server.url).keys() == {"idle"}
        assert hook(capsys, server.url, "epilog")[0] == "slurm.ada.17: was not declared"


def test_containers_are_named_by_a_rule_before_they_are_there(tmp_path, job, capsys):
    with Within(tmp_path) as server:
        said, _ = hook(capsys, server.url, "prolog", "--container", "{user}-{job}-{host}")
        assert said == "slurm.ada.17: 3 containers on 3 of 3 hosts"
        task = tasks(server.url)["slurm.ada.17"]
        assert task["containers"] == ["ada-17-nid001", "ada-17-nid002", "ada-17-nid7"]
        assert task["hosts"] == ["nid001", "nid002", "nid7"]


def test_what_hooks_missed_is_swept(tmp_path, job, capsys, monkeypatch):
    with Within(tmp_path) as server:
        for number in ("17", "18", "19"):
            monkeypatch.setenv("SLURM_JOB_ID", number)
            hook(capsys, server.url, "prolog", "--container", "{job}-{host}")
        httpx.put(f"{server.url}/v1/tasks/train-a", json={"containers": ["x"]})
        said, _ = hook(
            capsys, server.url, "sweep", "--squeue", squeue(tmp_path, "echo 18; echo 20")
        )
        assert said.splitlines() == ["slurm.ada.17: withdrawn", "slurm.ada.19: withdrawn"]
        assert tasks(server.url).keys() == {"slurm.ada.18", "train-a"}
        for broken in (squeue(tmp_path, "echo gone >&2; exit 1"), str(tmp_path / "none")):
            assert main(["slurm", "sweep", "--url", server.url, "--squeue", broken]) == 3
        assert "gone" in capsys.readouterr().err
        assert tasks(server.url).keys() == {"slurm.ada.18", "train-a"}
        said, _ = hook(capsys, server.url, "sweep", "--squeue", squeue(tmp_path, "true"))
        assert said == "slurm.ada.18: withdrawn"


def squeue(folder, text):
    """Return a command that says what squeue says."""
    made = folder / "squeue"
    made.write_text(f"#!/bin/sh\n{text}\n")
    made.chmod(0o755)
    return str(made)


def test_what_cannot_be_declared_is_said_and_no_failure(tmp_path, job, capsys, monkeypatch):
    with Within(tmp_path) as server:
        _, why = hook(capsys, server.url, "prolog")
        assert "no agent has a container on 3 hosts" in why
        httpx.put(f"{server.url}/v1/tasks/train-a", json={"containers": ["nid7"]})
        _, why = hook(capsys, server.url, "prolog", "--container", "{host}")
        assert "train-a holds some of these containers" in why
    monkeypatch.delenv("SLURM_JOB_ID")
    assert "is this a hook of Slurm?" in hook(capsys, server.url, "epilog")[1]


@pytest.mark.parametrize("action", ["prolog", "epilog"])
def test_without_an_analyzer_no_job_fails(job, capsys, action):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert "refused" in hook(capsys, url, action)[1]
    assert "no URL" in hook(capsys, "nonsense", action)[1]
    assert "--ca" in hook(capsys, url, action, "--cert", "none.pem")[1]


@pytest.mark.parametrize("action", ["prolog", "epilog"])
def test_an_analyzer_that_hangs_holds_no_job(job, capsys, action, monkeypatch):
    monkeypatch.setattr(slurm, "WITHIN_S", 30.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began_s = time.monotonic()
        assert "did not answer in time" in hook(capsys, url, action, "--within", "0.5")[1]
        assert time.monotonic() - began_s < 25
    assert os.environ["SLURM_JOB_ID"] == "17"


@pytest.mark.parametrize(
    "words", [["--within", "0"], ["--within", "x"], ["--container", "c"], ["--within", "31"]]
)
def test_what_makes_no_sense_is_refused_when_it_is_typed(words, capsys):
    with pytest.raises(SystemExit):
        main(["slurm", "prolog", *words])
    assert words[0] in capsys.readouterr().err
