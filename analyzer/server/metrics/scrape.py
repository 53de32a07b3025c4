# SPDX-License-Identifier: Apache-2.0
"""One scrape: what is known is gathered at once, and written by a thread.

Scrapes that come while one is written get the same text. The judge is asked first; one that is busy
delays nobody for long: then what it said last is shown, with its age.
"""

import asyncio
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, exposition

from analyzer.history.figures import Told
from analyzer.server.analyzer import Analyzer
from analyzer.server.metrics.families import Samples, registry_of
from analyzer.server.metrics.fleet import fleet
from analyzer.server.metrics.judged import judged
from analyzer.server.metrics.own import own
from netagent.model.errors import CapabilityMissing

PATIENCE_S = 1.0
"""Seconds that a scrape waits for the judge. Chosen: a tenth of Prometheus' timeout."""
log = structlog.get_logger()


class Scrapes:
    """Answers scrapes of one analyzer."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._asking: asyncio.Task[None] | None = None
        self._told: Told | None = None
        self._told_ns = 0
        self._writing: dict[str, asyncio.Task[bytes]] = {}
        """Texts under way, by their content type."""

    async def answer(self, accept: str) -> tuple[bytes, str]:
        """Return the text in the form that is asked for, and its content type."""
        encode, form = exposition.choose_encoder(accept)
        writing = self._writing.get(form)
        if writing is None:
            writing = self._writing[form] = asyncio.create_task(self._write(encode))
            writing.add_done_callback(lambda _: self._writing.pop(form))
        # Whoever goes away must not take it from the others.
        return await asyncio.shield(writing), form

    async def _write(self, encode: Callable[[CollectorRegistry], bytes]) -> bytes:
        await self._ask()
        samples = gathered(self._analyzer, self._told, self._told_ns)
        return await asyncio.to_thread(lambda: encode(registry_of(samples)))

    async def _ask(self) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._look())
        await asyncio.wait([self._asking], timeout=PATIENCE_S)

    async def _look(self) -> None:
        try:
            self._told = await self._analyzer.judge.look("figures", Told)
            self._told_ns = self._analyzer.monotonic()
        except CapabilityMissing:
            pass  # it is being started, or busy: the age says so
        except Exception:  # a bug; whatever else is known is shown
            log.exception("figures_not_read")


def gathered(analyzer: Analyzer, told: Told | None, told_ns: int) -> Samples:
    """Return all samples; `told_ns` is when the judge said what it `told`."""
    families = [*own(analyzer), *fleet(analyzer)]
    if told is not None:
        age_ns = analyzer.monotonic() - told_ns
        families += judged(told, age_ns=age_ns, wall_ns=analyzer.clock())
    return {f"netagent_{name}": rows for name, rows in families}


def render(analyzer: Analyzer) -> str:
    """Return what is known without the judge, as text."""
    return exposition.generate_latest(registry_of(gathered(analyzer, None, 0))).decode()
