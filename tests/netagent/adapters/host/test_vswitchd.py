# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import Self

from netagent.adapters.host import vswitchd
from netagent.adapters.host.vswitchd import (
    OVSDB_LOOKS,
    Absent,
    NoAnswer,
    VswitchdError,
    VswitchdWatch,
    appctl,
)

DPIF = """\
netdev@ovs-netdev: hit:18 missed:4
  br-int:
    br-int 65534/1: (tap)
    vxlan0 1/4: (vxlan: key=flow, local_ip=172.30.0.10, remote_ip=flow)
  br-phy0:
    br-phy0 65534/2: (tap)
    rnic0 1/3: (system)
"""


class FakeVswitchd:
    """A control socket that answers what a test says; bytes are sent as they are."""

    def __init__(self, path: Path, answers: dict[str, object]) -> None:
        self._path = path
        self.answers = answers
        self.asked: list[str] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)  # Python 3.13 does it

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = json.loads(await reader.readuntil(b"}"))
        self.asked.append(request["method"])
        answer = self.answers.get(request["method"])
        if isinstance(answer, bytes):
            writer.write(answer)
        elif answer is not None:
            body = json.dumps({"id": 0, "result": answer, "error": None}).encode()
            for part in (body[:9], body[9:]):
                writer.write(part)
                await writer.drain()
        else:
            await reader.read()
        writer.close()
        await writer.wait_closed()


def talk(
    rundir: Path, answers: dict[str, object], story: Callable, name: str = "ovs-vswitchd.ctl"
) -> object:
    async def main() -> object:
        async with FakeVswitchd(rundir / name, answers) as fake:
            return await story(fake)

    return asyncio.run(main())


def test_an_answer_may_come_in_pieces(tmp_path):
    answers = {"version": "ovs-vswitchd {3.1}\n"}
    assert talk(tmp_path, answers, lambda _: appctl(tmp_path, "version")) == answers["version"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b'{"id": 0, "result": null, "error": "no such bridge\\n"}', "no such bridge"),
        (b'["x"]{}', "no JSON-RPC message"),
        (b'[{"x": 1}', "closed after"),
        (b"", "closed after 0 bytes"),
    ],
)
def test_an_answer_that_is_none_is_told(tmp_path, answer, text):
    with pytest.raises(VswitchdError, match=text):
        talk(tmp_path, {"version": answer}, lambda _: appctl(tmp_path, "version"))


def test_a_hung_daemon_is_given_up(tmp_path):
    with pytest.raises(NoAnswer, match=r"no answer to version within 0\.05 s"):
        talk(tmp_path, {}, lambda _: appctl(tmp_path, "version", timeout_s=0.05))


def test_a_daemon_that_takes_no_more_connections_does_not_answer(tmp_path):
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(tmp_path / "ovs-vswitchd.ctl"))
        stopped.listen(0)
        for _ in range(4):
            with pytest.raises(NoAnswer):
                asyncio.run(appctl(tmp_path, "version", timeout_s=0.05))


def test_without_a_daemon_the_socket_of_the_pid_file_is_named(tmp_path):
    with pytest.raises(Absent, match="no pid file"):
        asyncio.run(appctl(tmp_path, "version"))
    (tmp_path / "ovs-vswitchd.pid").write_text("12\n")
    leave_behind(tmp_path / "ovs-vswitchd.13.ctl")
    with pytest.raises(Absent, match=r"ovs-vswitchd\.12\.ctl: .*No such file"):
        asyncio.run(appctl(tmp_path, "version"))


def test_a_socket_that_a_daemon_left_behind_is_passed_over(tmp_path):
    """Its own name is that of the process that answers, or any."""
    (tmp_path / "ovs-vswitchd.pid").write_text("12\n")
    leave_behind(tmp_path / "ovs-vswitchd.12.ctl")
    leave_behind(tmp_path / "ovs-vswitchd.13.ctl")
    answers = {"version": "ovs-vswitchd {3.1}\n"}
    assert talk(tmp_path, answers, lambda _: appctl(tmp_path, "version")) == answers["version"]
    leave_behind(tmp_path / "ovs-vswitchd.ctl")
    (tmp_path / "ovs-vswitchd.12.ctl").unlink()
    name = "ovs-vswitchd.12.ctl"
    said = talk(tmp_path, answers, lambda _: appctl(tmp_path, "version"), name=name)
    assert said == answers["version"]


def leave_behind(path: Path) -> None:
    """Make the socket file of a daemon that was killed."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def looks(rundir: Path, answers: dict[str, object], *, connected=(True,), ports=frozenset()):
    """Return what each look of a new watch says."""

    async def story(_: FakeVswitchd) -> list[str | None]:
        watch, said = VswitchdWatch(rundir), []
        for each in connected:
            await watch.look(connected=each, bridges={"br-int", "br-phy0"}, ports=ports)
            said.append(watch.down)
        return said

    return talk(rundir, answers, story)


def test_a_daemon_with_its_bridges_is_at_work(tmp_path):
    assert looks(tmp_path, {"ofproto/list": "br-int\nbr-phy0\n"}) == [None]


def test_a_daemon_that_goes_on_lacking_a_bridge_is_not(tmp_path):
    said = looks(tmp_path, {"ofproto/list": "br-int\n"}, connected=(True, True))
    assert said == [None, "it lacks br-phy0"]


def test_a_daemon_that_is_slow_to_answer_once_is_not_hung(tmp_path):
    async def story(fake: FakeVswitchd) -> list[str | None]:
        watch, said = VswitchdWatch(tmp_path), []
        for answers in ({}, {"ofproto/list": "br-int"}, {}, {}, {}, {"dpif/show": DPIF}):
            fake.answers = answers
            watch._answer_s = 60 if answers else 0.05
            await watch.look(connected=True, bridges={"br-int"}, ports=set())
            said.append(watch.down)
        return said

    slow = "no answer to ofproto/list within 0.05 s"
    still = "no answer to dpif/show within 0.05 s"
    assert talk(tmp_path, {}, story) == [None, None, None, slow, still, None]


def test_a_few_looks_without_ovsdb_are_a_reconnection(tmp_path):
    answers = {"ofproto/list": "br-int\nbr-phy0", "dpif/show": DPIF}
    away = [False] * OVSDB_LOOKS
    said = looks(tmp_path, answers, connected=(*away, True, *away, False, True))
    quiet = [None] * OVSDB_LOOKS
    assert said == [*quiet, None, *quiet, "OVSDB does not answer", None]


def test_what_was_down_is_back_only_with_all_its_ports(tmp_path):
    async def main() -> list[str | None]:
        watch, said = VswitchdWatch(tmp_path), []

        async def look() -> None:
            changed = await watch.look(connected=True, bridges={"br-int"}, ports={"vxlan0"})
            assert changed == (not said or said[-1] != watch.down)
            said.append(watch.down)

        await look()
        path = tmp_path / "ovs-vswitchd.ctl"
        async with FakeVswitchd(path, {"ofproto/list": "br-int", "dpif/show": ""}) as fake:
            await look()
            fake.answers["dpif/show"] = DPIF
            await look()
            await look()
        return said

    said = asyncio.run(main())
    assert said[0] is not None
    assert "no pid file" in said[0]
    assert said[1:] == ["it lacks br-int, vxlan0", None, None]


def test_a_process_that_ended_is_told_at_once(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / "ovs-vswitchd.pid").write_text(str(ended.pid))
    assert looks(tmp_path, {}) == ["its process is gone"]
    (tmp_path / "ovs-vswitchd.pid").write_text(str(os.getpid()))
    assert looks(tmp_path, {"ofproto/list": "br-int br-phy0"}) == [None]


def test_the_deadline_is_longer_than_a_reconfiguration():
    assert vswitchd.ANSWER_S >= 1
