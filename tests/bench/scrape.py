# SPDX-License-Identifier: Apache-2.0
"""What a scrape of a large cluster takes: time, bytes and series, and for how long the loop stands.

All that a real analyzer would know of so many hosts is there; its judge's word is filled in as the
judge would say it, with as many groups as there can be. `cpu_ms` is of the whole process, and what
a busy machine leaves as it is.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from analyzer.history.figures import Told
from analyzer.server.analyzer import Analyzer
from analyzer.server.metrics import scrape
from analyzer.server.metrics.families import most_series
from analyzer.server.metrics.scrape import Scrapes
from tests.analyzer.server.metrics.large import fill, running, told

SIZES = (2_048, 40_000)
ROUNDS = 20
FORMS = {"text": "text/plain", "openmetrics": "application/openmetrics-text;version=1.0.0"}
TARGET_MS = 200
BEAT_S = 0.001
"""Seconds between two looks at the loop."""


def run() -> Iterator[dict[str, object]]:
    """Yield a row for each size and form."""
    for rnics in SIZES:
        yield from asyncio.run(_measured(rnics))


async def _measured(rnics: int) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as name:
        async with running(Path(name)) as analyzer:
            await fill(analyzer, rnics=rnics)
            # The judge is in this process, and would be in its own.
            await analyzer.workers.stop()
            _say(analyzer)
            return [row async for row in _rows(analyzer, rnics)]


def _say(analyzer: Analyzer) -> None:
    word = told(analyzer.clock())

    async def look(_what: str, _kind: type[Told]) -> Told:
        return word

    analyzer.judge.look = look  # type: ignore[method-assign,assignment]


async def _rows(analyzer: Analyzer, rnics: int) -> AsyncIterator[dict[str, object]]:
    scrapes = Scrapes(analyzer)
    for form, accept in FORMS.items():
        took_s, used_s, stood_s, text = [], [], [], b""
        for _ in range(ROUNDS):
            beats: list[float] = []
            beating = asyncio.create_task(_beat(beats))
            await asyncio.sleep(0)
            began_s, before_s = time.perf_counter(), time.process_time()
            text, _ = await scrapes.answer(accept)
            took_s.append(time.perf_counter() - began_s)
            used_s.append(time.process_time() - before_s)
            beating.cancel()
            stood_s.append(max(b - a for a, b in pairwise([*beats, time.perf_counter()])))
        yield {
            "rnics": rnics,
            "form": form,
            "ms": round(1e3 * median(took_s), 1),
            "ms_most": round(1e3 * max(took_s), 1),
            "cpu_ms": round(1e3 * median(used_s), 1),
            "loop_stands_ms": round(1e3 * median(stood_s), 1),
            "gathering_ms": _gathering_ms(analyzer),
            "bytes": len(text),
            "series": sum(not line.startswith(b"#") for line in text.splitlines()),
            "most_series": most_series(),
            "target_ms": TARGET_MS,
        }


def _gathering_ms(analyzer: Analyzer) -> float:
    """Return the part that only the loop can do."""
    word, took_s = told(analyzer.clock()), []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        scrape.gathered(analyzer, word, 0)
        took_s.append(time.perf_counter() - began_s)
    return round(1e3 * median(took_s), 1)


async def _beat(beats: list[float]) -> None:
    while True:
        beats.append(time.perf_counter())
        await asyncio.sleep(BEAT_S)
