# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import cli, report
from tests.lab.catalogue import CATALOGUE
from tests.lab.faults import plan
from tests.lab.shape import Shape
from tests.lab.state import State

VERBS = (
    *("up", "status", "start-task", "stop-container", "start-container"),
    *("restart", "inject", "heal", "exec", "down"),
)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main([verb, "--help"])
    assert done.value.code == 0
    assert f"python -m tests.lab {verb}" in capsys.readouterr().out


def test_a_python_without_the_packages_names_the_command_that_has_them() -> None:
    """`-S` leaves site-packages out, as Debian's own python3 has none of ours."""
    command = [sys.executable, "-S", "-m", "tests.lab", "exec", "h0", "--", "echo", "a b"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    error, remedy = done.stderr.splitlines()
    assert error.startswith(f"error: {sys.executable} has no module ")
    assert remedy.startswith("remedy: run ")
    assert remedy.endswith("run .venv/bin/python -m tests.lab exec h0 -- echo 'a b'")


def test_what_the_page_shows_is_run_by_the_environment_s_python() -> None:
    page = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()
    assert page.count("python -m tests.lab ") == page.count(".venv/bin/python -m tests.lab ") > 5


def test_wrong_usage_is_exit_code_2() -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["explode"])
    assert done.value.code == 2


def test_the_catalogue_is_listed_for_people_and_machines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["inject", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 80
    assert cli.main(["inject", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed] == list(CATALOGUE)


def test_a_failure_names_a_remedy_and_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inject", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["remedy"] in said.err


def test_what_people_read_is_under_80_columns() -> None:
    state = State(Shape())
    values = {
        **state.encode(),
        "containers": [f"train-a-{host}" for host in range(4)],
        "faults": [{"key": "link-loss@x", "truth": {"layer": "underlay", "component": "link"}}],
        "processes": {"h0/agent": None, "traffic": 7},
        "traffic": {"train-a": {"sent": 10**7, "received": 10**7}},
        "analyzer": "https://198.18.0.1:8420",
        "agent_urls": {f"h{host}": f"https://198.18.0.{10 + host}:8421" for host in range(4)},
        "environment": {
            "NETAGENT_ANALYZER_URL": "https://198.18.0.1:8420",
            "NETAGENT_CA": "/run/netagent-lab/tls/ca.pem",
            "NETAGENT_CERT": "/run/netagent-lab/tls/admin.pem",
            "NETAGENT_KEY": "/run/netagent-lab/tls/admin.key",
        },
    }
    fault = plan("link-loss", None, {}, state)
    text = "\n".join([report.welcome(values), report.status(values), report.injected(fault)])
    assert "dead: h0/agent" in text
    assert "percent=5" in text
    assert max(map(len, text.splitlines())) < 80
