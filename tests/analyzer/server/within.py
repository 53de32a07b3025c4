# SPDX-License-Identifier: Apache-2.0
"""An analyzer that answers at a socket, from a thread of the tests' own process.

For tests of what asks it: no interpreter starts, which takes two seconds of a processor. Its judge
is in the same event loop. Tests of the process itself, of signals and of TLS want `process`.
"""

import asyncio
import contextlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import structlog
import uvicorn

from analyzer import config
from analyzer.server import assembly
from analyzer.server.analyzer import Analyzer
from analyzer.server.routes import application
from tests.analyzer.server.direct import Direct


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process: this is one of its threads."""
        yield


class Within:
    """Such an analyzer, whose configuration and database lie in a folder."""

    def __init__(self, folder: Path, *, more: str = "") -> None:
        """Take `more` into the configuration."""
        self.config = folder / "analyzer.toml"
        self.database = folder / "state" / "netagent.duckdb"
        self.config.write_text(f'database = "state/netagent.duckdb"\n{more}')
        self._server = _Server(assembly._uvicorn(None))
        self._stands = threading.Event()
        self._failed: BaseException | None = None

    def __enter__(self) -> Self:
        # What it logs must not be taken for what a command prints.
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stderr__))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, name="analyzer")
        self._thread.start()
        self._stands.wait()
        if self._failed is not None:
            self.__exit__()
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        structlog.reset_defaults()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
            self._failed = error
        finally:
            self._stands.set()

    async def _serve(self) -> None:
        judge = Direct(time.time_ns)
        path = str(self.config)
        analyzer = await Analyzer.start(config.load(path), path, open_link=judge.open)
        try:
            self._server.config.app = application(analyzer)
            self._stands.set()  # who connects now waits in the listener's queue
            await self._server.serve([self._listener])
        finally:
            analyzer.waiters.stop()
            await analyzer.stop()
