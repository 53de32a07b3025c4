# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent import told
from analyzer.intent.kubernetes import CONDITION, Book, Node, Rules, pod_of
from analyzer.intent.told import HEARTBEAT_NS, NODE_NS, Teller, places
from netagent.model.path import Component, Kind, link, switch
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict

OPEN, CONFIRMED, OVER = IncidentState
RNIC = Component(Kind.RNIC, "gpu-0/mlx5_3")
S = 10**9


def book(*degraded, nodes=3):
    found = Book(Rules(every_pod=True))
    of = dict.fromkeys(degraded, "True")
    found.replace_nodes(
        [Node(f"n{i}", f"u{i}", f"gpu-{i}", of.get(f"n{i}", "")) for i in range(nodes)], 0
    )
    found.heard({f"gpu-{i}" for i in range(nodes)}, 0)
    meta = {"name": "p-0", "namespace": "ml", "uid": "up", "labels": {"job-name": "j"}}
    pod = pod_of({"metadata": meta, "spec": {"nodeName": "n1"}}, Rules(every_pod=True))
    found.replace_pods("", [pod], 0)
    return found


def incident(state=CONFIRMED, component=RNIC, name="i1", symptom=Symptom.LOSS, at=0):
    verdict = Verdict(component, component and component.layer, symptom, 1.0, f"{component} fails")
    over_ns = 90 * S if state is OVER else None
    return Incident(name, state, verdict, at, at, 60 * S, over_ns)


def events(teller):
    found = []
    while (event := teller.next_event()) is not None:
        teller.done(event)
        found.append(event)
    return found


def conditions(teller, active, wall_ns):
    """Return what is told now, by node; all of it is taken."""
    found = {}
    for patch in list(teller.patches(active, wall_ns)):
        teller.patched(patch, wall_ns)
        (found[patch.node],) = patch.body["status"]["conditions"]
    return found


def where(component):
    return [(p.kind, p.namespace, p.name, p.uid) for p in places(component, book())]


def test_a_component_is_of_its_node_and_a_container_of_its_pod_too():
    node, pod = ("Node", "", "n1", "u1"), ("Pod", "ml", "p-0", "up")
    assert where(Component(Kind.RNIC, "gpu-1/mlx5_0")) == [node]
    assert where(Component(Kind.VSWITCH, "gpu-1")) == [node]
    assert where(Component(Kind.FLOW, "gpu-1/br-int/table=3")) == [node]
    assert where(Component(Kind.CONTAINER, "ml.p-0")) == [node, pod]
    assert where(Component(Kind.ENDPOINT, "ml.p-0/rail2")) == [node, pod]


def test_what_is_of_no_node_is_told_to_nobody():
    for component in (
        None, switch("leaf-1"), link("a", "b"), Component(Kind.HOST, "elsewhere"),
        Component(Kind.CONTAINER, "other"), Component(Kind.ENDPOINT, "odd"),
        Component(Kind.CONTROLLER, "port x"),
    ):  # fmt: skip
        assert where(component) == []


def test_an_incident_is_told_when_it_is_confirmed_and_when_it_recovers():
    teller = Teller(book())
    teller.note(incident(OPEN))
    assert teller.next_event() is None
    teller.note(incident(CONFIRMED))
    teller.note(incident(OVER))
    fault, over = events(teller)
    assert fault.namespace == "default"
    assert fault.body["involvedObject"] == {
        "apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "n0",
    }  # fmt: skip
    assert [(e.body["type"], e.body["reason"], e.body["lastTimestamp"]) for e in (fault, over)] == [
        ("Warning", "NetworkFault", "1970-01-01T00:01:00Z"),
        ("Normal", "NetworkRecovered", "1970-01-01T00:01:30Z"),
    ]
    assert fault.body["message"] == "rnic gpu-0/mlx5_3 fails (incident i1)"
    assert over.body["message"] == "over: rnic gpu-0/mlx5_3 fails (incident i1)"


def test_one_that_was_never_confirmed_recovers_in_silence():
    teller = Teller(book())
    teller.note(incident(OPEN))
    teller.note(incident(OVER))
    assert events(teller) == []
    again = Teller(book(), ["i1"])  # confirmed before the restart
    again.note(incident(OVER))
    assert len(events(again)) == 1


def test_the_same_event_has_the_same_name_and_another_one_another():
    def name(change):
        teller = Teller(book(), ["i1"])
        teller.note(change)
        (event,) = events(teller)
        return event.body["metadata"]["name"]

    elsewhere = Component(Kind.RNIC, "gpu-1/mlx5_3")
    names = [name(incident()), name(incident(OVER)), name(incident(component=elsewhere))]
    assert len(set(names)) == 3
    assert name(incident()) == names[0]


def test_events_that_are_too_many_are_dropped_the_oldest_first(monkeypatch):
    monkeypatch.setattr(told, "MAX_EVENTS", 2)
    teller = Teller(book())
    for i in range(3):
        teller.note(incident(name=f"i{i}"))
    assert (teller.waiting, teller.dropped) == (2, 1)
    assert "i1" in events(teller)[0].body["message"]


def test_a_node_is_degraded_while_an_incident_of_it_is_confirmed():
    teller = Teller(book())
    assert conditions(teller, [incident(OPEN)], 1 * S) == {}
    assert conditions(teller, [incident()], 1 * S) == {
        "n0": {
            "type": CONDITION,
            "status": "True",
            "reason": "NetworkLoss",
            "message": "rnic gpu-0/mlx5_3: loss (i1)",
            "lastHeartbeatTime": "1970-01-01T00:00:01Z",
            "lastTransitionTime": "1970-01-01T00:00:01Z",
        }
    }
    assert conditions(teller, [incident()], 60 * S) == {}
    over = conditions(teller, [], 61 * S)
    assert (over["n0"]["status"], over["n0"]["reason"]) == ("False", "NetworkRecovered")
    assert conditions(teller, [], 10**15) == {}


def test_what_says_nothing_of_a_node_s_network_changes_no_condition():
    for each in (
        incident(component=Component(Kind.CONTAINER, "ml.p-0")),
        incident(component=Component(Kind.AGENT, "gpu-0"), symptom=Symptom.SILENCE),
        incident(component=Component(Kind.HOST, "gpu-0"), symptom=Symptom.DELAY),
        incident(component=switch("leaf-0")),
        incident(component=None),
    ):
        assert conditions(Teller(book()), [each], 0) == {}


def test_a_condition_that_holds_is_told_again_and_keeps_when_it_began():
    teller = Teller(book())
    conditions(teller, [incident()], 0)
    assert conditions(teller, [incident()], HEARTBEAT_NS - 1) == {}
    again = conditions(teller, [incident()], HEARTBEAT_NS)["n0"]
    assert "lastTransitionTime" not in again
    assert again["lastHeartbeatTime"] == "1970-01-01T00:10:00Z"


def test_a_message_names_three_and_changes_now_and_then_at_most():
    teller = Teller(book())
    first = conditions(teller, [incident()], 0)["n0"]
    many = [incident(name=f"i{i}", at=i) for i in range(5)]
    assert conditions(teller, many, NODE_NS - 1) == {}
    later = conditions(teller, many, NODE_NS)["n0"]
    assert later["message"].endswith("rnic gpu-0/mlx5_3: loss (i2); 2 more")
    assert later["message"] != first["message"]
    assert "lastTransitionTime" not in later


def test_a_restart_takes_back_what_is_not_so_any_more_and_keeps_what_is():
    teller = Teller(book("n0", "n1"))
    found = conditions(teller, [incident()], 0)
    assert {name: each["status"] for name, each in found.items()} == {"n0": "True", "n1": "False"}
    assert "lastTransitionTime" not in found["n0"]
    assert "lastTransitionTime" in found["n1"]
    assert conditions(teller, [incident()], NODE_NS) == {}


def test_a_patch_that_failed_is_told_again():
    teller = Teller(book())
    assert [len(list(teller.patches([incident()], i))) for i in range(3)] == [1, 1, 1]


def test_nodes_that_are_gone_are_forgotten():
    known = book()
    teller = Teller(known)
    for i in range(50):
        known.replace_nodes([Node(f"m{i}")], 0)
        known.heard({f"m{i}"}, 0)
        conditions(teller, [incident(component=Component(Kind.HOST, f"m{i}"))], i * S)
    assert len(teller._told) <= 2


INCIDENTS = st.lists(
    st.builds(
        incident,
        st.sampled_from([OPEN, CONFIRMED]),
        st.sampled_from([Component(Kind.RNIC, f"gpu-{i}/d") for i in range(4)]),
        st.sampled_from(["a", "b"]),
    ),
    max_size=4,
)


@given(st.lists(INCIDENTS, min_size=1, max_size=8), st.sets(st.sampled_from(["n0", "n1"])))
def test_in_the_end_the_nodes_that_are_degraded_are_those_of_confirmed_incidents(rounds, before):
    teller, has = Teller(book(*before)), dict.fromkeys(before, "True")
    for i, active in enumerate(rounds):
        for name, each in conditions(teller, active, i * NODE_NS).items():
            assert (has.get(name) != each["status"]) == ("lastTransitionTime" in each)
            has[name] = each["status"]
    wanted = {
        f"n{each.verdict.component.name[4]}"
        for each in rounds[-1]
        if each.state is CONFIRMED and each.verdict.component.name[4] != "3"
    }
    assert {name for name, status in has.items() if status == "True"} == wanted


def test_what_a_terminal_would_obey_is_in_no_message():
    odd = Component(Kind.FLOW, "gpu-0/br\x1b[2J/table=3")
    teller = Teller(book())
    teller.note(incident(component=odd))
    (told_,) = events(teller)
    (condition,) = conditions(teller, [incident(component=odd)], 0).values()
    assert told_.body["message"] == "flow gpu-0/br [2J/table=3 fails (incident i1)"
    assert condition["message"] == "flow gpu-0/br [2J/table=3: loss (i1)"
