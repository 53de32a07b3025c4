# SPDX-License-Identifier: Apache-2.0
from tests.lab.traffic import Rhythm, ring
from tests.lab.workload import Container


def test_everyone_sends_to_the_next_of_its_task_on_its_own_rail() -> None:
    members = [Container("train-a", host) for host in (2, 0, 1)] + [Container("train-b", 0)]
    pairs = ring(members, rails=2)
    a0, a1, a2 = (Container("train-a", host) for host in range(3))
    assert pairs == {
        here.endpoint(rail): there.endpoint(rail)
        for here, there in ((a0, a1), (a1, a2), (a2, a0))
        for rail in range(2)
    }


def test_bursts_fill_their_share_of_the_period() -> None:
    rhythm = Rhythm(period_s=4, duty=0.25, packets=1)
    assert [rhythm.bursting(at) for at in (0.0, 0.9, 1.0, 3.9, 4.5)] == [
        *(True, True, False, False, True)
    ]


def test_between_bursts_it_sleeps_but_wakes_to_look_at_the_state() -> None:
    rhythm = Rhythm(period_s=4, duty=0.25, packets=1)
    assert rhythm.wait_s(0.5) == 0.02
    assert rhythm.wait_s(2.0) == 0.5
    assert round(rhythm.wait_s(3.9), 6) == 0.1
