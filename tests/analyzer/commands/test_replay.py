# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json

import pytest

from analyzer import cli
from analyzer.commands import replay
from tests.analyzer.replay.test_player import recorded


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.recording"
    path.write_bytes(recorded()[0])
    return path


def test_it_says_what_was_replayed_and_that_it_is_the_same(file, capsys):
    assert cli.main(["replay", str(file)]) == 0
    said = capsys.readouterr().out
    assert "times as fast" in said
    assert "link leaf-s1-r1 -- spine-0" in said
    assert said.rstrip().endswith("of 3 incidents")
    assert all(len(line) < 80 for line in said.splitlines())


def test_everything_is_told_as_json_too(file, capsys):
    assert cli.main(["replay", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["same"]
    assert [each["component"] for each in told["incidents"]] == [
        "link leaf-s1-r1 -- spine-0", "switch spine-1", "agent h2"
    ]  # fmt: skip
    assert told["incidents"][0]["evidence"]


def test_it_may_end_early_at_an_instant_or_after_seconds(file, capsys):
    ends = []
    for until in ("+85", "1970-01-01T01:23:45+00:00", "1970-01-01T01:23:45", "5025000000000"):
        assert cli.main(["replay", str(file), "--until", until, "--json"]) == 0
        ends.append(json.loads(capsys.readouterr().out)["last_ns"])
    assert len(set(ends)) == 1
    assert cli.main(["replay", str(file), "--until", "1970-01-01T00:00:01Z"]) == 2
    assert "begins later" in capsys.readouterr().err
    assert cli.main(["replay", str(file), "--until", "soon"]) == 2
    assert "'soon' is no instant" in capsys.readouterr().err


@pytest.mark.parametrize("at", [0, 3, 9, 100, 5000, -1])
def test_a_damaged_recording_names_the_place(file, capsys, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 0x55
    file.write_bytes(data)
    assert cli.main(["replay", str(file), "--json"]) == 2
    out, err = capsys.readouterr()
    assert f"netagent-analyzer: {file}: " in err
    assert "damaged at byte " in err
    assert "damaged at byte " in json.loads(out)["error"]


def test_a_file_that_is_not_there_is_an_error(tmp_path, capsys):
    assert cli.main(["replay", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_recording_commands_no_terminal(file, capsys, monkeypatch):
    """It quotes hosts, and may come from anybody."""
    played = dataclasses.replace(replay._played(str(file)), differences=["\x1b]0;owned\x07\u202e"])
    monkeypatch.setattr(replay, "_played", lambda *_: played)
    assert cli.main(["replay", str(file)]) == 1
    said = capsys.readouterr().out
    assert "?]0;owned??" in said
    assert "\x1b" not in said
