# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.roster import pinglist
from analyzer.roster.lists import Lists
from analyzer.roster.registry import HELD_NS, MAX_RECORDS, REMEMBER_NS, RETURN_NS, Registry
from netagent.model.endpoint import EndpointState, RdmaAddress
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.task import Task
from netagent.wire.messages import Registration
from tests.analyzer.cluster import SECOND, endpoint, registration

HOSTS = ("h0", "h1", "h2")

CRASHED = EndpointState.CRASHED


def ids(records):
    return [str(record.endpoint.id) for record in records]


def lists_of(registry, hosts=HOSTS):
    """Every host's targets, built naively from nothing but the lookups."""
    active = [r.endpoint for r in registry.endpoints() if r.active]
    return {
        host: sorted(
            (str(mine.id), str(theirs.id), theirs.address)
            for mine in active
            for theirs in active
            if mine.host == host
            and theirs.host != host
            and mine.task == theirs.task != ""
            and mine.id.rail == theirs.id.rail
        )
        for host in hosts
    }


# --- one host -------------------------------------------------------------------------------------


def test_a_registration_makes_agent_endpoints_and_learned_task_known():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0", 0), endpoint("h0", "a0", 1)), 5)
    agent = registry.agent("h0")
    assert (agent.instance, agent.rpc_url, agent.last_seen_ns) == ("one", "https://h0:8421", 5)
    assert ids(registry.endpoints()) == ["a0/rail0", "a0/rail1"]
    assert ids(registry.endpoints_of("h0")) == ["a0/rail0", "a0/rail1"]
    assert registry.tasks() == [Task("train-a", ("a0",), 2, (0, 1), declared=False)]
    assert registry.agents() == [agent]


def test_endpoints_are_counted_by_state_and_those_that_vanished_are_not():
    registry = Registry()
    gone = endpoint("h0", "a1", state=CRASHED)
    registry.apply(registration("h0", endpoint("h0", "a0"), gone), 1)
    registry.apply(registration("h1", endpoint("h1", "b0")), 1)
    registry.apply(registration("h1", generation=2), 2)
    assert registry.states() == {EndpointState.UP: 1, CRASHED: 1}


def test_unknown_names_are_none_or_empty():
    registry = Registry()
    assert registry.agent("h9") is None
    assert registry.endpoint(EndpointId("x", 0)) is None
    assert registry.task("t") is None
    assert registry.host_of_underlay("172.30.0.99") is None
    assert registry.endpoints_of("h9") == []
    assert registry.endpoints("t") == []
    assert registry.delete_task("t", 0) is None
    assert registry.forget("h9", 0) == set()
    assert registry.export_host("h9") is None
    registry.heard("h9", 1, 2)
    assert registry.agents() == []


def test_what_a_registration_lacks_is_deregistered_and_remembered_for_ten_minutes():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0")), 1 * SECOND)
    registry.apply(registration("h0", generation=2), 7 * SECOND)
    gone = registry.endpoint(EndpointId("a0", 0))
    assert gone.deregistered_ns == 7 * SECOND
    assert not gone.live
    assert registry.endpoints() == registry.endpoints_of("h0") == []
    assert ids(registry.endpoints(vanished=True)) == ["a0/rail0"]
    assert registry.task("train-a") is None
    assert registry.expire(7 * SECOND + REMEMBER_NS - 1) == set()
    assert registry.expire(7 * SECOND + REMEMBER_NS) == {"h0"}
    assert registry.endpoint(EndpointId("a0", 0)) is None


def test_the_vtep_of_an_endpoint_is_the_newest_one_and_known_as_long_as_it_is():
    registry, a0 = Registry(), endpoint("h0", "a0")
    assert registry.vtep(a0.id) is None
    registry.apply(registration("h0", replace(a0, underlay="172.30.0.1")), 1)
    registry.apply(registration("h0", replace(a0, underlay="172.30.0.2"), generation=2), 2)
    assert registry.vtep(a0.id) == "172.30.0.2"
    registry.apply(registration("h0", generation=3), 3)
    assert registry.vtep(a0.id) == "172.30.0.2"
    registry.expire(3 + REMEMBER_NS)
    assert registry.vtep(a0.id) is None


def test_an_endpoint_that_comes_back_is_new():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0")), 1)
    registry.apply(registration("h0", generation=2), 2)
    registry.apply(registration("h0", endpoint("h0", "a0"), generation=3), 9)
    record = registry.endpoint(EndpointId("a0", 0))
    assert (record.registered_ns, record.since_ns, record.deregistered_ns) == (9, 9, None)


def test_an_older_generation_and_a_replaced_instance_change_nothing():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0"), generation=5), 1)
    assert registry.apply(registration("h0", generation=4), 2) == set()
    assert ids(registry.endpoints()) == ["a0/rail0"]
    registry.apply(registration("h0", endpoint("h0", "a1"), instance="two"), 3)
    assert ids(registry.endpoints()) == ["a1/rail0"]
    registry.apply(registration("h0", endpoint("h0", "a0"), generation=6), 4)
    assert registry.agent("h0").instance == "two"
    assert ids(registry.endpoints()) == ["a1/rail0"]


def test_a_crashed_endpoint_stays_known_since_when_and_is_no_target():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0")), 1)
    registry.apply(registration("h1", endpoint("h1", "a1")), 2)
    down = registration("h0", endpoint("h0", "a0", state=CRASHED), generation=2)
    assert registry.apply(down, 8) == {"train-a"}
    record = registry.endpoint(EndpointId("a0", 0))
    assert (record.live, record.active, record.since_ns, record.registered_ns) == (
        True,
        False,
        8,
        1,
    )
    assert registry.apply(down, 9) == set()
    again = registry.endpoint(EndpointId("a0", 0))
    assert (again.endpoint.state, again.since_ns) == (CRASHED, 8)
    assert [str(e.id) for e in registry.group("train-a", 0)] == ["a1/rail0"]


def test_summaries_show_that_an_agent_lives_and_never_go_back():
    registry = Registry()
    registry.apply(registration("h0"), 5)
    registry.heard("h0", 100, 109)
    registry.heard("h0", 50, 107)
    agent = registry.agent("h0")
    assert (agent.last_seen_ns, agent.last_window_ns) == (109, 100)
    registry.apply(registration("h0", instance="two"), 111)
    assert registry.agent("h0").last_window_ns == 100
    assert registry.agent("h0").registered_ns == 111


def test_a_window_of_the_future_says_nothing_once_its_host_s_clock_went_back():
    registry = Registry()
    registry.apply(registration("h0"), 5)
    registry.heard("h0", 900, 109)
    assert registry.agent("h0").last_window_ns == 900
    registry.heard("h0", 110, 112)
    assert registry.agent("h0").last_window_ns == 110


def test_a_summary_that_is_told_of_after_later_ones_takes_nothing_back():
    registry = Registry()
    registry.apply(registration("h0"), 5)
    registry.heard("h0", 104, 105)
    registry.heard("h0", 100, 101)  # it waited to be stored
    assert registry.agent("h0").last_window_ns == 104
    assert registry.agent("h0").last_seen_ns == 105


def test_addresses_that_a_host_had_once_do_not_add_up():
    registry = Registry()
    kept = replace(endpoint("h1", "b0"), underlay="172.30.9.9")
    registry.apply(registration("h1", kept), 5)
    for n in range(50):
        moved = replace(endpoint("h0", "a0"), underlay=f"172.30.0.{n}")
        registry.apply(registration("h0", moved, generation=n + 1), n)
    registry.expire(60)
    assert registry.host_of_underlay("172.30.0.48") is None
    assert registry.host_of_underlay("172.30.0.49") == ("h0", 0)
    assert registry.host_of_underlay("172.30.9.9") == ("h1", 0)


def test_a_registration_that_contradicts_itself_is_refused_whole():
    registry = Registry()
    foreign = registration("h0", endpoint("h1", "a0"))
    twice = registration("h0", endpoint("h0", "a0"), endpoint("h0", "a0"))
    for bad in (foreign, twice):
        with pytest.raises(RemoteProtocolError):
            registry.apply(bad, 1)
    assert registry.agents() == []


def test_an_address_that_another_host_held_first_goes_to_who_is_behind_it():
    registry = Registry()
    mine = replace(endpoint("h1", "b0"), underlay="172.30.9.9")
    registry.apply(registration("h0", replace(endpoint("h0", "a0"), underlay="172.30.9.9")), 1)
    registry.apply(registration("h1", mine), 2)
    assert registry.host_of_underlay("172.30.9.9") == ("h0", 0)
    for n in range(3):
        moved = replace(endpoint("h0", "a0"), underlay=f"172.30.0.{n}")
        registry.apply(registration("h0", moved, generation=n + 2), n + 3)
    registry.expire(60)
    assert registry.host_of_underlay("172.30.9.9") == ("h1", 0)


def test_underlay_addresses_lead_to_host_and_rail_until_the_host_is_forgotten():
    registry = Registry()
    mine = endpoint("h0", "a0", 1)
    registry.apply(registration("h0", mine), 1)
    registry.apply(registration("h0", generation=2), 2)
    assert registry.host_of_underlay(mine.underlay) == ("h0", 1)
    registry.forget("h0", 3)
    assert registry.host_of_underlay(mine.underlay) is None


# --- several hosts --------------------------------------------------------------------------------


A0 = EndpointId("a0", 0)


def claimed(registry, *hosts, wall_ns):
    """Let hosts claim a0, one after the other."""
    for host in hosts:
        registry.apply(registration(host, endpoint(host, "a0")), wall_ns)


def test_nobody_takes_an_endpoint_from_a_host_that_has_it_and_it_is_reported():
    registry = Registry()
    claimed(registry, "h0", wall_ns=1)
    claimed(registry, "h1", wall_ns=2)
    assert registry.endpoint(A0).endpoint == endpoint("h0", "a0")
    assert registry.endpoints_of("h1") == []
    [report] = registry.conflicts()
    assert (report.winner, report.loser, report.wall_ns) == ("h0", "h1", 2)
    assert registry.refused_claims == 1
    registry.apply(registration("h1", endpoint("h1", "a0"), generation=2), 3)
    assert registry.endpoint(A0).endpoint.host == "h0"
    assert registry.refused_claims == 1  # it says nothing new
    registry.apply(registration("h0", generation=2), 4)
    assert registry.endpoint(A0).endpoint.host == "h1"


def test_who_took_an_endpoint_while_its_host_began_anew_gives_it_back():
    registry = Registry()
    claimed(registry, "h0", wall_ns=1)
    registry.apply(registration("h0", generation=2), 2)
    claimed(registry, "h1", wall_ns=3)
    assert registry.endpoint(A0).endpoint.host == "h1"
    registry.apply(registration("h0", endpoint("h0", "a0"), instance="two"), 4)
    assert registry.endpoint(A0).endpoint.host == "h0"


def test_what_an_unheard_host_has_goes_to_the_next_and_back_when_it_is_heard():
    registry = Registry()
    claimed(registry, "h0", "h1", wall_ns=1)
    registry.heard("h1", 0, HELD_NS)
    registry.expire(HELD_NS)
    assert registry.endpoint(A0).endpoint.host == "h0"
    registry.expire(HELD_NS + 1)
    assert registry.endpoint(A0).endpoint.host == "h1"
    registry.heard("h0", 0, HELD_NS + 2)
    registry.expire(HELD_NS + 3)
    assert registry.endpoint(A0).endpoint.host == "h0"


def test_a_start_makes_nobody_unheard():
    """What is stored of when a host was last heard is as old as its last registration."""
    registry = Registry()
    claimed(registry, "h0", wall_ns=1)
    registry = Registry.restore([registry.export_host("h0")], ())
    now_ns = 20 * HELD_NS
    claimed(registry, "h1", wall_ns=now_ns)
    assert registry.endpoint(A0).endpoint.host == "h0"
    registry.heard("h1", 0, now_ns + HELD_NS)
    registry.expire(now_ns + HELD_NS)
    assert registry.endpoint(A0).endpoint.host == "h1"  # it was heard no more
    registry.heard("h0", 0, now_ns + HELD_NS + 1)
    assert registry.endpoint(A0).endpoint.host == "h0"  # at once


def test_who_gave_an_endpoint_up_long_ago_has_not_had_it_for_longest():
    registry = Registry()
    claimed(registry, "h1", wall_ns=1)
    registry.apply(registration("h1", generation=2), 2)
    claimed(registry, "h0", wall_ns=3)
    registry.apply(registration("h1", endpoint("h1", "a0"), generation=3), 2 + RETURN_NS)
    assert registry.endpoint(A0).endpoint.host == "h0"


def test_a_container_that_crashed_on_one_host_and_is_up_on_another_has_moved():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0", state=EndpointState.CRASHED)), 1)
    claimed(registry, "h1", wall_ns=2)
    assert registry.endpoint(A0).endpoint.host == "h1"


def test_after_a_restart_who_was_first_behind_a_vtep_has_it():
    registry = Registry()
    mine = endpoint("h1", "b0", 1)
    registry.apply(registration("h1", mine), 1)
    registry.apply(registration("h0", replace(endpoint("h0", "a0", 1), underlay=mine.underlay)), 2)
    states = [registry.export_host(host) for host in ("h0", "h1")]
    assert registry.host_of_underlay(mine.underlay) == ("h1", 1)
    assert Registry.restore(states, []).host_of_underlay(mine.underlay) == ("h1", 1)


def test_what_a_host_holds_is_in_order_whatever_came_and_went():
    registry = Registry()
    for generation, names in enumerate((("b", "a"), ("c", "a"), ("b", "c", "a")), 1):
        held = [endpoint("h0", name) for name in names]
        registry.apply(registration("h0", *held, generation=generation), generation)
        told = [each.endpoint.id.container for each in registry.endpoints_of("h0")]
        assert told == sorted(names)
    registry.apply(registration("h0", generation=4), 4)
    assert registry.expire(4 + REMEMBER_NS) == {"h0"}
    assert registry.endpoints_of("h0") == []


def test_nobody_takes_the_address_of_another_hosts_vtep():
    registry = Registry()
    mine = endpoint("h0", "a0", 1)
    registry.apply(registration("h0", mine), 1)
    theirs = replace(endpoint("h1", "b0", 1), underlay=mine.underlay)
    registry.apply(registration("h1", theirs), 2)
    assert registry.host_of_underlay(mine.underlay) == ("h0", 1)


def test_an_address_inside_a_container_is_nobodys_vtep():
    """Without a tunnel it is the container's own, which its tenant may set to any."""
    registry = Registry()
    theirs = endpoint("h1", "b0", 1)
    bare = replace(endpoint("h0", "a0", 1), bridge="", underlay=theirs.underlay)
    registry.apply(registration("h0", bare), 1)
    assert registry.host_of_underlay(theirs.underlay) is None
    registry.apply(registration("h1", theirs), 2)
    assert registry.host_of_underlay(theirs.underlay) == ("h1", 1)
    registry.forget("h1", wall_ns=3)
    assert registry.host_of_underlay(theirs.underlay) is None


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_renamed_hosts_vtep_is_the_new_ones(forgotten):
    registry = Registry()
    mine = endpoint("old", "a0", 1)
    registry.apply(registration("old", mine), 1)
    new = replace(endpoint("new", "b0", 1), underlay=mine.underlay)
    registry.apply(registration("new", new), 2)
    if forgotten:
        registry.forget("old", 3)
    else:
        started = replace(endpoint("new", "c0", 1), underlay=mine.underlay)
        registry.apply(registration("new", new, started, generation=2), 1 + HELD_NS)
    assert registry.host_of_underlay(mine.underlay) == ("new", 1)


def test_a_host_that_names_containers_without_end_is_remembered_in_part():
    registry = Registry()
    for generation in range(5):
        names = [endpoint("h0", f"{generation}-{n}") for n in range(MAX_RECORDS // 2)]
        registry.apply(registration("h0", *names, generation=generation + 1), generation + 1)
        assert len(registry.export_host("h0").records) <= MAX_RECORDS
    assert len(registry.endpoints()) == MAX_RECORDS // 2
    assert len(registry.endpoints(vanished=True)) == MAX_RECORDS


def test_who_was_in_a_task_before_it_was_declared_leaves_it():
    registry = Registry()
    registry.apply(registration("h9", endpoint("h9", "spy", task="job")), 1)
    registry.put_task(Task("job", ("a0",), 1, (0,)), 2)
    assert registry.endpoint(EndpointId("spy", 0)).endpoint.task == ""


def test_a_declaration_says_who_is_in_a_task():
    registry = Registry()
    registry.put_task(Task("job", ("a0",), 1, (0,)), 1)
    registry.apply(registration("h0", endpoint("h0", "a0", task="job")), 2)
    registry.apply(registration("h9", endpoint("h9", "spy", task="job")), 3)
    assert ids(registry.endpoints("job")) == ["a0/rail0"]
    assert registry.endpoint(EndpointId("spy", 0)).endpoint.task == ""
    registry.put_task(Task("job", ("a0", "spy"), 1, (0,)), 4)
    assert ids(registry.endpoints("job")) == ["a0/rail0", "spy/rail0"]
    registry.delete_task("job", 5)  # then a label is all that there is
    assert ids(registry.endpoints("job")) == ["a0/rail0", "spy/rail0"]


def held(registry):
    return {(str(r.endpoint.id), r.endpoint.host) for r in registry.endpoints()}


def test_where_a_declaration_names_the_host_no_other_one_has_the_container():
    registry = Registry()
    registry.apply(registration("h1", endpoint("h1", "a0", 0)), 1)
    assert held(registry) == {("a0/rail0", "h1")}
    placed = Task("train-a", ("a0", "a1"), 1, (0,), hosts=("h0", ""))
    registry.put_task(placed, 2)
    assert held(registry) == set()
    assert registry.endpoints_of("h1") == []
    registry.apply(registration("h1", endpoint("h1", "a0", 0), endpoint("h1", "a1", 0)), 3)
    assert held(registry) == {("a1/rail0", "h1")}
    assert [
        (c.winner, c.loser) for c in registry.conflicts()
    ] == []  # it claims no more than before
    registry.apply(registration("h2", endpoint("h2", "a0", 0)), 4)
    assert [(c.winner, c.loser) for c in registry.conflicts()] == [("h0", "h2")]
    assert registry.refused_claims == 1
    registry.apply(registration("h0", endpoint("h0", "a0", 0)), 5)
    assert held(registry) == {("a0/rail0", "h0"), ("a1/rail0", "h1")}
    hosts = [registry.export_host(host) for host in ("h0", "h1", "h2")]
    restored = Registry.restore(hosts, [registry.export_task("train-a")])
    assert held(restored) == held(registry)


def test_a_declaration_that_names_no_host_any_more_lets_who_claims_it_have_it():
    for withdraw in (
        lambda registry: registry.delete_task("train-a", 3),
        lambda registry: registry.put_task(Task("train-a", ("a0",), 1, (0,)), 3),
        lambda registry: registry.put_task(Task("train-a", ("a0",), 1, (0,), hosts=("h1",)), 3),
    ):
        registry = Registry()
        registry.put_task(Task("train-a", ("a0",), 1, (0,), hosts=("h0",)), 1)
        registry.apply(registration("h1", endpoint("h1", "a0", 0)), 2)
        assert held(registry) == set()
        withdraw(registry)
        assert held(registry) == {("a0/rail0", "h1")}


def test_a_container_that_moved_cleanly_is_no_conflict():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0")), 1)
    registry.apply(registration("h0", generation=2), 2)
    registry.apply(registration("h1", endpoint("h1", "a0")), 3)
    registry.expire(2 + REMEMBER_NS)
    assert registry.endpoint(EndpointId("a0", 0)).endpoint.host == "h1"
    assert registry.conflicts() == []


def test_a_forgotten_host_takes_its_endpoints_along():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0")), 1)
    registry.apply(registration("h1", endpoint("h1", "a1")), 2)
    assert registry.forget("h0", 3) == {"train-a"}
    assert ids(registry.endpoints(vanished=True)) == ["a1/rail0"]


# --- tasks ----------------------------------------------------------------------------------------


def test_a_declared_task_is_known_before_its_containers_and_claims_them():
    registry = Registry()
    assert registry.put_task(Task("job", ("a0", "a1"), 1, (0,)), 1) == set()
    assert registry.task("job").declared
    registry.apply(registration("h0", endpoint("h0", "a0", task="")), 2)
    assert registry.endpoint(EndpointId("a0", 0)).endpoint.task == "job"
    assert registry.apply(registration("h1", endpoint("h1", "a1", task="")), 3) == {"job"}
    assert ids(registry.endpoints("job")) == ["a0/rail0", "a1/rail0"]
    assert registry.delete_task("job", 4) == {"job"}
    assert registry.endpoint(EndpointId("a0", 0)).endpoint.task == ""
    assert registry.tasks() == []


def test_declaring_a_task_again_replaces_it_and_another_may_not_take_its_containers():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0", task="")), 1)
    registry.put_task(Task("job", ("a0", "a1")), 1)
    with pytest.raises(RemoteProtocolError):
        registry.put_task(Task("other", ("a1", "b0")), 2)
    registry.put_task(Task("job", ("a1",)), 3)
    assert registry.endpoint(EndpointId("a0", 0)).endpoint.task == ""
    registry.put_task(Task("other", ("a0",)), 4)
    assert [task.id for task in registry.tasks()] == ["job", "other"]
    assert registry.declarer(["a1", "zz"], besides="other") == "job"


def waiting(registry, task=None):
    return [(a.container, a.declared_ns, a.begun_ns) for a in registry.awaited(task)]


def test_a_declared_container_is_awaited_until_it_registers_and_never_again():
    registry = Registry()
    registry.put_task(Task("job", ("a0", "a1", "a2"), 1, (0,)), 1)
    assert waiting(registry) == [("a0", 1, None), ("a1", 1, None), ("a2", 1, None)]
    assert not registry.arrivals()
    registry.apply(registration("h0", endpoint("h0", "a0", task="")), 5)
    assert waiting(registry) == [("a1", 1, 5), ("a2", 1, 5)]
    assert registry.arrivals() == {"job"}
    registry.noted("job")
    registry.apply(registration("h0", generation=2), 6)
    registry.expire(6 + REMEMBER_NS)
    registry.put_task(Task("job", ("a0", "a1", "a3"), 1, (0,)), 7)
    assert waiting(registry) == [("a1", 1, 5), ("a3", 7, 5)]  # declared again: a0 was there
    assert not registry.arrivals()
    registry.delete_task("job", 8)
    assert waiting(registry) == []


def test_a_task_that_is_declared_again_with_other_containers_begins_again():
    registry = Registry()
    registry.put_task(Task("job", ("a0", "a1"), 1, (0,)), 1)
    registry.apply(registration("h0", endpoint("h0", "a0", task="")), 5)
    registry.put_task(Task("job", ("b0", "b1"), 1, (0,)), 9)
    assert waiting(registry) == [("b0", 9, None), ("b1", 9, None)]
    registry.apply(registration("h0", endpoint("h0", "b1", task=""), generation=2), 12)
    assert waiting(registry) == [("b0", 9, 12)]


def test_what_runs_already_when_its_task_is_declared_is_not_awaited():
    registry = Registry()
    registry.apply(registration("h0", endpoint("h0", "a0", task="job")), 1)
    registry.put_task(Task("job", ("a0", "a1"), 1, (0,)), 9)
    assert waiting(registry) == [("a1", 9, 9)]


def test_who_came_survives_a_restart_and_an_earlier_version_awaits_nobody():
    registry = Registry()
    registry.put_task(Task("job", ("a0", "a1"), 1, (0,)), 1)
    registry.apply(registration("h0", endpoint("h0", "a0", task="")), 5)
    exported = registry.export_task("job")
    assert (exported.awaited, exported.begun_ns) == ((("a1", 1),), 5)
    again = Registry.restore([], [exported])
    assert waiting(again) == [("a1", 1, 5)]
    assert again.export_task("job") == exported
    hosts = [registry.export_host("h0")]
    before = replace(exported, awaited=(), begun_ns=None)
    assert waiting(Registry.restore(hosts, [before])) == []
    odd = replace(exported, awaited=(("zz", 1),))
    assert waiting(Registry.restore([], [odd])) == []


# --- properties -----------------------------------------------------------------------------------

fleets = st.lists(
    st.tuples(
        st.sampled_from(HOSTS),
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from(EndpointState)),
            unique_by=lambda e: e[:2],
            max_size=4,
        ),
    ),
    max_size=8,
)


def stream(fleet, *, shared=False):
    """Registrations as agents would send them: generations count up per host."""
    generations = dict.fromkeys(HOSTS, 0)
    for host, endpoints in fleet:
        generations[host] += 1
        yield registration(
            host,
            *(
                endpoint(host, f"c{n}" if shared else f"{host}-c{n}", rail, state=state)
                for n, rail, state in endpoints
            ),
            generation=generations[host],
        )


def standing(registry):
    return (
        [record.endpoint for record in registry.endpoints()],
        [(agent.host, agent.generation) for agent in registry.agents()],
        registry.tasks(),
        lists_of(registry),
    )


@given(fleets, st.randoms(use_true_random=False))
def test_any_order_of_registrations_with_repeats_converges(fleet, random):
    messages = list(stream(fleet))
    straight, shuffled = Registry(), Registry()
    for n, message in enumerate(messages):
        straight.apply(message, n)
    again = messages * 2
    random.shuffle(again)
    for n, message in enumerate(again):
        shuffled.apply(message, n)
    assert standing(straight) == standing(shuffled)


@given(fleets, st.booleans())
def test_every_task_whose_lists_change_is_named_and_repeating_names_none(fleet, shared):
    registry = Registry()
    lists = Lists(registry)
    for n, message in enumerate(stream(fleet, shared=shared)):
        before = lists_of(registry)
        named = registry.apply(message, n)
        after = lists_of(registry)
        hosts = {e.endpoint.host for task in named for e in registry.endpoints(task)}
        moved = {host for host in HOSTS if before[host] != after[host]}
        assert moved <= hosts | lists.take_owners()
        assert not moved or named
        assert registry.apply(message, n + 1) == set()


def in_use(registry):
    hosts = [agent.host for agent in registry.agents()]
    return {host for host in hosts if any(r.live for r in registry.endpoints_of(host))}


@given(fleets, st.booleans())
def test_hosts_in_use_are_those_that_hold_endpoints(fleet, shared):
    registry = Registry()
    for n, message in enumerate(stream(fleet, shared=shared)):
        assert registry.hosts_in_use() == in_use(registry)
        registry.apply(message, n)
    assert registry.hosts_in_use() == in_use(registry)


@given(fleets, st.booleans())
def test_groups_and_lists_agree_with_the_naive_ones(fleet, shared):
    registry = Registry()
    for n, message in enumerate(stream(fleet, shared=shared)):
        registry.apply(message, n)
    for host, naive in lists_of(registry).items():
        mine = [r.endpoint for r in registry.endpoints_of(host) if r.active]
        built = pinglist.active(host, mine, registry.group)
        assert [(str(t.source), str(t.target), t.address) for t in built] == naive


@given(fleets, st.booleans())
def test_a_restored_registry_stands_where_the_exported_one_stood(fleet, shared):
    registry = Registry()
    registry.put_task(Task("job", ("c0", "h0-c0")), 0)
    for n, message in enumerate(stream(fleet, shared=shared)):
        registry.apply(message, n)
    states = [registry.export_host(agent.host) for agent in registry.agents()]
    restored = Registry.restore(states, [t for t in registry.tasks() if t.declared])
    assert standing(restored) == standing(registry)
    assert restored.hosts_in_use() == in_use(registry)
    assert restored.endpoints(vanished=True) == registry.endpoints(vanished=True)
    late = Registration(host="h0", instance="old", generation=0, rpc_url="", endpoints=())
    assert restored.apply(late, 99) == registry.apply(late, 99)


@pytest.mark.parametrize(
    "odd",
    [
        {"gid": "rubbish"},
        {"qpns": ()},
        {"qpns": (1 << 24,)},
        {"qpns": tuple(range(1, 66))},
        {"qkey": 1 << 32},
        {"mtu": 1500},
    ],
)
def test_an_rdma_address_that_makes_no_sense_is_refused(odd):
    good = RdmaAddress("mlx5_0", "::ffff:10.0.0.1", (17,), 1, 1024)
    registry = Registry()
    registry.apply(registration("h0", replace(endpoint("h0", "a0", 0), rdma=good)), 5)
    bad = replace(endpoint("h1", "a1", 0), rdma=replace(good, **odd))
    with pytest.raises(RemoteProtocolError, match="a1/rail0"):
        registry.apply(registration("h1", bad), 5)
