# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from analyzer.intent.differences.contract import FRESH_NS, MOST_QUOTED, HostSaid, Sight, quoted
from netagent.wire.controller import Working
from tests.analyzer.intent.differences.clusters import Cluster


@pytest.mark.parametrize(
    ("change", "age_ns", "heard"),
    [
        ({}, 0, True),
        ({}, -5_000_000_000, True),  # its clock is ahead
        ({}, FRESH_NS - 1, True),
        ({}, FRESH_NS, False),
        ({"working": Working.UNKNOWN}, 0, False),
        ({"working": Working.STOPPED}, 0, True),
        ({"source": "another"}, 0, False),
    ],
)
def test_a_host_is_heard_that_spoke_lately_and_knows_how_it_is(change, age_ns, heard):
    cluster = Cluster(hosts=1)
    (host,) = cluster.host.values()
    said = HostSaid(structs.replace(cluster.state(host), **change), cluster.now_ns - age_ns)
    sight = Sight(cluster.intent(), {"h0": said}, (), cluster.now_ns)
    assert ("h0" in sight.heard) is heard
    assert sight.connected("h0") is (heard and not change)
    assert sight.owners == ({"chassis-0": "h0"} if change != {"source": "another"} else {})
    assert sight.hosts == {"h0"}


@pytest.mark.parametrize("is_silent", [False, True])
def test_who_says_that_it_is_another_host_is_not_heard(is_silent):
    cluster = Cluster()
    said = cluster.sight().states
    stolen = structs.replace(said["h0"].state, chassis="chassis-1")
    states = {**said, "h0": HostSaid(stolen, cluster.now_ns)}
    if is_silent:
        states["h1"] = HostSaid(said["h1"].state, cluster.now_ns - 2 * FRESH_NS)
    sight = Sight(cluster.intent(), states, (), cluster.now_ns)
    assert sorted(sight.heard) == (["h2", "h3"] if is_silent else ["h1", "h2", "h3"])
    assert sight.owners["chassis-1"] == "h1"


def test_a_host_has_the_names_of_its_agent_and_of_its_controller():
    assert Cluster(hosts=1).sight().names_of("h0") == {"h0", "chassis-0", "h0.example"}


def test_ports_that_are_nowhere_are_unplaced():
    cluster = Cluster(hosts=2, ports=0)
    cluster.plug(cluster.declare(), "h0")
    cluster.settle()
    new = cluster.plug(cluster.declare(), "h0")
    assert cluster.sight().unplaced(("h0",)) == (new.name,)
    assert cluster.sight().unplaced(("h1",)) == ()


def test_long_lists_are_cut():
    names = [f"n{n:02}" for n in range(MOST_QUOTED + 2)]
    assert quoted(names[:2]) == "n00, n01"
    assert quoted(names).endswith("n07 and 2 more")
