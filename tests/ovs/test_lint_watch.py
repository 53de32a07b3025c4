# SPDX-License-Identifier: Apache-2.0
"""Flow tables looked at again and again: what comes and goes is told, and nothing else."""

import json
import signal
import subprocess
import sys

import pytest

from netagent.cli import main
from tests.conftest import OVS, require
from tests.ovs_checks.live import live_ovs

pytestmark = [pytest.mark.ovs, pytest.mark.oracle]
FINE = ["priority=5,in_port=1 actions=2", "priority=4,in_port=2 actions=1"]
SHADOWED = "priority=3,in_port=1,udp actions=2"


def test_what_is_wrong_is_told_when_it_comes_and_when_it_is_gone(tmp_path):
    require(OVS)
    with live_ovs(tmp_path) as live:
        live.add_bridge("br0", p1=1, p2=2)
        live.set_flows("br0", FINE)
        command = ("flows", "lint", "--every", "1", "--json", "--rundir", str(tmp_path))
        watching = subprocess.Popen(
            [sys.executable, "-m", "netagent", *command], stdout=subprocess.PIPE, text=True
        )
        with watching:
            try:
                told = _changes(watching)
                assert next(told) == ([], [])
                live.set_flows("br0", [*FINE, SHADOWED])
                assert _changed(told) == (["shadowed-flow"], [])
                live.set_flows("br0", FINE)
                assert _changed(told) == ([], ["shadowed-flow"])
            finally:
                watching.send_signal(signal.SIGTERM)
            assert watching.wait(10) == 0


def _changes(watching):
    for line in watching.stdout:
        said = json.loads(line)
        yield tuple([one["check"] for one in said[word]] for word in ("new", "gone"))


def _changed(told):
    return next(change for change in told if change != ([], []))


@pytest.mark.parametrize("words", [("--every", "0"), ("--every", "5", "--bundle", "b.tar.gz")])
def test_a_wrong_interval_is_misuse(words, capsys):
    assert main(["flows", "lint", *words]) == 2
    assert "--every" in capsys.readouterr().err
