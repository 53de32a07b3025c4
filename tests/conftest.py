# SPDX-License-Identifier: Apache-2.0
"""Gates: what a test needs of the machine, and what to do where it is missing.

`NETAGENT_TESTS_REQUIRE=root,netns,ovs` turns the skip of a named capability into a failure, so that
a machine that silently lost Open vSwitch cannot pass.
"""

import importlib.util
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.length import PROFILE

# How long examples take to make says how busy the machine is.
_PATIENT = [HealthCheck.too_slow]
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=_PATIENT
)
# Other examples each time: what is found is told with what to add to a test.
settings.register_profile(
    "thorough", deadline=None, print_blob=True, suppress_health_check=_PATIENT, max_examples=500
)
settings.register_profile("long", max_examples=5_000, deadline=None)
settings.load_profile(PROFILE)


@dataclass(frozen=True)
class Capability:
    """Something a machine may lack, with the one line that brings it."""

    name: str
    remedy: str
    present: Callable[[], bool]


def _netns_works() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    tried = subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True)
    return tried.returncode == 0


ROOT = Capability("root", "run as root", lambda: os.geteuid() == 0)
NETNS = Capability("netns", "run as root on a kernel with network namespaces", _netns_works)
OVS = Capability(
    "ovs",
    "apt-get install openvswitch-switch, and run as root",
    lambda: _netns_works() and all(map(shutil.which, ("ovs-vswitchd", "ovsdb-server"))),
)
OVN = Capability(
    "ovn",
    "make setup-ovn, and run as root",
    lambda: OVS.present() and all(map(shutil.which, ("ovn-northd", "ovn-controller"))),
)
PODMAN = Capability(
    "podman",
    "make setup-podman, and run as root",
    lambda: (
        OVS.present()
        and all(map(shutil.which, ("podman", "runc", "conmon")))
        and Path("/bin/busybox").exists()
    ),
)
CC = Capability("cc", "apt-get install gcc libc6-dev", lambda: shutil.which("cc") is not None)
RDMA = Capability(
    "rdma",
    "boot a guest with rdma_rxe and pyverbs: make test-vm",
    lambda: _loads("rdma_rxe", "ib_uverbs") and importlib.util.find_spec("pyverbs") is not None,
)
KERNEL = Capability(
    "kernel",
    "boot a guest with kprobes, openvswitch.ko and bcc: make test-vm",
    lambda: (
        _loads("openvswitch", "vport_vxlan")
        and Path("/sys/kernel/tracing/kprobe_events").exists()
        and importlib.util.find_spec("bcc") is not None
    ),
)
UPROBES = Capability(
    "uprobes",
    "run as root, with tracefs mounted, on a kernel with CONFIG_UPROBE_EVENTS",
    lambda: os.geteuid() == 0 and Path("/sys/kernel/tracing/uprobe_events").exists(),
)
PROMETHEUS = Capability(
    "prometheus",
    "make setup-prometheus",
    lambda: all(map(shutil.which, ("promtool", "prometheus", "prometheus-alertmanager"))),
)
BROWSER = Capability(
    "browser",
    "make setup-browser",
    lambda: (
        shutil.which("chromium") is not None
        and all(map(importlib.util.find_spec, ("playwright", "axe_playwright_python")))
    ),
)
PACKAGES = Capability(
    "packages",
    "make test-packages",
    lambda: (
        Path("/proc/1/comm").read_text() == "systemd\n" and bool(os.environ.get("NETAGENT_DEBS"))
    ),
)
VM = Capability(
    "vm",
    "apt-get install qemu-system-x86 mmdebstrap, and run as root",
    lambda: (
        os.geteuid() == 0 and all(map(shutil.which, ("qemu-system-x86_64", "mmdebstrap", "mke2fs")))
    ),
)
KUBERNETES_FOLDER = Path(
    os.environ.get("NETAGENT_KUBERNETES") or Path.home() / ".cache/netagent/kubernetes"
)
KUBERNETES = Capability(
    "kubernetes",
    "make test-kubernetes builds an API server (minutes, once)",
    lambda: all((KUBERNETES_FOLDER / name).exists() for name in ("kube-apiserver", "etcd")),
)
SLURM_FOLDER = Path(os.environ.get("NETAGENT_SLURM") or Path.home() / ".cache/netagent/slurm")
SLURM = Capability(
    "slurm",
    "run as root; make test-slurm takes Slurm's daemons from Debian's packages",
    lambda: os.geteuid() == 0 and (SLURM_FOLDER / "usr/sbin/slurmctld").exists(),
)


def _loads(*modules: str) -> bool:
    if os.geteuid() != 0 or shutil.which("modprobe") is None:
        return False
    tried = subprocess.run(["modprobe", "-q", "-a", *modules], check=False, capture_output=True)
    return tried.returncode == 0


def require(capability: Capability) -> None:
    """Skip the calling test where `capability` is missing; fail if the run requires it."""
    if capability.present():
        return
    message = f"{capability.name}: {capability.remedy}"
    if capability.name in os.environ.get("NETAGENT_TESTS_REQUIRE", "").split(","):
        pytest.fail(message)
    pytest.skip(message)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run labs first: whoever runs several tests at once shall not wait for one of them at the end.

    Those of a kernel run last: their two hosts live to the end, in namespaces others do not want.
    """
    items.sort(key=lambda item: (_has(item, "kernel"), not _has(item, "lab")))


def _has(item: pytest.Item, mark: str) -> bool:
    return item.get_closest_marker(mark) is not None


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Undo what a command sets for its whole process: its stderr is a file that the test closes."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
