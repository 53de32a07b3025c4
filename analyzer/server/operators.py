# SPDX-License-Identifier: Apache-2.0
"""The route that tells how far a job's ranks came, as hosts' sums say it."""

from litestar import Response, get
from litestar.params import FromPath

from analyzer.detect.operators.verdict import as_json as as_plain
from analyzer.operators.keeper import Known, Row
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import sight
from analyzer.server.problems import Problem


@get("/v1/operators/{job:str}",
     responses={200: gives("How far each rank came."), 404: PROBLEM}, tags=["tasks"])  # fmt: skip
async def operators(request: Call, job: FromPath[str]) -> Response[bytes]:
    """Return who holds a job up, and what hosts said last of each rank, and of its collectives.

    Not `believed` is who is in no container of the task; it is told to those alone who see all.
    Of a row, `begun` and `ended` number the newest collective in the group; times are of the
    newest window in which any ended.
    """
    analyzer = analyzer_of(request)
    seen = sight(request, analyzer.config)
    every = analyzer.operators.processes(job) if seen.sees(job) else ()
    # What claims to be of a task and is not is another's, and none of the task's owner's business.
    known = [each for each in every if seen.is_whole or analyzer.jobs.is_of(each, job)]
    if not known:
        raise Problem(
            404, f"nothing is recorded of a job {job!r}", "see docs/collectors.md: record it"
        )
    latest = analyzer.jobs.latest(job)
    verdict = None if latest is None else {"at_ns": latest.at_ns, **as_plain(latest.verdict)}
    ranks = [_plain(each, believed=analyzer.jobs.is_of(each, job)) for each in known]
    return as_json({"job": job, "verdict": verdict, "ranks": ranks})


ROUTES = (operators,)


def _plain(of: Known, *, believed: bool) -> dict[str, object]:
    process = of.process
    return {
        "rank": process.rank, "world": process.world, "host": of.host, "source": process.source,
        "believed": believed, "gone": process.gone, "step": process.step, "missed": process.missed,
        "left_out": process.left_out, "heard_ns": of.heard_ns,
        "operations": [_row(each) for each in of.rows],
        "progress": [
            {"group": name, "begun": begun, "ended": ended}
            for name, (begun, ended) in sorted(of.progress.items())
        ],
    }  # fmt: skip


def _row(of: Row) -> dict[str, object]:
    group = of.group.name if of.group is not None else ""
    return {"op": of.op, "kind": of.kind.name.lower(), "group": group, **of.told._asdict()}
