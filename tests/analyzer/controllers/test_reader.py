# SPDX-License-Identifier: Apache-2.0
"""A reader and who listens to it, over a socket; the server is a real one."""

import socket
import threading

import pytest

from analyzer.controllers import messages, reader
from analyzer.controllers.messages import HEAD, AskFlows, Flows, NoFlows, Open, Source, Told
from analyzer.controllers.reader import Reader
from analyzer.intent.changes import Known
from analyzer.intent.ovn import MOVES_NS, SOURCE
from tests.analyzer.controllers.central import (
    NB,
    OVSDB,
    SB,
    Central,
    fill,
    insert,
    named,
    update,
)
from tests.conftest import require
from tests.waiting import WITHIN_S

SECOND = 10**9


class Listener:
    """Reads what a reader says that runs in a thread."""

    def __init__(self, remote):
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(WITHIN_S)
        self.now_ns = 1_000 * SECOND
        opening = Open(northbound=(remote,), southbound=(remote,))
        self.reader = Reader(theirs, opening, lambda: self.now_ns)
        self.thread = threading.Thread(target=self.reader.run)
        self.thread.start()
        self.known, self.sources, self.frames = Known(SOURCE, {"all": "not read"}), {}, 0

    def say(self, message):
        self.ours.sendall(messages.framed(message))

    def hear(self):
        (length,) = HEAD.unpack(self._exactly(HEAD.size))
        said = messages.up(self._exactly(length))
        self.frames += 1
        if isinstance(said, Told):
            self.known.take(said.changes)
        elif isinstance(said, Source):
            self.sources[said.database] = said
        return said

    def until(self, condition):
        while not condition(self.known.intent()):
            self.hear()
        return self.known.intent()

    def _exactly(self, size):
        said = b""
        while len(said) < size:
            chunk = self.ours.recv(size - len(said))
            assert chunk, "the reader ended"
            said += chunk
        return said

    def close(self):
        self.ours.close()
        self.thread.join(WITHIN_S)
        assert not self.thread.is_alive()


@pytest.fixture
def central(tmp_path):
    require(OVSDB)
    made = Central(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def listener(central):
    made = Listener(central.remote)
    yield made
    made.close()


def is_whole(intent):
    return not intent.away


def disable(central, number, to):
    where = ["name", "==", f"ns0_pod-{number}"]
    central.transact(NB, update("Logical_Switch_Port", where, enabled=to))


def test_what_there_is_is_told_in_parts_and_then_what_changes(central, monkeypatch):
    monkeypatch.setattr(reader, "MOST_TOLD", 7)
    fill(central, ports=20, chassis=3, switches=1)
    listener = Listener(central.remote)
    try:
        intent = listener.until(is_whole)
        assert (len(intent.ports), len(intent.placements), len(intent.chassis)) == (20, 20, 3)
        assert listener.frames > 43 // 7
        listener.until(lambda _: set(listener.sources) == {"northbound", "southbound"})
        disable(central, 4, to=False)
        told = next(said for said in iter(listener.hear, None) if isinstance(said, Told))
        assert set(told.changes.ports) == {"ns0_pod-4"}
    finally:
        listener.close()


def test_who_listens_slowly_is_told_less_and_misses_nothing(central, listener, monkeypatch):
    """A port that changes hundreds of times waits once."""
    fill(central, ports=100, chassis=3, switches=1)
    listener.until(lambda intent: is_whole(intent) and len(intent.ports) == 100)
    monkeypatch.setattr(reader, "TOGETHER_MS", 0)
    listener.reader._connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for number in range(400):
        for port in range(3):
            disable(central, port, to=bool(number % 2))
    disable(central, 0, to=False)
    before = listener.frames
    listener.until(lambda intent: not intent.ports["ns0_pod-0"].is_enabled)
    assert listener.frames - before < 400
    listener.until(lambda intent: intent.ports["ns0_pod-2"].is_enabled)


def test_moves_count_no_more_after_a_while_without_any_news(central, listener):
    fill(central, ports=1, chassis=2, switches=1)
    listener.until(lambda intent: is_whole(intent) and intent.placements)
    chassis = {"op": "select", "table": "Chassis", "where": [["name", "==", "node-1"]]}
    (found,) = central.transact(SB, {**chassis, "columns": ["_uuid"]})
    where = ["logical_port", "==", "ns0_pod-0"]
    central.transact(SB, update("Port_Binding", where, chassis=found["rows"][0]["_uuid"]))
    placed = listener.until(lambda intent: intent.placements["ns0_pod-0"].moves).placements
    assert placed["ns0_pod-0"].chassis == "node-1"
    listener.now_ns += MOVES_NS
    listener.until(lambda intent: not intent.placements["ns0_pod-0"].moves)


def test_flows_are_answered_while_it_reads(central, listener, tmp_path):
    central.transact(
        SB,
        insert("Datapath_Binding", "d", tunnel_key=5),
        insert("Logical_Flow", pipeline="egress", table_id=4, priority=1, match="1",
               actions="drop;", logical_datapath=named("d")),
    )  # fmt: skip
    listener.say(AskFlows(query=3, datapath=5))
    answer = next(said for said in iter(listener.hear, None) if isinstance(said, Flows))
    assert (answer.query, [each.table for each in answer.flows]) == (3, [4])
    central.kill()
    listener.say(AskFlows(query=4, datapath=5))
    refused = next(said for said in iter(listener.hear, None) if isinstance(said, NoFlows))
    assert refused.query == 4


def test_a_bug_in_reading_flows_is_an_answer_too(central, listener, monkeypatch):
    monkeypatch.setattr(reader, "read_flows", lambda *_: 1 / 0)
    for query in (1, 2):
        listener.say(AskFlows(query=query))
        said = next(said for said in iter(listener.hear, None) if isinstance(said, NoFlows))
        assert (said.query, "ZeroDivisionError" in said.error) == (query, True)


def test_what_waited_for_longer_than_anybody_does_is_not_looked_up(central, listener, monkeypatch):
    asked = []

    def read(_remotes, question, _northbound):
        asked.append(question.query)
        if len(asked) == 1:
            monkeypatch.setattr(reader, "WAIT_S", -1.0)  # from now on all comes too late
        return Flows(query=question.query, flows=())

    monkeypatch.setattr(reader, "read_flows", read)
    for query in (1, 2):
        listener.say(AskFlows(query=query))
    said = [next(s for s in iter(listener.hear, None) if isinstance(s, Flows | NoFlows))
            for _ in range(2)]  # fmt: skip
    assert [(each.query, type(each)) for each in said] == [(1, Flows), (2, NoFlows)]
    assert asked == [1]
