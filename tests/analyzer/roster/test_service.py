# SPDX-License-Identifier: Apache-2.0
import asyncio
from dataclasses import replace

import pytest

from analyzer.roster.pinglist import PingLists
from analyzer.roster.registry import REMEMBER_NS, Registry
from analyzer.roster.service import AnalyzerService
from netagent.model.endpoint import EndpointState
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.task import Task
from netagent.wire.messages import SCHEMA, Accepted, Registration, Summary
from tests.analyzer.cluster import SECOND, endpoint, registration


class Memory:
    """A store that remembers, and loses nothing because it never dies."""

    def __init__(self):
        self.summaries, self.hosts, self.tasks, self.versions = {}, {}, {}, {}

    async def put(self, host, start_ns, received_ns, payload):
        new = (host, start_ns) not in self.summaries
        self.summaries.setdefault((host, start_ns), (received_ns, payload))
        return new

    async def put_host(self, state):
        self.hosts[state.agent.host] = state

    async def forget_host(self, host):
        self.hosts.pop(host, None)

    async def put_task(self, task):
        self.tasks[task.id] = task

    async def delete_task(self, task):
        self.tasks.pop(task, None)

    async def put_versions(self, versions):
        self.versions.update((version.host, version) for version in versions)


class Bench:
    """A service on a memory store, called as if nothing were asynchronous."""

    def __init__(self, store=None):
        self.store = store or Memory()
        self.seen, self.changed = [], []
        self.registry = Registry.restore(self.store.hosts.values(), self.store.tasks.values())
        self.service = AnalyzerService(
            self.registry,
            PingLists(self.store.versions.values()),
            self.store,
            observe=lambda summary, _, wall_ns: self.seen.append((summary.start_ns, wall_ns)),
            changed=self.changed.append,
        )

    def __getattr__(self, name):
        method = getattr(self.service, name)
        return lambda *args: asyncio.run(method(*args))


def summary(host="h0", start_ns=5 * SECOND, **fields):
    return Summary(host=host, instance="one", start_ns=start_ns, width_ns=5 * SECOND, **fields)


def targets(pinglist):
    return [(str(t.source), str(t.target)) for t in pinglist.targets]


def test_the_answer_to_a_registration_is_who_is_already_up():
    bench = Bench()
    first = bench.register(registration("h0", endpoint("h0", "a0")), 1 * SECOND)
    assert first.pinglist.targets == ()
    second = bench.register(registration("h1", endpoint("h1", "a1")), 2 * SECOND)
    assert targets(second.pinglist) == [("a1/rail0", "a0/rail0")]
    assert bench.changed[-1] == {"h0", "h1"}
    assert targets(bench.pinglist("h0", 3 * SECOND)) == [("a0/rail0", "a1/rail0")]


def test_registering_twice_changes_nothing_but_when_it_was_heard():
    bench = Bench()
    bench.register(registration("h1", endpoint("h1", "a1")), 1)
    first = bench.register(registration("h0", endpoint("h0", "a0")), 1 * SECOND)
    again = bench.register(registration("h0", endpoint("h0", "a0")), 2 * SECOND)
    assert first == again


def test_a_target_leaves_the_list_when_it_crashes_and_when_it_is_gone():
    bench = Bench()
    bench.register(registration("h0", endpoint("h0", "a0")), 1)
    bench.register(registration("h1", endpoint("h1", "a1")), 1 * SECOND)
    crashed = endpoint("h1", "a1", state=EndpointState.CRASHED)
    before = bench.pinglist("h0", 2 * SECOND)
    bench.register(registration("h1", crashed, generation=2), 3 * SECOND)
    after = bench.pinglist("h0", 3 * SECOND)
    assert (len(before.targets), len(after.targets)) == (1, 0)
    assert after.version > before.version


def test_a_list_keeps_its_version_over_a_restart():
    bench = Bench()
    bench.register(registration("h0", endpoint("h0", "a0")), 1)
    bench.register(registration("h1", endpoint("h1", "a1")), 9 * SECOND)
    before = bench.pinglist("h0", 9 * SECOND)
    restarted = Bench(bench.store)
    assert restarted.pinglist("h0", 1) == before
    assert restarted.pinglist("h1", 1) == bench.pinglist("h1", 1)


def test_a_summary_is_stored_before_it_is_observed_and_once():
    bench = Bench()
    bench.register(registration("h0"), 1)
    assert bench.push(summary(), b"payload", 7) == Accepted(duplicate=False)
    assert bench.push(summary(), b"payload", 8) == Accepted(duplicate=True)
    assert bench.store.summaries == {("h0", 5 * SECOND): (7, b"payload")}
    assert bench.seen == [(5 * SECOND, 7)]
    assert bench.registry.agent("h0").last_seen_ns == 8
    assert bench.registry.agent("h0").last_window_ns == 5 * SECOND


@pytest.mark.parametrize(
    "message",
    [
        summary(schema=SCHEMA + 1),
        summary(host=""),
        summary(host="h0\x00"),
        summary(host="x" * 300),
        summary(start_ns=-1),
        summary(start_ns=2**63),
    ],
)
def test_what_no_agent_sends_is_refused_and_not_stored(message):
    bench = Bench()
    with pytest.raises(RemoteProtocolError):
        bench.push(message, b"", 1)
    assert bench.store.summaries == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"schema": SCHEMA + 1},
        {"host": "../etc"},
        {"instance": ""},
        {"generation": -1},
        {"generation": 2**64},
        {"endpoints": (endpoint("h0", "bad name"),)},
    ],
)
def test_a_registration_that_no_agent_sends_is_refused(fields):
    values = {"host": "h0", "instance": "one", "generation": 1, "rpc_url": "", "endpoints": ()}
    bench = Bench()
    with pytest.raises(RemoteProtocolError):
        bench.register(Registration(**{**values, **fields}), 1)
    assert bench.registry.agents() == []


def test_a_task_is_declared_and_withdrawn_for_good():
    bench = Bench()
    bench.register(registration("h0", endpoint("h0", "a0", task="")), 1)
    bench.register(registration("h1", endpoint("h1", "a1", task="")), 1)
    declared = bench.put_task(Task("job", ("a0", "a1"), 1, (0,)), 2 * SECOND)
    assert declared.declared
    assert bench.store.tasks == {"job": replace(declared, begun_ns=2 * SECOND)}
    assert len(bench.pinglist("h0", 2 * SECOND).targets) == 1
    assert bench.delete_task("job", 3 * SECOND)
    assert not bench.delete_task("job", 3 * SECOND)
    assert bench.store.tasks == {}
    assert bench.pinglist("h0", 3 * SECOND).targets == ()


def test_the_store_knows_who_came():
    bench = Bench()
    bench.put_task(Task("job", ("a0", "a1"), 1, (0,)), 1)
    assert bench.store.tasks["job"].awaited == (("a0", 1), ("a1", 1))
    bench.register(registration("h0", endpoint("h0", "a0", task="")), 2)
    assert (bench.store.tasks["job"].awaited, bench.store.tasks["job"].begun_ns) == (
        (("a1", 1),),
        2,
    )
    assert not bench.registry.arrivals()


@pytest.mark.parametrize(
    "task", [Task("bad task"), Task("t", ("",)), Task("t", (), -1), Task("t", (), 1, (-1,))]
)
def test_a_task_that_cannot_be_is_refused(task):
    bench = Bench()
    with pytest.raises(RemoteProtocolError):
        bench.put_task(task, 1)
    assert bench.store.tasks == {}


def test_a_forgotten_host_leaves_registry_store_and_lists():
    bench = Bench()
    bench.register(registration("h0", endpoint("h0", "a0")), 1)
    bench.register(registration("h1", endpoint("h1", "a1")), 2)
    assert bench.forget("h1", 3 * SECOND)
    assert not bench.forget("h1", 3 * SECOND)
    assert list(bench.store.hosts) == ["h0"]
    assert bench.pinglist("h0", 4 * SECOND).targets == ()
    assert bench.pinglist("h1", 4 * SECOND).targets == ()


def test_what_vanished_long_ago_leaves_the_store_too():
    bench = Bench()
    bench.register(registration("h0", endpoint("h0", "a0")), 1)
    bench.register(registration("h0", generation=2), 2)
    assert len(bench.store.hosts["h0"].records) == 1
    bench.expire(2 + REMEMBER_NS)
    assert bench.store.hosts["h0"].records == ()
    assert bench.registry.endpoint(EndpointId("a0", 0)) is None


# --- incremental activation -----------------------------------------------------------------------

HOSTS = 40
TASK = Task("job", tuple(f"c{n}" for n in range(HOSTS)), 1, (0,), declared=True)


def test_a_container_of_a_declared_task_costs_one_message_however_many_expect_it():
    bench = Bench()
    bench.put_task(TASK, 1)
    bench.changed.clear()
    for n in range(HOSTS):
        registered = bench.register(registration(f"h{n}", endpoint(f"h{n}", f"c{n}")), n * SECOND)
        # It is told whom to tell, and whom it may activate later.
        assert [peer.host for peer in registered.peers] == sorted(f"h{m}" for m in range(n))
        (group,) = registered.pinglist.expected
        assert group.sources == (EndpointId(f"c{n}", 0),)
        assert group.containers == TASK.containers
        assert len(registered.pinglist.targets) == n
    assert bench.changed == []


@pytest.mark.parametrize("hosts", [1, 2, 5])
def test_what_all_hosts_preload_is_n_times_n_by_8_minus_1_pairs(hosts):
    bench = Bench()
    containers = tuple(f"c{n}" for n in range(hosts))
    bench.put_task(Task("job", containers, 8, tuple(range(8)), declared=True), 1)
    pairs = set()
    for n in range(hosts):
        own = [endpoint(f"h{n}", f"c{n}", rail) for rail in range(8)]
        preloaded = bench.register(registration(f"h{n}", *own), n * SECOND).pinglist
        pairs |= {
            (source, EndpointId(container, source.rail))
            for group in preloaded.expected
            for source in group.sources
            for container in group.containers
            if container != source.container
        }
    assert len(pairs) == 8 * hosts * (hosts - 1)


def test_who_asks_later_has_what_others_announced_meanwhile():
    bench = Bench()
    bench.put_task(TASK, 1)
    first = bench.register(registration("h0", endpoint("h0", "c0")), 1 * SECOND).pinglist
    bench.register(registration("h1", endpoint("h1", "c1")), 2 * SECOND)
    later = bench.pinglist("h0", 3 * SECOND)
    assert later.version > first.version
    assert targets(later) == [("c0/rail0", "c1/rail0")]


def test_hosts_of_a_task_that_nobody_declared_are_told_of_every_change():
    bench = Bench()
    bench.register(registration("h0", endpoint("h0", "a0")), 1 * SECOND)
    bench.register(registration("h1", endpoint("h1", "a1")), 2 * SECOND)
    assert bench.changed[-1] == {"h0", "h1"}
    assert bench.pinglist("h0", 3 * SECOND).expected == ()


def test_a_new_plan_reaches_every_host_of_the_task_at_once():
    used = set()
    bench = Bench()
    bench.service._uses = lambda task, a, b: (a.container, b.container) in used
    for n in range(3):
        bench.register(registration(f"h{n}", endpoint(f"h{n}", f"a{n}")), n * SECOND)
    used.add(("a0", "a1"))
    bench.service.replan({"h0"})
    assert bench.changed[-1] == {"h0"}
    assert [t.rare for t in bench.pinglist("h0", 9 * SECOND).targets] == [False, True]
