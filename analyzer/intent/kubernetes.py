# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' pods and nodes, as its API has them, read as tasks.

Theory of operation. A pod belongs to a task by the first label of a list that it has, else by the
object that controls it. It counts while it should be there: it was put on a node, did not end, is
not asked to end, and asks for a device, since a network for training is none of others. A task is
declared once there are two such pods. What comes within seconds is gathered, since a job of a
thousand pods comes up as thousands of events. Of a namespace nothing is said, and nothing
withdrawn, before all of its pods were listed.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import msgspec

from netagent.model.endpoint import RAILS
from netagent.model.task import Task

Json = Mapping[str, Any]
"""An object of the API, decoded. Any part of it may be missing, or of another type."""

SOURCE = "kubernetes"
"""What its tasks name as their source."""
CONDITION = "NetworkDegraded"
"""The condition of a node that is ours."""

LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels that name a pod's job, the outermost first: a JobSet's pods are of Jobs as well. The last
is batch.kubernetes.io/job-name before Kubernetes 1.27."""
CONTAINER = "{namespace}.{pod}"
"""What agents call a pod's container by default: as Kube-OVN's are, and no other pod is."""
RAIL = r".*rail-?([0-9]+)"
"""Networks that are a rail's by default."""
SERVICES = frozenset({"DaemonSet", "Node", "ReplicaSet", "ReplicationController"})
"""Kinds of controllers whose pods are no job's."""

_ROLES = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "training.kubeflow.org/replica-type",
    "volcano.sh/task-spec",
    "ray.io/node-type",
)
_FIRST = frozenset({"chief", "head", "launcher", "leader", "master"})
"""Roles of rank 0."""
_GROUPS = ("jobset.sigs.k8s.io/job-index", "leaderworkerset.sigs.k8s.io/group-index")
_INDEXES = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "volcano.sh/task-index",
    "apps.kubernetes.io/pod-index",
)
_HOSTNAME = "kubernetes.io/hostname"
_NETWORKS = "k8s.v1.cni.cncf.io/network-status"

QUIET_NS = 5 * 10**9
"""Nanoseconds without a change of a task after which it is told. Chosen: pods of a job come up
within less of each other, and probing begins that much later."""
LONGEST_NS = 30 * 10**9
"""Nanoseconds after the first change at which it is told all the same. Chosen: a job that comes up
for minutes is probed meanwhile."""
AGAIN_NS = 60 * 10**9
"""Nanoseconds until a declaration that was refused is tried again. Chosen: who declared its
containers by hand withdraws that some time."""
MAX_PODS = 100_000
"""Most pods that are kept; later ones are passed over. Chosen: 60 MB; clusters of ten thousand
hosts have as many that ask for devices."""
_MAX_TEXT = 65_536
"""Most characters of an annotation that are read. Chosen: a hundred networks of one pod."""

_KEY = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Rules:
    """How pods are read."""

    labels: tuple[str, ...] = LABELS
    """Labels that name a pod's job; the first that it has counts."""
    container: str = CONTAINER
    """A pod's container as agents call it; ``{KEY}`` is ``namespace``, ``pod``, ``uid`` or the key
    of an annotation."""
    rail: str = RAIL
    """Regular expression that the name of a network must match, without its namespace, to be that
    of a rail; its first group is the rail."""
    first_rail: int = 0
    """Number that stands for rail 0."""
    every_pod: bool = False
    """Whether pods count that ask for no device."""

    def __post_init__(self) -> None:
        """Raise ValueError for what can never say anything."""
        if not _KEY.search(self.container) or re.search(r"[{}]", _KEY.sub("", self.container)):
            raise ValueError(f"{self.container!r} is no text with keys in braces")
        try:
            groups = re.compile(self.rail).groups
        except re.error as error:
            raise ValueError(f"{self.rail!r} is no regular expression: {error}") from error
        if not groups:
            raise ValueError(f"{self.rail!r} has no group: put what counts in parentheses")


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that should be there."""

    namespace: str
    name: str
    uid: str
    task: str
    container: str
    node: str
    rank: tuple[int, str, int, int, str, int]
    """What the pods of a task are ordered by."""
    rails: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A node."""

    name: str
    uid: str = ""
    hostname: str = ""
    """Its label; clouds give nodes other names."""
    degraded: str = ""
    """Status of our condition, ``True`` or ``False``; "" where it has none."""


@dataclass(frozen=True, slots=True)
class Change:
    """A task is to be declared so, or withdrawn."""

    task: str
    declared: Task | None


def pod_of(pod: Json, rules: Rules) -> Pod | None:
    """Return a pod as it counts; None for one that is no task's, or should not be there."""
    meta, spec = _map(pod, "metadata"), _map(pod, "spec")
    phase, node = _text(_map(pod, "status"), "phase"), _text(spec, "nodeName")
    namespace, name = _text(meta, "namespace"), _text(meta, "name")
    if not node or not namespace or not name or phase in {"Succeeded", "Failed"}:
        return None
    rails = _rails(meta, rules)
    if meta.get("deletionTimestamp") or not (rules.every_pod or rails or _asks_for_devices(spec)):
        return None
    labels = _map(meta, "labels")
    job, container = _job(meta, labels, rules), _container(meta, rules)
    if not job or not container:
        return None
    task = f"{namespace}.{job}"
    uid, rank = _text(meta, "uid"), _rank(name, labels)
    return Pod(namespace, name, uid, task, container, node, rank, rails)


def node_of(node: Json) -> Node | None:
    """Return a node; None for what is none."""
    meta = _map(node, "metadata")
    conditions = [c for c in _list(_map(node, "status"), "conditions") if isinstance(c, Mapping)]
    ours = [_text(c, "status") for c in conditions if c.get("type") == CONDITION]
    if not (name := _text(meta, "name")):
        return None
    hostname = _text(_map(meta, "labels"), _HOSTNAME)
    return Node(name, _text(meta, "uid"), hostname, ours[0] if ours else "")


@dataclass(slots=True)
class _Dirty:
    first_ns: int
    last_ns: int

    @property
    def due_ns(self) -> int:
        return min(self.first_ns + LONGEST_NS, self.last_ns + QUIET_NS)


class Book:
    """What should be, kept as events come. Does no I/O and reads no clock."""

    def __init__(
        self, rules: Rules, *, namespaces: Iterable[str] = (), known: Iterable[Task] = ()
    ) -> None:
        """Read `namespaces`, or all if there are none; `known` is declared already."""
        self._rules, self._namespaces = rules, frozenset(namespaces)
        self._told = {task.id: task for task in known}
        self._pods: dict[tuple[str, str], Pod] = {}
        self._members: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._on: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)  # node -> pods
        self._containers: dict[str, tuple[str, str]] = {}
        self._nodes: dict[str, Node] = {}
        self._agents: frozenset[str] = frozenset()
        self._by_host: dict[str, str] | None = None  # host -> node; None: to be made anew
        self._dirty: dict[str, _Dirty] = {}
        self._listed: set[str] = set()
        self._again: dict[str, int] = {}  # task that was refused -> when to try again
        self.passed_over = 0
        """Pods that were too many."""

    @property
    def pods(self) -> int:
        """How many pods count."""
        return len(self._pods)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes, by name."""
        return self._nodes

    # --- what the API says ----------------------------------------------------------------------

    def replace_pods(self, namespace: str, pods: Iterable[Pod], now_ns: int) -> None:
        """Take all pods of `namespace`; all there are, if it is "". They replace those known."""
        self.passed_over = 0
        found = {(pod.namespace, pod.name): pod for pod in pods}
        gone = [k for k in self._pods if namespace in {"", k[0]} and k not in found]
        for key in gone:
            self._put(key, None, now_ns)
        for key, pod in found.items():
            self._put(key, pod, now_ns)
        if namespace not in self._listed:
            self._listed.add(namespace)
            for task in self._told:
                if self._scope(task) in {namespace, None}:
                    self._soil(task, now_ns)

    def replace_nodes(self, nodes: Iterable[Node], now_ns: int) -> None:
        """Take all nodes; they replace those known."""
        found = {node.name: node for node in nodes}
        for name in [*(self._nodes.keys() - found.keys()), *found]:
            self._put_node(name, found.get(name), now_ns)

    def take(self, event: Json, now_ns: int) -> None:
        """Take an event of a watch: ADDED, MODIFIED or DELETED, and the object as it is, or was."""
        kind, thing = event.get("type"), _map(event, "object")
        if kind not in {"ADDED", "MODIFIED", "DELETED"}:
            return
        meta, is_gone = _map(thing, "metadata"), kind == "DELETED"
        if thing.get("kind") == "Node":
            self._put_node(_text(meta, "name"), None if is_gone else node_of(thing), now_ns)
        elif thing.get("kind") == "Pod":
            key = _text(meta, "namespace"), _text(meta, "name")
            self._put(key, None if is_gone else pod_of(thing, self._rules), now_ns)

    def heard(self, agents: AbstractSet[str], now_ns: int) -> None:
        """Take the hosts whose agents are known: only these are named as where a pod is.

        Whoever is named wrongly could have its containers nowhere.
        """
        if agents == self._agents:
            return
        before = {name: self.host_of(name) for name in self._on}
        self._agents, self._by_host = frozenset(agents), None
        for name, host in before.items():
            if self.host_of(name) != host:
                self._soil_node(name, now_ns)

    # --- what follows ---------------------------------------------------------------------------

    def due_ns(self) -> int | None:
        """Return when something is to be told, if nothing else happens; None: never."""
        times = [self._due_ns(task) for task in self._dirty if self._is_listed(task)]
        return min(times, default=None)

    def changes(self, now_ns: int) -> Iterator[Change]:
        """Yield what is to be declared, or withdrawn, by now; each once, as it is when it is taken.

        What is withdrawn comes first: its containers may be another's.
        """
        due = [t for t in self._dirty if self._is_listed(t) and self._due_ns(t) <= now_ns]
        for task in sorted(due, key=lambda task: (len(self._members.get(task, ())) > 1, task)):
            self._dirty.pop(task, None)
            self._again.pop(task, None)
            wanted = self.task(task)
            if wanted == self._told.get(task):
                continue
            if wanted is None:
                del self._told[task]
            else:
                self._told[task] = wanted
            yield Change(task, wanted)

    def refused(self, change: Change, now_ns: int) -> None:
        """Take that a change could not be made: it is told again, after AGAIN_NS."""
        if change.declared is None:
            self._told[change.task] = Task(change.task)  # anything but what is wanted
        else:
            self._told.pop(change.task, None)
        self._soil(change.task, now_ns)
        self._again[change.task] = now_ns + AGAIN_NS

    def task(self, task: str) -> Task | None:
        """Return a task as its pods make it; None without two of them."""
        pods = sorted((self._pods[key] for key in self._members.get(task, ())), key=_by_rank)
        if len(pods) < 2:
            return None
        hosts = tuple(self.host_of(pod.node) for pod in pods)
        return Task(
            task,
            tuple(pod.container for pod in pods),
            max(len(pod.rails) for pod in pods),
            tuple(sorted({rail for pod in pods for rail in pod.rails})),
            declared=True,
            hosts=hosts if any(hosts) else (),
            source=SOURCE,
        )

    def host_of(self, node: str) -> str:
        """Return the host that a node is, as its agent calls it; "" where none is known."""
        known = self._nodes.get(node)
        names = (node, known.hostname if known else "", node.partition(".")[0])
        return next((name for name in names if name in self._agents), "")

    def node_of(self, host: str) -> Node | None:
        """Return the node that a host is; None where it is none."""
        if self._by_host is None:
            self._by_host = {self.host_of(name): name for name in self._nodes}
        return self._nodes.get(host) or self._nodes.get(self._by_host.get(host, ""))

    def pod_of(self, container: str) -> Pod | None:
        """Return the pod that a container is; None where it is none."""
        key = self._containers.get(container)
        return self._pods.get(key) if key else None

    # --- the inside -----------------------------------------------------------------------------

    def _put(self, key: tuple[str, str], pod: Pod | None, now_ns: int) -> None:
        before = self._pods.get(key)
        if before == pod:
            return
        if before is None and len(self._pods) >= MAX_PODS:
            self.passed_over += 1
            return
        if before is not None:
            del self._pods[key]
            for index, name in ((self._members, before.task), (self._on, before.node)):
                index[name].discard(key)
                if not index[name]:
                    del index[name]
            if self._containers.get(before.container) == key:
                del self._containers[before.container]
            self._soil(before.task, now_ns)
        if pod is not None:
            self._pods[key] = pod
            self._members[pod.task].add(key)
            self._on[pod.node].add(key)
            self._containers[pod.container] = key
            self._soil(pod.task, now_ns)

    def _put_node(self, name: str, node: Node | None, now_ns: int) -> None:
        before, host = self._nodes.get(name), self.host_of(name)
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        if self.host_of(name) != host or (node is None) != (before is None):
            self._by_host = None
        if self.host_of(name) != host:
            self._soil_node(name, now_ns)

    def _soil_node(self, name: str, now_ns: int) -> None:
        for key in self._on.get(name, ()):
            self._soil(self._pods[key].task, now_ns)

    def _soil(self, task: str, now_ns: int) -> None:
        self._dirty.setdefault(task, _Dirty(now_ns, now_ns)).last_ns = now_ns

    def _due_ns(self, task: str) -> int:
        return max(self._dirty[task].due_ns, self._again.get(task, 0))

    def _scope(self, task: str) -> str | None:
        """Return what must have been listed to say something of a task; None: anything."""
        namespace = task.partition(".")[0]  # which has no dot
        if not self._namespaces:
            return ""
        return namespace if namespace in self._namespaces else None

    def _is_listed(self, task: str) -> bool:
        scope = self._scope(task)
        return bool(self._listed) if scope is None else scope in self._listed


def _by_rank(pod: Pod) -> tuple[int, str, int, int, str, int]:
    return pod.rank


def _job(meta: Json, labels: Json, rules: Rules) -> str:
    for label in rules.labels:
        if job := _text(labels, label):
            return job
    owners = (o for o in _list(meta, "ownerReferences") if isinstance(o, Mapping))
    owner = next((o for o in owners if o.get("controller") is True), {})
    return "" if _text(owner, "kind") in SERVICES else _text(owner, "name")


def _container(meta: Json, rules: Rules) -> str:
    keys = {
        **_map(meta, "annotations"),
        "namespace": _text(meta, "namespace"),
        "pod": _text(meta, "name"),
        "uid": _text(meta, "uid"),
    }
    if any(not _text(keys, key) for key in _KEY.findall(rules.container)):
        return ""
    return _KEY.sub(lambda found: str(keys[found[1]]), rules.container)


def _rank(name: str, labels: Json) -> tuple[int, str, int, int, str, int]:
    role = next((text for label in _ROLES if (text := _text(labels, label))), "")
    stem, _, tail = name.rpartition("-")
    is_numbered = tail.isdecimal() and len(tail) < 10
    return (
        int(role.lower() not in _FIRST),
        role,
        _number(labels, _GROUPS),
        _number(labels, _INDEXES),
        stem if is_numbered else name,
        int(tail) if is_numbered else 0,
    )


def _number(labels: Json, keys: Iterable[str]) -> int:
    for key in keys:
        text = _text(labels, key)
        if text.isdecimal() and len(text) < 10:
            return int(text)
    return 0


def _rails(meta: Json, rules: Rules) -> tuple[int, ...]:
    text = _text(_map(meta, "annotations"), _NETWORKS)
    if not text or len(text) > _MAX_TEXT:
        return ()
    try:
        networks = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return ()
    rails = set()
    for network in networks if isinstance(networks, list) else ():
        if not isinstance(network, Mapping) or network.get("default") is True:
            continue
        found = re.fullmatch(rules.rail, _text(network, "name").rpartition("/")[2])
        if found and (found[1] or "").isdecimal() and len(found[1]) < 10:
            rails.add(int(found[1]) - rules.first_rail)
    return tuple(sorted(rail for rail in rails if 0 <= rail < RAILS))


def _asks_for_devices(spec: Json) -> bool:
    """Return whether a pod asks for an extended resource, as device plugins offer, or a claim."""
    if _list(spec, "resourceClaims"):
        return True
    containers = (c for c in _list(spec, "containers") if isinstance(c, Mapping))
    wanted = (
        _map(_map(c, "resources"), side) for c in containers for side in ("limits", "requests")
    )
    return any(
        "/" in name and not name.partition("/")[0].endswith("kubernetes.io") and amount != "0"
        for each in wanted
        for name, amount in each.items()
    )


def _map(of: Json, key: str) -> Json:
    found = of.get(key)
    return found if isinstance(found, Mapping) else {}


def _list(of: Json, key: str) -> list[Any]:
    found = of.get(key)
    return found if isinstance(found, list) else []


def _text(of: Json, key: str) -> str:
    found = of.get(key)
    return found if isinstance(found, str) else ""
