# SPDX-License-Identifier: Apache-2.0
"""What each view of the page costs a server that knows a large cluster: milliseconds and bytes.

The windows are a simulated fabric's, judged as a judge does; an hour of minutes lies on disk. Each
view is asked for over the page's own application, without sockets: for the first time ever, first
of a new window, of which nothing was summed up so far, and again of the same one, of which what was
asked stands. `cpu_ms` is what the process used meanwhile, `ms` what it took on this machine. The
judge runs in the same thread, so its time is in both; a judge at work in a process of its own
answers after its step. `longest_ms` is for how long the loop was away at most, of either; the row
`who is not probed` has what a look for endpoints that nobody probes takes, and its longest piece.
`python -m tests.bench.views RNICS` does it for another size.
"""

import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from analyzer.config import Config, History, Page
from analyzer.history.blocks import block_of
from analyzer.history.ledger import MINUTE_NS, Ledger
from analyzer.judge.observers import Both
from analyzer.picture.picture import Picture
from analyzer.server.analyzer import Analyzer
from analyzer.server.assembly import GARBAGE
from analyzer.server.identity import PEER
from analyzer.server.page import routes
from analyzer.server.page.guard import Guard
from analyzer.server.unprobed import coverage_of
from analyzer.store.tiers import Tiers
from netagent.model.endpoint import Endpoint
from tests.analyzer.server.direct import Direct
from tests.bench.scale import Life, apart

RNICS = (2_048, 39_936)
WARM = 3
"""Windows until all ways are known."""
FAULTS = (2,)
"""What fails: a dead link, as in `scale`."""
MINUTES = 60
PAGE = "127.0.0.1:8443"


class _Bench:
    """An analyzer that knows a cluster, and whose judge has seen its windows."""

    def __init__(self, life: Life, picture: Picture, analyzer: Analyzer, judge: Direct) -> None:
        self._life, self.picture, self._analyzer = life, picture, analyzer
        judge.bench.picture = picture
        self._app = routes.application(analyzer)
        guard = Guard(analyzer, self._app, {}, port=0)  # type: ignore[arg-type]

        async def identified(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {PEER: "admin"}
            await guard(scope, receive, send)

        transport = httpx.ASGITransport(identified)
        self._http = httpx.AsyncClient(transport=transport, base_url=f"http://{PAGE}", timeout=600)

    def _forget(self, *, window: bool) -> None:
        page = self._app.state["page"]
        page.looks._known.clear()
        page.series._known.clear()
        page._covered_s = float("-inf")
        if window:
            self.picture._scene = None

    async def _looked(self) -> None:
        """Wait for a look for endpoints that nobody probes, which another view began."""
        looking = self._app.state["page"]._looking
        if looking is not None:
            await asyncio.wait({looking})

    async def ask(self, view: str) -> dict[str, object]:
        """Return what a view costs."""
        took: dict[str, object] = {}
        away = [0.0]
        for which in ("ever_", "first_", ""):
            await self._looked()
            self._forget(window=bool(which))
            began_s = time.perf_counter(), time.process_time()
            answer = await self._http.get(f"/v1/views/{view}")
            ended_s = time.perf_counter(), time.process_time()
            answer.raise_for_status()
            for name, began, ended in zip(("ms", "cpu_ms"), began_s, ended_s, strict=True):
                took[which + name] = round((ended - began) * 1e3, 1)
        name = view.partition("?")[0].partition("/")[0] + _by(view)
        self._forget(window=True)
        turns = asyncio.create_task(_longest(away))  # it takes CPU itself, so it has its own turn
        await self._http.get(f"/v1/views/{view}")
        turns.cancel()
        took["longest_ms"] = round(away[0] * 1e3, 1)
        return {"view": name, **took, "bytes": len(answer.content)}

    async def get(self, view: str) -> Any:
        """Return a view's answer."""
        return (await self._http.get(f"/v1/views/{view}")).json()


async def _longest(away: list[float]) -> None:
    """Note the longest time between two turns of the loop, in seconds."""
    at_s = time.perf_counter()
    while True:
        await asyncio.sleep(0)
        now_s = time.perf_counter()
        away[0], at_s = max(away[0], now_s - at_s), now_s


def _covered(analyzer: Analyzer) -> dict[str, object]:
    """Return what a look for endpoints that nobody probes costs."""
    pieces, look, at_s = list[float](), coverage_of(analyzer).uncovered(), time.process_time()
    for _ in look:
        now_s = time.process_time()
        pieces.append(now_s - at_s)
        at_s = now_s
    cost = {"cpu_ms": round(sum(pieces) * 1e3, 1), "longest_ms": round(max(pieces) * 1e3, 1)}
    return {"view": "who is not probed", **cost}


def _by(view: str) -> str:
    return f" {view.partition('by=')[2].partition('&')[0]}" if "by=" in view else ""


def _lived(rnics: int) -> tuple[Life, Picture, Ledger]:
    """Return a cluster's life, with what its newest window shows, and a minute of it."""
    life, picture = Life(rnics), Picture()
    life.diagnosis.observer = Both(life.watcher, picture)
    life.windows(WARM)
    life.fail(FAULTS)
    life.windows(2)
    return life, picture, life.watcher.ledger


def _remember(database: str, ledger: Ledger, now_ns: int) -> None:
    """Write an hour of minutes, each as the one that was seen."""
    block = block_of(ledger.expire(1 << 62)[-1])
    tiers = Tiers(database, History())
    first_ns = now_ns - now_ns % MINUTE_NS - MINUTES * MINUTE_NS
    tiers.begin(first_ns)
    for n in range(MINUTES):
        tiers.put(replace(block, start_ns=first_ns + n * MINUTE_NS))


async def _measured(rnics: int, folder: Path) -> list[dict[str, object]]:
    gc.set_threshold(*GARBAGE)  # as an analyzer has it
    life, picture, ledger = _lived(rnics)
    database = str(folder / "netagent.duckdb")
    _remember(database, ledger, time.time_ns())
    judge = Direct(time.time_ns)
    config = Config(database=database, page=Page(PAGE))
    analyzer = await Analyzer.start(config, "analyzer.toml", open_link=judge.open)
    await judge.all_taken()
    try:
        for message in life.agents.registrations():
            analyzer.registry.apply(message, analyzer.clock())
        for incident in life.diagnosis.incidents():
            analyzer.journal.note(incident)
        await judge.all_taken()
        bench = _Bench(life, picture, analyzer, judge)
        shown = {"rnics": rnics, "rows": life.rows[-1]}
        asked = [shown | await bench.ask(view) for view in await _views(bench, life)]
        return [shown | _covered(analyzer), *asked]
    finally:
        await analyzer.stop()


async def _views(bench: _Bench, life: Life) -> list[str]:
    """Return what is asked for."""
    told = await bench.get("now")
    while not told["incidents"]:
        await asyncio.sleep(0.1)
        told = await bench.get("now")
    [incident, *_] = told["incidents"]
    known: Mapping[Any, Endpoint] = {
        record.endpoint.id: record.endpoint for record in life.registry.endpoints()
    }
    failing = (await bench.get(f"incident/{incident['id']}"))["failing"][0]
    ends = f"source={failing['source']}&target={failing['target']}"
    some = next(iter(known.values()))
    return [
        "now", "fabric", "matrix?by=leaf", "matrix?by=rail", "matrix?by=host", "matrix?by=task",
        "tasks", f"task/{some.task}", f"incident/{incident['id']}", f"pair?{ends}",
        f"host/{some.host}", "hosts?q=h1", "endpoints?q=t1",
    ]  # fmt: skip


def measure(rnics: int) -> list[dict[str, object]]:
    """Return what each view costs at a size."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measured(rnics, Path(folder)))


def run(sizes: tuple[int, ...] = RNICS) -> Iterator[dict[str, object]]:
    """Yield one row for each view and size."""
    for rnics in sizes:
        yield from apart(measure, rnics)


if __name__ == "__main__":
    for row in run(tuple(map(int, sys.argv[1:])) or RNICS):
        print(json.dumps(row), flush=True)
