# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from analyzer.roster.pinglist import active, expected
from netagent.model.endpoint import RdmaAddress
from netagent.model.ids import EndpointId
from netagent.model.pinglist import Expected
from tests.analyzer.cluster import endpoint


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


def test_endpoints_with_ipv4_and_ipv6_addresses_do_not_probe_each_other():
    mine = endpoint("h0", "a0", 0)
    six = [replace(endpoint(f"h{n}", f"a{n}", 0), address=f"fd00::{n}") for n in (1, 2)]
    others = [*six, endpoint("h3", "a3", 0)]
    assert [t.target.container for t in active("h0", [mine], lambda *_: others)] == ["a3"]
    assert [t.target.container for t in active("h1", six[:1], lambda *_: others)] == ["a2"]


def test_pairs_that_a_task_does_not_use_are_rare_and_never_missing():
    mine = endpoint("h0", "a0", 0)
    others = [endpoint("h1", "a1", 0), endpoint("h2", "a2", 0)]
    used = {("train-a", mine.id): (others[0].id,)}
    found = active("h0", [mine], lambda task, rail: others, lambda *source: used.get(source))
    assert [(t.target.container, t.rare) for t in found] == [("a1", False), ("a2", True)]


def test_a_host_expects_the_containers_that_were_declared_of_its_tasks():
    mine = [endpoint("h0", "a0", 0), endpoint("h0", "a0", 1), endpoint("h0", "b0", task="other")]
    declared = {"train-a": ("a0", "a1"), "other": ()}
    (only,) = expected(mine, declared.get)
    assert only == Expected((mine[0].id, mine[1].id), ("a0", "a1"))
