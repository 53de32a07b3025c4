# SPDX-License-Identifier: Apache-2.0
"""What docs/lab.md has people type: by hand things break, and by hand they are mended."""

import re
import shlex
from pathlib import Path

from tests.lab.ovs import VirtualSwitch
from tests.lab.shape import Shape, namespace

PAGE = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()


def blocks() -> list[list[list[str]]]:
    """Return the page's blocks of `exec` commands: namespace first, then the command's words."""
    found = []
    for text in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL):
        lines = text.replace("\\\n", " ").splitlines()
        commands = [shlex.split(line)[4:] for line in lines if " tests.lab exec " in line]
        if commands and len(commands) == len(lines):
            found.append([[where, *words] for where, _, *words in commands])
    return found


def test_what_is_broken_by_hand_is_undone_in_the_same_places() -> None:
    breaking, undoing, *_ = blocks()
    assert [words[:2] for words in undoing] == [words[:2] for words in breaking]
    known = {wire.left for wire in Shape().wires()} | {wire.right for wire in Shape().wires()}
    assert {namespace(words[0]) for words in breaking} <= known


def test_no_router_loses_its_routes_by_hand() -> None:
    """Linux drops the routes over a link that goes down, and `up` does not bring them back."""
    routers = set(Shape().router_names)
    links = [words for each in blocks() for words in each if words[1:4] == ["ip", "link", "set"]]
    assert [words for words in links if words[0] in routers] == []
    assert [words[1:] for words in links] == [
        ["ip", "link", "set", "rnic0", state] for state in ("down", "up")
    ]


def test_the_tunnel_comes_back_as_the_lab_makes_it() -> None:
    (again,) = (words for words in blocks()[1] if "ovs-vsctl" in words)
    where, _, *words = again
    host = int(where.removeprefix("h"))
    made = VirtualSwitch(Path(), Shape(), host)._tunnel(rail=1)
    assert words == made[1:]  # `ovs-vsctl` itself stands before its first command
