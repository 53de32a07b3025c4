# SPDX-License-Identifier: Apache-2.0
"""A month of history: its bytes on disk, and how long each view of it takes.

A simulated fabric of RNICS lives for MINUTES minutes, healthy ones and one with a dead link, and is
judged. The first hour is written by the judge's own writer, minute after minute, merged and put
together by it; all other minutes, hours and packs are the rows of these with other times, written
through the same writer, since to merge 720 hours takes one. The newest minute is put by
`Tiers.put`, so that what is too old or too much is gone as it would be. Nothing is extrapolated:
`files` and `packs` are what lies there. But an hour of the same three minutes over and over takes
less in a pack than sixty that differ, and a day of the same hour likewise: `pack_kb` and what
follows from it is a lower bound. Views are asked over the API's and the page's own applications,
without sockets, each for the first time and again; `cpu_ms` is what the process used.

`make bench` writes a month of hours and the minutes of the last three hours. The whole month, of
minutes as far as the default configuration keeps them: `python -m tests.bench.month 720 30`, which
takes half an hour of CPU.
"""

import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import structlog

from analyzer.config import Config, History, Page
from analyzer.history.blocks import Block, block_of
from analyzer.history.files import TRIPS, Piece, Tier, What
from analyzer.history.ledger import MINUTE_NS
from analyzer.judge.observers import Both
from analyzer.picture.picture import Picture
from analyzer.server import routes
from analyzer.server.analyzer import Analyzer
from analyzer.server.identity import PEER
from analyzer.server.page import routes as page_routes
from analyzer.server.page.guard import Guard
from analyzer.store.parquet import names_of
from analyzer.store.tiers import SPREAD_S, Tiers
from netagent.model.verdict import Incident, IncidentState
from tests.analyzer.server.direct import Direct
from tests.bench.scale import WARM, Life, apart

Row = dict[str, object]
Show = Callable[[Row], None]

RNICS = 2_048
MINUTES = 3
"""Different minutes; of the last one a part is in a fault."""
PER_HOUR = 60
INCIDENTS_A_DAY = 10
HOUR_S = 3600
DAY_NS, HOUR_NS = 86_400 * 10**9, Tier.HOUR.width_ns
SHORT = (3, 30)
"""Hours of minutes, and days of hours, of `make bench`."""
PAGE = "127.0.0.1:8443"
AGAIN = """
SELECT * REPLACE (start_ns + $moved_ns::BIGINT AS start_ns) FROM read_parquet($files)
"""
ASKED = 3
"""How often each view is asked for again."""


def lived() -> tuple[Life, Picture, list[Block]]:
    """Return a cluster's life, what its newest window shows, and its minutes."""
    life, picture = Life(RNICS), Picture()
    life.diagnosis.observer = Both(life.watcher, picture)
    life.windows(WARM)
    blocks: list[Block] = []
    while len(blocks) < MINUTES + 1:  # the first one is not whole
        if len(blocks) == MINUTES:
            life.fail((2,))
        life.windows(1)
        blocks += [block_of(each) for each in life.watcher.sealed]
    return life, picture, blocks[1:]


class Written:
    """A history that ends now: minutes of some hours, and hours of some days."""

    def __init__(self, database: str, blocks: list[Block], size: tuple[int, int]) -> None:
        now_ns = time.time_ns()
        self.until_ns = now_ns - now_ns % MINUTE_NS
        """End of the newest minute."""
        self._tiers = Tiers(database, History())
        self._tiers.begin(now_ns)
        self._folder = Path(database + ".history")
        self.put_s, self.merge_s = self._first_hour(blocks)
        self._repeat(*size)
        last = blocks[-1]
        self._tiers.put(replace(last, start_ns=self.until_ns - MINUTE_NS))  # and trim

    @property
    def _hour_ns(self) -> int:
        """Return the start of the newest whole hour."""
        return self.until_ns - self.until_ns % HOUR_NS - HOUR_NS

    def _first_hour(self, blocks: list[Block]) -> tuple[float, float]:
        """Write an hour as a judge does; return the CPU of a minute and of the merging, seconds."""
        took_s = []
        for n in range(PER_HOUR + 1):
            began_s = time.process_time()
            block = blocks[n % len(blocks)]
            self._tiers.put(replace(block, start_ns=self._hour_ns + n * MINUTE_NS))
            took_s.append(time.process_time() - began_s)
        put_s = statistics.median(took_s[:-1])
        return put_s, took_s[-1] - put_s

    def _repeat(self, hours: int, days: int) -> None:
        hour = Piece(Tier.MINUTE, self._hour_ns, What.PAIRS).pack
        for start_ns in range(hour.until_ns, self.until_ns - MINUTE_NS, MINUTE_NS):
            self._again(replace(hour, packed=False), start_ns, hour.until_ns)
        self._pack(hour)
        minutes = min(hours * PER_HOUR, self._minutes_kept())
        for start_ns in range(self.until_ns - minutes * MINUTE_NS, hour.start_ns, HOUR_NS):
            self._again(hour, start_ns - start_ns % HOUR_NS, hour.start_ns)
        merged = Piece(Tier.HOUR, self._hour_ns, What.PAIRS)
        today_ns = self._hour_ns - self._hour_ns % DAY_NS
        for start_ns in range(today_ns - DAY_NS, self._hour_ns, HOUR_NS):
            self._again(merged, start_ns, merged.start_ns)
        day = replace(merged, start_ns=today_ns - DAY_NS).pack
        self._pack(day)
        for n in range(1, days):
            self._again(day, day.start_ns - n * DAY_NS, day.start_ns)

    def _pack(self, pack: Piece) -> None:
        """Put pieces of each kind together, as a judge does, unless it was done."""
        for what in What:
            each = replace(pack, what=what)
            if each.start_ns not in self._tiers._beside(each):
                self._tiers._pack(each)

    def _minutes_kept(self) -> int:
        """Return how many minutes fit into what the default configuration keeps, and one more."""
        sizes = {what: self._tiers._packs[Tier.MINUTE, what][self._hour_ns] for what in What}
        left = float(History().minute_bytes)
        left -= sum(sizes[what] for what in TRIPS.values()) * SPREAD_S / HOUR_S
        return int(left // (sum(sizes[what] for what in TRIPS) / PER_HOUR)) + 1

    def _again(self, piece: Piece, start_ns: int, of_ns: int) -> None:
        """Write the rows of files that begin at `of_ns` with another time, unless there are some.

        Histograms of minutes are not written that would be gone.
        """
        for what in What:
            to = replace(piece, what=what, start_ns=start_ns)
            gone_ns = self.until_ns - SPREAD_S * 10**9 - MINUTE_NS
            is_gone = to.tier is Tier.MINUTE and what in TRIPS.values() and to.newest_ns < gone_ns
            if start_ns in self._tiers._beside(to) or is_gone:
                continue
            of = self._folder / replace(to, start_ns=of_ns).path
            moved = {"moved_ns": start_ns - of_ns, "files": names_of([of])}
            self._tiers._write(to, AGAIN, moved)

    def bytes(self) -> dict[str, object]:
        """Return what lies there, by tier and kind."""
        told: dict[str, object] = {}
        every = 0
        for tier in Tier:
            for what in What:
                single, packed = (
                    sizes[tier, what] for sizes in (self._tiers._sizes, self._tiers._packs)
                )
                name, total = f"{tier}_{what}", sum(single.values()) + sum(packed.values())
                every += total
                told |= {
                    f"{name}_files": len(single), f"{name}_packs": len(packed),
                    f"{name}_mb": round(total / 1e6, 1),
                    f"{name}_kb_each": round(statistics.mean(single.values()) / 1e3, 1),
                    f"{name}_pack_kb": round(statistics.mean(packed.values()) / 1e3, 1),
                }  # fmt: skip
        return told | {"all_mb": round(every / 1e6, 1)}


def incidents(known: list[Incident], days: int, until_ns: int) -> Iterator[Incident]:
    """Yield as many incidents of days that are over, each as one that was seen."""
    step_ns = DAY_NS // INCIDENTS_A_DAY
    for n in range(days * INCIDENTS_A_DAY):
        like, at_ns = known[n % len(known)], until_ns - (n + 1) * step_ns
        yield replace(
            like, id=f"{like.id[:4]}{n:08x}", state=IncidentState.RECOVERED, detected_ns=at_ns,
            localized_ns=at_ns + 10**9, updated_ns=at_ns + HOUR_NS, recovered_ns=at_ns + HOUR_NS,
        )  # fmt: skip


class Asking:
    """An analyzer's two applications, asked as an administrator."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._page = page_routes.application(analyzer)
        guard = Guard(analyzer, self._page, {}, port=0)  # type: ignore[arg-type]
        self._page_http = _client(guard, PAGE)
        self._api = _client(routes.application(analyzer), "localhost")

    async def api(self, path: str, **query: object) -> int:
        """Return the bytes of an answer."""
        shown = {name: str(value) for name, value in query.items()}
        answer = await self._api.get(path, params=shown)
        answer.raise_for_status()
        return len(answer.content)

    async def page(self, path: str) -> int:
        """Return the bytes of a view, with nothing remembered."""
        page = self._page.state["page"]
        page.looks._known.clear()
        page.series._known.clear()
        answer = await self._page_http.get(f"/v1/views/{path}")
        answer.raise_for_status()
        return len(answer.content)

    async def json(self, path: str, **query: object) -> Any:
        """Return an answer of the API."""
        shown = {name: str(value) for name, value in query.items()}
        return (await self._api.get(path, params=shown)).json()

    async def minutes(self, since_ns: int, until_ns: int) -> int:
        """Fetch minutes, as `export` does; return their bytes."""
        span = {"since_ns": since_ns, "until_ns": until_ns, "tier": "minute"}
        names = (await self.json("/v1/history/files", limit=10_000, **span))["files"]
        return sum([await self.api(f"/v1/history/files/{name}") for name in names])


def _client(app: Any, host: str) -> httpx.AsyncClient:
    async def identified(scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = {PEER: "admin"}
        await app(scope, receive, send)

    transport = httpx.ASGITransport(identified)
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}", timeout=600)


def _views(
    asking: Asking, life: Life, written: Written, size: tuple[int, int]
) -> Iterator[tuple[str, Any]]:
    """Yield what is asked for: its name, and what does it."""
    hours, days = size
    record = next(iter(life.registry.endpoints()))
    endpoint = record.endpoint
    number = int(life.clos.first_pair[0])
    source, target = (
        str(life.clos.endpoints[int(ends[number])].id)
        for ends in (life.clos.source, life.clos.target)
    )
    pair = {"source": source, "target": target}
    link = {"component": "link leaf-s0-r0 -- spine-0"}
    now_ns = written.until_ns
    spans = {"2 h": 2 * HOUR_NS, "1 d": DAY_NS, f"{days} d": days * DAY_NS}
    for what, asked in (("pair", pair), ("component", link), ("endpoint", {"endpoint": source})):
        for span, width_ns in spans.items():
            for tier in ("minute",) if span == "2 h" else ("minute", "hour"):
                if tier == "minute" and width_ns > min(DAY_NS, hours * HOUR_NS):
                    continue
                query = asked | {"tier": tier, "since_ns": now_ns - width_ns, "limit": 10_000}
                name = f"{what}, {span} by {tier}"
                yield name, lambda q=query: asking.api("/v1/history", **q)
                if what == "endpoint":
                    rest = {name: value for name, value in query.items() if name != "limit"}
                    together = f"{name}, together"
                    yield together, lambda q=rest: asking.api("/v1/history/together", **q)
    yield "page: pair", lambda: asking.page(f"pair?source={source}&target={target}")
    yield "page: task", lambda: asking.page(f"task/{endpoint.task}")
    yield "page: host", lambda: asking.page(f"host/{endpoint.host}")
    for since in dict.fromkeys((7, days)):
        query = {"since_ns": now_ns - since * DAY_NS, "until_ns": now_ns}
        yield f"report, {since} d: links", lambda q=query: asking.api("/v1/history/worst", **q)
        listed = {"since": now_ns - since * DAY_NS, "limit": 1_000}
        yield f"report, {since} d: incidents", lambda q=listed: asking.api("/v1/incidents", **q)
    last = min(24, hours)
    since_ns = now_ns - last * HOUR_NS
    yield f"export, {last} h of minutes", lambda: asking.minutes(since_ns, now_ns)


async def _asked(
    analyzer: Analyzer, life: Life, written: Written, size: tuple[int, int]
) -> AsyncIterator[dict[str, object]]:
    asking = Asking(analyzer)
    for name, ask in _views(asking, life, written, size):
        took: list[tuple[float, float]] = []
        for _ in range(1 + ASKED):
            began = time.perf_counter(), time.process_time()
            answered = await ask()
            ended = time.perf_counter(), time.process_time()
            took.append((1e3 * (ended[0] - began[0]), 1e3 * (ended[1] - began[1])))
        yield {
            "view": name,
            "first_ms": round(took[0][0]),
            "ms": round(statistics.median(ms for ms, _ in took[1:])),
            "cpu_ms": round(statistics.median(ms for _, ms in took[1:])),
            "bytes": answered,
        }


async def _measured(folder: Path, size: tuple[int, int], show: Show) -> None:
    life, picture, blocks = lived()
    database = str(folder / "netagent.duckdb")
    written = Written(database, blocks, size)
    shown: Row = {"rnics": RNICS, "pairs": len(blocks[-1].pairs), "days": size[1]}
    show(
        shown
        | written.bytes()
        | {
            "components": len(blocks[-1].components),
            "put_cpu_ms": round(1e3 * written.put_s, 1),
            "merge_cpu_ms": round(1e3 * written.merge_s),
            "incidents": size[1] * INCIDENTS_A_DAY,
        }
    )
    judge = Direct(time.time_ns)
    config = Config(database=database, page=Page(PAGE))
    analyzer = await Analyzer.start(config, "analyzer.toml", open_link=judge.open)
    await judge.all_taken()
    try:
        for message in life.agents.registrations():
            analyzer.registry.apply(message, analyzer.clock())
        for incident in incidents(list(life.diagnosis.incidents()), size[1], written.until_ns):
            analyzer.journal.note(incident)
        await judge.all_taken()
        judge.bench.picture = picture
        async for row in _asked(analyzer, life, written, size):
            show(shown | row)
    finally:
        await analyzer.stop()


def measure(size: tuple[int, int], show: Show) -> None:
    """Show what a history takes, as it is measured.

    `size` is of how many hours there are minutes, and of how many days hours.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measured(Path(folder), size, show))


def gathered(size: tuple[int, int]) -> list[Row]:
    """Return all that `measure` shows."""
    rows: list[Row] = []
    measure(size, rows.append)
    return rows


def run(size: tuple[int, int] = SHORT) -> Iterator[Row]:
    """Yield one row of bytes, and one for each view."""
    yield from apart(gathered, size)


if __name__ == "__main__":
    given = tuple(map(int, sys.argv[1:3])) or SHORT
    measure((given[0], given[-1]), lambda row: print(json.dumps(row), flush=True))
