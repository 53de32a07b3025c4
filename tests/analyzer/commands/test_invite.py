# SPDX-License-Identifier: Apache-2.0
"""What it prints; `tests/analyzer/server/test_enrolling.py` runs that against an analyzer."""

import json

import pytest

from analyzer import cli
from analyzer.commands import invite


@pytest.fixture
def asked(monkeypatch):
    asked = {}

    class Connection:
        def __init__(self, args):
            asked["url"] = args.url

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def post(self, path, body):
            asked[path] = body
            return {"host": body["host"], "token": "secret.abc", "port": asked.get("port", 8422)}

    monkeypatch.setattr(invite, "Connection", Connection)
    monkeypatch.setenv("NETAGENT_ANALYZER_URL", "https://analyzer.example:8420")
    return asked


def test_it_prints_what_to_run_on_the_host(asked, capsys):
    assert cli.main(["invite", "gpu-0417", "--hours", "24"]) == 0
    said = capsys.readouterr()
    assert said.out == (
        "netagent enroll --analyzer https://analyzer.example:8420 --token secret.abc\n"
    )
    assert "gpu-0417, as root, within 24 h" in said.err
    assert asked["/v1/invitations"] == {"host": "gpu-0417", "address": "", "valid_s": 86_400}


def test_a_port_that_is_not_the_usual_one_is_named(asked, capsys):
    asked["port"] = 443
    assert cli.main(["invite", "gpu-0417"]) == 0
    assert " --port 443 --token " in capsys.readouterr().out


def test_a_script_takes_the_token_alone(asked, capsys):
    assert cli.main(["invite", "gpu-0417", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["token"] == "secret.abc"  # noqa: S105


@pytest.mark.parametrize("hours", ["0", "-1", "169", "soon"])
def test_hours_are_a_week_at_most(asked, hours):
    with pytest.raises(SystemExit) as caught:
        cli.main(["invite", "gpu-0417", "--hours", hours])
    assert caught.value.code == 2


def test_an_address_may_be_named(asked):
    assert cli.main(["invite", "gpu-0417", "--address", "10.1.4.17"]) == 0
    assert asked["/v1/invitations"]["address"] == "10.1.4.17"
