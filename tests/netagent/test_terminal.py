# SPDX-License-Identifier: Apache-2.0
import argparse
import errno
import io
import json
import os
import pty
import subprocess
import sys
import threading

import pytest

from netagent import terminal
from netagent.model.errors import CapabilityMissing, ConfigError, NetAgentError, Unreachable
from netagent.terminal import ended, is_colored, painted, parser_class, unusable


class Answered(NetAgentError):
    """An error that is an answer."""

    exit_status = 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("f", "odd", 3), 2),
        (Unreachable("h1", "refused"), 3),
        (CapabilityMissing("eBPF", "use another kernel"), 3),
        (Answered("it is damaged"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_ends_a_command_is_a_status_and_an_error(capsys, error, status, as_json):
    def run():
        raise error

    assert ended("prog", as_json, run) == status
    out, err = capsys.readouterr()
    if isinstance(error, KeyboardInterrupt):
        assert (out, err) == ("", "")
        return
    assert err == f"prog: {error}\n"
    assert (json.loads(out)["error"] == str(error)) if as_json else out == ""


def test_bugs_are_raised():
    def run():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ended("prog", False, run)


@pytest.mark.parametrize(("number", "status"), [(errno.EPIPE, 141), (errno.ENOSPC, 3)])
def test_output_that_cannot_be_written_is_no_traceback(number, status):
    code = (
        "import os\nfrom netagent.terminal import ended\n"
        f"def run():\n    raise OSError({number}, os.strerror({number}))\n"
        "raise SystemExit(ended('prog', False, run))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stderr == ("" if status == 141 else "prog: cannot write: No space left on device\n")


def test_usage_errors_are_json_where_that_is_asked_for(capsys):
    for words, keys in ((["--json", "--odd"], {"error", "remedy"}), (["--odd"], None)):
        parser = parser_class(words)(prog="prog")
        parser.add_argument("--json", action="store_true")
        with pytest.raises(SystemExit) as caught:
            parser.parse_args(words)
        assert caught.value.code == 2
        out, err = capsys.readouterr()
        assert "--odd" in err
        assert (set(json.loads(out)) if out else None) == keys


def test_a_file_that_cannot_be_used_is_told_alike():
    assert unusable(ConfigError("a.toml", "odd", 3)) == {
        "ok": False, "file": "a.toml", "line": 3, "error": "odd", "remedy": "correct line 3",
    }  # fmt: skip
    assert unusable(ConfigError("a.toml", "odd"))["remedy"] == ""


# --- colours -------------------------------------------------------------------------------------


def test_only_the_state_that_a_line_begins_with_is_coloured():
    lines = [
        "i1a2b-77  confirmed  06:00:00  link a -- b  (was open)",
        "06:00:05 recovered  link",
        "incident i1: open, loss",
        "INCIDENT  STATE",
        "  it is confirmed",
        "no incidents",
    ]
    assert list(painted(lines, colored=False)) == lines
    assert list(painted(lines, colored=True)) == [
        "i1a2b-77  \x1b[31mconfirmed\x1b[0m  06:00:00  link a -- b  (was open)",
        "06:00:05 \x1b[32mrecovered\x1b[0m  link",
        "incident i1: \x1b[33mopen\x1b[0m, loss",
        *lines[3:],
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("color", "stream", "environ", "expected"),
    [
        ("auto", Terminal, {}, True),
        ("auto", io.StringIO, {}, False),
        ("auto", Terminal, {"NO_COLOR": "1"}, False),
        ("auto", Terminal, {"NO_COLOR": ""}, True),
        ("auto", Terminal, {"TERM": "dumb"}, False),
        ("always", io.StringIO, {"NO_COLOR": "1"}, True),
        ("never", Terminal, {}, False),
    ],
)
def test_colours_are_for_terminals_unless_somebody_says_otherwise(
    monkeypatch, color, stream, environ, expected
):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", stream())
    assert is_colored(argparse.Namespace(color=color)) is expected


# --- waiting -------------------------------------------------------------------------------------


def test_nobody_is_told_that_one_waits_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "PATIENCE_S", 0.001)
    over = threading.Event()
    assert terminal.patiently("prog", lambda _: over.wait(0.05) or 7, None) == 7
    assert capsys.readouterr().err == ""


def test_at_a_terminal_one_is_told_until_something_is_printed():
    code = (
        "import sys, threading\nfrom netagent import terminal\nterminal.PATIENCE_S = 0.01\n"
        "def run(_):\n"
        "    told.wait()\n    print('done')\n    return 0\n"
        "told, write = threading.Event(), sys.stderr.write\n"
        "sys.stderr.write = lambda text: (write(text), told.set())\n"
        "raise SystemExit(terminal.patiently('prog', run, None))"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        out, _ = process.communicate(timeout=60)
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 4096):
            said += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert (process.returncode, out) == (0, "done\n")
    assert b"\rprog: 1 s ..." in said
    assert said.endswith(b"\r\x1b[K")
