# SPDX-License-Identifier: Apache-2.0
"""Ports of a real northbound database are disabled and enabled."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest

from analyzer.actions.ports import MARK
from analyzer.config import WritableNorthbound
from analyzer.server.ports import Ports
from tests.analyzer.controllers.central import NB, OVSDB, Central
from tests.conftest import require

TABLE = "Logical_Switch_Port"


@pytest.fixture
def central():
    require(OVSDB)
    folder = Path(tempfile.mkdtemp(prefix="na-"))  # a socket's path is short
    made = Central(folder, "ptcp:0:127.0.0.1")
    made.start()
    ports = {"free": {}, "pods": {"pod": "true"}, "twice": {}}
    for name, ids in ports.items():
        row = {"name": name, "external_ids": ["map", list(map(list, ids.items()))]}
        of = {"op": "insert", "table": TABLE, "row": row, "uuid-name": "port"}
        switch = {"name": name, "ports": ["named-uuid", "port"]}
        made.transact(NB, of, {"op": "insert", "table": "Logical_Switch", "row": switch})
    yield made
    made.kill()
    shutil.rmtree(folder)


def port(central, name):
    where = [["name", "==", name]]
    (found,) = central.transact(NB, {"op": "select", "table": TABLE, "where": where})
    (row,) = found["rows"]
    return row["enabled"], dict(row["external_ids"][1])


def change(central, name, **row):
    where = [["name", "==", name]]
    central.transact(NB, {"op": "update", "table": TABLE, "where": where, "row": row})


def run(work):
    return asyncio.run(asyncio.wait_for(work, 20))


def test_a_port_of_nobody_is_disabled_once_and_enabled_again(central):
    ports = Ports(WritableNorthbound((f"tcp:127.0.0.1:{central.port()}",)))
    assert run(ports.disable("free", "i0-1", dry_run=True)) == ("", "")
    assert port(central, "free") == (["set", []], {})
    assert run(ports.disable("free", "i0-1")) == ("", "")
    enabled, ids = port(central, "free")
    assert (enabled, set(ids)) == (False, {MARK})
    assert "belongs to" in run(ports.disable("free", "i0-2"))[1]
    assert "not disabled by this action" in run(ports.enable("free", "i0-2"))
    assert run(ports.enable("free", "i0-1")) == ""
    assert port(central, "free") == (["set", []], {})
    assert "enabled it since" in run(ports.enable("free", "i0-1"))


def test_what_somebody_owns_or_changed_is_left(central):
    ports = Ports(WritableNorthbound((central.remote,)))
    for dry_run in (True, False):
        assert "belongs to" in run(ports.disable("pods", "i0-1", dry_run=dry_run))[1]
    assert port(central, "pods") == (["set", []], {"pod": "true"})
    assert run(ports.disable("nobody", "i0-1"))[1] == "0 ports have the name nobody"
    assert run(ports.disable("free", "i0-1")) == ("", "")
    change(central, "free", addresses="dynamic")
    assert "changed it since" in run(ports.enable("free", "i0-1"))
    assert port(central, "free")[0] is False


def test_where_nobody_answers_nothing_is_done(central):
    remotes = ("unix:/nowhere/nb.sock", central.remote)
    assert run(Ports(WritableNorthbound(remotes)).disable("free", "i0-1")) == ("", "")
    central.kill()
    problem, refusal = run(Ports(WritableNorthbound(remotes)).disable("twice", "i0-1"))
    assert (problem, bool(refusal)) == ("", True)


def test_a_server_that_says_no_is_quoted():
    async def story():
        folder = Path(tempfile.mkdtemp(prefix="na-"))

        async def refuse(reader, writer):
            await reader.read(1 << 16)
            writer.write(b'{"method":"echo","params":[],"id":"echo"}')
            writer.write(b'{"id":1,"result":null,"error":{"error":"unknown database"}}')
            await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(refuse, folder / "s")
        async with server:
            ports = Ports(WritableNorthbound((f"unix:{folder / 's'}",)))
            told = await ports.disable("free", "i0-1")
        shutil.rmtree(folder)
        return told

    problem, refusal = run(story())
    assert "unknown database" in problem
    assert refusal == ""
