# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os
import socket
import subprocess
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import structlog

from netagent.adapters.host import ovn
from netagent.adapters.host.ovn import OvnWatch, working_of
from netagent.wire.controller import Working

SOON_S = 5.0
"""Seconds for answers that come. Chosen: a busy machine's."""


@asynccontextmanager
async def controller(rundir: Path, answer: str | bytes | None, pid: int = 7):
    """Run a control socket that gives this answer to every question; None: none ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = json.loads(await reader.readuntil(b"}"))
        assert request["method"] == "connection-status"
        if answer is None:
            await reader.read()
        elif isinstance(answer, bytes):
            writer.write(answer)
        else:
            writer.write(json.dumps({"id": 0, "result": answer, "error": None}).encode())
        writer.close()

    path = rundir / f"ovn-controller.{pid}.ctl"
    (rundir / "ovn-controller.pid").write_text(f"{pid}\n")
    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
        path.unlink(missing_ok=True)  # Python 3.13 does it


def asked(rundir: Path, answer: str | bytes | None, answer_s: float = SOON_S):
    async def main() -> tuple[Working, str]:
        async with controller(rundir, answer):
            return await working_of(rundir, answer_s=answer_s)

    return asyncio.run(main())


def alone(rundir: Path) -> tuple[Working, str]:
    return asyncio.run(working_of(rundir))


@pytest.mark.parametrize(
    ("answer", "working", "why"),
    [
        ("connected\n", Working.CONNECTED, ""),
        ("not connected\n", Working.CUT_OFF, "it says 'not connected'"),
        ("asleep" * 100, Working.UNKNOWN, f"it says {('asleep' * 100)[:80]!r}"),
    ],
)
def test_it_says_whether_it_reaches_its_database(tmp_path, answer, working, why):
    assert asked(tmp_path, answer) == (working, why)


def test_one_that_knows_no_such_question_is_unknown(tmp_path):
    refused = b'{"id": 0, "result": null, "error": "\\"x\\" is not a valid command"}'
    working, why = asked(tmp_path, refused)
    assert working is Working.UNKNOWN
    assert "is not a valid command" in why


def test_one_that_does_not_answer_is_silent(tmp_path):
    assert asked(tmp_path, None, answer_s=0.05)[0] is Working.SILENT


def test_one_that_was_stopped_stays_silent_when_no_more_connections_fit(tmp_path):
    """As after an hour of SIGSTOP: its backlog is full of looks."""
    (tmp_path / "ovn-controller.pid").write_text("7\n")
    with closing(socket.socket(socket.AF_UNIX)) as stopped:
        stopped.bind(str(tmp_path / "ovn-controller.7.ctl"))
        stopped.listen(1)
        for _ in range(5):
            assert asyncio.run(working_of(tmp_path, answer_s=0.05))[0] is Working.SILENT


def test_one_without_a_process_has_stopped(tmp_path):
    assert alone(tmp_path) == (Working.STOPPED, f"no pid file in {tmp_path}")
    (tmp_path / "ovn-controller.pid").write_text("99999999\n")
    assert alone(tmp_path)[0] is Working.STOPPED
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(tmp_path / "ovn-controller.99999999.ctl"))
    assert alone(tmp_path)[0] is Working.STOPPED


def test_one_that_listens_elsewhere_has_not_stopped(tmp_path):
    (tmp_path / "ovn-controller.pid").write_text(f"{os.getpid()}\n")
    assert alone(tmp_path)[0] is Working.STOPPED  # the number is another's by now
    program = tmp_path / "ovn-controller"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        (tmp_path / "ovn-controller.pid").write_text(f"{process.pid}\n")
        why = f"process {process.pid} does not listen in {tmp_path}"
        assert alone(tmp_path) == (Working.UNKNOWN, why)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert alone(tmp_path)[0] is Working.STOPPED  # a zombie


def test_where_nobody_may_look_it_is_unknown(tmp_path, monkeypatch):
    working, why = alone(tmp_path / "none")
    assert working is Working.UNKNOWN
    assert "No such file" in why

    async def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "ovn-controller.pid").write_text("7\n")
    monkeypatch.setattr(asyncio, "open_unix_connection", refuse)
    working, why = alone(tmp_path)
    assert working is Working.UNKNOWN
    assert "Permission denied" in why


def test_a_single_look_without_an_answer_is_an_instance_that_computes(monkeypatch):
    up, cut, silent, gone = Working.CONNECTED, Working.CUT_OFF, Working.SILENT, Working.STOPPED
    script = [(up, up), (up, up), (silent, up), (silent, silent), (silent, silent), (cut, cut),
              (silent, cut), (gone, gone)]  # fmt: skip
    looks = iter(script)

    async def scripted(*_: object, **__: object) -> tuple[Working, str]:
        return next(looks)[0], ""

    async def main() -> None:
        watch = OvnWatch(Path("/nowhere"))
        for _, told in script:
            before = watch.working
            assert await watch.look() == (told is not before)
            assert watch.working is told

    monkeypatch.setattr(ovn, "working_of", scripted)
    asyncio.run(main())


def test_why_it_is_not_known_is_logged_once(tmp_path):
    async def main() -> None:
        watch = OvnWatch(tmp_path / "none")
        for _ in range(3):
            assert not await watch.look()

    with structlog.testing.capture_logs() as logs:
        asyncio.run(main())
    assert [each["event"] for each in logs] == ["ovn_controller_unknown"]
