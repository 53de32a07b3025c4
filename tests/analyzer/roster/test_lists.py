# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace as with_fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from analyzer.roster.lists import Lists
from analyzer.roster.registry import Registry
from netagent.model.endpoint import EndpointState
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.task import Task
from netagent.probing.roster import Roster
from netagent.wire.codec import decode, encode
from netagent.wire.roster import Follow, Group
from tests.analyzer.cluster import endpoint, registration

HOSTS = [f"h{n}" for n in range(4)]
CONTAINERS = [f"c{n}" for n in range(5)]


def test_a_list_costs_what_changed_and_not_what_is_there():
    registry = Registry()
    lists, rosters = Lists(registry), {}
    names = [f"h{n}" for n in range(40)]
    for n, name in enumerate(names):
        registry.apply(registration(name, endpoint(name, f"a{n}")), n)
    for name in names:
        rosters[name] = Roster(name)
        rosters[name].take(lists.update(name, rosters[name].asks()))
    registry.apply(registration("new", endpoint("new", "a99")), 99)
    for name in names:
        news = lists.update(name, rosters[name].asks())
        assert len(encode(news)) < 400
        rosters[name].take(news)
        assert rosters[name].pinglist() == lists.pinglist(name)
        assert lists.update(name, rosters[name].asks()) is None


def test_how_far_a_list_extends_is_known_before_it_is_made():
    registry = Registry()
    lists = Lists(registry)
    registry.apply(registration("h0", *(endpoint("h0", f"a{n}") for n in range(3))), 1)
    registry.apply(registration("h1", endpoint("h1", "b0"), endpoint("h1", "c0", task="u")), 1)
    assert (lists.extent("h0"), lists.extent("h1")) == ((3, 12), (2, 5))
    assert (len(lists.pinglist("h0").targets), lists.extent("nobody")) == (3, (0, 0))


def test_another_share_of_rare_targets_is_another_version():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0")), 1)
    versions = {Lists(registry, rare_share=share).version("h0") for share in (0.1, 0.2)}
    assert len(versions) == 2


def test_all_of_a_group_have_its_key_and_nobody_else_has():
    registry = Registry()
    lists, others = (Lists(registry, secret=secret * 32) for secret in (b"s", b"o"))
    for host, container, task in (("h0", "a0", "t"), ("h1", "a1", "t"), ("h2", "b0", "u")):
        ends = (endpoint(host, container, rail, task=task) for rail in (0, 1))
        registry.apply(registration(host, *ends), 1)
    keys = {}
    for host in ("h0", "h1", "h2"):
        roster = Roster(host)
        roster.take(lists.update(host, roster.asks()))
        assert lists.update(host, roster.asks()) is None
        assert roster.sources == lists.named(host)
        keys |= roster.keys
        # Another secret is news, though nothing else is.
        before = roster.keys
        roster.take(others.update(host, roster.asks()))
        assert roster.keys.keys() == before.keys()
        assert roster.keys.values() != before.values()
    groups = {}
    for each, key in keys.items():
        groups.setdefault((each.container[0], each.rail), set()).add(key)
    assert [len(found) for found in groups.values()] == [1, 1, 1, 1]
    assert len(set.union(*groups.values())) == 4


@pytest.mark.parametrize("host", ["h0", "h1", "h2", "h3"])
def test_agent_and_analyzer_put_the_same_version_of_ip_on_a_list(host):
    registry = Registry()
    for n, address in enumerate(["10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2"]):
        end = with_fields(endpoint(f"h{n}", f"a{n}"), address=address)
        registry.apply(registration(f"h{n}", end), 1)
    lists, roster = Lists(registry), Roster(host)
    roster.take(lists.update(host, roster.asks()))
    assert roster.pinglist() == lists.pinglist(host)
    (target,) = roster.pinglist().targets
    assert target.host != host
    assert target.address[:4] == registry.endpoint(target.source).endpoint.address[:4]


def test_an_agent_that_is_reached_elsewhere_is_told_to_its_peers():
    registry = Registry()
    lists = Lists(registry)
    for n, host in enumerate(("h0", "h1")):
        registry.apply(registration(host, endpoint(host, f"a{n}")), 1)
    roster = Roster("h0")
    roster.take(lists.update("h0", roster.asks()))
    registry.apply(replace(registration("h1", endpoint("h1", "a1")), rpc_url="http://else"), 2)
    lists.readdressed("h1")
    roster.take(lists.update("h0", roster.asks()))
    assert [peer.rpc_url for peer in roster.peers()] == ["http://else"]


def test_a_host_without_endpoints_has_version_0_and_is_told_once_that_its_last_is_gone():
    registry = Registry()
    lists, roster = Lists(registry), Roster("h0")
    assert lists.update("h0", roster.asks()) is None
    registry.apply(registration("h0", endpoint("h0", "a0")), 1)
    roster.take(lists.update("h0", roster.asks()))
    registry.apply(registration("h0", generation=2), 2)
    assert lists.version("h0") == 0
    roster.take(lists.update("h0", roster.asks()))
    assert lists.update("h0", roster.asks()) is None
    assert roster.asks() == Follow()
    assert not lists._tasks
    assert not lists._groups
    assert not lists._containers


def test_a_crowd_is_of_tasks_whose_hosts_do_not_inform_each_other():
    registry = Registry()
    lists = Lists(registry)
    for n in range(3):
        registry.apply(registration(f"h{n}", endpoint(f"h{n}", f"a{n}")), 1)
    assert lists.crowd("h0") == 3
    registry.put_task(Task("train-a", ("a0", "a1", "a2")), 2)
    assert lists.crowd("h0") == 0


class Cluster(RuleBasedStateMachine):
    """Agents that follow at any time have, of what there is, what the naive list has."""

    def __init__(self):
        super().__init__()
        self.registry, self.used = Registry(), {}
        self.lists = self.serve()
        self.rosters = {host: Roster(host) for host in HOSTS}
        self.now = 0

    def serve(self):
        return Lists(self.registry, used=lambda task, source: self.used.get((task, source)))

    @rule(
        host=st.sampled_from(HOSTS),
        held=st.lists(
            st.tuples(
                st.sampled_from(CONTAINERS),
                st.sampled_from(["x", "y", ""]),
                st.sampled_from(EndpointState),
            ),
            max_size=3,
            unique_by=lambda each: each[0],
        ),
    )
    def register(self, host, held):
        self.now += 1
        ends = [endpoint(host, c, r, task=t, state=s) for c, t, s in held for r in (0, 1)]
        self.registry.apply(registration(host, *ends, generation=self.now), self.now)

    @rule(host=st.sampled_from(HOSTS))
    def forget(self, host):
        self.registry.forget(host, self.now)

    @rule(task=st.sampled_from(["x", "job"]), containers=st.sets(st.sampled_from(CONTAINERS)))
    def declare(self, task, containers):
        try:
            self.registry.put_task(Task(task, tuple(sorted(containers))), self.now)
        except RemoteProtocolError:
            assert self.registry.declarer(containers, besides=task)

    @rule(task=st.sampled_from(["x", "job"]))
    def withdraw(self, task):
        self.registry.delete_task(task, self.now)

    @rule(task=st.sampled_from(["x", "y", "job"]), ends=st.sets(st.sampled_from(CONTAINERS)))
    def learn(self, task, ends):
        for rail in (0, 1):
            ids = sorted(EndpointId(each, rail) for each in ends)
            self.used |= {(task, each): tuple(e for e in ids if e != each) for each in ids}

    @rule()
    def restart(self):
        states = [self.registry.export_host(agent.host) for agent in self.registry.agents()]
        before = {host: self.lists.version(host) for host in HOSTS}
        tasks = [self.registry.export_task(t.id) for t in self.registry.tasks() if t.declared]
        self.registry = Registry.restore(states, tasks)
        self.lists = self.serve()
        assert {host: self.lists.version(host) for host in HOSTS} == before

    @rule(host=st.sampled_from(HOSTS))
    def follow(self, host):
        roster = self.rosters[host]
        news = self.lists.update(host, roster.asks())
        if news is not None:
            roster.take(news)
        assert roster.pinglist() == self.lists.pinglist(host)
        hosts = {h for source in self.lists._sources(host) for h in self.lists.hosts(source.task)}
        assert [peer.host for peer in roster.peers()] == sorted(hosts - {host})

    @rule(host=st.sampled_from(HOSTS))
    def begin_anew(self, host):
        self.rosters[host] = Roster(host)

    @invariant()
    def groups_are_those_of_the_registry(self):
        there = {}
        for record in self.registry.endpoints():
            if record.active and record.endpoint.task:
                group = Group(record.endpoint.task, record.endpoint.id.rail)
                there.setdefault(group, set()).add(record.endpoint.id.container)
        assert {group: set(ledger) for group, ledger in self.lists._groups.items()} == there


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@given(st.binary(max_size=16), st.integers(0, 2**63 - 1))
def test_whatever_an_agent_says_it_has_it_is_told_what_there_is(digest, version):
    registry = Registry()
    lists = Lists(registry)
    for n, host in enumerate(("h0", "h1")):
        registry.apply(registration(host, endpoint(host, f"a{n}")), 1)
    asked = Follow(
        version=version, groups=[[["train-a", 0], digest]], tasks=[["train-a", digest, digest]]
    )
    asked = decode(encode(asked), Follow)
    news = lists.update("h0", asked)
    assert news is not None
    assert all(each.whole for each in (*news.groups, *news.tasks))
