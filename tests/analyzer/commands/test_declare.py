# SPDX-License-Identifier: Apache-2.0
"""The command, as a process, against an analyzer."""

import argparse
import json

import pytest

from analyzer.commands import declare
from tests.analyzer.commands.running import analyzer_with, ran

TOML = """
containers = ["a0", "a1"]
rails = [0, 1]
skeleton = false
[parallelism]
dp = 2
pp = 1
tp = 2
ep = 1
"""


def test_a_task_is_declared_shown_changed_and_withdrawn(tmp_path):
    file, odd = tmp_path / "job.toml", tmp_path / "odd.json"
    file.write_text(TOML)
    odd.write_text("[1, 2]")
    with analyzer_with(tmp_path) as url:

        def declared(*words, **fields):
            return ran("declare", "train-a", *words, "--url", url, **fields)

        said = declared("--containers", "a0,a1", "--rails", "0-1", "--parallelism", "dp=4")
        assert said.returncode == 0, said.stderr
        assert said.stdout.splitlines()[1].split()[:4] == ["train-a", "declared", "2", "0,1"]
        told = json.loads(declared("--file", str(file), "--json").stdout)
        assert (told["skeleton"], told["parallelism"]["tp"]) == (False, 2)
        given = json.dumps({"containers": ["b0"], "rails": [3]})
        told = json.loads(declared("--file", "-", "--rails", "4", "--json", given=given).stdout)
        assert (told["containers"], told["rails"]) == (["b0"], [4])
        unfit = declared("--containers", "a0", "--rails", "0", "--parallelism", "dp=3", "--json")
        assert unfit.returncode == 2
        assert set(json.loads(unfit.stdout)) == {"error", "remedy"}
        assert declared("--file", str(odd)).returncode == 2
        assert declared("--file", str(tmp_path / "none")).returncode == 2
        assert declared("--rails", "0").returncode == 2
        assert declared("--remove", "--rails", "0").returncode == 2
        gone = declared("--remove")
        assert (gone.returncode, gone.stdout) == (0, "train-a: withdrawn\n")
        again = declared("--remove")
        assert (again.returncode, again.stdout) == (1, "train-a: was not declared\n")


def parsed(*words):
    parser = argparse.ArgumentParser()
    declare.add_arguments(parser)
    return parser.parse_args(["t", *words])


def test_rails_and_degrees_are_written_shortly():
    assert parsed("--rails", "0-2, 5").rails == [0, 1, 2, 5]
    assert parsed("--parallelism", "tp=8,dp=2").parallelism == {"dp": 2, "pp": 1, "tp": 8, "ep": 1}


@pytest.mark.parametrize(
    "words",
    [
        ["--rails", "x"], ["--rails", "0-"], ["--rails", "0-9999"], ["--containers", "a,,b"],
        ["--parallelism", "xp=2"], ["--parallelism", "dp"], ["--parallelism", "dp=-1"],
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_misuse(words):
    with pytest.raises(SystemExit) as caught:
        parsed(*words)
    assert caught.value.code == 2
