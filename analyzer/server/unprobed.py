# SPDX-License-Identifier: Apache-2.0
"""The route that tells what is not probed, and why."""

from collections.abc import Callable, Generator, Iterator
from itertools import islice
from operator import itemgetter

from litestar import Response, get
from litestar.params import FromQuery

from analyzer.intent.unplugged import Unplugged, unplugged
from analyzer.roster.coverage import PIECE, Coverage, Uncovered
from analyzer.server.analyzer import Analyzer
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import sight
from analyzer.server.pages import LIMIT, After, Limit, page
from analyzer.server.pieces import in_pieces
from analyzer.server.sight import Sight

RARE = 3
"""Level of `Health.shed` from which on rare targets are not probed."""

Plain = dict[str, object]


@get("/v1/endpoints/unprobed", responses={200: gives("What is not probed."), 400: PROBLEM},
     tags=["tasks"])  # fmt: skip
async def unprobed(
    request: Call,
    task: FromQuery[str | None] = None,
    host: FromQuery[str | None] = None,
    after: After = None,
    limit: Limit = LIMIT,
) -> Response[bytes]:
    """Return what is not probed, and why (of a task, of a host).

    `what` is an `endpoint` that nobody probes, a `port` of a host's virtual switch that is no
    endpoint, or an `intent`: a logical port that its controller put on a host, and that no host
    has plugged in. The first page says which hosts say nothing of their ports (`unsaid`), and of
    how many more than are named others speak (`unnamed`).
    """
    analyzer = analyzer_of(request)
    sees = sight(request, analyzer.config)

    def is_mine(each: Plain) -> bool:
        return (
            host in {None, each["host"]}
            and task in {None, each["task"]}
            and sees.sees(str(each["task"]))
        )

    mine = sorted(await in_pieces(_every(analyzer, is_mine)), key=KEY)
    found, last = page(mine, KEY, after, limit)
    answer: Plain = {"unprobed": [each for _, each in found], "next": last[0] if last else None}
    if after is None:
        answer |= _of_hosts(analyzer, sees, lambda name: host in {None, name})
    return as_json(answer)


ROUTES = (unprobed,)
KEY: Callable[[tuple[str, Plain]], str] = itemgetter(0)


def _every(
    analyzer: Analyzer, is_mine: Callable[[Plain], bool]
) -> Generator[None, None, list[tuple[str, Plain]]]:
    """Return what is not probed, and by what it is ordered, piece by piece."""
    others = [*_ports(analyzer), *_intents(analyzer)]
    found = [(_key(each), each) for each in others if is_mine(each)]
    uncovered = yield from coverage_of(analyzer).uncovered()
    ends = map(_endpoint, uncovered)
    while piece := list(islice(ends, PIECE)):
        found += [(_key(each), each) for each in piece if is_mine(each)]
        yield
    return found


def _key(of: Plain) -> str:
    return "\t".join(str(of[name]) for name in ("what", "host", "name", "bridge"))


def _item(what: str, name: str, host: str, task: str, why: str, text: str, **more: str) -> Plain:
    return {
        "what": what,
        "name": name,
        "host": host,
        "task": task,
        "why": why,
        "text": text,
        **{key: more.get(key, "") for key in ("bridge", "logical_port", "container", "pod")},
    }


def _endpoint(each: Uncovered) -> Plain:
    end = each.record.endpoint
    return _item(
        "endpoint", str(end.id), end.host, end.task, each.why, each.text,
        container=end.id.container,
    )  # fmt: skip


def coverage_of(analyzer: Analyzer) -> Coverage:
    """Return who probes whom now, as far as agents are asked to."""

    def sheds(host: str) -> bool:
        report = analyzer.reports.of(host)
        return report is not None and report.health.shed >= RARE

    used, now_ns = analyzer.skeletons.used, analyzer.clock()
    return Coverage(analyzer.registry, used, sheds, now_ns)


def _ports(analyzer: Analyzer) -> Iterator[Plain]:
    for host, said in analyzer.unprobed.said.items():
        for each in said.state.ports:
            task = _task_of(analyzer, each.container, each.task)
            yield _item(
                "port", each.port, host, task, each.why, each.text, bridge=each.bridge,
                logical_port=each.name, container=each.container,
            )  # fmt: skip


def _intents(analyzer: Analyzer) -> Iterator[Plain]:
    states = {host: said.state for host, said in analyzer.driven.said.items()}
    for intent in analyzer.intended.intents():
        for each in unplugged(intent, states):
            port = each.port
            why, text = _unplugged(analyzer, each)
            yield _item(
                "intent", port.name, each.host or each.chassis.name,
                _task_of(analyzer, port.container, ""), why, text,
                container=port.container, pod=port.pod,
            )  # fmt: skip


def _unplugged(analyzer: Analyzer, of: Unplugged) -> tuple[str, str]:
    at = of.host or of.chassis.name
    if of.is_said:
        return "not-plugged", f"it is bound to {at}, which has no interface of it"
    if analyzer.registry.agent(at) is None:
        return "no-agent", f"it is bound to {at}, where no agent is known"
    return "not-said", f"it is bound to {at}, which says nothing of its ports"


def _task_of(analyzer: Analyzer, container: str, said: str) -> str:
    """Return whose a container is: as declared, else as its host says.

    A declared task has those alone that its declaration names.
    """
    registry = analyzer.registry
    owner = registry.declarer([container], besides="") if container else None
    if owner:
        return owner
    return "" if said and registry.containers_of(said) else said


def _of_hosts(analyzer: Analyzer, sees: Sight, wanted: Callable[[str], bool]) -> Plain:
    """Return which hosts do not say all; tenants are told of no hosts."""
    if not sees.is_whole:
        return {"unsaid": [], "unnamed": []}
    said = analyzer.unprobed.said
    hosts = [each.host for each in analyzer.registry.agents() if wanted(each.host)]
    version = analyzer.uniformity.version
    return {
        "unsaid": [{"host": h, "version": version(h)} for h in hosts if h not in said],
        "unnamed": [
            {"host": host, "count": more}
            for host in hosts
            if host in said and (more := said[host].state.count - len(said[host].state.ports))
        ],
    }
