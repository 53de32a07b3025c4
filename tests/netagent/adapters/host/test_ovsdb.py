# SPDX-License-Identifier: Apache-2.0
import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netagent.adapters.host import ovsdb
from netagent.adapters.host.ovsdb import OvsdbMonitor
from netagent.concurrency import TaskGroup
from netagent.host.facts import VswitchView
from netagent.model.vswitch import Interface
from tests.conftest import OVS, require
from tests.waiting import until

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"


class Database:
    """An ovsdb-server without any vSwitch."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "db.sock"
        self._conf = folder / "conf.db"
        self._folder = folder
        subprocess.run(["ovsdb-tool", "create", self._conf, SCHEMA], check=True)
        self.start()
        self.vsctl("init")

    def start(self) -> None:
        command = [
            *("ovsdb-server", str(self._conf), f"--remote=punix:{self.socket}"),
            *(f"--pidfile={self._folder}/ovsdb.pid", f"--unixctl={self._folder}/ovsdb.ctl"),
            *("--detach", "--no-chdir", "-vconsole:off", "-vsyslog:off"),
        ]
        environment = {**os.environ, "OVS_RUNDIR": str(self._folder)}
        subprocess.run(command, check=True, env=environment)

    def signal(self, number: int) -> None:
        os.kill(int((self._folder / "ovsdb.pid").read_text()), number)

    def vsctl(self, *words: str) -> str:
        common = ("ovs-vsctl", "--no-wait", f"--db=unix:{self.socket}", "--timeout=60")
        done = subprocess.run([*common, *words], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout


@pytest.fixture
def database(tmp_path) -> Iterator[Database]:
    if shutil.which("ovsdb-server") is None:
        require(OVS)
    made = Database(tmp_path)
    yield made
    made.signal(signal.SIGKILL)


class Following:
    """An OvsdbMonitor at work."""

    def __init__(self) -> None:
        self.views: list[VswitchView] = []
        self._came = asyncio.Event()

    def keep(self, view: VswitchView) -> None:
        self.views.append(view)
        self._came.set()

    async def until(self, condition: Callable[[VswitchView], object]) -> VswitchView:
        await until(lambda: self.views and condition(self.views[-1]), rest=self._next)
        return self.views[-1]

    async def _next(self, _: float) -> None:
        self._came.clear()
        await self._came.wait()


def follow(socket: Path, story) -> None:
    async def main() -> None:
        following = Following()
        async with TaskGroup() as group:  # a monitor that fails ends the story
            work = group.create_task(OvsdbMonitor(socket).run(following.keep))
            await story(following)
            work.cancel()

    asyncio.run(main())


def names(view: VswitchView) -> list[str]:
    return [each.name for bridge in view.bridges for each in bridge.interfaces()]


@pytest.mark.ovs
def test_rows_become_values_and_changes_are_sent_by_themselves(database):
    database.vsctl(
        "add-br",
        "br-int",
        "--",
        "set",
        "Open_vSwitch",
        ".",
        "external_ids:a=b",
        "other_config:hw-offload=true",
        "ovs_version=3.1.0",
    )

    async def story(following: Following) -> None:
        view = await following.until(lambda v: v.connected)
        assert view.external_ids == {"a": "b"}
        assert view.settings["hw-offload"] == "true"
        assert view.version == "3.1.0"
        assert names(view) == ["br-int"]
        settings = ["type=vxlan", "options:local_ip=172.30.0.10", "external_ids:rail=0"]
        database.vsctl("set", "bridge", "br-int", "external_ids:ovn-nb-cfg=7")
        view = await following.until(lambda v: v.bridges[0].external_ids)
        assert view.bridges[0].external_ids == {"ovn-nb-cfg": "7"}
        database.vsctl(
            "add-port", "br-int", "vxlan0", "--", "set", "interface", "vxlan0", *settings
        )
        view = await following.until(lambda v: "vxlan0" in names(v))
        bridge = view.bridge("br-int")
        assert bridge is not None
        assert bridge.ports[1].interfaces == (
            Interface("vxlan0", "vxlan", None, {"local_ip": "172.30.0.10"}, {"rail": "0"}),
        )
        database.vsctl("set", "interface", "vxlan0", "ofport=7", 'error="no such device"')
        view = await following.until(lambda v: v.bridges[0].ports[1].interfaces[0].ofport == 7)
        assert view.bridges[0].ports[1].interfaces[0].error == "no such device"
        assert bridge.connected == ()
        database.vsctl("set-controller", "br-int", "tcp:192.0.2.1:6653", "tcp:192.0.2.2:6653")
        await following.until(lambda v: v.bridges[0].connected == (False, False))
        # What ovs-vswitchd writes (ovs-vswitchd.conf.db(5)).
        which = ("Controller", 'target="tcp:192.0.2.2:6653"')
        found = database.vsctl("--bare", "--columns=_uuid", "find", *which)
        database.vsctl("set", "Controller", found.strip(), "is_connected=true")
        await following.until(lambda v: v.bridges[0].connected == (False, True))
        database.vsctl("del-controller", "br-int")
        await following.until(lambda v: v.bridges[0].connected == ())
        database.vsctl("add-bond", "br-int", "bond0", "a", "b")
        await following.until(lambda v: names(v) == ["a", "b", "br-int", "vxlan0"])
        database.vsctl("del-br", "br-int")
        await following.until(lambda v: not v.bridges)

    follow(database.socket, story)


@pytest.mark.ovs
def test_a_restart_keeps_the_view_and_goes_on(database):
    database.vsctl("add-br", "br-int")

    async def story(following: Following) -> None:
        await following.until(lambda v: names(v) == ["br-int"])
        database.signal(signal.SIGKILL)
        view = await following.until(lambda v: not v.connected)
        assert names(view) == ["br-int"]
        database.start()
        await following.until(lambda v: v.connected)
        database.vsctl("add-port", "br-int", "p0")
        await following.until(lambda v: names(v) == ["br-int", "p0"])
        assert all(names(each) for each in following.views), "never empty in between"

    follow(database.socket, story)


@pytest.mark.ovs
def test_what_does_not_concern_us_wakes_nobody(database):
    database.vsctl("add-br", "br-int")

    async def story(following: Following) -> None:
        await following.until(lambda v: names(v) == ["br-int"])
        seen, cpu_s = len(following.views), time.thread_time()
        for number in range(5):
            database.vsctl("set", "Open_vSwitch", ".", f"other_config:x={number}")
        database.vsctl("add-port", "br-int", "p0")
        await following.until(lambda v: "p0" in names(v))
        assert len(following.views) == seen + 1
        assert time.thread_time() - cpu_s < 0.5

    follow(database.socket, story)


@pytest.mark.ovs
def test_an_absent_server_is_waited_for(database, tmp_path):
    moved = tmp_path / "later.sock"

    async def story(following: Following) -> None:
        await asyncio.sleep(0)
        moved.symlink_to(database.socket)
        await following.until(lambda v: v.connected)

    follow(moved, story)


@pytest.mark.ovs
def test_a_broken_replica_is_made_anew(database, monkeypatch):
    broken = iter([True, False])
    real = ovsdb._view_of

    def view_of(tables: object) -> VswitchView:
        if next(broken, False):
            raise KeyError("a row that is not there")
        return real(tables)

    monkeypatch.setattr(ovsdb, "_view_of", view_of)

    async def story(following: Following) -> None:
        await following.until(lambda v: v.connected)

    follow(database.socket, story)
