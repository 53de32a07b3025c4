# SPDX-License-Identifier: Apache-2.0
import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.server.analyzer import Analyzer
from analyzer.server.problems import Problem
from analyzer.server.sight import ELSEWHERE, Sight, _matches, sight_of
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, controller, link
from netagent.model.verdict import Incident, IncidentState, Pair, Suspect, Symptom, Verdict
from tests.analyzer.server.page import looking
from tests.waiting import until

TASKS = ("a-1", "a-2", "b")


def end(task):
    return EndpointId(f"container-of-{task}", 0)


def task_of(endpoint):
    task = endpoint.container.removeprefix("container-of-")
    return task if task in TASKS else None


def incident(component, tasks=TASKS):
    pairs = tuple(Pair(end(one), end(other), 10, 1) for one in tasks for other in tasks)
    verdict = Verdict(
        component=component, layer=None, symptom=Symptom.LOSS, confidence=0.9,
        summary="of container-of-b, and of container-of-a-1",
        failing=pairs, healthy=pairs, alternatives=(Suspect(link("x", "y"), 1.0, 1, 1),),
        evidence=("container-of-b says",), missing=("of container-of-b",),
    )  # fmt: skip
    return Incident(
        "i1", IncidentState.OPEN, verdict, 1, 2, 3, tasks=tasks, notes=("container-of-b",)
    )


def test_administrators_and_readers_see_all_and_tenants_their_tasks():
    asked = ({"admin", "grafana"}, {"tenant-a": ("a-*",)})
    assert sight_of(None, *asked).is_whole
    assert sight_of("admin", *asked).is_whole
    assert sight_of("grafana", *asked).is_whole
    tenant = sight_of("tenant-a", *asked)
    assert [task for task in TASKS if tenant.sees(task)] == ["a-1", "a-2"]
    for stranger in ("h0", "", "tenant-b"):
        with pytest.raises(Problem) as caught:
            sight_of(stranger, *asked)
        assert caught.value.status_code == 403


def test_whose_a_task_is_is_found_out_once_however_many_pairs_are_of_it():
    """A tenant may have many patterns, and ask for thousands of incidents at once."""
    tenant = Sight(tuple(f"x{n}-*" for n in range(20)))
    before = _matches.cache_info().misses
    assert [tenant.incident(incident(link("x", "y")), task_of) for _ in range(9)] == [None] * 9
    assert [tenant.sees(task) for task in TASKS * 9] == [False] * 9 * len(TASKS)
    assert _matches.cache_info().misses - before == len(TASKS)


def test_who_sees_all_sees_an_incident_as_it_is():
    known = incident(link("leaf", "spine"))
    assert Sight().incident(known, task_of) is known


@given(st.sets(st.sampled_from(TASKS)), st.sets(st.sampled_from(TASKS), min_size=1))
def test_nothing_that_a_tenant_is_told_names_another_one_s(mine, touched):
    component = Component(Kind.CONTAINER, "container-of-b")
    for of in (link("leaf", "spine"), component):
        known = incident(of, tuple(sorted(touched)))
        seen = Sight(tuple(sorted(mine))).incident(known, task_of)
        if not mine & touched:
            assert seen is None
            continue
        assert seen is not None
        assert set(seen.tasks) == mine & touched
        for task in set(TASKS) - mine:
            assert f"container-of-{task}" not in repr(seen)


def test_what_is_at_fault_for_all_is_told_to_all():
    seen = Sight(("a-1",)).incident(incident(link("leaf", "spine")), task_of)
    assert seen is not None
    assert seen.verdict.component == link("leaf", "spine")
    assert seen.verdict.summary == "link leaf -- spine: loss"
    assert seen.verdict.failing == (Pair(end("a-1"), end("a-1"), 10, 1),)


def test_another_tenant_s_container_is_not_named():
    component = Component(Kind.CONTAINER, "container-of-b")
    seen = Sight(("a-1",)).incident(incident(component), task_of)
    assert seen is not None
    assert seen.verdict.component is None
    assert seen.verdict.summary == ELSEWHERE
    own = Sight(("b",)).incident(incident(component), task_of)
    assert own is not None
    assert own.verdict.component == component


def test_a_controller_s_port_is_named_to_those_who_alone_are_hit():
    """Its name is often a pod's."""
    for part, shown in (("port container-of-b", None), ("h3", "h3")):
        seen = Sight(("a-1",)).incident(incident(controller(part)), task_of)
        assert seen is not None
        assert seen.verdict.component == (controller(shown) if shown else None)
        assert "container-of-b" not in repr(seen)
    own = Sight(("b",)).incident(incident(controller("port container-of-b"), ("b",)), task_of)
    assert own is not None
    assert own.verdict.component == controller("port container-of-b")


def test_pairs_whose_tasks_are_not_known_any_more_are_not_told():
    seen = Sight(("a-1",)).incident(incident(link("leaf", "spine")), lambda _: None)
    assert seen is not None
    assert seen.verdict.failing == ()


def test_a_flow_entry_is_a_host_s_and_named_to_all():
    flow = Component(Kind.FLOW, "h0/br-int/table=40")
    seen = Sight(("a-1",)).incident(incident(flow), task_of)
    assert seen is not None
    assert seen.verdict.component == flow


def silent(kind=Kind.AGENT, symptom=Symptom.SILENCE):
    known = incident(Component(kind, "h1"))
    verdict = replace(known.verdict, symptom=symptom, failing=(), healthy=())
    return replace(known, tasks=(), verdict=verdict)


@pytest.mark.parametrize("kind", [Kind.AGENT, Kind.HOST])
def test_a_tenant_of_a_host_that_is_not_heard_sees_that_it_is_not_watched_and_no_more(kind):
    seen = Sight(("a-1",)).incident(silent(kind), task_of, lambda _: ["a-1", "b", "a-1"])
    assert seen is not None
    assert (seen.tasks, seen.verdict.component) == (("a-1",), Component(kind, "h1"))
    assert seen.verdict.summary == "h1 is not watched"
    assert (seen.verdict.evidence, seen.verdict.missing, seen.notes) == ((), (), ())
    assert "of-b" not in repr(seen)
    assert "'b'" not in repr(seen)


def test_who_has_nothing_on_a_host_hears_nothing_of_its_silence_nor_of_what_else_is_wrong():
    assert Sight(("a-1",)).incident(silent(), task_of, lambda _: ["b"]) is None
    assert Sight(("a-1",)).incident(silent(), task_of) is None
    delayed = silent(symptom=Symptom.DELAY)
    assert Sight(("a-1",)).incident(delayed, task_of, lambda _: ["a-1"]) is None
    switch = silent(Kind.SWITCH)
    assert Sight(("a-1",)).incident(switch, task_of, lambda _: ["a-1"]) is None


PARTS = (
    "flow h0/br-int/table=4", "link leaf -- spine", "host h0",
    "container container-of-b", "endpoint container-of-b/rail0",
)  # fmt: skip


@given(
    st.sampled_from((*PARTS, None)),
    st.lists(st.sampled_from((*PARTS, f"endpoint {end('a-1')}")), max_size=4),
)
def test_nothing_of_a_walk_that_a_tenant_is_told_names_another_one_s(component, parts):
    hop = {"way": "there", "action": "dropped", "text": "by container-of-b", "host": "h0",
           "by": "policy-of-b", "incident": "i", "cookie": "0x2a"}  # fmt: skip
    walk = {
        "source": str(end("a-1")), "target": str(end("a-2")), "outcome": "dropped",
        "component": component, "layer": "overlay" if component else None, "text": "of-b",
        "observations": [{**hop, "component": part} for part in parts],
    }  # fmt: skip
    told = Sight(("a-*",)).walk(walk)
    assert "of-b" not in str(told)
    assert "0x2a" not in str(told)
    assert (told["source"], told["outcome"]) == (walk["source"], "dropped")
    mine = [part for part in parts if "of-b" not in part]
    assert [hop["component"] for hop in told["observations"]] == mine
    assert (told["layer"] is None) == (told["component"] is None)
    assert Sight().walk(walk) == walk


def test_tenants_are_not_told_when_something_happens_to_others(tmp_path, monkeypatch):
    """Neither by an answer, nor by when it comes, nor by the number to go on from."""
    path = "/v1/incidents/events"

    monkeypatch.setattr(Analyzer, "warnings", lambda _: ["Kubernetes' task t1 declares c2"])

    async def work(looked):
        mine, whole = (looked.browser(who, app="api") for who in (looking.TENANT, "reader"))
        await looked.tell(looking.incident("i1", "t0"))
        first = [(await each.get(path)).json() for each in (mine, whole)]
        after = first[0]["next"]
        poll = asyncio.create_task(mine.get(path, params={"after": after, "wait_s": 50}))
        await until(lambda: len(looked.analyzer.waiters))
        await looked.tell(looking.incident("i2", "t1"))
        told = (await whole.get(path, params={"after": after})).json()
        assert [each["incident"]["id"] for each in told["events"]] == ["i2"]
        assert (await mine.get(path, params={"after": after})).json()["next"] == after
        assert (
            (await mine.get(path)).json()["next"] == after < (await whole.get(path)).json()["next"]
        )
        assert not poll.done()
        await looked.tell(looking.incident("i3", "t0"))
        assert [each["incident"]["id"] for each in (await poll).json()["events"]] == ["i3"]
        for where in (path, "/v1/incidents"):
            assert (await mine.get(where)).json()["warnings"] == []
            assert (await whole.get(where)).json()["warnings"] != []

    looking.on(tmp_path, work)
