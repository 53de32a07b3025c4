# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from netagent.cli import main

GOOD = 'host = "h0"\n[analyzer]\nurl = "http://127.0.0.1:8420"\n'


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_text(GOOD)
    return path


def test_a_good_file_is_shown_with_its_defaults(file, capsys):
    assert main(["check-config", str(file)]) == 0
    text = capsys.readouterr().out
    assert f"{file}: ok" in text
    assert "probe.port = 18515" in text


def test_a_good_file_as_json(file, capsys):
    assert main(["check-config", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"]
    assert answer["config"]["probe"]["sizes"] == [64, 1100, "mtu"]


def test_a_bad_file_is_told_with_its_line(file, capsys):
    file.write_text(GOOD + "speed = 1\n")
    assert main(["check-config", str(file)]) == 2
    assert f"{file}:4: unknown key" in capsys.readouterr().err
    assert main(["check-config", str(file), "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["line"], answer["file"]) == (False, 4, str(file))


def test_tls_files_must_be_there(file, capsys):
    file.write_text(GOOD + '[tls]\nca = "ca.pem"\ncert = "c.pem"\nkey = "k.pem"\n')
    assert main(["check-config", str(file)]) == 2
    assert "tls.ca" in capsys.readouterr().err
    for name in ("ca", "c", "k"):
        (file.parent / f"{name}.pem").touch()
    assert main(["check-config", str(file)]) == 0


def test_the_file_may_be_given_as_other_commands_take_it(file, capsys):
    assert main(["check-config", "--config", str(file)]) == 0
    assert f"{file}: ok" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "is_warned"),
    [
        ('[endpoints]\ncontroller = "ovn-kubernetes"\n', True),
        ('[endpoints]\ncontroller = "ovn-kubernetes"\nrail = "0"\n', False),
        ('[ovs]\nrails = ["p0"]\n[endpoints]\ncontroller = "ovn-kubernetes"\n', False),
        ("", False),
    ],
)
def test_tunnels_without_a_rail_are_warned_of(file, capsys, more, is_warned):
    file.write_text(GOOD + more)
    assert main(["check-config", str(file)]) == 0
    assert ("warning: endpoints are on the rails" in capsys.readouterr().out) is is_warned
