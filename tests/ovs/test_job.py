# SPDX-License-Identifier: Apache-2.0
"""A real job whose agents collect what it records: who holds it up is told as it happens."""

import json
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

import pytest

from tests.conftest import OVS, ROOT, require
from tests.lab import Lab
from tests.lab.commands import run as command
from tests.lab.demo import Observer
from tests.lab.operators import RINGS, TASK, UPLINK_KBIT, collect
from tests.lab.shape import namespace, rnic
from tests.lab.training import QUICK, Training, recorded_as
from tests.lab.unhurried import Unhurried
from tests.lab.wrong import NOTE

pytestmark = pytest.mark.lab
WITHIN_S = 180.0
"""Seconds for a verdict: records of a minute are asked for every twenty seconds."""
UPLINK = "rnic h1/rnic0"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    for each in (ROOT, OVS):
        require(each)
    pytest.importorskip("torch", reason="needs Debian's python3-torch")
    made = Lab()
    try:
        made.up(tasks=(TASK,), traffic=None)
        collect(made)
        yield made
    finally:
        assert made.down() == []


@pytest.fixture(scope="module")
def job(lab: Lab) -> Iterator[Training]:
    state = lab.state()
    training = Training(lab.directory, state.containers, state.shape.rails)
    given = recorded_as(TASK, f"{lab.directory}/{RINGS}/h{{host}}")
    training.start(dp=2, pp=2, environment=given, **QUICK)
    try:
        yield training
    finally:
        training.stop()


@pytest.fixture
def observer(lab: Lab) -> Iterator[Observer]:
    with lab.services().client() as client:
        yield Unhurried(client)


def active(observer: Observer) -> dict[str, dict[str, Any]]:
    told = observer.incidents()
    return {each["component"]: each for each in told if each["state"] != "recovered"}


def joined(observer: Observer, component: str) -> bool:
    """Return whether an incident's evidence is what operators say, too."""
    told = active(observer).get(component)
    return told is not None and "operators of" in str(told["evidence"])


def test_of_a_job_that_is_well_nobody_is_named(job: Training, observer: Observer) -> None:
    found = observer.wait(
        lambda: (v := observer.verdict(TASK)) and v["iterations"] >= 5 and v, timeout_s=WITHIN_S
    )
    assert found, "no verdict"
    assert (found["culprits"], found["innocent"]) == ([], True)
    ranks = observer.client.get(f"/v1/operators/{TASK}").json()["ranks"]
    assert sorted(each["rank"] for each in ranks) == list(range(8))
    assert active(observer) == {}


def exchanged(job: Training) -> set[frozenset[str]]:
    """Return the pairs that the job itself says it uses, as far as the network carries them."""
    groups = job.groups()
    pairs = [p for each in groups["dp"] for p in combinations(each, 2)]
    pairs += [p for each in groups["pp"] for p in pairwise(each)]
    return {
        frozenset(f"{end.container.id}/rail{end.rail}" for end in pair)
        for pair in pairs
        if pair[0].rail == pair[1].rail and pair[0].container != pair[1].container
    }


def test_the_jobs_own_groups_are_probed_exactly_and_before_its_traffic_shows_them(
    job: Training, observer: Observer
) -> None:
    def followed() -> dict[str, Any]:
        found: dict[str, Any] = observer.client.get(f"/v1/tasks/{TASK}/skeleton").json()
        return found

    observer.wait(lambda: followed().get("source") == "operators", timeout_s=WITHIN_S)
    found = followed()
    assert found.get("source") == "operators", found["reason"]
    assert {frozenset(pair) for pair in found["edges"]} == exchanged(job)


def test_a_rank_that_computes_slowly_is_named_and_the_network_is_innocent(
    lab: Lab, job: Training, observer: Observer
) -> None:
    note = job.folder / NOTE
    note.write_text(json.dumps({"kind": "slow-rank", "rank": 3, "factor": 5.0}))
    name = f"rank {TASK}/3"
    try:
        observer.wait(lambda: name in active(observer), timeout_s=WITHIN_S)
        assert active(observer).keys() == {name}
        told = active(observer)[name]
        assert (told["layer"], told["symptom"]) == ("job", "held up")
        assert "the network is innocent" in told["summary"]
    finally:
        note.unlink()
    observer.wait(lambda: not active(observer), timeout_s=WITHIN_S)
    assert active(observer) == {}


def test_a_slow_uplink_is_one_incident_by_probes_and_by_operators(
    lab: Lab, job: Training, observer: Observer
) -> None:
    where, interface = namespace("h1"), rnic(0)
    bucket = ("tbf", "rate", f"{UPLINK_KBIT}kbit", "burst", "16000", "latency", "500ms")
    command("tc", "-n", where, "qdisc", "replace", "dev", interface, "root", *bucket)
    try:
        # On a busy machine the job may be late before probes are: it names no part until then.
        observer.wait(lambda: joined(observer, UPLINK), timeout_s=WITHIN_S)
        observer.wait(lambda: active(observer).keys() == {UPLINK}, timeout_s=WITHIN_S)
        told = active(observer)
        assert told.keys() == {UPLINK}, told
        assert joined(observer, UPLINK)
    finally:
        command("tc", "-n", where, "qdisc", "del", "dev", interface, "root")
