# SPDX-License-Identifier: Apache-2.0
import asyncio
from dataclasses import replace

import pytest

from analyzer.replay.tape import TapedRegistry
from analyzer.roster.lists import Lists
from analyzer.roster.registry import HELD_NS, REMEMBER_NS, Registry
from analyzer.roster.service import MAX_ENDPOINTS, AnalyzerService
from netagent.model.endpoint import EndpointState
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.task import Task
from netagent.probing.roster import Roster
from netagent.wire.messages import SCHEMA, Accepted, Registration, Summary
from netagent.wire.roster import Follow, named
from tests.analyzer.cluster import SECOND, endpoint, registration


class Memory:
    """A store that remembers, and loses nothing because it never dies."""

    def __init__(self):
        self.summaries, self.hosts, self.tasks, self.writes = {}, {}, {}, 0

    async def put(self, key, received_ns, payload):
        new = key not in self.summaries
        self.summaries.setdefault(key, (received_ns, payload))
        return new

    async def put_host(self, state):
        self.hosts[state.agent.host] = state
        self.writes += 1

    async def forget_host(self, host):
        self.hosts.pop(host, None)

    async def put_task(self, task):
        self.tasks[task.id] = task
        self.writes += 1

    async def delete_task(self, task):
        self.tasks.pop(task, None)


class Bench:
    """A service on a memory store, called as if nothing were asynchronous."""

    def __init__(self, store=None):
        self.store = store or Memory()
        self.seen, self.changed = [], []
        self.registry = TapedRegistry.restore(self.store.hosts.values(), self.store.tasks.values())
        self.is_usable = True
        self.used = {}
        self.lists = Lists(self.registry, used=lambda _, source: self.used.get(source.container))
        self.service = AnalyzerService(
            self.registry,
            self.lists,
            self.store,
            observe=self.observe,
            changed=self.changed.append,
        )

    def observe(self, summary, _, wall_ns):
        self.seen.append((summary.start_ns, wall_ns))
        return self.is_usable

    def __getattr__(self, name):
        method = getattr(self.service, name)
        return lambda *args: asyncio.run(method(*args))


def summary(host="h0", start_ns=5 * SECOND, **fields):
    return Summary(host=host, instance="one", start_ns=start_ns, width_ns=5 * SECOND, **fields)


def targets(bench, host):
    return [(str(t.source), str(t.target)) for t in bench.lists.pinglist(host).targets]


def test_who_registers_is_told_what_names_its_endpoints_and_hosts_of_its_task_are_woken():
    bench = Bench()
    first = bench.register(registration("h0", endpoint("h0", "a0")), 1 * SECOND)
    assert first.sources == named(bench.lists.update("h0", Follow()).sources)
    bench.register(registration("h1", endpoint("h1", "a1")), 2 * SECOND)
    assert targets(bench, "h1") == [("a1/rail0", "a0/rail0")]
    assert bench.changed[-1] == {"h0", "h1"}
    assert targets(bench, "h0") == [("a0/rail0", "a1/rail0")]


def test_registering_twice_changes_nothing_but_when_it_was_heard():
    bench = Bench()
    bench.register(registration("h1", endpoint("h1", "a1")), 1)
    first = bench.register(registration("h0", endpoint("h0", "a0")), 1 * SECOND)
    writes, version = bench.store.writes, bench.lists.version("h0")
    again = bench.register(registration("h0", endpoint("h0", "a0")), 2 * SECOND)
    assert (first, version) == (again, bench.lists.version("h0"))
    assert bench.registry.agent("h0").last_seen_ns == 2 * SECOND
    assert bench.store.writes == writes


def test_what_the_disk_refused_is_stored_when_the_agent_comes_again():
    bench, writes = Bench(), Memory.put_host
    said = registration("h0", endpoint("h0", "a0"))

    async def refuse(state):
        raise CapabilityMissing("database", "no space")

    bench.store.put_host = refuse
    with pytest.raises(CapabilityMissing):
        bench.register(said, 1)
    bench.store.put_host = lambda state: writes(bench.store, state)
    bench.register(said, 2)
    assert [r.endpoint.id.container for r in bench.store.hosts["h0"].records] == ["a0"]
    stored = bench.store.writes
    bench.register(said, 3)
    Bench(bench.store).register(said, 4)
    assert bench.store.writes == stored


def test_who_came_of_a_task_while_it_was_stored_is_stored_too():
    bench = Bench()
    bench.put_task(Task("job", ("a0", "a1"), 1, (0,)), 1)

    async def meanwhile(task):
        if "a1" in dict(task.awaited):
            bench.registry.apply(registration("h1", endpoint("h1", "a1")), 3)
        bench.store.tasks[task.id] = task

    bench.store.put_task = meanwhile
    bench.register(registration("h0", endpoint("h0", "a0")), 2)
    assert bench.store.tasks["job"].awaited == (("a1", 1),)
    bench.expire(3)
    assert bench.store.tasks["job"].awaited == ()
    assert not bench.registry.arrivals()


def test_a_target_leaves_the_list_when_it_crashes_and_when_it_is_gone():
    bench = Bench()
    bench.register(registration("h0", endpoint("h0", "a0")), 1)
    bench.register(registration("h1", endpoint("h1", "a1")), 1 * SECOND)
    crashed = endpoint("h1", "a1", state=EndpointState.CRASHED)
    assert len(targets(bench, "h0")) == 1
    bench.register(registration("h1", crashed, generation=2), 3 * SECOND)
    assert targets(bench, "h0") == []


def test_a_list_keeps_its_version_over_a_restart():
    bench = Bench()
    bench.put_task(TASK, 1)
    for n in range(3):
        bench.register(registration(f"h{n}", endpoint(f"h{n}", f"c{n}")), n * SECOND)
    restarted = Bench(bench.store)
    for n in range(3):
        assert bench.lists.version(f"h{n}")
        assert restarted.lists.version(f"h{n}") == bench.lists.version(f"h{n}")


def test_a_summary_is_stored_before_it_is_observed_and_once():
    bench = Bench()
    bench.register(registration("h0"), 1)
    assert bench.push(summary(), b"payload", 7) == Accepted(duplicate=False)
    assert bench.push(summary(), b"payload", 8) == Accepted(duplicate=True)
    assert bench.store.summaries == {summary().key: (7, b"payload")}
    assert bench.seen == [(5 * SECOND, 7)]
    assert bench.registry.agent("h0").last_seen_ns == 8
    assert bench.registry.agent("h0").last_window_ns == 5 * SECOND


class Full(Memory):
    async def put(self, key, received_ns, payload):
        raise CapabilityMissing("disk", "make room")


def test_who_is_heard_is_told_once():
    bench, tape = Bench(), []
    bench.registry.tape = tape.append
    bench.register(registration("h0"), 1)

    def heard(start_s, wall_ns):
        tape.clear()
        bench.push(summary(start_ns=start_s * SECOND), b"", wall_ns)
        assert bench.registry.agent("h0").last_seen_ns == wall_ns
        return [each.now_ns for each in tape]

    assert heard(5, 7) == []  # with the summary itself
    assert heard(5, 8) == [8]  # which is told only once
    bench.is_usable = False
    assert heard(10, 9) == [9]  # nor is one that makes no sense
    bench.is_usable = True
    late_ns = 9 + HELD_NS
    assert heard(15, late_ns) == [late_ns]  # who was silent for long may take endpoints again


def test_who_is_heard_is_told_where_nothing_can_be_stored():
    bench, tape = Bench(Full()), []
    bench.register(registration("h0"), 1)
    bench.registry.tape = tape.append
    with pytest.raises(CapabilityMissing):
        bench.push(summary(), b"", 7)
    assert [each.now_ns for each in tape] == [7]


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
        {"endpoints": tuple(endpoint("h0", f"c{n}") for n in range(MAX_ENDPOINTS + 1))},
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
    assert len(targets(bench, "h0")) == 1
    assert bench.delete_task("job", 3 * SECOND)
    assert not bench.delete_task("job", 3 * SECOND)
    assert bench.store.tasks == {}
    assert targets(bench, "h0") == []


def test_what_one_source_declared_no_other_one_changes():
    bench = Bench()
    theirs = Task("job", ("a0", "a1"), declared=True, source="kubernetes")
    bench.put_task(theirs, 1)
    bench = Bench(bench.store)
    with pytest.raises(RemoteProtocolError, match="declared by kubernetes"):
        bench.put_task(Task("job", ("a0",)), 2)
    with pytest.raises(RemoteProtocolError, match="declared by kubernetes"):
        bench.delete_task("job", 2)
    with pytest.raises(RemoteProtocolError, match="task job declares"):
        bench.put_task(Task("mine", ("a1",)), 2)
    assert [each.source for each in bench.store.tasks.values()] == ["kubernetes"]
    assert asyncio.run(bench.service.delete_task("job", 3, source="kubernetes"))
    bench.put_task(Task("job", ("a0",)), 4)
    with pytest.raises(RemoteProtocolError, match="declared by a call of the API"):
        bench.put_task(theirs, 5)
    with pytest.raises(RemoteProtocolError, match="declared by a call of the API"):
        asyncio.run(bench.service.delete_task("job", 5, source="kubernetes"))
    assert bench.registry.task("job").containers == ("a0",)


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
    assert targets(bench, "h0") == targets(bench, "h1") == []


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


def follow(bench, rosters, host):
    """Let the agent of `host` ask once; return the list that it then has."""
    roster = rosters.setdefault(host, Roster(host))
    news = bench.lists.update(host, roster.asks())
    if news is not None:
        roster.take(news)
    return roster.pinglist()


def test_a_container_of_a_declared_task_costs_one_message_however_many_expect_it():
    bench, rosters = Bench(), {}
    bench.put_task(TASK, 1)
    bench.changed.clear()
    for n in range(HOSTS):
        host = f"h{n}"
        bench.register(registration(host, endpoint(host, f"c{n}")), n * SECOND)
        preloaded = follow(bench, rosters, host)
        # It is told whom to tell, and whom it may activate later.
        told = [peer.host for peer in rosters[host].peers()]
        assert told == sorted(f"h{m}" for m in range(n))
        (group,) = preloaded.expected
        assert group.sources == (EndpointId(f"c{n}", 0),)
        assert group.containers == TASK.containers
        assert len(preloaded.targets) == n
    assert bench.changed == [{f"h{n}"} for n in range(HOSTS)]  # to itself


def test_who_came_of_a_crowd_is_stored_some_at_a_time_and_nobody_is_lost():
    bench = Bench()
    bench.put_task(TASK, 1)
    writes = bench.store.writes
    for n in range(HOSTS):
        bench.register(registration(f"h{n}", endpoint(f"h{n}", f"c{n}")), SECOND + n)
    assert bench.store.writes - writes == HOSTS + 1  # each host, and who came first
    restored = Registry.restore(bench.store.hosts.values(), bench.store.tasks.values())
    assert restored.awaited("job") == bench.registry.awaited("job") == []
    bench.expire(2 * SECOND)
    assert bench.store.tasks["job"].awaited == ()
    assert not bench.registry.arrivals()


@pytest.mark.parametrize("hosts", [1, 2, 5])
def test_what_all_hosts_preload_is_n_times_n_by_8_minus_1_pairs(hosts):
    bench, rosters = Bench(), {}
    containers = tuple(f"c{n}" for n in range(hosts))
    bench.put_task(Task("job", containers, 8, tuple(range(8)), declared=True), 1)
    pairs = set()
    for n in range(hosts):
        own = [endpoint(f"h{n}", f"c{n}", rail) for rail in range(8)]
        bench.register(registration(f"h{n}", *own), n * SECOND)
        pairs |= {
            (source, EndpointId(container, source.rail))
            for group in follow(bench, rosters, f"h{n}").expected
            for source in group.sources
            for container in group.containers
            if container != source.container
        }
    assert len(pairs) == 8 * hosts * (hosts - 1)


def test_who_asks_later_has_what_others_announced_meanwhile():
    bench, rosters = Bench(), {}
    bench.put_task(TASK, 1)
    bench.register(registration("h0", endpoint("h0", "c0")), 1 * SECOND)
    assert follow(bench, rosters, "h0").targets == ()
    bench.register(registration("h1", endpoint("h1", "c1")), 2 * SECOND)
    (only,) = follow(bench, rosters, "h0").targets
    assert str(only.target) == "c1/rail0"


def test_hosts_of_a_task_that_nobody_declared_are_told_of_every_change():
    bench = Bench()
    bench.register(registration("h0", endpoint("h0", "a0")), 1 * SECOND)
    bench.register(registration("h1", endpoint("h1", "a1")), 2 * SECOND)
    assert bench.changed[-1] == {"h0", "h1"}
    assert bench.lists.pinglist("h0").expected == ()


def test_a_new_plan_reaches_every_host_of_the_task_at_once():
    bench, rosters = Bench(), {}
    for n in range(3):
        bench.register(registration(f"h{n}", endpoint(f"h{n}", f"a{n}")), n * SECOND)
    assert [t.rare for t in follow(bench, rosters, "h0").targets] == [False, False]
    bench.used["a0"] = (EndpointId("a1", 0),)
    bench.service.replan({"h0"})
    assert bench.changed[-1] == {"h0"}
    assert [t.rare for t in follow(bench, rosters, "h0").targets] == [False, True]
    assert bench.lists.pinglist("h0") == rosters["h0"].pinglist()
