# SPDX-License-Identifier: Apache-2.0
"""Tests mirror the source path; `mirror.txt` lists the modules that have none yet, and shrinks."""

from pathlib import Path, PurePath

ROOT = Path(__file__).parent.parent
PACKAGES = ("analyzer", "bpf", "netagent", "netagent_torch", "ovs_checks", "vagrant")
UNTESTED = Path(__file__).with_name("mirror.txt")
MODULES = {
    str(path.relative_to(ROOT))
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.stem not in {"__init__", "__main__"}
}
LISTED = [line for line in UNTESTED.read_text().splitlines() if line and not line.startswith("#")]


def mirror(module):
    """Return where the tests of a module are."""
    path = PurePath(module)
    return str(PurePath("tests") / path.parent / f"test_{path.name}")


def is_tested(module):
    return (ROOT / mirror(module)).is_file()


def test_every_module_that_is_not_listed_has_its_test():
    assert MODULES
    without = sorted(module for module in MODULES - set(LISTED) if not is_tested(module))
    assert {module: mirror(module) for module in without} == {}


def test_a_listed_module_that_has_its_test_by_now_leaves_the_list():
    assert [module for module in LISTED if is_tested(module)] == []


def test_only_modules_that_exist_are_listed():
    assert [module for module in LISTED if module not in MODULES] == []


def test_the_list_is_sorted_and_names_each_module_once():
    assert sorted(set(LISTED)) == LISTED
