# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from analyzer.roster import coverage as module
from analyzer.roster.coverage import SILENT_NS, STARTING_NS, Coverage, Why
from analyzer.roster.pinglist import active, unknown
from analyzer.roster.registry import Registry
from netagent.model.endpoint import EndpointState, RdmaAddress
from netagent.model.ids import EndpointId
from netagent.model.task import Task
from tests.analyzer.cluster import endpoint, registration
from tests.analyzer.picture.scenes import finished

NOW_NS = 1_800_000_000 * 10**9
RDMA = RdmaAddress("mlx5_0", "::ffff:10.0.0.1", (17,), 1, 1024)


def cluster(*endpoints, tasks=(), silent=(), now_ns=NOW_NS):
    """Return a registry with these endpoints, whose `silent` hosts were not heard lately."""
    registry = Registry()
    for task in tasks:
        registry.put_task(task, now_ns)
    for host in sorted({each.host for each in endpoints}):
        long_ago = 2 * SILENT_NS if host in silent else STARTING_NS
        own = (each for each in endpoints if each.host == host)
        registry.apply(registration(host, *own), now_ns - long_ago)
    return registry


def whys(registry, used=unknown, sheds=(), now_ns=NOW_NS):
    found = finished(Coverage(registry, used, lambda host: host in sheds, now_ns).uncovered())
    return {str(each.record.endpoint.id): each.why for each in found}


def text_of(registry, **more):
    (one,) = finished(Coverage(registry, unknown, lambda _: False, NOW_NS).uncovered())
    return one.text


A0, B0 = endpoint("h1", "a"), endpoint("h2", "b")


def test_endpoints_that_probe_each_other_are_not_told():
    assert whys(cluster(A0, B0)) == {}


def test_an_endpoint_without_any_other_of_its_task_on_its_rail():
    registry = cluster(A0, B0, endpoint("h1", "a", 1), endpoint("h3", "c", task="other"))
    assert whys(registry) == {"a/rail1": Why.ALONE, "c/rail0": Why.ALONE}


def test_endpoints_of_one_host_are_told_and_those_whose_peers_have_not_come():
    mates = (A0, endpoint("h1", "a2"))
    assert whys(cluster(*mates)) == {"a/rail0": Why.ONE_HOST, "a2/rail0": Why.ONE_HOST}
    task = Task("train-a", ("a", "a2", "b"), 1)
    registry = cluster(*mates, tasks=[task])
    assert set(whys(registry).values()) == {Why.PEERS_ABSENT}
    registry = cluster(A0, tasks=[Task("train-a", ("a", "b"), 1)])
    assert text_of(registry) == "declared containers of train-a that have not come: 1"


def test_one_that_no_other_can_answer():
    for other in (replace(B0, rdma=RDMA), replace(B0, address="fd00::1")):
        assert set(whys(cluster(A0, other)).values()) == {Why.UNLIKE}


def test_one_that_crashed_and_one_that_is_in_no_task():
    crashed = replace(endpoint("h3", "c"), state=EndpointState.CRASHED)
    assert whys(cluster(A0, B0, crashed)) == {"c/rail0": Why.CRASHED}
    task = Task("train-a", ("a", "b"), 1)
    assert whys(cluster(A0, B0, endpoint("h3", "c"), tasks=[task])) == {"c/rail0": Why.NO_TASK}


def test_a_silent_host_and_those_that_it_alone_would_probe():
    assert whys(cluster(A0, B0, silent={"h2"})) == {
        "a/rail0": Why.PEERS_SILENT, "b/rail0": Why.HOST_SILENT,
    }  # fmt: skip
    three = cluster(A0, B0, endpoint("h3", "c"), silent={"h2"})
    assert whys(three) == {"b/rail0": Why.HOST_SILENT}


def test_rare_pairs_of_hosts_near_their_limits():
    ends = (A0, B0, endpoint("h3", "c"))
    a, b, c = (each.id for each in ends)
    edges = {a: (b,), b: (a,), c: ()}
    used = lambda _task, source: edges.get(source)  # noqa: E731 - a table
    assert whys(cluster(*ends), used, sheds={"h1", "h2", "h3"}) == {"c/rail0": Why.SHED}
    assert whys(cluster(*ends), used, sheds={"h1"}) == {}
    assert whys(cluster(*ends), unknown, sheds={"h1", "h2", "h3"}) == {}


def test_one_that_came_just_now_is_told_as_that():
    registry = cluster(A0, B0)
    at_ns = NOW_NS - STARTING_NS
    assert set(whys(registry, now_ns=at_ns + 1).values()) == {Why.STARTING}


ENDS = st.lists(
    st.tuples(
        st.sampled_from(["h1", "h2", "h3"]), st.integers(0, 1), st.sampled_from(["t", "u"]),
        st.booleans(), st.booleans(),
    ),
    max_size=8,
)  # fmt: skip


@given(ENDS, st.sets(st.sampled_from(["h1", "h2", "h3"])), st.sets(st.sampled_from(["h1", "h2"])),
       st.data())  # fmt: skip
def test_told_is_whom_no_list_of_a_host_that_is_heard_has_but_rare_where_that_is_shed(
    rows, silent, sheds, data
):
    """As agents make their lists (`pinglist.active`), endpoint by endpoint."""
    ends = [
        replace(
            endpoint(host, f"c{n}", rail, task=task),
            rdma=RDMA if rdma else None, address="fd00::1" if six else "10.0.0.1",
        )
        for n, (host, rail, task, rdma, six) in enumerate(rows)
    ]  # fmt: skip
    names = [each.id for each in ends]
    edges = {
        each: data.draw(st.none() | st.lists(st.sampled_from(names), max_size=3).map(tuple))
        for each in names
    }
    used = lambda _task, source: edges[source]  # noqa: E731 - a table
    registry = cluster(*ends, silent=silent)
    reached = set[EndpointId]()
    for host in {each.host for each in ends} - silent:
        mine = [each for each in ends if each.host == host]
        for target in active(host, mine, registry.group, used):
            if not (target.rare and host in sheds):
                reached.add(target.target)
    told = whys(registry, used, sheds)
    expected = {str(each.id) for each in ends if each.id not in reached or each.host in silent}
    assert set(told) == expected


def test_a_look_is_in_pieces_and_in_order_whatever_registers_between_them(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 2)
    ends = [endpoint(f"h{n}", f"c{n}", task=f"t{n}") for n in (3, 0, 4, 1, 2)]
    registry = cluster(*ends)
    look = Coverage(registry, unknown, lambda _: False, NOW_NS).uncovered()
    pieces = 0
    try:
        while True:
            next(look)
            pieces += 1
            registry.apply(registration("h9", endpoint("h9", f"x{pieces}")), NOW_NS)
    except StopIteration as ended:
        found = ended.value
    assert pieces == 3 * 3
    assert [each.record.endpoint.id.container for each in found] == [f"c{n}" for n in range(5)]
