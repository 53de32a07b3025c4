# SPDX-License-Identifier: Apache-2.0
"""Rules about the tree itself."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from netagent.commands.flows import layers

ROOT = Path(__file__).parent.parent
SOURCES = sorted(p for name in ("netagent", "ovs_checks", "bpf", "analyzer", "vagrant", "tests")
                 for p in (ROOT / name).rglob("*.py"))  # fmt: skip
NO_RUST = {"pydantic", "polars", "orjson", "granian", "cryptography", "watchfiles", "rpds-py"}


def test_every_source_states_its_licence():
    missing = [str(p.relative_to(ROOT)) for p in SOURCES
               if not p.read_text().startswith("# SPDX-License-Identifier:")]  # fmt: skip
    assert SOURCES
    assert missing == []


def test_no_dependency_of_the_product_has_a_rust_core():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["analyzer"]
    named = {re.split(r"[<>=\[]", each)[0].strip().lower() for each in wanted}
    assert not named & NO_RUST
    assert not named & {"bcc", "pyverbs"}  # Debian's: on PyPI these are something else


def test_every_dependency_is_locked_with_its_hash():
    lock = (ROOT / "requirements.lock").read_text()
    pin = r"^([a-z0-9._-]+)(?:\[.*\])?==\S+ \\\n    --hash=sha256:"
    pinned = re.findall(pin, lock, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    every = project["dependencies"] + extras["analyzer"] + extras["dev"]
    for each in (each for each in every if "python_version <" not in each):  # the lock is of 3.11
        assert re.split(r"[<>=\[]", each)[0] in pinned


def test_what_tests_import_of_each_other_is_checked_strictly():
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    checked = (*mypy["modules"], *(f"{package}." for package in mypy["packages"]))
    helpers = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in SOURCES
        if path.is_relative_to(ROOT / "tests")
        and not path.name.startswith("test_")
        and path.name != "__init__.py"
    ]
    assert [each for each in helpers if not each.startswith(checked)] == []


@pytest.mark.parametrize("module", ["netagent", "netagent.agent.assembly"])
def test_the_agent_imports_nothing_large(module):
    """numpy, scipy, bcc, Litestar and DuckDB belong to workers and to the analyzer."""
    program = f"import {module}, sys; print(*sorted(m.split('.')[0] for m in sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "scipy", "bcc", "litestar", "duckdb", "analyzer"} & set(loaded)


def test_make_help_lists_every_target():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    listed = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert targets <= {line.split()[0] for line in listed.splitlines()}


def test_what_make_selects_tests_by_is_written_in_their_own_files():
    """Elsewhere, as in a conftest.py, `marked` of the Makefile would not find it."""
    makefile = (ROOT / "Makefile").read_text()
    (capable,) = re.findall(r"^CAPABLE := (.*)$", makefile, re.MULTILINE)
    marks = re.compile(rf"mark\.({'|'.join(capable.split(' or '))}|vm)\b")
    found = [p for p in SOURCES if p.is_relative_to(ROOT / "tests") and marks.search(p.read_text())]
    assert len(found) > 10
    assert [p for p in found if not p.name.startswith("test_")] == []


def test_no_page_runs_our_modules_by_a_python_that_lacks_their_needs():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    bare = [
        f"{page.name}: {line.strip()}"
        for page in pages
        for line in page.read_text().splitlines()
        if re.search(r"(?<!venv/bin/)python3? -m (tests|vagrant)", line)
    ]
    assert len(pages) > 10
    assert bare == []


def test_links_between_pages_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = [
        (page, path, anchor)
        for page in pages
        for path, anchor in re.findall(r"\]\(([^)#\s:]*)(?:#([^)\s]*))?\)", page.read_text())
    ]
    astray = [
        f"{page.name}: {path}#{anchor}"
        for page, path, anchor in links
        if not (there := page.parent / path if path else page).exists()
        or (anchor and there.suffix == ".md" and anchor not in anchors(there.read_text()))
    ]
    assert len(links) > 100
    assert astray == []


def anchors(text):
    """Return what a page's headings may be named by in links."""
    code = re.sub(r"(?ms)^```.*?^```", "", text)
    shown = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
             for title in re.findall(r"(?m)^#+ (.*)$", code))  # fmt: skip
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in shown}


@pytest.mark.parametrize("module", ["tables", "layers"])
def test_every_check_of_flow_tables_is_in_the_docs(module):
    checks = importlib.import_module(f"ovs_checks.lint.{module}").CHECKS
    page = (ROOT / "docs" / "flows.md").read_text()
    assert [name for name in checks if f"| `{name}` |" not in page] == []
    if module == "layers":
        assert [name for name in checks if f"  {name} " not in layers.EPILOG] == []


def test_the_runbooks_are_in_the_wheel_and_in_the_analyzer_s_package():
    files = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    assert files == {"share/doc/netagent/runbooks": ["docs/runbooks/*.md"]}
    assert "docs/runbooks" in (ROOT / "debian/netagent-analyzer.docs").read_text().split()
    # Of documents, debhelper compresses those of more than 4 KiB, and then no path is right.
    assert [p for p in (ROOT / "docs/runbooks").iterdir() if p.stat().st_size > 4096] == []


def test_manual_pages_and_completions_can_be_made_of_all_commands(tmp_path):
    script = ROOT / "tools" / "deb" / "pages.py"
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, script, tmp_path], check=True, env=here)
    made = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    names = ["netagent", "netagent-analyzer"]
    assert made == sorted([*(f"{each}.1" for each in names), *names, *(f"_{n}" for n in names)])
