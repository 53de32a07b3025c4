# SPDX-License-Identifier: Apache-2.0
"""An analyzer with the page in front of it, two tenants' tasks, and browsers without sockets."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from analyzer.config import Config, Page, Tasks
from analyzer.intake.flows import FlowNumbers
from analyzer.picture.picture import Picture
from analyzer.server.analyzer import Analyzer
from analyzer.server.identity import PEER, PEER_SERIAL
from analyzer.server.page.files import File
from analyzer.server.page.guard import Guard
from analyzer.server.page.page import Page as PageState
from analyzer.server.page.routes import application
from analyzer.server.routes import application as api
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, Layer
from netagent.model.verdict import Incident, IncidentState, Pair, Suspect, Symptom, Verdict
from netagent.wire.messages import Registration
from tests.analyzer.picture.scenes import (
    ENDPOINTS,
    HOSTS,
    PORTS,
    WIDTH_NS,
    Flow,
    host_of,
    known,
    table_of,
    topology_of,
)
from tests.analyzer.server.direct import Direct
from tests.waiting import until

T = TypeVar("T")

PORT = 8443
TENANT, OTHER = "tenant-a", "tenant-b"
"""Who may read of t0 (hosts h0, h1), and who of t1 (h2, h3); t2 (h4, h5) is nobody's."""
THEIRS = ("c2/", "c3/", "c4/", "c5/", "t1", "t2", "h2", "h3", "h4", "h5")
"""What a session of TENANT is never told: other tenants' containers, tasks, endpoints' hosts."""
WINDOW = [
    Flow(a, b, port, int((a, b) in {(0, 2), (4, 6)}), (10_000, 20_000), (0, 1))
    for port in PORTS
    for a in range(len(ENDPOINTS))
    for b in range(len(ENDPOINTS))
    if a != b and a % 2 == b % 2 and a // 4 == b // 4
]
"""Within each task, each endpoint probes its rail; one pair of t0, and one of t1, loses."""
HEARD_NS = 3600 * 10**9
"""Nanoseconds from now until which hosts are heard."""
FILES = {
    "index.html": File(b"<p>the page", "text/html; charset=utf-8", '"one"'),
    "now.js": File(b"let now", "text/javascript; charset=utf-8", '"two"'),
}


def incident(name: str, *tasks: str, **fields: Any) -> Incident:
    """Return an incident of some tasks, which names what is at fault in each of them."""
    pairs = {
        "t0": Pair(EndpointId("c0", 0), EndpointId("c1", 0), 10, 9),
        "t1": Pair(EndpointId("c2", 0), EndpointId("c3", 0), 10, 9),
    }
    failing = tuple(pairs[task] for task in tasks)
    values: dict[str, Any] = {
        "component": Component(Kind.SWITCH, "spine-0"),
        "layer": Layer.UNDERLAY,
        "summary": "spine-0 loses",
        "evidence": tuple(f"{pair.source} to {pair.target} says so" for pair in failing),
        "alternatives": (Suspect(Component(Kind.LINK, "leaf-s0-r0 -- spine-0"), 0.5, 1, 2),),
        **fields,
    }
    at_ns = time.time_ns()
    times = {name: values.pop(name, None) for name in ("recovered_ns",)}
    state = values.pop("state", IncidentState.OPEN)
    verdict = Verdict(symptom=Symptom.LOSS, confidence=0.9, failing=failing, **values)
    return Incident(name, state, verdict, at_ns, at_ns, at_ns, tasks=tasks, **times)


class Looking:
    """The analyzer, its judge's bench, and who looks."""

    def __init__(self, analyzer: Analyzer, judge: Direct) -> None:
        self.analyzer, self.judge = analyzer, judge
        views = application(analyzer)
        self.page: PageState = views.state["page"]
        self.guard = Guard(analyzer, views, FILES, port=PORT)  # type: ignore[arg-type]
        self._apps: dict[str, Any] = {"page": self.guard, "api": api(analyzer)}

    def browser(self, peer: str | None = "", *, app: str = "page") -> httpx.AsyncClient:
        """Return a client; `peer` is the name in its certificate, "" without one."""
        behind = self._apps[app]

        async def identified(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {PEER: peer, PEER_SERIAL: f"0{peer}"}
            await behind(scope, receive, send)

        transport = httpx.ASGITransport(identified, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url=f"https://127.0.0.1:{PORT}")

    async def link(self, peer: str | None, **body: str) -> str:
        """Ask for a link as `peer`; return it."""
        async with self.browser(peer, app="api") as asking:
            answer = await asking.post("/v1/sessions", json=body)
        assert answer.status_code == httpx.codes.OK, answer.text
        url: str = answer.json()["url"]
        return url

    async def session(self, peer: str | None, **body: str) -> httpx.AsyncClient:
        """Return a browser without a certificate, in a session that `peer` asked for."""
        browser, url = self.browser(), await self.link(peer, **body)
        answer = await browser.get(url)
        assert answer.status_code == httpx.codes.SEE_OTHER, answer.text
        return browser

    async def tell(self, *changed: Incident) -> None:
        """Let incidents change, and wait until that is announced."""
        for each in changed:
            self.analyzer.journal.note(each)
        await until(lambda: all(self.analyzer.journal.get(each.id) is each for each in changed))

    def show(self, window: list[Flow] | None = None, start_ns: int | None = None) -> None:
        """Let a window be the newest one."""
        numbers, window = FlowNumbers(), WINDOW if window is None else window
        if start_ns is None:
            start_ns = (time.time_ns() // WIDTH_NS - 1) * WIDTH_NS
        self.judge.bench.picture = picture = Picture()
        table = table_of(window, numbers, start_ns)
        picture.saw(table, known(), topology_of(window, numbers))


@contextlib.asynccontextmanager
async def looking(folder: Path, **fields: Any) -> AsyncIterator[Looking]:
    """Run an analyzer whose database lies in `folder`, with all of `scenes`' endpoints."""
    config = Config(
        database=str(folder / "netagent.duckdb"),
        page=Page(f"127.0.0.1:{PORT}"),
        readers=("reader",),
        tenants={TENANT: ("t0",), OTHER: ("t1",)},
        tasks=Tasks(missing_after_s=1),
        insecure=True,
        **fields,
    )
    judge = Direct(time.time_ns)
    analyzer = await Analyzer.start(config, "analyzer.toml", open_link=judge.open)
    analyzer.page_at = "127.0.0.1", PORT
    await judge.all_taken()
    try:
        for number in range(HOSTS):
            host = f"h{number}"
            ends = tuple(end for n, end in enumerate(ENDPOINTS) if host_of(n) == host)
            message = Registration(
                host=host, instance="1", generation=1, rpc_url="https://127.0.0.1:1", endpoints=ends
            )
            await analyzer.service.register(message, analyzer.clock() - 10 * 10**9)
            # Whatever a busy machine takes for a test: nobody falls silent in it by chance.
            analyzer.registry.heard(host, 0, analyzer.clock() + HEARD_NS)
        looked = Looking(analyzer, judge)
        looked.show()
        yield looked
    finally:
        await analyzer.stop()


def on(folder: Path, work: Callable[[Looking], Awaitable[T]], **fields: Any) -> T:
    """Run `work` against such an analyzer."""

    async def inside() -> T:
        async with asyncio.timeout(90), looking(folder, **fields) as looked:
            return await work(looked)

    return asyncio.run(inside())
