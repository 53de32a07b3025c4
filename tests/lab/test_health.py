# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter

from tests.lab.health import Act, Report, choose
from tests.lab.workload import Container

EVERYONE = [Container(task, host) for task in ("train-a", "train-b") for host in range(4)]


def test_containers_come_and_go_and_as_many_run_as_are_stopped() -> None:
    chance = random.Random(1)
    running, counts = set(EVERYONE), Counter[Act]()
    for _ in range(400):
        stopped = sorted(set(EVERYONE) - running)
        what, name = choose(sorted(running), stopped, chance)
        counts[what] += 1
        if what is Act.START:
            running |= {each for each in stopped if each.id == name}
        elif what is Act.STOP:
            running -= {each for each in running if each.id == name}
        elif what is Act.RESTART_TASK:
            running |= {each for each in EVERYONE if each.task == name}
        assert name or what is Act.TRAFFIC
    assert counts.keys() == set(Act)
    assert counts[Act.START] > 50 < counts[Act.STOP]


def test_a_seed_draws_the_same_changes_again() -> None:
    drawn = [choose(EVERYONE[:5], EVERYONE[5:], random.Random(n)) for n in range(50)]
    assert drawn == [choose(EVERYONE[:5], EVERYONE[5:], random.Random(n)) for n in range(50)]


def test_nothing_but_traffic_and_starts_is_left_where_nothing_runs() -> None:
    drawn = {choose([], EVERYONE, random.Random(n))[0] for n in range(50)}
    assert drawn == {Act.START, Act.TRAFFIC}


def test_any_incident_and_an_analyzer_that_judged_nothing_are_bad() -> None:
    assert not Report().good
    well = Report(Counter({"containers started": 3}), {5, 10})
    assert well.good
    assert well.lines() == ["windows judged: 2", "containers started: 3", "incidents: 0"]
    ill = Report(windows={5}, incidents={"i1": "insufficient evidence: ..."})
    assert not ill.good
    assert ill.lines()[-1] == "insufficient evidence: ..."
