# SPDX-License-Identifier: Apache-2.0
import asyncio
import json

from netagent.adapters.workers.operators import OperatorWorker
from netagent.config import OperatorsConfig

WANTED = OperatorsConfig(enabled=True, uprobes=True)


def said(**values):
    return json.dumps(values).encode() + b"\n"


def test_what_is_watched_and_what_is_refused_is_known():
    worker = OperatorWorker(WANTED)
    worker._hear(said(attached=11, libraries=[]))
    assert (worker.attached, worker.refusal) == (11, "")
    worker._hear(said(error="uprobes", remedy="run as root", code=1))
    assert (worker.attached, worker.refusal) == (0, "uprobes: run as root")


def test_a_line_that_makes_no_sense_changes_nothing():
    worker = OperatorWorker(WANTED)
    worker._hear(b"Traceback\n")
    assert worker.refusal == ""


def test_without_leave_nothing_is_started():
    asyncio.run(OperatorWorker(OperatorsConfig(enabled=True)).run())
