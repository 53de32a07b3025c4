# SPDX-License-Identifier: Apache-2.0
import asyncio
import sys
from pathlib import Path
from types import ModuleType

from netagent import concurrency


def test_it_is_python_s_own_or_for_3_10_the_backport_of_that(monkeypatch):
    assert concurrency.TaskGroup is asyncio.TaskGroup
    assert concurrency.timeout is asyncio.timeout
    backport = ModuleType("taskgroup")
    backport.TaskGroup, backport.timeout = object(), object()
    monkeypatch.setitem(sys.modules, "taskgroup", backport)
    monkeypatch.setattr(sys, "version_info", (3, 10, 12))
    made = {}
    source = Path(concurrency.__file__)
    exec(compile(source.read_text(), str(source), "exec"), made)  # noqa: S102
    assert (made["TaskGroup"], made["timeout"]) == (backport.TaskGroup, backport.timeout)
