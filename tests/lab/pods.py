# SPDX-License-Identifier: Apache-2.0
"""Containers by podman: a sandbox that holds the namespace, and an application that shares it.

As under a container runtime of Kubernetes, a sandbox has an id of 64 digits, which is another one
each time that its pod is made, and its namespace has no name: it is found by its processes alone.
All of podman's files are in the lab's folder.
"""

import io
import os
import shutil
import signal
import tarfile
from contextlib import suppress
from pathlib import Path

from tests.lab.commands import run, wait_for
from tests.lab.errors import LabError
from tests.lab.namespaces import UNNAMED
from tests.lab.shape import PREFIX
from tests.lab.state import DIRECTORY

FOLDER = DIRECTORY / "pods"
SANDBOXES = FOLDER / "sandbox"
"""Folder with the id of each pod's sandbox; in `UNNAMED` is a link to its namespace, which leads
nowhere once that is dead."""
IMAGE = "localhost/netagent-lab:1"
BUSYBOX = Path("/bin/busybox")
_PROGRAMS = ("podman", "runc", "conmon")
# runc, since crun refuses a hybrid of both versions of cgroups. Limits, since podman's own are more
# than it may set where root lacks a capability.
_FILES = {
    "containers.conf": f"""\
[engine]
events_logger = "none"
cgroup_manager = "cgroupfs"
runtime = "runc"
tmp_dir = "{FOLDER}/state"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
""",
    "storage.conf": f"""\
[storage]
driver = "vfs"
graphroot = "{FOLDER}/root"
runroot = "{FOLDER}/run"
""",
}
_REST = ("sleep", "2147483647")


def is_installed() -> bool:
    """Tell whether podman is, and what it needs."""
    return all(map(shutil.which, _PROGRAMS)) and BUSYBOX.exists()


def require() -> None:
    """Raise `LabError` where podman is not installed."""
    if not is_installed():
        raise LabError("podman is not installed", "run: make setup-podman")


def set_up() -> None:
    """Write podman's files, and make an image of busybox."""
    for folder in (FOLDER, UNNAMED, SANDBOXES):
        folder.mkdir()
    for name, text in _FILES.items():
        (FOLDER / name).write_text(text)
    archive = FOLDER / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("busybox", "sleep"):
            tar.add(BUSYBOX.resolve(), f"bin/{name}")
        tar.addfile(tarfile.TarInfo("etc/hosts"), io.BytesIO())
    _podman("import", str(archive), IMAGE)


def create(container: str) -> None:
    """Make a pod with a sandbox and an application, unless it is there."""
    if _sandbox_file(container).exists():
        return
    infra = ("--infra-image", IMAGE, "--infra-command", " ".join(_REST), "--network", "none")
    _podman("pod", "create", "--name", container, *infra)
    _podman("run", "--detach", "--pod", container, "--name", application(container), IMAGE, *_REST)
    holder = _podman("pod", "inspect", "--format", "{{.InfraContainerID}}", container).strip()
    _link(container).symlink_to(f"/proc/{pid(holder)}/ns/net")
    _sandbox_file(container).write_text(holder)


def application(container: str) -> str:
    """Return what podman calls the application of a pod."""
    return f"{container}-app"


def pid(name: str) -> int:
    """Return the process of a container, by its name or id."""
    return int(_podman("inspect", "--format", "{{.State.Pid}}", name))


def sandbox(container: str) -> str:
    """Return the id by which a pod's sandbox is known; where there is no pod, the container's."""
    file = _sandbox_file(container)
    return file.read_text() if file.exists() else container


def exists(container: str) -> bool:
    """Tell whether a pod was made and not removed; its processes may be dead."""
    return _sandbox_file(container).exists()


def kill(container: str) -> None:
    """Kill all processes of a pod, as a crash does: its namespace dies with the last of them."""
    victims = [pid(name) for name in (application(container), sandbox(container))]
    for each in filter(None, victims):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    dead = [Path("/proc", str(each)) for each in victims]
    wait_for(f"{container} to die", lambda: not any(map(Path.exists, dead)), timeout_s=10)


def kill_application(container: str) -> None:
    """Kill the application of a pod alone."""
    os.kill(pid(application(container)), signal.SIGKILL)


def remove(container: str) -> None:
    """Remove a pod, if it is there."""
    if exists(container):
        _podman("pod", "rm", "--force", "--time", "0", container)
        _sandbox_file(container).unlink()
        _link(container).unlink()


def remove_all() -> None:
    """Remove all pods, whatever is left of them; raises `LabError` where that takes too long."""
    if FOLDER.exists():
        with suppress(LabError):
            _podman("pod", "rm", "--all", "--force", "--time", "0")
        # Who cleans up after each container is started as it ends, and would make folders anew.
        wait_for("podman to be done", lambda: not _is_at_work(), timeout_s=30)


def _is_at_work() -> bool:
    """Tell whether a process of podman's is left: all of them are told the folder."""
    for process in Path("/proc").iterdir():
        with suppress(OSError):  # it ended meanwhile, or is no process
            if str(FOLDER).encode() in (process / "cmdline").read_bytes():
                return True
    return False


def _link(container: str) -> Path:
    return UNNAMED / f"{PREFIX}{container}"


def _sandbox_file(container: str) -> Path:
    return SANDBOXES / container


def _podman(*words: str) -> str:
    """Return what podman says."""
    files = (f"CONTAINERS_CONF={FOLDER}/containers.conf", f"HOME={FOLDER}",
             f"CONTAINERS_STORAGE_CONF={FOLDER}/storage.conf")  # fmt: skip
    return run("env", *files, "podman", *words, timeout_s=60)
