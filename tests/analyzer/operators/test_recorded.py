# SPDX-License-Identifier: Apache-2.0
"""Logs of a real job, recorded by `make demo-operators` on two busy cores: what they hold."""

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from statistics import mean

import pytest

from analyzer.commands.operators import read
from analyzer.detect.operators.judging import judged
from tests.analyzer.operators.recorded_times import gradients_ms

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


NAMED = {
    "slow-rank": [(3,)], "slow-loader": [(4,)], "imbalance": [(2, 3, 6, 7)], "stopped": [(5,)],
    "skipped": [(1,)], "killed": [(6,)],
    # What all reduce over the uplink or link that is slow.
    "slow-uplink": [(2, 6)], "slow-link": [(0, 4), (2, 6)],
}  # fmt: skip
"""Who is named by each log; of those that are not here nobody is: a loss that costs little, too."""


@pytest.mark.parametrize("name", TRUTH)
def test_who_holds_the_job_up_is_named_and_nobody_else(name):
    verdict = judged(read(str(FOLDER / f"{name}.csv.gz")))
    assert sorted(each.ranks for each in verdict.culprits) == NAMED.get(name, [])
    assert verdict.innocent == (name not in {"slow-uplink", "slow-link"})


@pytest.mark.parametrize("name", sorted(TRUTH.keys() - {"imbalance"}))
def test_before_it_began_nobody_is(name):
    verdict = judged(read(str(FOLDER / f"{name}.before.csv.gz")))
    assert (verdict.culprits, verdict.innocent) == ((), True)


def test_evidence_that_accuses_the_network_accuses_no_stage():
    verdict = judged(read(str(FOLDER / "slow-uplink.csv.gz")))
    assert all(each.network for each in verdict.culprits)
    assert not [line for line in verdict.evidence if "stage" in line]


def test_the_loss_that_nobody_is_named_for_costs_less_than_a_busy_machine():
    before, during = gradients_ms("lossy-uplink.before"), gradients_ms("lossy-uplink")
    assert max(map(mean, during.values())) == mean(during["3:2-6"])
    assert mean(during["3:2-6"]) < max(map(mean, before.values()))
    slow = gradients_ms("slow-uplink")
    assert mean(slow["3:2-6"]) > 5 * max(mean(ms) for name, ms in slow.items() if name != "3:2-6")


PROBED = {
    "healthy": (),
    "garbage": (),
    "slow-rank": ("rank",),
    "slow-uplink": ("group",),
    "stopped": ("rank",),
    "killed": ("rank",),
}
"""What is named by what probes alone saw of these faults: their kinds."""


@pytest.mark.parametrize("name", PROBED)
def test_what_probes_alone_saw_of_the_real_job_names_who_is_at_fault(name):
    log = read(str(FOLDER / "probes" / name))
    assert (log.source, log.world) == ("uprobes", 8)
    assert log.is_whole or TRUTH[name]["hangs"]
    verdict = judged(log)
    assert tuple(each.kind for each in verdict.culprits) == PROBED[name]
    for each in verdict.culprits:
        assert set(TRUTH[name]["ranks"]) <= set(each.ranks)
    assert verdict.innocent == (name != "slow-uplink")


def test_probes_know_the_groups_of_the_real_job():
    log = read(str(FOLDER / "probes" / "healthy"))
    pairs = {each.members for each in log.groups if len(each.members) == 2}
    tensor = {(rank, rank + 1) for rank in range(0, 8, 2)}
    stages = {(rank, rank + 2) for rank in (0, 1, 4, 5)}
    replicas = {(rank, rank + 4) for rank in range(4)}
    assert pairs == tensor | stages | replicas
    assert {each.members for each in log.groups} - pairs == {tuple(range(8))}
