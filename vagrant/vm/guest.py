# SPDX-License-Identifier: Apache-2.0
"""Boot a guest, run one command in it, bring back what it printed and how it ended.

The command goes in, and its results come out, through a private folder that the guest mounts
uncached: what a guest's write returned from is on the host's disk, so that output is complete
however the guest ended. `vagrant/provision/guest.sh` is the other side.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from vagrant.vm import cables
from vagrant.vm.errors import VmError
from vagrant.vm.images import TREE, Image
from vagrant.vm.qemu import Accelerator, Cable, Machine, choose_accelerator, command_line

TIMED_OUT = 124
"""Exit code of a command that was not done in time, as timeout(1) has it."""

NEVER_UP = 125
"""Exit code where no command was run, or the guest died while it ran."""

BOOT_S = 120.0
"""A guest that is not up by then never will be: emulated, alone on the machine, it takes 6 s."""

TICK_S = 0.05

EMULATED = {"NPY_DISABLE_CPU_FEATURES": "X86_V3"}
"""Environment of commands on an emulated processor: with what QEMU 7.2 makes of AVX2, NumPy sorts
wrongly or dies."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a command is run in a guest."""

    timeout_s: float = 600.0
    """Seconds for boot and command; then the guest is killed. A shell's is for the boot alone."""
    memory_mib: int = 2560
    cpus: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    accel: str = "auto"
    """``auto``, ``kvm`` or ``tcg``."""
    systemd: bool = False
    """Whether systemd is process 1."""
    link: str | None = None
    """Name of a cable to the other guest that is given the same name."""
    index: int = 0
    """Which end of the cable: 0 or 1."""


DEFAULTS = Options()


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a command in a guest."""

    exit_code: int
    """The command's; `TIMED_OUT` or `NEVER_UP` where it has none."""
    timed_out: bool
    ended: bool
    """The command came to its end."""
    boot_s: float | None
    """Seconds until the guest was ready to run the command; None: it never was."""
    total_s: float
    kernel: str | None
    """Release, as the guest says."""
    accelerator: Accelerator
    stdout: str
    stderr: str
    console: str
    """What the serial console showed, and QEMU's own complaints."""

    @property
    def came_up(self) -> bool:
        """Return whether the command was started."""
        return self.boot_s is not None

    @property
    def died(self) -> bool:
        """Return whether the guest was gone before its command ended, and not for its timeout."""
        return self.came_up and not self.timed_out and not self.ended


def boot(
    image: Image,
    command: Sequence[str],
    options: Options = DEFAULTS,
    *,
    stdout: BinaryIO | None = None,
    stderr: BinaryIO | None = None,
) -> Result:
    """Run `command` as root in a pristine guest, in the tree; show its output live.

    Raises
    ------
    VmError
        QEMU is missing, or the options make no sense.
    """
    _check_tools()
    script = _script(command, _environment(options))
    with _job(image, script, options) as job, _cable(options) as cable:
        console, log = job.parent / "console", job.parent / "qemu"
        machine = _machine(job, console, options, cable)
        watch = _Watch(job, options.timeout_s, {"stdout": stdout, "stderr": stderr})
        with _qemu(command_line(image, machine), log) as process:
            watch.until_done(process)
        return watch.result(machine.accelerator, _text(console) + _text(log))


def shell(image: Image, options: Options = DEFAULTS) -> int:
    """Give the terminal to a shell in a pristine guest; return its exit code."""
    _check_tools()
    size = shutil.get_terminal_size()
    script = f"stty rows {size.lines} cols {size.columns}\n"
    script += f"export TERM={shlex.quote(os.environ.get('TERM', 'linux'))}\n"
    script += _script(["bash", "-i"], _environment(options))
    with _job(image, script, options) as job, _cable(options) as cable:
        (job / "interactive").touch()
        command = command_line(image, _machine(job, None, options, cable))
        watch = _Watch(job, options.timeout_s)
        with _terminal(), _qemu(command) as process:
            watch.until_up(process)
            if watch.up:
                process.wait()
        return watch.exit_code()


def _check_tools() -> None:
    if shutil.which("qemu-system-x86_64") is None:
        raise VmError("qemu-system-x86_64 is missing", "apt-get install qemu-system-x86")


def _machine(job: Path, console: Path | None, options: Options, cable: Cable | None) -> Machine:
    accelerator = choose_accelerator(options.accel)
    return Machine(accelerator, options.memory_mib, options.cpus, TREE, job, console, cable)


def _environment(options: Options) -> dict[str, str]:
    emulated = choose_accelerator(options.accel) is Accelerator.TCG
    return {**(EMULATED if emulated else {}), **options.environment}


def _script(command: Sequence[str], environment: Mapping[str, str]) -> str:
    if not command:
        raise VmError("no command given", "example: run debian-12 -- uname -r")
    exports = (f"export {shlex.quote(f'{k}={v}')}\n" for k, v in environment.items())
    return f"cd {shlex.quote(str(TREE))}\n{''.join(exports)}exec {shlex.join(command)}\n"


@contextmanager
def _job(image: Image, script: str, options: Options) -> Iterator[Path]:
    end = f"-{options.index}" if options.link else ""
    run = Path(tempfile.mkdtemp(prefix="netagent-vm-"))
    try:
        job = run / "job"
        job.mkdir()
        (job / "tree").write_text(f"{TREE}\n")
        (job / "venv").write_text("image\n" if image.own_venv else "tree\n")
        (job / "hostname").write_text(f"{image.distribution}{end}\n")
        (job / "job.sh").write_text(script)
        if options.systemd:
            (job / "systemd").touch()
        yield job
    finally:
        shutil.rmtree(run)


@contextmanager
def _cable(options: Options) -> Iterator[Cable | None]:
    if options.link is None:
        yield None
        return
    with cables.plugged(options.link, options.index) as cable:
        yield cable


@contextmanager
def _qemu(command: Sequence[str], log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    # Without a log it has the terminal. With one it has a session of its own: the terminal's
    # Ctrl-C reaches only us, and we decide.
    with ExitStack() as cleanup:
        streams: dict[str, Any] = {}
        if log is not None:
            output = cleanup.enter_context(log.open("wb"))
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        process = subprocess.Popen(command, start_new_session=log is not None, **streams)
        cleanup.callback(process.wait)
        cleanup.callback(process.kill)
        yield process


@contextmanager
def _terminal() -> Iterator[None]:
    # QEMU sets the terminal to raw, and leaves it so when it is killed.
    if not sys.stdin.isatty():
        yield
        return
    saved = subprocess.run(["stty", "-g"], check=True, capture_output=True, text=True).stdout
    try:
        yield
    finally:
        subprocess.run(["stty", saved.strip()], check=True)


class _Watch:
    """Follow what a guest writes into its job's folder."""

    def __init__(
        self, job: Path, timeout_s: float, sinks: Mapping[str, BinaryIO | None] | None = None
    ) -> None:
        self._job, self._timeout_s = job, timeout_s
        self._sinks = {job / name: sink for name, sink in (sinks or {}).items() if sink}
        self._shown = dict.fromkeys(self._sinks, 0)  # bytes
        self._started_s = time.monotonic()
        self._boot_s: float | None = None
        self._timed_out = False

    @property
    def up(self) -> bool:
        """Return whether the guest is ready, or was."""
        return self._boot_s is not None

    def until_up(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the guest is ready, dead or late."""
        while not self._settled() and not self.up and not _ended(process):
            pass

    def until_done(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the command has ended, the guest is dead or its time is over."""
        while not self._settled() and not _ended(process):
            pass
        self._show()  # what it wrote in its last moment

    def _settled(self) -> bool:
        done = (self._job / "exit").exists()  # before the last look at its output
        if not self.up and (self._job / "up").exists():
            self._boot_s = self._elapsed_s()
        self._show()
        limit_s = self._timeout_s if self.up else min(self._timeout_s, BOOT_S)
        self._timed_out = not done and self._elapsed_s() > limit_s
        return done or self._timed_out

    def _show(self) -> None:
        for path, sink in self._sinks.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._shown[path])
                shutil.copyfileobj(file, sink)
                self._shown[path] = file.tell()
            sink.flush()

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def exit_code(self) -> int:
        """Return the command's exit code, or what stands for it."""
        if ended := _text(self._job / "exit").strip():
            return int(ended)
        return TIMED_OUT if self._timed_out and self.up else NEVER_UP

    def result(self, accelerator: Accelerator, console: str) -> Result:
        """Return what came of the command; call it once the guest is gone."""
        return Result(
            exit_code=self.exit_code(),
            timed_out=self._timed_out,
            ended=(self._job / "exit").exists(),
            boot_s=None if self._boot_s is None else round(self._boot_s, 2),
            total_s=round(self._elapsed_s(), 2),
            kernel=_text(self._job / "up").strip() or None,
            accelerator=accelerator,
            stdout=_text(self._job / "stdout"),
            stderr=_text(self._job / "stderr"),
            console=console,
        )


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(TICK_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""
