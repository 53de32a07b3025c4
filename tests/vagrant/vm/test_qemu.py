# SPDX-License-Identifier: Apache-2.0
import dataclasses
from pathlib import Path

import pytest

from vagrant.vm.errors import VmError
from vagrant.vm.qemu import Accelerator, Cable, Machine, choose_accelerator, command_line

INTEL = "processor\t: 0\nflags\t\t: fpu vme vmx sse\n"
AMD = "flags\t\t: fpu svm\n"
CLOUD = "model name\t: with vmx in its name\nflags\t\t: fpu sse\n"


@pytest.mark.parametrize(
    ("asked", "opens", "cpuinfo", "chosen"),
    [
        ("auto", True, INTEL, "kvm"),
        ("auto", True, AMD, "kvm"),
        ("auto", True, CLOUD, "tcg"),
        ("auto", False, INTEL, "tcg"),
        ("kvm", False, CLOUD, "kvm"),
        ("tcg", True, INTEL, "tcg"),
    ],
)
def test_kvm_is_used_where_it_can_work(asked, opens, cpuinfo, chosen):
    assert choose_accelerator(asked, writable=lambda: opens, cpuinfo=cpuinfo) == chosen


@pytest.fixture
def machine():
    return Machine(
        Accelerator.TCG, 1024, 3, Path("/src/tree"), Path("/run/job"), Path("/run/console")
    )


def value(command: list[str], option: str) -> str:
    return command[command.index(option) + 1]


def test_the_machine_is_as_asked(image, machine):
    command = command_line(image, machine)
    assert value(command, "-accel") == "tcg,thread=multi"
    assert value(command, "-m") == "1024"
    assert value(command, "-smp") == "3"
    assert value(command, "-kernel") == "/cache/debian-12-abc/vmlinux"
    assert "-netdev" not in command


def test_kvm_gets_the_hosts_processor(image, machine):
    command = command_line(image, dataclasses.replace(machine, accelerator=Accelerator.KVM))
    assert value(command, "-accel") == "kvm"
    assert value(command, "-cpu") == "host"
    assert value(command, "-kernel") == "/cache/debian-12-abc/vmlinuz"


def test_the_image_is_never_written(image, machine):
    assert "snapshot=on" in value(command_line(image, machine), "-drive").split(",")


def test_the_tree_and_the_job_are_shared(image, machine):
    command = command_line(image, machine)
    shared = [command[i + 1].split(",")[1:3] for i, each in enumerate(command) if each == "-fsdev"]
    assert shared == [["id=job", "path=/run/job"], ["id=tree", "path=/src/tree"]]


def test_the_guest_dies_with_whoever_started_it(image, machine):
    assert command_line(image, machine)[:4] == ["setpriv", "--pdeathsig", "KILL", "--"]


def test_the_console_is_a_file_or_the_terminal(image, machine):
    assert value(command_line(image, machine), "-serial") == "file:/run/console"
    shell = command_line(image, dataclasses.replace(machine, console=None))
    assert value(shell, "-chardev") == "stdio,id=console,signal=off"


def test_the_ends_of_a_cable_are_each_others_peers(image, machine):
    a, b = Path("/run/wire.0"), Path("/run/wire.1")
    ends = [
        command_line(image, dataclasses.replace(machine, cable=cable))
        for cable in (Cable(a, b, 0), Cable(b, a, 1))
    ]
    local, remote = "local.type=unix,local.path=", "remote.type=unix,remote.path="
    assert [value(each, "-netdev") for each in ends] == [
        f"dgram,id=cable,{local}{a},{remote}{b}",
        f"dgram,id=cable,{local}{b},{remote}{a}",
    ]
    assert len({command[-1] for command in ends}) == 2  # each has its own MAC address


def test_a_path_that_qemu_would_misread_is_refused(image, machine):
    with pytest.raises(VmError):
        command_line(image, dataclasses.replace(machine, tree=Path("/a,b")))
