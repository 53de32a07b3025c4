# SPDX-License-Identifier: Apache-2.0
from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from analyzer.picture import fabric as module
from analyzer.picture.asked import Fabric
from analyzer.picture.crossings import Crossings
from analyzer.picture.scene import UNKNOWN
from netagent.model.topology import DeclaredTopology
from tests.analyzer.picture.scenes import (
    ENDPOINTS,
    HOSTS,
    PORTS,
    Flow,
    finished,
    flows,
    host_of,
    mean_ns,
    scene_of,
    task_of,
    traced,
    whole,
)


def fabric(scene, asked):
    return finished(module.fabric(scene, Crossings(), asked))


def crossed(window):
    """Return sent, lost and round trips by directed link between switches, and by host and leaf."""
    links = defaultdict(lambda: [0, 0, []])
    hosts = defaultdict(lambda: [0, 0, []])
    leaf = traced(window)
    for flow in window:
        ends = {(host_of(end), leaf.get(end, UNKNOWN)) for end in (flow.source, flow.target)}
        ways = [whole(window, flow, reply=reply) for reply in (False, True)]
        pairs = [pair for way in ways if way for pair in pairwise(way)]
        for found, keys in ((links, pairs), (hosts, ends)):
            for key in keys:
                found[key][0] += flow.sent
                found[key][1] += flow.lost
                found[key][2] += flow.trips
    return links, hosts


def told(sums):
    sent, lost, trips = sums
    return sent, lost, mean_ns(trips)


def close(drawn, sums):
    sent, lost, mean = told(sums)
    assert (drawn["sent"], drawn["lost"]) == (sent, lost)
    assert drawn["rtt_ns"] is mean is None or abs(drawn["rtt_ns"] - mean) <= 1


@given(flows)
def test_links_are_crossed_by_what_one_counts_probe_by_probe(window):
    links, hosts = crossed(window)
    drawn = fabric(scene_of(window), Fabric())
    found = {}
    for each in drawn["links"]:
        if each["is_uplink"]:
            close(each, hosts[each["a"], each["b"]])
        else:
            found[each["a"], each["b"]] = each
            if each["back"] is not None:
                found[each["b"], each["a"]] = each["back"]
    assert found.keys() == links.keys()
    for pair, each in found.items():
        close(each, links[pair])
    assert not drawn["aggregated"]
    assert drawn["omitted"] == {"nodes": 0, "links": 0}


@given(flows)
def test_all_hosts_are_there_those_that_nobody_probes_too(window):
    nodes = {each["id"]: each for each in fabric(scene_of(window), Fabric())["nodes"]}
    hosts = {name for name, each in nodes.items() if each["kind"] == "host"}
    assert hosts == {f"h{n}" for n in range(HOSTS)}
    assert {each["tier"] for each in nodes.values() if each["kind"] == "host"} == {0}
    assert all(each["members"] == 1 for each in nodes.values())


@given(flows, st.sampled_from(["t0", "t1", "t2"]))
def test_who_may_see_a_task_sees_its_hosts_and_no_other(window, task):
    drawn = fabric(scene_of(window), Fabric(tasks=(task,)))
    mine = {host_of(n) for n in range(len(ENDPOINTS)) if task_of(n) == task}
    assert {each["id"] for each in drawn["nodes"] if each["kind"] in {"host", "group"}} == mine
    seen = [f for f in window if task_of(f.source) == task_of(f.target) == task]
    up = {(each["a"], each["b"]): each["sent"] for each in drawn["links"] if each["is_uplink"]}
    assert sum(up.values()) >= sum(f.sent for f in seen)
    assert all(not sent or any(host_of(f.source) == a or host_of(f.target) == a for f in seen)
               for (a, _), sent in up.items())  # fmt: skip


SPINES = (0, 1)
FULL = [
    Flow(a, b, PORTS[0], 0, (1_000,), SPINES)
    for a in range(len(ENDPOINTS))
    for b in range(len(ENDPOINTS))
    if a != b and a % 2 == b % 2
]


def test_tiers_are_hosts_leaves_spines():
    nodes = fabric(scene_of(FULL), Fabric())["nodes"]
    kinds = {each["kind"]: each["tier"] for each in nodes}
    assert kinds == {"host": 0, "leaf": 1, "spine": 2}
    rails = {each["id"]: each["rail"] for each in nodes if each["kind"] == "leaf"}
    assert rails == {f"leaf-s{s}-r{r}": r for s in range(2) for r in range(2)}


def test_hosts_of_the_same_leaves_are_one_group_but_those_that_are_wanted_apart(monkeypatch):
    monkeypatch.setattr(module, "MAX_NODES", 11)
    drawn = fabric(scene_of(FULL), Fabric(apart=("h4",)))
    nodes = {each["id"]: each for each in drawn["nodes"]}
    assert drawn["aggregated"]
    assert nodes["h0 and 2 more"]["members"] == 3
    assert nodes["h3 and 1 more"]["members"] == 2
    assert nodes["h4"]["kind"] == "host"
    assert drawn["omitted"] == {"nodes": 0, "links": 0}
    links = {(each["a"], each["b"]): each for each in drawn["links"]}
    assert links["h0 and 2 more", "leaf-s0-r0"]["members"] == 3
    alone = fabric(scene_of(FULL), Fabric())["links"]
    of_leaf = [each for each in alone if each["b"] == "leaf-s0-r0" and each["is_uplink"]]
    assert links["h0 and 2 more", "leaf-s0-r0"]["sent"] == sum(each["sent"] for each in of_leaf)


def test_of_more_leaves_than_fit_the_worst_are_drawn_and_the_rest_counted(monkeypatch):
    monkeypatch.setattr(module, "MAX_NODES", 4)
    lossy = [*FULL, Flow(7, 9, PORTS[1], 5, (), (None, None))]
    drawn = fabric(scene_of(FULL), Fabric(apart=("leaf-s1-r1",)))
    assert "leaf-s1-r1" in {each["id"] for each in drawn["nodes"]}
    assert len(drawn["nodes"]) == 4
    shown = sum(each["members"] for each in drawn["nodes"])
    assert drawn["omitted"]["nodes"] == 4 + 2 + HOSTS - shown
    assert fabric(scene_of(lossy), Fabric())["omitted"]["nodes"] > 0


def test_of_fewer_links_than_there_are_the_lossy_ones_between_other_switches_come_first(
    monkeypatch,
):
    monkeypatch.setattr(module, "MAX_LINKS", 3)
    drawn = fabric(scene_of(FULL), Fabric())
    assert len(drawn["links"]) <= 3
    total = len(drawn["links"]) + drawn["omitted"]["links"]
    members = sum(each["members"] - 1 for each in drawn["links"])
    assert total + members == 2 * HOSTS + 4 * len(SPINES)


def test_a_declared_link_that_nobody_crosses_is_drawn_without_a_probe():
    scene = scene_of(FULL)
    links = frozenset({("leaf-s0-r0", "spine-9"), ("leaf-s0-r0", "spine-0")})
    scene.topology.declared = DeclaredTopology(links=links)
    drawn = {(each["a"], each["b"]): each for each in fabric(scene, Fabric())["links"]}
    idle = drawn["leaf-s0-r0", "spine-9"]
    assert (idle["sent"], idle["rtt_ns"], idle["back"]) == (0, None, None)
    assert drawn["leaf-s0-r0", "spine-0"]["sent"] > 0
    mine = fabric(scene, Fabric(tasks=("t0",)))
    assert "spine-9" not in {each["id"] for each in mine["nodes"]}
