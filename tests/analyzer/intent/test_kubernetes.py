# SPDX-License-Identifier: Apache-2.0
import json
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent import kubernetes
from analyzer.intent.kubernetes import (
    AGAIN_NS,
    CONDITION,
    LONGEST_NS,
    QUIET_NS,
    Book,
    Rules,
    node_of,
    pod_of,
)
from netagent.model.task import Task

S = 10**9
GPU = {"containers": [{"resources": {"limits": {"cpu": "4", "nvidia.com/gpu": "8"}}}]}
JOB = "training.kubeflow.org/job-name"


def pod(name, node="n0", *, job="bert", namespace="ml", labels=None, phase="Running", **more):
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": {**({JOB: job} if job else {}), **(labels or {})},
            **more,
        },
        "spec": {**GPU, **({"nodeName": node} if node else {})},
        "status": {"phase": phase},
    }


def node(name, hostname="", conditions=()):
    labels = {"kubernetes.io/hostname": hostname} if hostname else {}
    meta = {"name": name, "uid": f"uid-{name}", "labels": labels}
    return {"kind": "Node", "metadata": meta, "status": {"conditions": list(conditions)}}


def networks(*names, default="ml/ovn"):
    listed = [{"name": default, "default": True}, *({"name": name} for name in names)]
    return {"annotations": {"k8s.v1.cni.cncf.io/network-status": json.dumps(listed)}}


def event(kind, thing):
    return {"type": kind, "object": thing}


def those(*pods, rules=None):
    return [found for each in pods if (found := pod_of(each, rules or Rules())) is not None]


def listed(*pods, rules=None, **more):
    book = Book(rules or Rules(), **more)
    book.replace_pods("", those(*pods, rules=rules), 0)
    return book


def told(book, now_ns=10**15):
    return {change.task: change.declared for change in book.changes(now_ns)}


def test_a_task_is_the_pods_of_a_job_in_rank_order_each_where_it_runs():
    kubeflow = "training.kubeflow.org"
    pods = [
        pod(
            f"bert-{role}-{i}",
            f"n{i}",
            labels={f"{kubeflow}/replica-type": role, f"{kubeflow}/replica-index": str(i)},
            **networks("ml/rail0", "ml/rail1"),
        )
        for role, count in (("worker", 11), ("master", 1))
        for i in range(count)
    ]
    book = listed(*pods)
    book.heard({"n0", "n1"}, 0)
    workers = tuple(f"ml.bert-worker-{i}" for i in range(11))
    assert told(book) == {
        "ml.bert": Task(
            "ml.bert",
            ("ml.bert-master-0", *workers),
            2,
            (0, 1),
            declared=True,
            hosts=("n0", "n0", "n1", *[""] * 9),
            source="kubernetes",
        )
    }


@pytest.mark.parametrize(
    ("labels", "job"),
    [
        ({"jobset.sigs.k8s.io/jobset-name": "set", "batch.kubernetes.io/job-name": "set-0"}, "set"),
        ({"batch.kubernetes.io/job-name": "new", "job-name": "old"}, "new"),
        ({"job-name": "old"}, "old"),
        ({"volcano.sh/job-name": "v"}, "v"),
        ({"ray.io/cluster": "r"}, "r"),
        ({"app": "x"}, None),
    ],
)
def test_the_outermost_label_names_the_job(labels, job):
    found = pod_of(pod("p", job="", labels=labels), Rules())
    assert (found.task if found else None) == (job and f"ml.{job}")


def test_labels_can_be_others():
    rules = Rules(labels=("example.com/run",))
    assert pod_of(pod("p", job="bert"), rules) is None
    found = pod_of(pod("p", labels={"example.com/run": "r7"}), rules)
    assert found is not None
    assert found.task == "ml.r7"


@pytest.mark.parametrize(
    ("kind", "controls", "job"),
    [
        ("StatefulSet", True, "ml.own"),
        ("MPIJob", True, "ml.own"),
        ("MPIJob", False, None),
        ("ReplicaSet", True, None),
        ("DaemonSet", True, None),
    ],
)
def test_without_a_label_the_owner_that_controls_a_pod_is_its_job(kind, controls, job):
    owner = {"kind": kind, "name": "own", "controller": controls}
    found = pod_of(pod("p", job="", ownerReferences=[owner]), Rules())
    assert (found.task if found else None) == job


@pytest.mark.parametrize(
    "thing",
    [
        pod("p", node=""),
        pod("p", phase="Succeeded"),
        pod("p", phase="Failed"),
        pod("p", deletionTimestamp="2026-11-27T00:00:00Z"),
        pod("p") | {"spec": {"nodeName": "n0", "containers": [{"name": "launcher"}]}},
    ],
)
def test_a_pod_that_is_nowhere_ends_or_asks_for_no_device_does_not_count(thing):
    assert pod_of(pod("p"), Rules()) is not None
    assert pod_of(thing, Rules()) is None


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"containers": [{"resources": {"requests": {"rdma/hca": 1}}}]}, True),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "0"}}}]}, False),
        ({"containers": [{"resources": {"limits": {"requests.kubernetes.io/x": "1"}}}]}, False),
        ({"containers": [{}, {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}, False),
        ({"resourceClaims": [{"name": "gpus"}], "containers": []}, True),
    ],
)
def test_devices_are_what_plugins_and_drivers_offer(spec, counts):
    thing = pod("p") | {"spec": {"nodeName": "n0", **spec}}
    assert (pod_of(thing, Rules()) is not None) == counts
    assert pod_of(thing, Rules(every_pod=True)) is not None


def test_a_pod_on_a_rail_s_network_counts_without_a_device():
    thing = pod("p", **networks("ml/rail3", "ml/storage", default="ml/rail7"))
    found = pod_of(thing | {"spec": {"nodeName": "n0"}}, Rules())
    assert found is not None
    assert found.rails == (3,)


@pytest.mark.parametrize(
    ("rules", "names", "rails"),
    [
        (Rules(), ["ml/sriov-rail-2"], (2,)),
        (Rules(rail=r"net([0-9]+)", first_rail=1), ["a/net1", "b/net2", "net0"], (0, 1)),
        (Rules(), ["ml/rail99999", "ml/rail" + "9" * 30], ()),
    ],
)
def test_rails_are_read_of_networks_names(rules, names, rails):
    found = pod_of(pod("p", **networks(*names)), rules)
    assert found is not None
    assert found.rails == rails


@pytest.mark.parametrize("text", ["[", "null", '["x", 3, {"name": 4}]', "[" * 70_000, '"\ud800"'])
def test_an_annotation_that_makes_no_sense_says_no_rail(text):
    found = pod_of(pod("p", annotations={"k8s.v1.cni.cncf.io/network-status": text}), Rules())
    assert found is not None
    assert found.rails == ()


def test_containers_are_called_as_agents_call_them():
    rules = Rules(container="{uid}/{example.com/port}")
    named = pod_of(pod("p", annotations={"example.com/port": "x"}), rules)
    assert named is not None
    assert named.container == "uid-p/x"
    assert pod_of(pod("p"), rules) is None


@pytest.mark.parametrize(
    "rules",
    [{"container": "same"}, {"container": "{pod"}, {"rail": "rail[0-9]+"}, {"rail": "("}],
)
def test_rules_that_can_never_say_anything_are_refused(rules):
    with pytest.raises(ValueError):
        Rules(**rules)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["metadata", "spec", "status", "labels", "annotations", "name",
                         "namespace", "nodeName", "containers", "resources", "limits",
                         "ownerReferences", "conditions", "type", "object", "kind"]),
        inner, max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JUNK), JUNK)
def test_whatever_the_api_says_nothing_breaks(thing, other):
    pod_of(thing, Rules())
    node_of(thing)
    book = listed(thing)
    for kind in ("ADDED", "BOOKMARK", "DELETED"):
        for what in ("Pod", "Node", "Other"):
            book.take(event(kind, {**thing, "kind": what}), 0)
        book.take({"type": kind, "object": other}, 0)
    told(book)


def test_a_job_of_a_thousand_pods_is_declared_a_few_times():
    book, changes = listed(), []
    for i in range(3000):  # each is bound, starts and runs, over 45 s
        now_ns = i * 15 * 10**6
        thing = pod(f"p-{i // 3}", f"n{i // 3}", phase=["Pending", "Pending", "Running"][i % 3])
        book.take(event("ADDED" if i % 3 == 0 else "MODIFIED", thing), now_ns)
        due_ns = book.due_ns()
        if due_ns is not None and due_ns <= now_ns:
            changes += book.changes(now_ns)
    changes += book.changes(45 * S + QUIET_NS)
    assert len(changes) == 2
    assert len(changes[-1].declared.containers) == 1000
    assert book.due_ns() is None


def test_what_rests_is_told_and_what_never_rests_is_told_too():
    book = listed()
    book.take(event("ADDED", pod("p-0")), 0)
    book.take(event("ADDED", pod("p-1")), 1 * S)
    assert book.due_ns() == 1 * S + QUIET_NS
    book.take(event("MODIFIED", pod("p-1", phase="Pending")), 2 * S)  # nothing that counts
    assert book.due_ns() == 1 * S + QUIET_NS
    assert told(book, QUIET_NS) == {}
    for second in range(2, 40):
        book.take(event("MODIFIED", pod("p-0", f"n{second}")), second * S)
    assert book.due_ns() == LONGEST_NS


def test_pods_that_end_leave_their_task_and_with_the_last_but_one_it_ends():
    book = listed(*(pod(f"p-{i}") for i in range(3)))
    assert len(told(book)["ml.bert"].containers) == 3
    book.take(event("MODIFIED", pod("p-1", phase="Succeeded")), 0)
    assert told(book)["ml.bert"].containers == ("ml.p-0", "ml.p-2")
    book.take(event("DELETED", pod("p-0")), 0)
    assert told(book) == {"ml.bert": None}
    assert told(book) == {}


def test_one_that_is_replaced_under_its_name_is_where_it_is_now():
    book = listed(pod("p-0", "n0"), pod("p-1", "n1"))
    book.heard({"n0", "n1", "n2"}, 0)
    told(book)
    book.take(event("DELETED", pod("p-1", "n1")), 0)
    book.take(event("ADDED", pod("p-1", "n2")), 0)
    assert told(book)["ml.bert"].hosts == ("n0", "n2")


def test_nothing_is_withdrawn_before_all_pods_were_listed():
    known = [Task(f"{namespace}.old", ("a", "b"), declared=True, source="kubernetes")
             for namespace in ("ml", "web", "left")]  # fmt: skip
    book = Book(Rules(), namespaces=("ml", "web"), known=known)
    for name in ("p-0", "p-1"):
        book.take(event("ADDED", pod(name)), 0)
    assert (told(book), book.due_ns()) == ({}, None)
    book.replace_pods("ml", those(pod("p-0"), pod("p-1")), 0)
    assert {task: bool(t) for task, t in told(book).items()} == {
        "ml.old": False, "left.old": False, "ml.bert": True,
    }  # fmt: skip
    book.replace_pods("web", [], 0)
    assert told(book) == {"web.old": None}


def test_listing_one_namespace_again_leaves_the_others():
    book = Book(Rules(), namespaces=("ml", "web"))
    book.replace_pods("ml", those(pod("p-0"), pod("p-1")), 0)
    book.replace_pods("web", those(pod("p-0", namespace="web"), pod("p-1", namespace="web")), 0)
    assert set(told(book)) == {"ml.bert", "web.bert"}
    book.replace_pods("web", [], 0)
    assert told(book) == {"web.bert": None}


def test_what_was_declared_before_a_restart_is_not_declared_again():
    before = told(listed(pod("p-0"), pod("p-1")))["ml.bert"]
    assert told(listed(pod("p-0"), pod("p-1"), known=[before])) == {}


def test_a_declaration_that_was_refused_is_tried_again_later():
    book = listed(pod("p-0"), pod("p-1"))
    (change,) = book.changes(QUIET_NS)
    book.refused(change, QUIET_NS)
    assert book.due_ns() == QUIET_NS + AGAIN_NS
    assert told(book, QUIET_NS + AGAIN_NS - 1) == {}
    assert told(book, QUIET_NS + AGAIN_NS) == {"ml.bert": change.declared}
    book.replace_pods("", [], 10**15)
    (gone,) = book.changes(2 * 10**15)
    book.refused(gone, 0)
    assert told(book) == {"ml.bert": None}


def test_only_hosts_with_an_agent_are_named_by_whichever_name_it_has():
    book = listed(pod("p-0", "n0.example.com"), pod("p-1", "ip-10-0-0-1"), pod("p-2", "n2"))
    assert told(book)["ml.bert"].hosts == ()
    book.heard({"n0", "gpu-1"}, 0)
    assert told(book)["ml.bert"].hosts == ("n0", "", "")
    book.take(event("ADDED", node("ip-10-0-0-1", "gpu-1")), 0)
    assert told(book)["ml.bert"].hosts == ("n0", "gpu-1", "")
    book.replace_nodes([node_of(node("n2"))], 0)
    assert told(book)["ml.bert"].hosts == ("n0", "", "")


def test_nodes_and_pods_are_found_by_what_verdicts_call_them():
    book = listed(pod("p-0", "ip-1"), pod("p-1", "n1"))
    book.replace_nodes(map(node_of, [node("ip-1", "gpu-1"), node("n1")]), 0)
    book.heard({"gpu-1", "n1"}, 0)
    assert [book.node_of(host).name for host in ("gpu-1", "n1")] == ["ip-1", "n1"]
    assert book.node_of("h9") is None
    book.take(event("ADDED", node("ip-2", "gpu-2")), 0)
    assert book.node_of("gpu-2") is None
    book.heard({"gpu-1", "gpu-2"}, 0)
    assert book.node_of("gpu-2").name == "ip-2"
    book.take(event("DELETED", node("ip-1")), 0)
    assert book.node_of("gpu-1") is None
    assert book.pod_of("ml.p-0").uid == "uid-p-0"
    assert book.pod_of("ml.p-9") is None


def test_a_node_has_our_condition_or_none():
    ours = {"type": CONDITION, "status": "True"}
    ready = {"type": "Ready", "status": "False"}
    assert node_of(node("n0", conditions=[ready, ours])).degraded == "True"
    assert node_of(node("n0", conditions=[ready])).degraded == ""


def test_pods_that_are_too_many_are_passed_over(monkeypatch):
    monkeypatch.setattr(kubernetes, "MAX_PODS", 2)
    book = listed(*(pod(f"p-{i}") for i in range(3)))
    assert (book.pods, book.passed_over) == (2, 1)
    book.take(event("DELETED", pod("p-0")), 0)
    book.take(event("ADDED", pod("p-2")), 0)
    assert told(book)["ml.bert"].containers == ("ml.p-1", "ml.p-2")


NAMES, NODES, JOBS = ("p-0", "p-1", "p-2", "q"), ("n0", "n1", ""), ("bert", "gpt", "")
PODS = st.builds(
    pod,
    st.sampled_from(NAMES),
    st.sampled_from(NODES),
    job=st.sampled_from(JOBS),
    namespace=st.sampled_from(["ml", "web"]),
    phase=st.sampled_from(["Pending", "Running", "Failed"]),
)
STEPS = st.lists(
    st.tuples(st.just("pod"), st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), PODS)
    | st.tuples(st.just("node"), st.sampled_from(["ADDED", "DELETED"]), st.sampled_from(NODES[:2]))
    | st.tuples(st.just("list"), st.just(""), st.lists(PODS, max_size=5))
    | st.tuples(st.just("agents"), st.just(""), st.sets(st.sampled_from(["n0", "gpu-n1"])))
    | st.tuples(st.just("tell"), st.just(""), st.integers(0, 20)),
    max_size=30,
)  # fmt: skip


def naive(pods, nodes, agents):
    """Return the tasks of all pods, as if none were known before."""
    found = [p for p in (pod_of(each, Rules()) for each in pods.values()) if p is not None]
    tasks = {}
    for name, group in groupby(sorted(found, key=lambda p: (p.task, p.rank)), lambda p: p.task):
        members = list(group)
        if len(members) > 1:
            names = {"n0": ["n0"], "n1": ["n1", "gpu-n1"] if "n1" in nodes else ["n1"]}
            hosts = [next((h for h in names[p.node] if h in agents), "") for p in members]
            tasks[name] = (tuple(p.container for p in members), tuple(hosts) if any(hosts) else ())
    return tasks


@given(STEPS)
def test_what_is_declared_in_the_end_is_what_all_pods_make(steps):
    book, now_ns = listed(), 0
    pods, nodes, agents, declared = {}, set(), set(), {}

    def tell():
        for change in book.changes(now_ns):
            assert (change.declared is None) <= (change.task in declared)
            if change.declared is None:
                del declared[change.task]
            else:
                assert declared.get(change.task) != change.declared
                declared[change.task] = change.declared

    for what, kind, value in steps:
        now_ns += S
        if what == "pod":
            book.take(event(kind, value), now_ns)
            key = value["metadata"]["namespace"], value["metadata"]["name"]
            pods.pop(key, None)
            if kind != "DELETED":
                pods[key] = value
        elif what == "node":
            book.take(event(kind, node(value, f"gpu-{value}")), now_ns)
            (nodes.add if kind == "ADDED" else nodes.discard)(value)
        elif what == "list":
            book.replace_pods("", those(*value), now_ns)
            pods = {(p["metadata"]["namespace"], p["metadata"]["name"]): p for p in value}
        elif what == "agents":
            agents = value
            book.heard(agents, now_ns)
        else:
            now_ns += value * S
            tell()
    now_ns += LONGEST_NS
    tell()
    assert {t.id: (t.containers, t.hosts) for t in declared.values()} == naive(pods, nodes, agents)
    assert book.due_ns() is None
