# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a real overlay, told from bundles of its hosts: the entry, exactly."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from netagent.cli import main
from tests.conftest import OVS, require
from tests.lab import Lab, Shape
from tests.lab.pipeline import Table, cookie, destination_match
from tests.lab.workload import Container

pytestmark = [pytest.mark.ovs, pytest.mark.lab]

SHAPE = Shape(hosts=3, rails=1, segments=1, spines=1)
PAIR = ("train-a-0/rail0", "train-a-2/rail0")
TO_TARGET = destination_match(Container("train-a", 2).endpoint(0))
TO_SOURCE = destination_match(Container("train-a", 0).endpoint(0))


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    require(OVS)
    lab = Lab()
    try:
        lab.up(SHAPE, agents=False, traffic=None)
        yield lab
    finally:
        lab.down()


def bundles(lab: Lab, folder: Path) -> list[str]:
    """Make a bundle of each host, as its operator would."""
    paths = [folder / f"h{host}.tar.gz" for host in range(SHAPE.hosts)]
    for host, path in enumerate(paths):
        name = f"h{host}"
        command = (sys.executable, "-m", "netagent", "bundle", "--host", name)
        lab.run(name, *command, "--output", str(path))
    return [f"--bundle={path}" for path in paths]


def checked(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = main(["check", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_all_pairs_of_a_healthy_overlay_arrive(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = bundles(lab, tmp_path)
    code, said = checked(["--all", *made], capsys)
    assert (code, len(said["pairs"])) == (0, 6)
    assert main(["check", *PAIR, *made]) == 0
    shown = capsys.readouterr().out
    assert "br-int/table=40" in shown
    assert shown.endswith("1 of 1 pairs arrive, there and back\n")
    assert main(["flows", "lint", *made]) == 0
    assert capsys.readouterr().out.startswith("0 warnings")
    listed = tmp_path / "pairs"
    listed.write_text(f"# the pairs\n{' '.join(PAIR)}\n\n{PAIR[1]} {PAIR[0]} # back\n")
    assert len(checked([f"--pairs={listed}", *made], capsys)[1]["pairs"]) == 2


@pytest.mark.parametrize(
    ("name", "way", "outcome", "quoted"),
    [
        ("flow-deleted", "there", "missed", ("nearest", Table.TUNNEL, 1, "")),
        ("flow-loop", "there", "loop", ("flow", Table.TUNNEL, 0, TO_TARGET)),
        ("flow-drop", "there", "dropped", ("flow", Table.DESTINATION, 0, TO_TARGET)),
        ("wrong-tunnel-remote", "there", "wrong_tunnel", ("flow", Table.TUNNEL, 1, TO_TARGET)),
        ("wrong-vni", "there", "wrong_vni", ("flow", Table.TUNNEL, 1, TO_TARGET)),
        ("flow-shadowed", "there", "wrong_tunnel", ("shadowed", Table.TUNNEL, 1, TO_TARGET)),
        ("group-dead", "there", "dropped", ("flow", Table.TUNNEL, 1, TO_TARGET)),
        ("wrong-output-port", "there", "wrong_port", ("flow", Table.DELIVERY, 1, "reg2=")),
        ("wrong-reverse", "back", "wrong_tunnel", ("flow", Table.TUNNEL, 1, TO_SOURCE)),
    ],
)
def test_the_entry_at_fault_is_named(
    lab: Lab,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    way: str,
    outcome: str,
    quoted: tuple[str, Table, int, str],
) -> None:
    """Bridge, table, cookie and match; the other direction is not blamed."""
    fault = lab.inject(name, f"h0/{PAIR[1]}")
    try:
        assert lab.reaches("train-a-0", "10.0.0.12", timeout_s=0.2) == 0
        code, said = checked([*PAIR, *bundles(lab, tmp_path)], capsys)
    finally:
        lab.heal()
    (pair,) = said["pairs"]
    found, other = pair[way], pair["back" if way == "there" else "there"]
    assert code == 1
    assert (found["outcome"], found["component"]) == (outcome, fault.truth.component)
    assert other["outcome"] == "delivered"
    what, table, ours, match = quoted
    entry = found[what]
    assert (entry["bridge"], entry["table"]) == ("br-int", table)
    assert entry["cookie"] == (cookie(table) if ours else 0)
    assert all(word in entry["text"] for word in match.replace("reg1=0x0", "reg1=0").split(","))


def test_a_tunnel_s_mtu_is_named(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.inject("encap-mtu", "h0/rnic0")
    try:
        code, said = checked([*PAIR, *bundles(lab, tmp_path)], capsys)
    finally:
        lab.heal()
    there = said["pairs"][0]["there"]
    assert (code, there["outcome"], there["component"]) == (1, "no_underlay", "tunnel h0/vxlan0")
    assert "carries 1400 bytes, a packet of 1450 needs 1500 in vxlan" in there["reason"]


def test_a_tunnel_that_takes_another_vni_only_is_named(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = lab.inject("far-vni", "h2/rnic0")
    try:
        code, said = checked([*PAIR, *bundles(lab, tmp_path)], capsys)
    finally:
        lab.heal()
    there = said["pairs"][0]["there"]
    assert (code, there["outcome"], there["component"]) == (1, "missed", fault.truth.component)


def test_two_faults_at_once_are_both_named(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = lab.inject("group-dead", f"h0/{PAIR[1]}")
    back = lab.inject("flow-deleted", f"h2/{PAIR[0]}")
    try:
        _, said = checked([*PAIR, *bundles(lab, tmp_path)], capsys)
        assert main(["flows", "lint", *bundles(lab, tmp_path)]) == 1
        linted = capsys.readouterr().out
    finally:
        lab.heal()
    (pair,) = said["pairs"]
    named = [pair[way]["component"] for way in ("there", "back")]
    assert named == [there.truth.component, back.truth.component]
    assert f"warning dead-group  {there.truth.component}" in linted
    assert lab.reaches("train-a-0", "10.0.0.12") == 3


def test_a_live_host_is_asked_for_its_own_opinion(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rundir = lab.run("h0", "sh", "-c", "echo $OVS_RUNDIR").strip()
    place = (f"--rundir={rundir}", "--bridge=br-int", "--host=h0")
    target = Container("train-a", 2).endpoint(0)
    asked = ("check", PAIR[0], target.address, f"--mac={target.mac}", *place)
    assert main(asked) == 0
    assert "ofproto/trace agrees: " in capsys.readouterr().out
    lab.inject("flow-drop", f"h0/{PAIR[1]}")
    try:
        assert main(asked) == 1
    finally:
        lab.heal()
    assert "ofproto/trace agrees: drop" in capsys.readouterr().out


def test_what_is_asked_wrongly_is_said(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = bundles(lab, tmp_path)
    for words in (("nope-1/rail0", PAIR[1]), (PAIR[0],), (f"--pairs={tmp_path}/none",)):
        assert main(["check", *words, *made]) == 2
    bad = tmp_path / "bad"
    bad.write_text(f"{PAIR[0]}\n")
    assert main(["check", f"--pairs={bad}", *made]) == 2
    assert f"{bad}:1: SOURCE TARGET expected" in capsys.readouterr().err
    assert main(["check", "--all", made[0], made[0]]) == 2
    capsys.readouterr()
    assert main(["check", "--all", "--bridge=nope", *made]) == 2
    assert "no pairs" in capsys.readouterr().err
