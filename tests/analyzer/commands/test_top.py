# SPDX-License-Identifier: Apache-2.0
"""The command: in a terminal of its own, without one, and what it shows."""

import json
import os
import pty
import select
import struct
import subprocess
import sys
from fcntl import ioctl
from termios import TIOCSWINSZ

import httpx

from analyzer.commands import top
from tests.analyzer.commands.running import ENVIRON, analyzer_with, ran
from tests.analyzer.server.test_routes import incident
from tests.analyzer.test_cli import INCIDENT, fits

STATUS = {"agents": 3, "endpoints": 8, "tasks": 2, "judge": {"late_ns": 2_500_000_000}}
TASK = {"endpoints_registered": 7, "endpoints_expected": 8, "list": "basic"}


def told(**fields):
    tasks = [TASK | {"id": "idle"}, TASK | {"id": "train-a"}]
    return {
        "url": "http://a:8420", "wall_ns": INCIDENT["detected_ns"], "status": STATUS,
        "warnings": [], "incidents": [INCIDENT], "tasks": tasks, **fields,
    }  # fmt: skip


def test_incidents_come_first_and_tasks_that_are_hit_before_others():
    text = fits(top.frame(told()))
    assert "netagent http://a:8420  06:00:00 UTC" in text
    assert "3 agents, 8 endpoints, 2 tasks; judging is 2.5 s late" in text
    assert text.index("i1a2b-77  confirmed") < text.index("train-a  7/8") < text.index("idle ")


def test_who_sees_some_tasks_only_sees_those_and_what_is_away_is_said():
    text = fits(top.frame(told(status=None, warnings=["its disk refuses"]), "does not answer"))
    assert "UTC  does not answer" in text
    assert "agents" not in text
    assert "the analyzer itself: its disk refuses" in text


def test_what_does_not_fit_a_screen_is_counted(monkeypatch, capsys):
    monkeypatch.setattr(top.shutil, "get_terminal_size", lambda: os.terminal_size((20, 6)))
    top._draw([f"line {n} {'x' * 30}" for n in range(50)], colored=False)
    lines = capsys.readouterr().out.removeprefix(top.HOME).split(f"{top.CLEAR_LINE}\n")
    assert lines[:-1] == [*(f"line {n} {'x' * 13}" for n in range(4)), "46 lines more"]


def test_without_a_terminal_it_is_shown_once(tmp_path):
    with analyzer_with(tmp_path, incident("i1")) as url:
        httpx.put(f"{url}/v1/tasks/train-a", json={"containers": ["a"], "rails": [0]})
        shown = ran("top", "--url", url)
        assert shown.returncode == 0, shown.stderr
        assert "train-a  0/1" in fits(shown.stdout.splitlines())
        plain = json.loads(ran("top", "--json", "--url", url).stdout)
        assert plain["status"]["tasks"] == 1
        assert "\x1b[33mopen" in ran("top", "--once", "--color", "always", "--url", url).stdout
    assert ran("top", "--url", "http://127.0.0.1:1").returncode == 3


def test_in_a_terminal_it_is_redrawn_until_somebody_presses_q(tmp_path):
    with analyzer_with(tmp_path, incident("i1")) as url:
        ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        command = [sys.executable, "-m", "analyzer.cli", "top", "--every", "3600", "--url", url]
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        with subprocess.Popen(command, env=ENVIRON, start_new_session=True, **streams) as process:
            os.close(theirs)
            seen = until(ours, b"switch spine-0", b"")
            assert top.ALTERNATE.encode() in seen
            os.write(ours, b" ")  # any key looks at once
            seen = until(ours, b"switch spine-0", b"")
            os.write(ours, b"q")
            until(ours, top.NORMAL.encode(), seen)
            assert process.wait(timeout=60) == 0
        os.close(ours)


def until(descriptor, words, seen):
    """Read until these words were seen; return all that was."""
    while words not in seen:
        assert select.select([descriptor], [], [], 60)[0], seen
        seen += os.read(descriptor, 4096)
    return seen
