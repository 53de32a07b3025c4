# SPDX-License-Identifier: Apache-2.0
import itertools
import lzma
import re
from pathlib import Path

import msgspec
import pytest

from analyzer import cli as analyzer
from analyzer.runbooks.pages import (
    OF_FINDINGS,
    OTHERS,
    PAGES,
    UNDECIDED,
    Runbooks,
    page_of,
    runbook_of,
    runbook_of_finding,
)
from netagent import cli as agent
from netagent.model.finding import FindingKind
from netagent.model.path import Component, Kind
from netagent.model.verdict import Symptom, Verdict

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "runbooks"
EVERY = list(itertools.product([None, *Kind], Symptom))
HEADINGS = [
    "What it means", "How sure it is", "Check by hand", "What to do", "Who owns it",
    "Had it been something else",
]  # fmt: skip


def verdict(kind, symptom):
    component = Component(kind, "x") if kind else None
    return Verdict(component, component.layer if component else None, symptom, 0.9, "")


def text_of(name):
    return (FOLDER / f"{name}.md").read_text()


@pytest.mark.parametrize(("kind", "symptom"), EVERY)
def test_every_verdict_that_can_exist_has_a_page_of_its_kind(kind, symptom):
    name = runbook_of(verdict(kind, symptom))
    assert name in PAGES
    assert name.startswith(f"{kind.value if kind else UNDECIDED}-")


def test_no_page_is_without_a_verdict():
    every = {runbook_of(verdict(*each)) for each in EVERY}
    assert every | OTHERS == set(PAGES)


def test_there_is_a_file_for_each_page_and_no_other_one():
    files = {path.stem for path in FOLDER.glob("*.md")} - {"README"}
    assert files == set(PAGES)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_has_its_title_and_all_headings_with_something_below(name):
    text = text_of(name)
    assert text.startswith(f"# {PAGES[name]}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    for body in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        assert len(body.strip()) > 15
    commands = text.partition("## Check by hand")[2].partition("## What to do")[0]
    assert "```" in commands


@pytest.mark.parametrize("name", sorted(PAGES))
def test_what_a_page_links_to_is_there(name):
    for target in re.findall(r"\]\(([^)#]+)", text_of(name)):
        assert (FOLDER / target).is_file(), target


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_commands_of_ours_that_a_page_names_are_there(name):
    found = re.findall(r"```\n(.*?)```|`([^`\n]+)`", text_of(name), re.DOTALL)
    code = "\n".join(block or span for block, span in found)
    for program, verb in re.findall(r"(?<![\w/-])(netagent(?:-analyzer)?) ([a-z][a-z-]*)", code):
        verbs = agent.VERBS if program == "netagent" else analyzer.VERBS
        assert verb in verbs, (program, verb)


def test_the_index_lists_every_page():
    index = (FOLDER / "README.md").read_text()
    assert re.findall(r"^- \[([a-z-]+)\]\(\1\.md\): ", index, re.MULTILINE) == list(PAGES)


@pytest.mark.parametrize("kind", FindingKind)
def test_a_page_names_each_finding_that_it_is_about(kind):
    name = runbook_of_finding(kind)
    assert (name == "findings") == (kind not in OF_FINDINGS)
    assert f"`{kind.value}`" in text_of(name)


def test_the_findings_that_cost_no_probe_have_the_page_of_the_masked():
    assert runbook_of_finding(FindingKind.RATE_REDUCED) == "rnic-masked"


def test_a_part_of_the_probes_and_all_of_them_are_one_page():
    both = (Symptom.LOSS, Symptom.UNCONNECTIVITY)
    pages = {runbook_of(verdict(Kind.LINK, each)) for each in both}
    assert pages == {"link-loses"}


def test_what_no_localiser_says_so_far_has_the_first_page_of_its_kind():
    assert page_of("agent", "slow") == "agent-silent"


def test_every_verdict_of_the_campaign_has_a_page():
    kinds = set()
    with lzma.open(ROOT / "docs" / "campaign-full.jsonl.xz") as lines:
        for line in itertools.islice(lines, 1, 200):
            kinds |= {each["component"] for each in msgspec.json.decode(line)["said"]}
    kinds = {each.partition(" ")[0] if each else UNDECIDED for each in kinds}
    assert len(kinds) > 3
    assert kinds <= {name.partition("-")[0] for name in PAGES}


def test_where_a_page_is_can_be_said():
    assert Runbooks().of("link-slow") == "docs/runbooks/link-slow.md"
    assert (ROOT / Runbooks().of("link-slow")).is_file()
    assert Runbooks("https://w.example/n/").of("link-slow") == "https://w.example/n/link-slow.md"
    at = Runbooks("https://w.example/?page={name}&x=1")
    assert at.of("link-slow") == "https://w.example/?page=link-slow&x=1"
