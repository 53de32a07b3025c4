# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import sys

import pytest

from vagrant.vm import cli
from vagrant.vm.errors import BuildFailed
from vagrant.vm.guest import Options, Result
from vagrant.vm.qemu import Accelerator

RESULT = Result(
    exit_code=3,
    timed_out=False,
    ended=True,
    boot_s=4.0,
    total_s=9.0,
    kernel="6.1.0-1-amd64",
    accelerator=Accelerator.TCG,
    stdout="out",
    stderr="",
    console="a\nb\n",
)


@pytest.fixture
def booted(image, monkeypatch):
    """Return what `run` asks for; the guest answers `RESULT`."""
    asked = []

    def boot(image, command, options, *, stdout, stderr):
        asked.append((command, options, stdout))
        stdout.write(b"out")
        return RESULT

    monkeypatch.setattr(cli, "ensure", lambda *_, **__: image)
    monkeypatch.setattr(cli, "boot", boot)
    return asked


def test_run_exits_as_the_command_did(booted, capsysbinary):
    assert cli.main(["run", "debian-12", "--", "false"]) == 3
    assert capsysbinary.readouterr().out == b"out"
    assert booted[0][:2] == (["false"], Options())


def test_what_follows_the_dashes_is_the_guests(booted):
    cli.main(["run", "debian-12", "--cpus", "1", "--", "env", "--", "--json", "--cpus", "4"])
    command, options, _ = booted[0]
    assert command == ["env", "--", "--json", "--cpus", "4"]
    assert options.cpus == 1


def test_options_reach_the_guest(booted):
    cli.main(["run", "debian-13", "--timeout", "7", "--memory", "900", "--env", "A=b=c", "--env",
              "D=", "--accel", "tcg", "--link", "wire", "--index", "1", "--", "true"])  # fmt: skip
    assert booted[0][1] == Options(7, 900, 2, {"A": "b=c", "D": ""}, "tcg", link="wire", index=1)


def test_with_json_standard_output_is_the_results_alone(booted, capsys):
    assert cli.main(["run", "debian-12", "--json", "--", "true"]) == 3
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "exit_code": 3,
        "timed_out": False,
        "ended": True,
        "boot_s": 4.0,
        "total_s": 9.0,
        "kernel": "6.1.0-1-amd64",
        "accelerator": "tcg",
    }
    assert printed.err == "out"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--env", "novalue"],
        ["--env", "a b=c"],
        ["--timeout", "0"],
        ["--cpus", "x"],
        ["--index", "2"],
    ],
)
def test_wrong_usage_exits_with_2(booted, arguments):
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "debian-12", *arguments, "--", "true"])
    assert caught.value.code == 2
    assert booted == []


def test_an_unknown_distribution_exits_with_1_and_the_known_ones(capsys):
    assert cli.main(["run", "debian-9", "--json", "--", "true"]) == 1
    printed = capsys.readouterr()
    assert "debian-12" in json.loads(printed.out)["remedy"]
    assert "error: no distribution is called debian-9" in printed.err


def test_a_failed_build_shows_the_end_of_its_log(monkeypatch, capsys):
    def ensure(*_, **__):
        raise BuildFailed("debian-12", "E: nothing works\n")

    monkeypatch.setattr(cli, "ensure", ensure)
    assert cli.main(["build", "debian-12"]) == 1
    assert capsys.readouterr().err.startswith("E: nothing works\nerror: ")


def test_a_command_that_ended_is_no_trouble():
    assert cli.trouble(RESULT) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"boot_s": None}, "the guest never came up, in 9 s"),
        ({"timed_out": True}, "not done in 9 s: the guest was killed"),
        ({}, "the guest died after 9 s"),
    ],
)
def test_where_the_guest_made_the_end_its_console_is_shown(change, said):
    result = dataclasses.replace(RESULT, ended=False, **change)
    assert cli.trouble(result) == f"{said}; end of its console:\n  a\n  b"
    assert cli.trouble(dataclasses.replace(result, console="")) == said


@pytest.mark.parametrize(
    ("seconds", "text"), [(9, "9 s"), (60, "1 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_an_age_is_told_in_its_largest_unit(seconds, text):
    assert cli.age_text(seconds) == text


def test_list_names_what_is_built_and_how_to_build_the_rest(image, monkeypatch, capsys, tmp_path):
    built = dataclasses.replace(image, path=tmp_path)
    monkeypatch.setattr(
        cli.images, "find", lambda each: built if each.name == "debian-12" else None
    )
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    assert str(tmp_path) in shown
    assert "debian-13   not built: python -m vagrant.vm build debian-13" in shown
    assert cli.main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["built"]) for row in rows] == [("debian-12", True),
                                                             ("debian-13", False)]  # fmt: skip


def test_ctrl_c_exits_as_shells_expect(monkeypatch):
    def ensure(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "ensure", ensure)
    assert cli.main(["build"]) == 130


def test_the_command_line_is_that_of_the_process_by_default(booted, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["vm", "run", "debian-12", "--", "id"])
    cli.main()
    assert booted[0][0] == ["id"]
