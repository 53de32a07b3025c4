# SPDX-License-Identifier: Apache-2.0
"""The route that asks whether a task's network was well: from what is stored, and from walks."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from analyzer.diagnosis.inquiry import Answer, Inquiry, Looked, Pair, answer
from analyzer.server import views
from analyzer.server.analyzer import Analyzer
from analyzer.server.diagnosing import spread
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import require_admin
from analyzer.server.problems import Problem
from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import decode
from netagent.wire.messages import Summary

DEFAULT_NS = 600 * 10**9
"""Nanoseconds that are looked at where nobody says since when. Chosen: longer than what a task
waits for a collective operation."""
MAX_SUMMARIES = 20_000
"""Most summaries read for one question. Chosen: ten minutes of 160 hosts; some ten seconds of one
core, in a thread of its own."""
MAX_WALKS = 16
"""Most pairs walked for one question. Chosen: each asks two hosts, and they have other work."""
MAX_KEPT = 64
"""Most tasks of which the newest answer is kept, for the page. Chosen: more than are asked about at
once; an answer may be some hundred KB."""
RECENT_NS = 60 * 10**9
"""Nanoseconds before now until which flow tables of now say something of then. Chosen."""


@get(
    "/v1/tasks/{task:str}/inquiry",
    responses={200: gives("What was looked at, and the answer."), 404: PROBLEM, 503: PROBLEM},
    tags=["tasks"],
)
async def inquiry(
    task: FromPath[str],
    request: Call,
    since: FromQuery[int | None] = None,
    until: FromQuery[int | None] = None,
) -> Response[bytes]:
    """Say whether the task's network was well between two instants (Unix nanoseconds).

    Without them, the last ten minutes. Flow tables are walked where the time ends about now.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    return as_json(await inquire(analyzer, task, since, until))


ROUTES = (inquiry,)


async def inquire(
    analyzer: Analyzer, task: str, since_ns: int | None, until_ns: int | None
) -> views.Plain:
    """Return what was looked at, and the answer, which is kept. Raises Problem."""
    if analyzer.inquiring.locked():
        raise Problem(503, "another inquiry is being answered", "ask again in some seconds")
    async with analyzer.inquiring:
        found = await _inquire(analyzer, task, since_ns, until_ns)
    analyzer.inquired.pop(task, None)
    analyzer.inquired[task] = analyzer.clock(), found
    while len(analyzer.inquired) > MAX_KEPT:
        del analyzer.inquired[next(iter(analyzer.inquired))]
    return found


async def _inquire(
    analyzer: Analyzer, task: str, since_ns: int | None, until_ns: int | None
) -> views.Plain:
    now_ns = analyzer.clock()
    until_ns = min(until_ns or now_ns, now_ns)
    since_ns = until_ns - DEFAULT_NS if since_ns is None else since_ns
    records = analyzer.registry.endpoints(task, vanished=True)
    if not records:
        raise Problem(
            404, f"no task {task!r} with endpoints", "`netagent-analyzer tasks` lists those known"
        )
    if since_ns >= until_ns:
        raise RemoteProtocolError("since is not before until")
    hosts = {record.endpoint.id: record.endpoint.host for record in records}
    asked = Inquiry(
        task, since_ns, until_ns, analyzer.config.window_s * 10**9, hosts,
        listed(analyzer, sorted(set(hosts.values())), task),
    )  # fmt: skip
    await _read(analyzer, asked)
    walks = await _walk(analyzer, asked) if now_ns - until_ns < RECENT_NS else {}
    looked = asked.looked(analyzer.journal.incidents(), walks)
    return plain(looked)


def listed(analyzer: Analyzer, hosts: Sequence[str], task: str) -> list[Pair]:
    """Return the pairs of the task that its hosts probe now."""
    mine = {record.endpoint.id for record in analyzer.registry.endpoints(task)}
    targets = (target for host in hosts for target in analyzer.lists.targets(host))
    return [(t.source, t.target) for t in targets if t.source in mine]


async def _read(analyzer: Analyzer, asked: Inquiry) -> None:
    hosts = sorted(set(asked.endpoints.values()))
    # Only whole windows count.
    span = (asked.since_ns, asked.until_ns - asked.width_ns)
    count = await analyzer.store.count_of(hosts, *span)
    if count > MAX_SUMMARIES:
        raise Problem(
            400, f"{count} summaries lie in that time, more than {MAX_SUMMARIES}",
            "ask for a shorter time",
        )  # fmt: skip

    def take(payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            try:
                asked.add(decode(payload, Summary))
            except RemoteProtocolError:
                asked.odd += 1

    async for payloads in analyzer.store.of_hosts(hosts, *span):
        await asyncio.to_thread(take, payloads)


async def _walk(analyzer: Analyzer, asked: Inquiry) -> dict[str, int]:
    """Return how walks between some pairs end now, spread over all that are probed."""
    registry = analyzer.registry
    pairs = sorted({min(pair, pair[::-1]) for pair in asked.expected})
    pairs = [p for p in pairs if all((r := registry.endpoint(e)) and r.live for e in p)]
    some = spread(pairs, MAX_WALKS)
    # At once: each host is asked twice, and refuses what comes beside several others.
    stories = await analyzer.walks(some, [None] * len(some))
    return dict(Counter(str(each["outcome"]) for each in stories))


def plain(looked: Looked) -> views.Plain:
    """Return the answer as plain data."""
    said, against, missing = answer(looked)
    made = asdict(looked)
    return {
        "answer": said.value,
        "innocent": said is Answer.INNOCENT,
        "against": against,
        "not_looked_at": missing,
        **{
            name: made[name]
            for name in ("task", "since_ns", "until_ns", "windows", "hosts", "sent", "lost",
                         "refused", "lost_at_most", "rtt_us", "walks")
        },
        "pairs": [
            {
                "source": str(p.pair[0]), "target": str(p.pair[1]), "sent": p.sent,
                "lost": p.lost, "windows": p.windows,
            }
            for p in looked.pairs
        ],
        "unprobed": [[str(end) for end in pair] for pair in looked.unprobed],
        "findings": [views.finding(each) for each in looked.findings],
        "incidents": [each.id for each in looked.incidents],
    }  # fmt: skip
