# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from analyzer.roster.pinglist import ListVersion, PingLists, active
from netagent.model.endpoint import RdmaAddress
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList, Target
from tests.analyzer.cluster import endpoint

MS = 10**6


def target(name="a1"):
    return Target(EndpointId("a0", 0), EndpointId(name, 0), "10.0.0.11", "172.30.0.11")


def test_a_host_probes_its_own_task_and_rail_on_other_hosts_only():
    mine = [endpoint("h0", "a0", 0), endpoint("h0", "a0", 1), endpoint("h0", "z0", task="")]
    groups = {
        ("train-a", 0): [endpoint("h1", "a1", 0), mine[0], endpoint("h0", "a9", 0)],
        ("train-a", 1): [mine[1]],
        ("", 0): [endpoint("h1", "z1", task="")],
    }
    [only] = active("h0", mine, lambda task, rail: groups[task, rail])
    assert (only.source, only.target) == (EndpointId("a0", 0), EndpointId("a1", 0))
    assert (only.address, only.underlay) == (groups["train-a", 0][0].address, "172.30.0.163")


def test_endpoints_of_different_transports_do_not_probe_each_other():
    rdma = RdmaAddress("mlx5_0", "::ffff:10.0.0.1", (17,), 1, 1024)
    mine = replace(endpoint("h0", "a0", 0), rdma=rdma)
    others = [endpoint("h1", "a1", 0), replace(endpoint("h2", "a2", 0), rdma=rdma)]
    [only] = active("h0", [mine], lambda task, rail: others)
    assert only.target == EndpointId("a2", 0)


def test_a_version_grows_with_content_and_with_nothing_else():
    lists = PingLists()
    assert lists.get("h0") == PingList(0)
    assert lists.update("h0", (), 1000 * MS) is None
    assert lists.get("h0").version == 0
    assert lists.update("h0", (target(),), 1000 * MS).version == 1000
    assert lists.update("h0", (target(),), 2000 * MS) is None
    assert lists.get("h0") == PingList(1000, (target(),))
    assert lists.update("h0", (), 2000 * MS).version == 2000


def test_a_clock_that_jumps_back_takes_no_version_back():
    lists = PingLists()
    lists.update("h0", (target(),), 5000 * MS)
    assert lists.update("h0", (target("a2"),), 10 * MS).version == 5001


def test_after_a_restart_the_same_content_has_the_same_version_and_other_content_a_later_one():
    lists = PingLists()
    stored = lists.update("h0", (target(),), 5000 * MS)
    again = PingLists([stored])
    assert again.update("h0", (target(),), 1 * MS) is None
    assert again.get("h0").version == 5000
    other = PingLists([stored])
    assert other.update("h0", (target("a2"),), 1 * MS).version == 5001


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.integers(-5000, 5000),
            st.lists(st.sampled_from(["a1", "a2"]), unique=True, max_size=2),
        ),
        max_size=20,
    )
)
def test_over_any_restarts_and_clock_jumps_one_version_means_one_content(steps):
    lists, stored, seen, wall_ms = PingLists(), {}, {}, 10_000
    last = 0
    for restart, jump_ms, names in steps:
        wall_ms = max(0, wall_ms + jump_ms)
        if restart:
            lists = PingLists(stored.values())
        version = lists.update("h0", tuple(map(target, names)), wall_ms * MS)
        if version is not None:
            stored["h0"] = version
            assert isinstance(version, ListVersion)
        current = lists.get("h0")
        assert current.version >= last
        assert seen.setdefault(current.version, current.targets) == current.targets
        last = current.version


def test_pairs_that_a_task_does_not_use_are_rare_and_never_missing():
    mine = endpoint("h0", "a0", 0)
    others = [endpoint("h1", "a1", 0), endpoint("h2", "a2", 0)]
    uses = {("train-a", mine.id, others[0].id)}
    found = active("h0", [mine], lambda task, rail: others, lambda *pair: pair in uses)
    assert [(t.target.container, t.rare) for t in found] == [("a1", False), ("a2", True)]
    lists = PingLists(rare_share=0.25)
    lists.update("h0", active("h0", [mine], lambda task, rail: others), 1000 * MS)
    assert lists.update("h0", found, 2000 * MS).version == 2000
    assert lists.get("h0").rare_share == 0.25


def test_another_share_is_another_version_over_a_restart_too():
    stored = PingLists(rare_share=0.1).update("h0", (target(),), 5000 * MS)
    again = PingLists([stored], rare_share=0.5)
    assert again.update("h0", (target(),), 6000 * MS).version == 6000
