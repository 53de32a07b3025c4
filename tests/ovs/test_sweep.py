# SPDX-License-Identifier: Apache-2.0
"""Many packets at once through what a real Open vSwitch holds, live and from a bundle."""

import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from netagent.cli import main
from tests.conftest import OVS, require
from tests.ovs_checks.live import live_ovs
from tests.waiting import wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.oracle]

FLOWS = [
    "cookie=0x5,priority=40000,udp,nw_dst=10.0.0.9 actions=drop",
    "udp actions=resubmit(,1)",
    "table=1,udp,udp_dst=4791 actions=output:2",
]
AGE = re.compile(r"duration=[\d.]+s|idle_age=\d+")
PACKETS = [f"in_port=p1,udp,nw_dst=10.0.0.{n},udp_dst=4791" for n in range(1, 30)]


@pytest.fixture(scope="module")
def ovs(tmp_path_factory):
    require(OVS)
    with live_ovs(tmp_path_factory.mktemp("ovs")) as live:
        live.add_bridge("br0", p1=1, p2=2)
        live.set_flows("br0", FLOWS)
        yield live


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "packets.txt"
    path.write_text("\n".join([*PACKETS, "in_port=p1,udp,udp_dst=53", "in_port=p7,udp"]))
    return str(path)


def test_packets_are_told_by_the_entry_that_loses_them(ovs, listed, capsys):
    words = ["flows", "sweep", "br0", listed]
    assert main([*words, f"--rundir={ovs.rundir}"]) == 1
    told = capsys.readouterr()
    assert "      28  leave br0 by p2\n" in told.out
    assert "       1  missed in br0/table=1: " in told.out
    assert "cookie=0x5" in told.out
    assert "differs in tp_dst" in told.out
    assert f"such as {listed}:9\n" in told.out
    assert told.out.endswith(
        "28 of 30 packets leave by a port or a tunnel, 1 lines not understood\n"
    )
    assert told.err == f"{listed}:31:1: unknown field or port: in_port=p7\n"
    bundle = listed.replace("packets.txt", "h0.tar.gz")
    assert main(["bundle", f"--rundir={ovs.rundir}", f"--output={bundle}"]) == 0
    capsys.readouterr()
    assert main([*words, f"--bundle={bundle}"]) == 1
    kept = capsys.readouterr()
    assert AGE.sub("", kept.out) == AGE.sub("", told.out)
    assert kept.err == told.err


def test_a_worker_ends_with_who_started_it(ovs, tmp_path):
    """It would go on for minutes at the cost of the training job."""
    reader, writer = os.pipe()
    words = ("flows", "sweep", "br0", "-", f"--rundir={ovs.rundir}")
    command = subprocess.Popen(
        [sys.executable, "-m", "netagent", *words], stdin=reader, stdout=subprocess.PIPE
    )
    os.close(reader)
    wait_until(lambda: bool(children(command.pid)), "the worker to start")
    worker = os.pidfd_open(children(command.pid)[0])
    command.kill()
    command.communicate()
    assert select.select([worker], [], [], 10)[0]
    os.close(worker)
    os.close(writer)


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_as_json_every_line_is_named(ovs, tmp_path, capsys):
    path = tmp_path / "some.txt"
    path.write_text("\n".join(PACKETS[:8]))
    assert main(["flows", "sweep", "br0", str(path), f"--rundir={ovs.rundir}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(fate["kind"], fate["lines"]) for fate in told["fates"]] == [
        ("output", [1, 2, 3, 4, 5, 6, 7, 8])
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nope", "{packets}", "--rundir={rundir}"), 2, "no bridge 'nope'"),
        (("br0", "/nonexistent", "--rundir={rundir}"), 2, "/nonexistent: No such file"),
        (("br0", "{packets}", "--rundir=/nonexistent"), 3, "/nonexistent"),
        (("br0", "{packets}", "--bundle=/nonexistent"), 2, "/nonexistent: No such file"),
    ],
)
def test_what_cannot_be_asked_is_said(ovs, listed, words, code, said, capfd):
    filled = [word.format(packets=listed, rundir=ovs.rundir) for word in words]
    assert main(["flows", "sweep", *filled]) == code
    error = capfd.readouterr().err
    assert error.startswith("netagent: ")
    assert said in error
