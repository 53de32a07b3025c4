# SPDX-License-Identifier: Apache-2.0
import asyncio
import os
from contextlib import suppress

import pytest

from analyzer.server import hook
from tests.waiting import until


def script(folder, text):
    path = folder / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def ran(*command, deadline_s=20.0):
    return asyncio.run(hook.run(command, deadline_s=deadline_s))


def test_it_gets_its_words_as_they_are(tmp_path):
    out = tmp_path / "said"
    path = script(tmp_path, f'printf "%s|" "$@" > {out}; pwd >> {out}')
    assert ran(path, "cordon", "h1; reboot") == ""
    assert out.read_text() == "cordon|h1; reboot|/\n"


def test_why_it_failed_is_told_as_one_line_of_text(tmp_path):
    path = script(tmp_path, r"printf 'no\033[2J such\n node' >&2; exit 3")
    assert ran(path) == "exit status 3: no [2J such  node"
    assert ran(script(tmp_path, "kill -9 $$")) == "exit status -9"


@pytest.mark.parametrize("name", ["no-such", "."])
def test_what_cannot_be_run_is_told(tmp_path, name):
    assert str(tmp_path / name) in ran(str(tmp_path / name))


def test_what_it_says_is_bounded_and_never_blocks_it(tmp_path):
    path = script(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x; exit 1")
    said = ran(path)
    assert said.startswith("exit status 1: xxx")
    assert len(said) < hook.MOST_SAID + 100


def test_at_its_deadline_all_that_it_started_is_killed(tmp_path):
    pids = tmp_path / "pids"
    path = script(tmp_path, f"echo $$ > {pids}; sleep 600 & echo $! >> {pids}; echo busy; wait")

    async def main():
        async def written():
            await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)

        asking = asyncio.create_task(hook.run([path], deadline_s=2.0))
        await written()
        assert await asking == "not over within 2 s, killed: busy"
        for pid in map(int, pids.read_text().split()):
            await until(lambda pid=pid: not lives(pid))

    asyncio.run(main())


def test_who_hangs_up_leaves_nothing_running(tmp_path):
    pids = tmp_path / "pids"
    path = script(tmp_path, f"echo $$ > {pids}; exec sleep 600")

    async def main():
        asking = asyncio.create_task(hook.run([path]))
        await until(lambda: pids.exists() and pids.read_text().strip())
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        assert not lives(int(pids.read_text()))

    asyncio.run(main())


def test_a_child_that_stays_holds_nobody_up(tmp_path):
    pids = tmp_path / "pids"
    path = script(tmp_path, f"sleep 600 & echo $! > {pids}; exit 0")
    try:
        assert ran(path) == ""
    finally:
        os.kill(int(pids.read_text()), 9)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123
            return file.read().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
