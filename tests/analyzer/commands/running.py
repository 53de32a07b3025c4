# SPDX-License-Identifier: Apache-2.0
"""Commands as processes, against an analyzer that knows some incidents."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from analyzer.store.tables import Store
from netagent.model.verdict import Incident
from tests.analyzer.server.process import ROOT
from tests.analyzer.server.within import Within

ENVIRON = {
    name: value for name, value in os.environ.items() if not name.startswith("NETAGENT_")
} | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}


def ran(*words: str, given: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `netagent-analyzer WORDS` to its end, with `given` on its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "analyzer.cli", *words],
        input=given, capture_output=True, text=True, check=False, timeout=120,
        env=ENVIRON | environ,
    )  # fmt: skip


@contextlib.contextmanager
def analyzer_with(folder: Path, *incidents: Incident, more: str = "") -> Iterator[str]:
    """Run an analyzer that knows these incidents, in a thread; yield its URL."""
    served = Within(folder, more=more)

    async def put() -> None:
        store = Store(str(served.database))
        await store.put_incidents(incidents)
        await store.close()

    asyncio.run(put())
    with served:
        yield served.url
