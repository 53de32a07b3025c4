# SPDX-License-Identifier: Apache-2.0
"""The lab's background processes, each known by a pid file under the lab's directory.

A pid file is believed only while the process it names has the lab's directory in its command
line: pids are reused, and nothing but the lab's own processes may ever be signalled.
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tests.lab.commands import run, wait_for
from tests.lab.errors import LabError

AT_WORK = "at work"
"""What a process prints that is worth waiting for: its start may take seconds."""

_REPOSITORY = Path(__file__).parents[2]

# The shell leaves at once, so that init, not the lab's user, becomes the parent and reaps.
# It writes the pid file itself: whoever calls may be killed at any moment.
_DETACH = """
log=$1 pid=$2; shift 2
{ cd "$0" && exec setsid "$@"; } >>"$log" 2>&1 </dev/null &
echo $! >"$pid"
"""


class Processes:
    """Start, find and end the processes of a lab."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def pid_file(self, name: str) -> Path:
        """Return where the pid of the process `name`, such as ``h0/agent``, is kept."""
        return self._directory / f"{name}.pid"

    def log_file(self, name: str) -> Path:
        """Return where the process `name` writes."""
        return self._directory / f"{name}.log"

    def start(self, name: str, *argv: str, namespace: str | None = None) -> None:
        """Start a process in the background; raise `LabError` if it already runs.

        Its command line must mention the lab's directory.
        """
        if self.pid(name) is not None:
            raise LabError(f"{name} already runs")
        into = ("ip", "netns", "exec", namespace) if namespace else ()
        files = (str(self.log_file(name)), str(self.pid_file(name)))
        run("sh", "-c", _DETACH, str(_REPOSITORY), *files, *into, *argv)

    def start_working(self, name: str, *argv: str) -> None:
        """Start a process that prints `AT_WORK` once it is, and wait for that.

        Raises `LabError` if it ends before.
        """
        log = self.log_file(name)
        log.unlink(missing_ok=True)  # an earlier run's line would do, too
        self.start(name, *argv)

        def said() -> str:
            return log.read_text() if log.exists() else ""

        wait_for(
            f"{name} to be at work",
            lambda: AT_WORK in said() or self.pid(name) is None,
            timeout_s=30,
        )
        if AT_WORK not in said():
            raise LabError(f"{name} ended at once: {said().strip()[-200:]}", f"its log: {log}")

    def pid(self, name: str) -> int | None:
        """Return the pid of a process that lives, else None."""
        try:
            pid = int(self.pid_file(name).read_text())
            command = _command_line(Path("/proc", str(pid)))
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        return pid if str(self._directory).encode() in command else None

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal; raise `LabError` if there is no such process."""
        pid = self.pid(name)
        if pid is None:
            raise LabError(f"{name} does not run", f"its log: {self.log_file(name)}")
        os.kill(pid, number)

    def kill(self, name: str) -> None:
        """End a process at once, if it lives, and wait until it is gone."""
        with suppress(LabError, ProcessLookupError):
            self.signal(name, signal.SIGKILL)
        wait_for(f"{name} to die", lambda: self.pid(name) is None, timeout_s=30)
        self.pid_file(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return every process that has a pid file, living or not."""
        files = self._directory.rglob("*.pid")
        return sorted(str(file.relative_to(self._directory).with_suffix("")) for file in files)

    def stop_all(self) -> None:
        """Ask all to end, give them a moment, then kill the rest."""
        for name in self.names():
            with suppress(LabError, ProcessLookupError):
                self.signal(name, signal.SIGTERM)
                self.signal(name, signal.SIGCONT)  # a frozen one must wake up to hear it
        with suppress(LabError):
            wait_for("all to end", lambda: not self.alive(), timeout_s=2)
        for name in self.names():
            self.kill(name)

    def alive(self) -> list[str]:
        """Return the names of all processes that live."""
        return [name for name in self.names() if self.pid(name) is not None]


def _command_line(process: Path) -> bytes:
    """Return a process's command line; empty if it is dead and only not yet reaped."""
    command = b""
    for _ in range(50):
        command = (process / "cmdline").read_bytes()
        dead = (process / "stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
        if command or dead:
            break
        time.sleep(0.001)  # just now becoming another program: it has no command line meanwhile
    return command


def children() -> dict[int, list[int]]:
    """Return the children of every process of this machine."""
    tree: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):  # it ended between the listing and now
                stat = (folder / "stat").read_text(encoding="ascii", errors="replace")
                parent = int(stat.rpartition(")")[2].split()[1])
                tree.setdefault(parent, []).append(int(folder.name))
    return tree


def family(pid: int, tree: Mapping[int, list[int]]) -> Iterator[int]:
    """Yield a process and all that descend from it."""
    yield pid
    for child in tree.get(pid, ()):
        yield from family(child, tree)
