# SPDX-License-Identifier: Apache-2.0
"""A bridge's protocols, changed in a real OVSDB; what ovs-vswitchd does there is played."""

import asyncio
import shutil
import signal
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from netagent.adapters.host import protocols
from netagent.adapters.host.protocols import Changed, exchange_protocols, read_bridge
from netagent.concurrency import timeout
from netagent.model.errors import RemoteProtocolError, Unreachable
from tests.conftest import OVS, require
from tests.netagent.adapters.host.test_ovsdb import Database

ALL_BUT = ("OpenFlow10", "OpenFlow13")


@pytest.fixture
def database(tmp_path) -> Iterator[Database]:
    if shutil.which("ovsdb-server") is None:
        require(OVS)
    made = Database(tmp_path)
    made.vsctl("add-br", "br-int", "--", "set", "Bridge", "br-int", "external_ids:ovn-nb-cfg=3")
    yield made
    made.signal(signal.SIGKILL)


class Vswitchd:
    """Takes each change as ovs-vswitchd does, and remembers which protocols it saw."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.seen: list[tuple[str, ...]] = []

    async def run(self) -> None:
        while True:
            (answer,) = await protocols._transact(
                self._socket,
                {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"]},
            )
            row = await read_bridge(self._socket, "br-int")
            if row is not None and self.seen[-1:] != [row.protocols]:
                self.seen.append(row.protocols)
            update = {"op": "update", "table": "Open_vSwitch", "where": [],
                      "row": {"cur_cfg": answer["rows"][0]["next_cfg"]}}  # fmt: skip
            await protocols._transact(self._socket, update)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def taking(socket: Path):
    """Play an ovs-vswitchd."""
    made = Vswitchd(socket)
    work = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def with_vswitchd(database, story):
    async def main():
        async with timeout(60), taking(database.socket) as vswitchd:
            await story()
            return vswitchd.seen

    return asyncio.run(main())


def row_of(database, name="br-int"):
    return asyncio.run(read_bridge(database.socket, name))


@pytest.mark.parametrize("before", [(), ("OpenFlow15",), ALL_BUT])
def test_they_are_changed_and_changed_back(database, before):
    if before:
        database.vsctl("set", "Bridge", "br-int", f"protocols={','.join(before)}")
    during = ("OpenFlow14", "OpenFlow15")

    async def story():
        await exchange_protocols(database.socket, "br-int", before, during)
        await exchange_protocols(database.socket, "br-int", during, before)

    seen = with_vswitchd(database, story)
    assert during in seen
    row = row_of(database)
    assert (row.protocols, row.external_ids) == (before, {"ovn-nb-cfg": "3"})


def test_what_somebody_else_wrote_meanwhile_stays(database):
    database.vsctl("set", "Bridge", "br-int", "protocols=OpenFlow15")
    with pytest.raises(Changed):
        asyncio.run(exchange_protocols(database.socket, "br-int", ALL_BUT, ("OpenFlow10",)))
    assert row_of(database).protocols == ("OpenFlow15",)


@pytest.mark.parametrize("name", ["../br-int", "br-int/..", "br-int'", '["set",[]]', "", "br-no"])
def test_a_name_is_compared_and_nothing_else(database, name):
    """It is a value of a condition, never part of a path or a command."""
    assert row_of(database, name) is None
    with pytest.raises(Changed):
        asyncio.run(exchange_protocols(database.socket, name, (), ("OpenFlow10",)))
    assert row_of(database).protocols == ()


def test_a_version_that_is_none_is_refused(database):
    with pytest.raises(RemoteProtocolError, match="refuses: constraint violation"):
        asyncio.run(exchange_protocols(database.socket, "br-int", (), ("OpenFlow99",)))
    assert row_of(database).protocols == ()


def test_nobody_waits_for_a_vswitchd_that_takes_nothing(database, monkeypatch):
    monkeypatch.setattr(protocols, "TAKEN_S", 0.1)
    with pytest.raises(Unreachable, match="it took no change"):
        asyncio.run(exchange_protocols(database.socket, "br-int", (), ALL_BUT))
    assert row_of(database).protocols == ALL_BUT  # who asked wrote down what it was before


def test_a_database_that_is_away_is_unreachable(tmp_path):
    with pytest.raises(Unreachable, match="No such file"):
        asyncio.run(read_bridge(tmp_path / "db.sock", "br-int"))
