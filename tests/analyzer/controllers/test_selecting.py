# SPDX-License-Identifier: Apache-2.0
import socket
import threading

import pytest

from analyzer.controllers import selecting as room
from analyzer.controllers.selecting import SOUTHBOUND, connected, selecting
from netagent.model.errors import RemoteProtocolError, Unreachable
from tests.analyzer.controllers.central import OVSDB, SB, Central, insert
from tests.conftest import require


@pytest.fixture
def central(tmp_path):
    require(OVSDB)
    made = Central(tmp_path)
    made.start()
    made.transact(SB, insert("Datapath_Binding", "a", tunnel_key=1))
    yield made
    made.kill()


def ask(remotes, database=SOUTHBOUND):
    with connected(database, remotes) as select:
        return select(*(selecting(table, [], []) for table in ("Datapath_Binding", "Encap")))


def test_each_select_has_its_rows(central):
    found, none = ask([central.remote])
    assert [list(row) for row in found] == [["_uuid"]]
    assert none == []


def test_the_next_member_is_asked_where_one_does_not_answer(central, tmp_path):
    nobody = f"unix:{tmp_path / 'nobody'}"
    assert ask([nobody, central.remote])
    for remotes in ([nobody], []):
        with pytest.raises(Unreachable):
            ask(remotes)


def test_a_server_without_the_database_is_an_error(central):
    with pytest.raises(RemoteProtocolError):
        ask([central.remote], "Nothing")


def test_a_server_that_says_nothing_or_nonsense_is_an_error(monkeypatch):
    monkeypatch.setattr(room, "WAIT_MS", 200)
    said = [b"", b'{"id":999,"result":[],"error":null}', b"}", b"close"]
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []

    def serve():
        for text in said:
            connection, _ = listener.accept()
            connection.recv(4096)
            if text == b"close":
                connection.close()
                continue
            connection.sendall(text)
            kept.append(connection)

    threading.Thread(target=serve, daemon=True).start()
    remote = f"tcp:127.0.0.1:{listener.getsockname()[1]}"
    with listener:
        for _ in said:
            with pytest.raises(Unreachable, match=r"closed|too long"):
                ask([remote])
        for connection in kept:
            connection.close()
