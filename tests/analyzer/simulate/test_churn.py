# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.simulate.churn import FABRIC_HOSTS, FREE_NS, REGISTER_NS, Churn

S = 1_000_000_000
START = 5_000 * S


def run(churn, windows, width_ns=5 * S):
    for n in range(windows):
        start_ns = START + n * width_ns
        yield start_ns, churn.window(start_ns, start_ns + width_ns)


def test_nearly_all_hosts_have_a_container_in_the_beginning():
    churn = Churn(64, 1, 2_000)
    assert churn.alive(np.arange(64), np.full(64, START)).sum() >= 0.9 * 64


def test_containers_start_at_about_the_rate_that_is_told():
    churn = Churn(256, 1, 2_000)
    minutes = 20
    starts = sum(c.there for _, (_, changes) in run(churn, 12 * minutes) for c in changes)
    # Hosts stay free for a while, and some containers stop before they are up.
    assert 0.2 < starts / (2_000 * 256 / FABRIC_HOSTS * minutes) < 1.1


@pytest.mark.parametrize("seed", range(5))
def test_containers_come_and_go_in_turn_and_are_told_of_when_they_do(seed):
    churn = Churn(32, seed, 4_000)
    there = dict(enumerate(churn.alive(np.arange(32), np.full(32, START)).tolist()))
    told = 0
    for start_ns, (_, changes) in run(churn, 100):
        for change in changes:
            assert start_ns <= change.at_ns < start_ns + 5 * S
            assert there[change.host] is not change.there
            there[change.host] = change.there
            told += 1
    assert told > 20


def test_a_host_is_left_alone_between_two_tasks():
    churn, gone_ns = Churn(32, 2, 4_000), {}
    begun = 0
    for _, (_, changes) in run(churn, 200):
        for change in changes:
            if change.there:
                begun += change.host in gone_ns
                assert change.at_ns >= gone_ns.get(change.host, 0) + FREE_NS
            else:
                gone_ns[change.host] = change.at_ns
    assert begun


def test_none_is_probed_before_it_is_registered_nor_long_after_it_went():
    churn = Churn(32, 3, 4_000)
    hosts = np.arange(32)
    for start_ns, (_, changes) in run(churn, 60):
        for change in changes:
            others = np.delete(hosts, change.host)
            ends = (others, np.full(31, change.host))
            then = np.full(31, change.at_ns)
            if change.there:
                assert not churn.probed(*ends, then - 1).any()
            else:
                assert not churn.probed(*ends[::-1], then - REGISTER_NS).any()
                assert not churn.probed(*ends, then + 3 * S).any()
        assert start_ns
