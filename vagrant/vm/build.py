# SPDX-License-Identifier: Apache-2.0
"""Build an image: a Debian root by mmdebstrap, provisioned in a chroot, packed into a file system.

All happens in a temporary folder of the cache that becomes the image by a rename. One build at a
time for a distribution: a second one waits, and finds the image built.
"""

import fcntl
import os
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vagrant.vm import images
from vagrant.vm.distributions import Distribution
from vagrant.vm.errors import BuildFailed, VmError
from vagrant.vm.images import PROVISION, TREE, Image
from vagrant.vm.mirror import Mirror, host_settings, mirror

ROOT_BYTES = 6 << 30
"""Size of a guest's disk; the file is sparse."""

TOOLS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
"""Command, and the Debian package that brings it."""

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

CHROOT_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

CONTAINED = (
    *("setpriv", "--pdeathsig", "KILL", "--"),
    *("unshare", "--mount-proc", "--pid", "--fork", "--kill-child", "--"),
)
"""Run a command so that it ends, with all its descendants, when the build does."""

END_S = 10.0
"""Seconds that killed processes may take to be gone."""

Progress = Callable[[str], None]


def ensure(distribution: Distribution, progress: Progress, *, rebuild: bool = False) -> Image:
    """Return the image that the present inputs ask for, building it if there is none.

    Raises
    ------
    VmError
        This machine lacks something, or (`BuildFailed`) a step failed.
    """
    path = images.wanted(distribution)
    if not rebuild and (found := images.load(path)):
        return found
    _check_tools()
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent / f".{distribution.name}.lock", progress):
        if not rebuild and (found := images.load(path)):
            return found
        image = _build(distribution, path, progress)
        for old in images.prune(image):
            progress(f"removed {old}")
    return image


def _check_tools() -> None:
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        raise VmError(f"missing: {' '.join(missing)}", f"apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise VmError("building an image needs root", "run as root")


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another build of the same distribution")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(distribution: Distribution, path: Path, progress: Progress) -> Image:
    started_s = time.monotonic()
    for leftover in path.parent.glob(f".building-{distribution.name}-*"):  # of a killed build
        shutil.rmtree(leftover)
    work = Path(tempfile.mkdtemp(prefix=f".building-{distribution.name}-", dir=path.parent))
    try:
        with (work / "build.log").open("wb") as log:
            _Steps(distribution, work, log.fileno(), progress).run()
        image = Image(
            distribution=distribution.name,
            path=path,
            kernel=(work / "release").read_text().strip(),
            own_venv=images.needs_own_venv(distribution),
            built_s=round(time.time(), 3),
            build_s=round(time.monotonic() - started_s, 1),
        )
        (work / "image.json").write_text(images.describe(image))
        if path.exists():
            shutil.rmtree(path)
        work.rename(path)
    except subprocess.CalledProcessError as error:
        raise BuildFailed(distribution.name, _end(work / "build.log")) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(f"built {image.path} in {image.build_s:.0f} s, kernel {image.kernel}")
    return image


def _end(log: Path, lines: int = 25) -> str:
    with log.open(errors="replace") as text:
        return "".join(deque(text, lines))


class _Steps:
    """What makes an image, in a work folder, with all output in one log."""

    def __init__(
        self, distribution: Distribution, work: Path, log: int, progress: Progress
    ) -> None:
        self._distribution, self._work, self._log = distribution, work, log
        self._progress = progress

    def run(self) -> None:
        wheels = self._wheels() if images.needs_own_venv(self._distribution) else None
        self._root(wheels)
        self._take_kernel()
        self._file_system()

    def _wheels(self) -> Path:
        # pip runs on the host: its configuration and its indexes need not exist in the guest.
        self._progress(f"downloading wheels for Python {self._distribution.python}")
        wheels = self._work / "wheels"
        pip = TREE / ".venv" / "bin" / "python"
        python = str(pip) if pip.exists() else sys.executable
        self._call(*download_command(python, self._distribution.python, wheels))
        shutil.copy(TREE / "requirements.lock", wheels)
        return wheels

    def _root(self, wheels: Path | None) -> None:
        self._progress(f"installing Debian {self._distribution.suite}")
        packages = package_list((PROVISION / "packages.txt").read_text())
        command = debootstrap_command(
            self._distribution.suite, packages, self._work / "root", host_settings(), wheels
        )
        sources = sources_list(self._distribution.suite, mirror())
        self._call(*command, stdin=sources)

    def _take_kernel(self) -> None:
        made = self._work / "root" / "boot" / "netagent"
        for file in made.iterdir():
            file.rename(self._work / file.name)
        made.rmdir()

    def _file_system(self) -> None:
        self._progress("packing the file system")
        disk, root = self._work / "root.ext4", self._work / "root"
        with disk.open("wb") as file:
            file.truncate(ROOT_BYTES)
        # No journal, no checksums: the image is thrown away at every power-off.
        features = ("-O", "^has_journal,^metadata_csum", "-E", "lazy_itable_init=1,nodiscard")
        self._call("mke2fs", "-q", "-t", "ext4", *features, "-m", "0", "-d", str(root), str(disk))
        shutil.rmtree(root)
        if (self._work / "wheels").exists():
            shutil.rmtree(self._work / "wheels")

    def _call(self, *command: str, stdin: str = "") -> None:
        process, alive = _contained(command, self._log)
        try:
            process.communicate(stdin.encode())
        except BaseException:
            process.kill()
            # End of file: the last process of the step is gone, and what it wrote can be removed.
            select.select([alive], [], [], END_S)
            process.wait()
            raise
        finally:
            os.close(alive)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)


def _contained(command: Sequence[str], log: int) -> tuple[subprocess.Popen[bytes], int]:
    # In namespaces of its own, so that nothing that a step mounted or started outlives it. The
    # descriptor that is returned is at its end once no process of the step is left.
    alive, inherited = os.pipe()
    process = subprocess.Popen(
        [*CONTAINED, *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=os.environ | {"INITRD": "No"},  # Debian's, unused here, takes longer than all else
        pass_fds=[inherited],
        start_new_session=True,
    )
    os.close(inherited)
    return process, alive


def package_list(text: str) -> list[str]:
    """Return the names in ``packages.txt``."""
    return [name for line in text.splitlines() if (name := line.partition("#")[0].strip())]


def sources_list(suite: str, at: Mirror) -> str:
    """Return what apt shall read while it fills the root."""
    lines = (
        (at.debian, suite),
        (at.debian, f"{suite}-updates"),
        (at.security, f"{suite}-security"),
    )
    return "".join(f"deb [signed-by={KEYRING}] {uri} {release} main\n" for uri, release in lines)


def download_command(python: str, version: str, wheels: Path) -> list[str]:
    """Return the command that puts what the lock pins, for Python `version`, into `wheels`."""
    return [
        *(
            python,
            "-m",
            "pip",
            "download",
            "-qq",
            "--disable-pip-version-check",
            "--require-hashes",
        ),
        *("--no-deps", "--implementation", "cp"),
        *("--python-version", version, "-d", str(wheels), "-r", str(TREE / "requirements.lock")),
    ]


def debootstrap_command(
    suite: str, packages: Sequence[str], root: Path, settings: Sequence[str], wheels: Path | None
) -> list[str]:
    """Return the mmdebstrap command that installs and provisions `root`.

    `settings` are lines of apt configuration. They and the sources, given on standard input,
    do not stay in the image: they are the host's.
    """
    left_out = ("man", "doc", "locale", "info")
    return [
        *("mmdebstrap", "--variant=apt", "--mode=root", "--format=directory"),
        f"--include={','.join(packages)}",
        *(f"--aptopt={line}" for line in (*settings, 'APT::Install-Recommends "false"')),
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in left_out),
        "--dpkgopt=force-unsafe-io",
        *(f"--customize-hook={hook}" for hook in _hooks(wheels)),
        *(suite, str(root), "-"),
    ]


def _hooks(wheels: Path | None) -> list[str]:
    # Shell commands; $1 is the root.
    inside = "/opt/netagent/provision"
    hooks = [
        f'mkdir -p "$1{inside}" && cp -p {shlex.quote(str(PROVISION))}/* "$1{inside}/"',
        f'chroot "$1" {inside}/system.sh',
        f'chroot "$1" {inside}/boot.sh /boot/netagent',
    ]
    if wheels is not None:
        offline = f"PATH={CHROOT_PATH} PIP_NO_INDEX=1 PIP_FIND_LINKS={inside}/wheels"
        hooks += [
            f'cp -r {shlex.quote(str(wheels))} "$1{inside}/wheels"',
            f'env -i {offline} chroot "$1" {inside}/venv.sh {inside}/wheels/requirements.lock',
        ]
    return [
        *hooks,
        f'rm -rf "$1{inside}"',
        'rm -f "$1/etc/apt/sources.list" "$1/etc/apt/apt.conf.d/99mmdebstrap"',
    ]
