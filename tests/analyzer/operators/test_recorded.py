# SPDX-License-Identifier: Apache-2.0
"""Logs of a real job, recorded by `make demo-operators` on two busy cores: what they hold."""

import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("recorded")
TRUTH = {each["name"]: each for each in json.loads((FOLDER / "truth.json").read_text())}


def rows(name):
    with gzip.open(FOLDER / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", TRUTH)
def test_of_a_job_that_goes_on_each_rank_did_the_same_and_ended_it(name):
    found = rows(name)
    counts = Counter((row["rank"], row["op"]) for row in found)
    assert {row["rank"] for row in found} == set(map(str, range(8)))
    if TRUTH[name]["hangs"]:
        waiting = {row["rank"] for row in found if not row["end_us"]}
        assert waiting
    else:
        assert all(row["end_us"] for row in found)
        assert len({counts[str(rank), "all_reduce"] for rank in range(8)}) == 1


@pytest.mark.parametrize("name", TRUTH)
def test_collectives_of_a_group_have_each_number_once_at_a_rank(name):
    keys = Counter(
        (row["rank"], row["group"], row["sequence"])
        for row in rows(name)
        if row["kind"] == "collective"
    )
    assert set(keys.values()) == {1}


@pytest.mark.parametrize("name", ["stopped", "skipped", "killed"])
def test_somebody_waits_in_a_collective_that_the_culprit_never_began(name):
    (culprit,) = map(str, TRUTH[name]["ranks"])
    found = [row for row in rows(name) if row["kind"] == "collective"]
    begun = Counter()
    for row in found:
        if row["rank"] == culprit:
            begun[row["group"]] = max(begun[row["group"]], int(row["sequence"]))
    waits = [row for row in found if not row["end_us"] and row["group"] in begun]
    assert any(int(row["sequence"]) > begun[row["group"]] for row in waits)
