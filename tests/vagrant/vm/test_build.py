# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

from tests.conftest import VM, require
from vagrant.vm import build, images
from vagrant.vm.distributions import distribution
from vagrant.vm.errors import BuildFailed, VmError
from vagrant.vm.mirror import Mirror

DEBIAN_12 = distribution("debian-12")
LIST = (images.PROVISION / "packages.txt").read_text()


def test_comments_and_blank_lines_are_no_packages():
    assert build.package_list("# why\n\nmake\n  gcc # compiles\n") == ["make", "gcc"]


def test_what_make_setup_installs_is_in_every_guest():
    makefile = (images.TREE / "Makefile").read_text()
    (wanted,) = re.findall(r"^DEBIAN_PACKAGES := (.*)$", makefile, re.MULTILINE)
    assert set(wanted.split()) <= set(build.package_list(LIST))


def test_no_package_is_listed_twice():
    packages = build.package_list(LIST)
    assert sorted(packages) == sorted(set(packages))


def test_sources_name_the_updates_and_the_security_archive():
    lines = build.sources_list("trixie", Mirror("http://m/debian", "http://s/sec")).splitlines()
    assert [line.split()[2:] for line in lines] == [
        ["http://m/debian", "trixie", "main"],
        ["http://m/debian", "trixie-updates", "main"],
        ["http://s/sec", "trixie-security", "main"],
    ]


def test_nothing_of_the_hosts_apt_stays_in_the_image():
    command = build.debootstrap_command("sid", ["make"], Path("/r"), ['A::B "c";'], None)
    assert '--aptopt=A::B "c";' in command
    hooks = [each for each in command if each.startswith("--customize-hook=")]
    assert "apt.conf.d/99mmdebstrap" in hooks[-1]
    assert "sources.list" in hooks[-1]


def test_a_virtual_environment_is_built_from_downloaded_wheels_alone():
    plain = build.debootstrap_command("sid", ["make"], Path("/r"), [], None)
    assert not any("venv.sh" in each for each in plain)
    with_venv = build.debootstrap_command("sid", ["make"], Path("/r"), [], Path("/a b"))
    (hook,) = [each for each in with_venv if "venv.sh" in each]
    assert "PIP_NO_INDEX=1" in hook
    assert "cp -r '/a b'" in " ".join(with_venv)


def test_pip_downloads_for_the_guests_python():
    command = build.download_command("python3", "3.13", Path("/w"))
    assert command[command.index("--python-version") + 1] == "3.13"
    assert "--require-hashes" in command


def test_a_missing_tool_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda tool: None)
    with pytest.raises(VmError) as caught:
        build._check_tools()
    assert caught.value.remedy == "apt-get install mmdebstrap e2fsprogs"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    require(VM)
    monkeypatch.setenv("NETAGENT_VM_CACHE", str(tmp_path))
    return tmp_path


def folders(cache: Path) -> list[str]:
    return sorted(each.name for each in cache.iterdir() if each.is_dir())


@pytest.mark.vm
def test_a_failed_build_leaves_nothing_and_says_why(cache, monkeypatch):
    monkeypatch.setattr(build, "package_list", lambda text: ["no-such-package-anywhere"])
    with pytest.raises(BuildFailed) as caught:
        build.ensure(DEBIAN_12, print)
    assert "no-such-package-anywhere" in caught.value.log
    assert folders(cache) == []


def pretend(distribution, path, progress):
    """Take the place of a build that works."""
    path.mkdir()
    made = images.Image(distribution.name, path, "6.1", False, 0.0, 1.0)
    (path / "image.json").write_text(images.describe(made))
    return made


@pytest.mark.vm
def test_two_builds_at_once_build_once(cache, monkeypatch):
    built, entered, go_on = [], threading.Event(), threading.Event()

    def slowly(*arguments):
        built.append(arguments)
        entered.set()
        assert go_on.wait(20)
        return pretend(*arguments)

    monkeypatch.setattr(build, "_build", slowly)
    said: list[str] = []
    first = threading.Thread(target=build.ensure, args=(DEBIAN_12, said.append))
    first.start()
    assert entered.wait(20)

    def second_waits(message):
        said.append(message)
        go_on.set()

    image = build.ensure(DEBIAN_12, second_waits)
    first.join(20)
    assert said == ["waiting for another build of the same distribution"]
    assert len(built) == 1
    assert images.find(DEBIAN_12) == image


@pytest.mark.vm
def test_a_new_image_replaces_the_old_one_of_its_distribution(cache, monkeypatch):
    monkeypatch.setattr(build, "_build", pretend)
    for name in ("debian-12-old", "debian-13-other"):
        (cache / name).mkdir()
    image = build.ensure(DEBIAN_12, lambda message: None)
    assert folders(cache) == sorted([image.path.name, "debian-13-other"])


@pytest.mark.vm
def test_nothing_that_a_step_started_outlives_it(tmp_path):
    require(VM)
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    process, alive = build._contained(["sh", "-c", "setsid sleep 600 & echo up; sleep 600"], log)
    os.close(log)
    with subprocess.Popen(["tail", "-f", str(tmp_path / "log")], stdout=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == b"up\n"
        tail.kill()
    process.kill()
    assert os.read(alive, 1) == b""  # hangs if one lives on
    process.communicate()
    os.close(alive)
