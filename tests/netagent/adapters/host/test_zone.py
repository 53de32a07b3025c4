# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from netagent.adapters.host import zone
from netagent.adapters.host.zone import ZoneDoor, folder_of, folders_of
from netagent.config import NO_DATABASES
from netagent.model.errors import CapabilityMissing, TooSoon
from netagent.wire.codec import encode, inflated
from netagent.wire.zone import FOLLOWED, NORTHBOUND, SOUTHBOUND, ZoneReply, ZoneRequest
from tests.analyzer.controllers.central import NB, OVSDB, Central, fill, update
from tests.conftest import require
from tests.waiting import leaping, until


def schema(database):
    return {
        "tables": {
            name: {"columns": {key: {} for key in columns}}
            for name, columns in FOLLOWED[database].items()
        }
    }


class Server:
    """Both databases of a host, of which each answers as it is told, and notes what is sent."""

    def __init__(self, folder):
        self.folder, self.sent = folder, []
        self.schemas = {name: schema(name) for name in FOLLOWED}
        self.answers = {}
        """Database -> what it answers to selects, instead of no rows; None: nothing, ever."""
        self.rows = {}

    async def __aenter__(self):
        self.servers = [
            await asyncio.start_unix_server(self._serve(name), self.folder / zone.SOCKETS[name])
            for name in FOLLOWED
        ]
        return self

    async def __aexit__(self, *_):
        for each in self.servers:
            each.close()

    def _serve(self, database):
        async def serve(reader, writer):
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                asked = json.loads(await reader.read(1 << 16))
                self.sent.append(asked)
                if (answer := self._answer(database, asked)) is not None:
                    echo = {"id": "echo", "method": "echo", "params": []}
                    writer.write(json.dumps(echo).encode() + answer)
                    await writer.drain()
                await reader.read()
            writer.close()

        return serve

    def _answer(self, database, asked):
        if asked["method"] == "get_schema":
            said = self.schemas[database]
        elif database in self.answers:
            said = self.answers[database]
            if said is None or isinstance(said, bytes):
                return said
        else:
            said = [
                {"rows": self.rows.get(each["table"], [])} for each in asked["params"][1:]
            ]  # fmt: skip
        return json.dumps({"id": asked["id"], "result": said, "error": None}).encode()


def talk(tmp_path, work, **options):
    async def run():
        async with Server(tmp_path) as server:
            return await work(server, ZoneDoor("h1", [tmp_path], **options))

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(zone, "EVERY_NS", 0)


# --- nothing is written ---------------------------------------------------------------------------


def test_nothing_is_ever_sent_but_questions_for_schemas_and_selects(tmp_path):
    async def work(server, door):
        for explaining in (False, True):
            await door.read(ZoneRequest(explaining=explaining, known={"OVN_Southbound": "x"}))
        return server.sent

    sent = talk(tmp_path, work)
    assert {each["method"] for each in sent} == {"get_schema", "transact"}
    operations = [op for each in sent if each["method"] == "transact" for op in each["params"][1:]]
    assert operations
    assert {op["op"] for op in operations} == {"select"}
    assert all(set(op) == {"op", "table", "where", "columns"} for op in operations)


def test_no_other_method_or_operation_is_in_its_code():
    code = Path(zone.__file__).read_text(encoding="utf-8")
    assert code.count("Call(") == 2
    for word in ("insert", "update", "mutate", "delete", "commit", "lock", "steal", "wait"):
        assert f'"{word}"' not in code


# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("has", [True, False])
def test_whatever_flows_are_made_of_is_read_where_the_server_has_it(tmp_path, has):
    """Flows of a row that nobody read would be said to be stale: ovn-kubernetes has static MACs."""
    table, row = "Static_MAC_Binding", {"_uuid": ["uuid", "5bad0001-0000-4000-8000-000000000000"]}

    async def work(server, door):
        if has:
            server.schemas[SOUTHBOUND]["tables"][table] = {"columns": {"mac": {}}}
        server.rows = {table: [row]}
        return await door.read(ZoneRequest(explaining=True))

    found = talk(tmp_path, work).databases[SOUTHBOUND]
    assert found.away == ""
    assert json.loads(inflated(found.rows)).get(table, []) == [row] * has


def test_who_has_it_already_is_told_so_and_no_more(tmp_path):
    async def work(server, door):
        server.rows = {"NB_Global": [{"_uuid": ["uuid", "u"], "nb_cfg": 7}]}
        first = await door.read(ZoneRequest())
        known = {name: each.digest for name, each in first.databases.items()}
        second = await door.read(ZoneRequest(known=known))
        server.rows["NB_Global"][0]["nb_cfg"] = 8
        third = await door.read(ZoneRequest(known=known))
        return first, second, third

    first, second, third = talk(tmp_path, work)
    said = json.loads(inflated(first.databases[NORTHBOUND].rows))
    assert said["NB_Global"] == [{"_uuid": ["uuid", "u"], "nb_cfg": 7}]
    assert set(said) == set(FOLLOWED[NORTHBOUND])
    assert all(not each.rows and each.digest for each in second.databases.values())
    assert {name for name, each in third.databases.items() if each.rows} == {NORTHBOUND}


def test_a_schema_is_asked_for_once_as_long_as_its_server_stays(tmp_path):
    async def work(server, door):
        for _ in range(3):
            await door.read(ZoneRequest())
        return [each["method"] for each in server.sent]

    assert talk(tmp_path, work).count("get_schema") == 2


def test_what_the_server_lacks_is_left_out_and_told(tmp_path):
    async def work(server, door):
        del server.schemas[SOUTHBOUND]["tables"]["Chassis"]["columns"]["other_config"]
        del server.schemas[SOUTHBOUND]["tables"]["Encap"]
        said = await door.read(ZoneRequest())
        (asked,) = (each for each in server.sent if each["params"][0] == "OVN_Southbound"
                    and each["method"] == "transact")  # fmt: skip
        return said.databases[SOUTHBOUND].lacks, asked["params"][1:]

    lacks, asked = talk(tmp_path, work)
    assert lacks == ("Chassis.other_config", "Encap.type", "Encap.ip")
    assert "Encap" not in {each["table"] for each in asked}
    (columns,) = (each["columns"] for each in asked if each["table"] == "Chassis")
    assert columns == ["_uuid", "name", "hostname", "encaps"]


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"id":0,"result":null,"error":{"error":"unknown database"}}', "unknown database"),
        (b'{"id":0,"result":[{"error":"no column"}],"error":null}', "no rows"),
        (b'{"id":0,"result":[{"rows":7},1,2],"error":null}', "no rows"),
        (b"[1, 2]}", "no JSON-RPC message"),
        (b" " * (zone.MOST_FOLLOWED + 1) + b"{", "cut off"),
    ],
)
def test_one_that_answers_something_else_is_away_and_the_other_is_read(tmp_path, answer, why):
    async def work(server, door):
        server.answers[NORTHBOUND] = answer
        said = await door.read(ZoneRequest())
        del server.answers[NORTHBOUND]
        return said, await door.read(ZoneRequest())

    said, after = talk(tmp_path, work)
    assert why in said.databases[NORTHBOUND].away
    assert not said.databases[NORTHBOUND].digest
    assert said.databases[SOUTHBOUND].rows
    assert after.databases[NORTHBOUND].rows


def test_a_slow_one_holds_nobody(tmp_path):
    """The loop goes on meanwhile; who asks too is told to come back."""

    async def work(server, door):
        server.answers[SOUTHBOUND] = None
        leap = leaping(asyncio.get_running_loop())
        asking = asyncio.create_task(door.read(ZoneRequest()))
        await until(lambda: len(server.sent) == 4)  # its rows are asked for, and nothing comes
        for _ in range(5):
            with pytest.raises(TooSoon):
                await door.read(ZoneRequest(explaining=True))
        assert not asking.done()
        leap(600)
        return await asking

    said = talk(tmp_path, work, answer_s=600)
    assert "does not answer within 600 s" in said.databases[SOUTHBOUND].away
    assert said.databases[NORTHBOUND].rows


def test_who_asks_again_at_once_is_told_to_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(zone, "EVERY_NS", 60 * 10**9)

    async def work(_server, door):
        await door.read(ZoneRequest())
        await door.read(ZoneRequest(explaining=True))
        with pytest.raises(TooSoon):
            await door.read(ZoneRequest())

    talk(tmp_path, work)


def test_a_host_without_databases_says_so(tmp_path):
    with pytest.raises(CapabilityMissing, match="ovn_databases"):
        asyncio.run(ZoneDoor("h1", [tmp_path]).read(ZoneRequest()))


def test_databases_are_where_both_sockets_are(tmp_path):
    places = [tmp_path / name for name in ("a", "b")]
    for place in places:
        place.mkdir()
    held = []
    for place, names in zip(places, (["ovnnb_db.sock"], list(zone.SOCKETS.values())), strict=True):
        for name in names:
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].bind(str(place / name))
    assert folder_of(places) == places[1]
    assert folder_of([]) is folder_of([places[0]]) is None
    for each in held:
        each.close()


def test_where_they_are_looked_for():
    assert folders_of("", "/run/ovn") == (Path("/run/ovn"), Path("/var/run/ovn-ic"))
    assert folders_of("/x", "/run/ovn") == (Path("/x"),)
    assert folders_of(NO_DATABASES, "/run/ovn") == ()


# --- a real server --------------------------------------------------------------------------------


def test_what_a_look_costs_that_finds_nothing_new(tmp_path, capsys):
    """A zone of a hundred ports that knows a thousand hosts; it prints bytes and milliseconds."""
    require(OVSDB)
    central = Central(tmp_path / "c")
    central.start()
    try:
        fill(central, ports=100, chassis=1000, switches=4)
        for name in zone.SOCKETS.values():
            (tmp_path / name).symlink_to(central.folder / "db.sock")
        door = ZoneDoor("h1", [tmp_path])

        async def look(known) -> tuple[ZoneReply, float]:
            began = time.process_time()
            return await door.read(ZoneRequest(known=known)), time.process_time() - began

        first, whole_s = asyncio.run(look({}))
        known = {name: each.digest for name, each in first.databases.items()}
        again, idle_s = asyncio.run(look(known))
        central.transact(NB, update("NB_Global", ["nb_cfg", "==", 1], nb_cfg=2))
        third, _ = asyncio.run(look(known))
    finally:
        central.kill()
    sizes = [len(encode(each)) for each in (first, again, third)]
    whole, idle, one = sizes
    with capsys.disabled():
        print(f"\nzone: whole {whole} bytes, {1e3 * whole_s:.1f} ms of CPU")
        print(f"nothing new {idle} bytes, {1e3 * idle_s:.1f} ms; one generation more {one} bytes")
    assert idle < 200 < one < whole
