# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest
from structlog.testing import capture_logs

from analyzer.judge import workers
from analyzer.judge.workers import Workers
from tests.waiting import until


@pytest.mark.parametrize("error", [None, ZeroDivisionError()])
def test_a_worker_that_ends_is_started_again_until_it_is_stopped(error, monkeypatch):
    monkeypatch.setattr(workers, "RETRY_MIN_S", 0.001)

    async def inside():
        runs, ended = [], asyncio.Event()

        async def run():
            runs.append(1)
            if len(runs) == 3:
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()
            if error is not None:
                raise error

        crew = Workers()
        crew.start("one", run)
        await until(lambda: len(runs) == 3)
        await crew.stop()
        assert ended.is_set()
        return crew.crashes

    with capture_logs() as logs:
        crashes = asyncio.run(inside())
    assert crashes == (0 if error is None else 2)
    told = "worker_ended" if error is None else "worker_crashed"
    assert [each["event"] for each in logs] == [told] * 2
