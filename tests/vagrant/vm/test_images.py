# SPDX-License-Identifier: Apache-2.0
import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vagrant.vm import images
from vagrant.vm.distributions import distribution

DEBIAN_12, DEBIAN_13 = distribution("debian-12"), distribution("debian-13")


@pytest.fixture
def tree(tmp_path):
    """Return a copy of what images are made from, and a virtual environment of Python 3.11."""
    shutil.copytree(images.PROVISION, tmp_path / "vagrant" / "provision")
    (tmp_path / "requirements.lock").write_text("httpx==1\n")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    return tmp_path


def append(file: Path) -> None:
    file.write_text(file.read_text() + "# changed\n")


@pytest.mark.parametrize("name", images.BAKED)
def test_a_provisioning_file_that_changed_asks_for_a_new_image(tree, name):
    before = images.digest(DEBIAN_12, tree)
    append(tree / "vagrant" / "provision" / name)
    assert images.digest(DEBIAN_12, tree) != before


@pytest.mark.parametrize("name", ["guest.sh", "project.sh", "packages.sh"])
def test_what_is_taken_from_the_tree_at_boot_asks_for_none(tree, name):
    before = images.digest(DEBIAN_12, tree)
    append(tree / "vagrant" / "provision" / name)
    assert images.digest(DEBIAN_12, tree) == before


def test_every_provisioning_file_is_baked_or_known_not_to_be():
    others = {"guest.sh", "project.sh", "packages.sh"}
    assert {file.name for file in images.PROVISION.iterdir()} == set(images.BAKED) | others


def test_the_lock_matters_only_where_the_image_holds_a_virtual_environment(tree):
    before = images.digest(DEBIAN_12, tree), images.digest(DEBIAN_13, tree)
    append(tree / "requirements.lock")
    assert images.digest(DEBIAN_12, tree) == before[0]
    assert images.digest(DEBIAN_13, tree) != before[1]


def test_the_suite_and_the_builder_matter(tree, monkeypatch):
    digests = {images.digest(dataclasses.replace(DEBIAN_12, suite=each), tree)
               for each in ("bookworm", "sid")}  # fmt: skip
    monkeypatch.setattr(images, "BUILDER", images.BUILDER + 1)
    digests.add(images.digest(DEBIAN_12, tree))
    assert len(digests) == 3


def test_a_guest_with_the_trees_python_uses_the_trees_virtual_environment(tree):
    assert not images.needs_own_venv(DEBIAN_12, tree)
    assert images.needs_own_venv(DEBIAN_13, tree)


def test_without_a_virtual_environment_this_python_counts(tmp_path):
    assert images.venv_python(tmp_path) == f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"NETAGENT_VM_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/netagent/vm"),
        ({}, "/home/someone/.cache/netagent/vm"),
    ],
)
def test_the_cache_is_where_the_environment_says(environment, folder, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert images.cache(environment) == Path(folder)


def test_an_image_survives_its_description(image, tmp_path):
    image = dataclasses.replace(image, path=tmp_path)
    assert images.load(tmp_path) is None
    (tmp_path / "image.json").write_text(images.describe(image))
    assert images.load(tmp_path) == image


def test_a_sparse_file_counts_as_what_it_takes(image, tmp_path):
    with (tmp_path / "root.ext4").open("wb") as file:
        file.truncate(1 << 30)
    assert dataclasses.replace(image, path=tmp_path).size_bytes < 1 << 20


def test_pruning_leaves_the_image_and_other_distributions(image, tmp_path):
    for name in ("debian-12-new", "debian-12-old", "debian-13-old"):
        (tmp_path / name).mkdir()
    removed = images.prune(dataclasses.replace(image, path=tmp_path / "debian-12-new"))
    assert removed == [tmp_path / "debian-12-old"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["debian-12-new", "debian-13-old"]


@pytest.mark.parametrize(
    "script", sorted(images.PROVISION.glob("*.sh")), ids=lambda file: file.name
)
def test_every_script_is_one_that_its_shell_can_read(script):
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.read_text().splitlines()[1] == "# SPDX-License-Identifier: Apache-2.0"
    assert script.stat().st_mode & 0o111
