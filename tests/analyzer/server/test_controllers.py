# SPDX-License-Identifier: Apache-2.0
"""What a reader of a controller says, and what becomes of it where the reader dies."""

import asyncio
import os
import signal

import pytest
from msgspec.structs import replace

from analyzer.config import Ovn
from analyzer.controllers import messages
from analyzer.controllers.messages import (
    HEAD,
    MAX_FRAME_BYTES,
    AskDifference,
    AskFlows,
    AskMeaning,
    Flows,
    NoFlows,
    Open,
    Ready,
    Source,
    Told,
)
from analyzer.intent.changes import PLACEMENTS, PORTS, Changes, Known
from analyzer.intent.logical import LogicalFlow
from analyzer.intent.model import Ladder, Placement, Port
from analyzer.server import controllers
from analyzer.server.controllers import Controller, LinkClosed
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.wire.walk import End
from tests.analyzer.certificates import Authority
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
from tests.waiting import until

NOWHERE = Ovn(northbound=("unix:/nowhere",), southbound=("unix:/nowhere",))
BACK_S = 30.0
LONG_S = 60.0


class FakeLink:
    """A reader that says what a test puts."""

    pid = 7

    def __init__(self):
        self.said, self.given, self.is_closed = asyncio.Queue(), [], False

    def send(self, frame):
        self.given.append(messages.down(frame[HEAD.size :]))

    async def receive(self):
        said = await self.said.get()
        if isinstance(said, Exception):
            raise said
        return said

    async def close(self):
        self.is_closed = True


class Fake:
    """A controller whose readers are fakes."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(controllers, "AGAIN_MIN_S", 0.01)
        self.links, self.intents, self.parts, self.now_ns = [], [], [], 5
        self.controller = Controller(
            NOWHERE, lambda: self.now_ns,
            on_intent=self.intents.append, on_changes=self.parts.append, open_link=self._open,
        )  # fmt: skip

    async def _open(self):
        self.links.append(FakeLink())
        return self.links[-1]

    async def say(self, *said):
        await until(lambda: self.links and not self.links[-1].is_closed)
        for each in said:
            self.links[-1].said.put_nowait(each)


def played(monkeypatch, play):
    """Run `play` beside a controller of fakes."""

    async def inside():
        fake = Fake(monkeypatch)
        running = asyncio.create_task(fake.controller.run())
        try:
            await play(fake, fake.controller)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert all(link.is_closed for link in fake.links)

    asyncio.run(inside())


def told(wall_ns, **changes):
    return Told(changes=Changes("ovn", wall_ns, **changes))


def test_what_a_reader_says_is_put_together_and_handed_on_once_it_makes_sense(monkeypatch):
    async def play(fake, controller):
        assert set(controller.intent.away) == {"northbound", "southbound"}
        await fake.say(
            Ready(pid=7),
            Source(database="northbound", remote="unix:/nb", lacks=("A.b",)),
            told(1, ports={"a": Port("a")}, afresh=(PORTS,), is_whole=False),
            told(2, ports={"b": Port("b")}, ladder=Ladder(3, 3, 1)),
        )
        await until(lambda: fake.intents)
        (intent,) = fake.intents
        assert intent is controller.intent
        assert (set(intent.ports), intent.away, intent.ladder.asked) == ({"a", "b"}, {}, 3)
        assert [part.wall_ns for part in fake.parts] == [1, 2]
        assert controller.sources["northbound"].lacks == ("A.b",)
        assert controller.pid == 7
        opening = fake.links[0].given[0]
        assert opening == Open(northbound=NOWHERE.northbound, southbound=NOWHERE.southbound)

    played(monkeypatch, play)


@pytest.mark.parametrize("end", [LinkClosed(), RemoteProtocolError("nonsense"), OSError("gone")])
def test_a_reader_that_dies_is_replaced_and_what_it_read_stays(monkeypatch, end):
    async def play(fake, controller):
        await fake.say(told(1, ports={"a": Port("a")}, afresh=(PORTS,)), end)
        await until(lambda: len(fake.links) == 2)
        assert fake.links[0].is_closed
        assert controller.starts == 2
        away = fake.intents[-1]
        assert set(away.away) == {"northbound", "southbound"}
        assert (set(away.ports), away.wall_ns) == ({"a"}, 5)
        await fake.say(told(9, placements={"a": Placement("a")}, afresh=(PLACEMENTS,)))
        await until(lambda: fake.intents[-1].placements)
        assert set(fake.intents[-1].ports) == {"a"}
        other = Known("ovn", {})  # as another process puts it together
        for part in fake.parts:
            other.take(part)
        assert other.intent() == controller.intent

    played(monkeypatch, play)


def test_logical_flows_are_asked_for_and_answered_by_number(monkeypatch):
    flow = LogicalFlow("1a2b3c4d-", "ingress", 1, 2, "m", "a")

    async def play(fake, controller):
        await until(lambda: controller.pid)
        asked = asyncio.create_task(controller.flows(["1a2b3c4d"], datapath=3))
        await until(lambda: len(fake.links[0].given) == 2)
        assert fake.links[0].given[1] == AskFlows(query=1, prefixes=("1a2b3c4d",), datapath=3)
        await fake.say(Flows(query=9, flows=()), Flows(query=1, flows=(flow,), more=2))
        answer = await asked
        assert (answer.flows, answer.more) == ((flow,), 2)
        asked = asyncio.create_task(controller.flows())
        await until(lambda: len(fake.links[0].given) == 3)
        await fake.say(NoFlows(query=2, error="refused"))
        with pytest.raises(RemoteProtocolError, match="refused"):
            await asked
        asked = asyncio.create_task(controller.flows())
        await until(lambda: len(fake.links[0].given) == 4)
        await fake.say(LinkClosed())
        with pytest.raises(CapabilityMissing):
            await asked
        await until(lambda: controller.pid)
        monkeypatch.setattr(controllers, "ANSWER_S", 0.01)
        with pytest.raises(CapabilityMissing, match="ask again"):
            await controller.flows()

    played(monkeypatch, play)


def test_a_question_that_a_reader_cannot_take_is_not_put_to_it(monkeypatch):
    """What hosts say is in it: one with a stolen key could end the reader over and over."""
    end = End(kind="dropped", bridge="br-int", table=0, reason="x" * (MAX_FRAME_BYTES // 2))

    async def play(fake, controller):
        await until(lambda: controller.pid)
        asked = AskMeaning(query=0, chassis="h1", installed=(), ends=(end, end))
        with pytest.raises(RemoteProtocolError, match="a question of"):
            await controller.meaning(asked)
        assert len(fake.links[0].given) == 1


def test_how_a_host_differs_is_asked_as_flows_are(monkeypatch):
    asking = AskDifference(query=0, chassis="h1", installed=((1, 2, 3),))

    async def play(fake, controller):
        await until(lambda: controller.pid)
        asked = asyncio.create_task(controller.difference(asking))
        await until(lambda: len(fake.links[0].given) == 2)
        assert fake.links[0].given[1] == replace(asking, query=1)
        await fake.say(messages.Differences(query=1, compared=7))
        assert (await asked).compared == 7

    played(monkeypatch, play)


def test_without_a_reader_there_are_no_flows():
    async def inside():
        with pytest.raises(CapabilityMissing):
            await Controller(NOWHERE, lambda: 0).flows()

    asyncio.run(inside())


# --- real processes -----------------------------------------------------------------------------


@pytest.fixture
def central(tmp_path):
    require(OVSDB)
    made = Central(tmp_path / "central")
    made.start()
    yield made
    made.kill()


def real(config, play):
    """Run `play` beside a controller with a reader in a process of its own."""

    async def inside():
        intents = []
        controller = Controller(config, lambda: 5, on_intent=intents.append)
        running = asyncio.create_task(controller.run())
        try:
            await play(controller, intents)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(inside())


def at(remote, **files):
    return Ovn(northbound=(remote,), southbound=(remote,), **files)


def is_whole(controller):
    return not controller.intent.away


def test_a_central_is_read_and_followed_by_a_process(central):
    """Kill the server, then the reader: what was read last stays, and both are read again."""
    fill(central, ports=40, chassis=4, switches=2)

    async def play(controller, intents):
        await until(lambda: is_whole(controller), "the first reading", LONG_S)
        intent = controller.intent
        assert len(intent.ports) == len(intent.placements) == 40
        assert {each.chassis for each in intent.placements.values()} == set(intent.chassis)
        port = intent.ports["ns1_pod-27"]
        assert (port.network, port.pod, port.hosts) == ("ls1", "ns1/pod-27", ("node-3",))
        assert controller.sources["southbound"].remote == central.remote
        count = len(intents)
        for number in range(20):
            where = ["name", "==", f"ns0_pod-{number}"]
            central.transact(NB, update("Logical_Switch_Port", where, enabled=False))

        def disabled():
            return [each for each in controller.intent.ports.values() if not each.is_enabled]

        await until(lambda: len(disabled()) == 20)
        assert 0 < len(intents) - count <= 20

        central.kill()
        await until(lambda: set(controller.intent.away) == {"northbound", "southbound"})
        assert len(controller.intent.ports) == 40
        central.start()
        await until(lambda: is_whole(controller), "being read again", BACK_S)

        os.kill(controller.pid, signal.SIGKILL)
        await until(lambda: "process" in controller.intent.away.get("northbound", ""))
        assert len(controller.intent.placements) == 40
        await until(lambda: is_whole(controller), "another reader", LONG_S)
        assert (controller.starts, len(controller.intent.ports)) == (2, 40)

    real(at(central.remote), play)


def test_a_process_answers_for_logical_flows(central):
    central.transact(
        SB,
        insert("Datapath_Binding", "d", tunnel_key=5),
        insert("Logical_Flow", pipeline="egress", table_id=4, priority=1, match="1",
               actions="drop;", logical_datapath=named("d")),
    )  # fmt: skip

    async def play(controller, _intents):
        await until(lambda: is_whole(controller), within_s=LONG_S)
        (flow,) = (await controller.flows(datapath=5)).flows
        stale = AskDifference(query=0, chassis="nobody", installed=((8, 0xBAD, 1),))
        assert [e.cookie for e in (await controller.difference(stale)).stale] == [0xBAD]
        assert (flow.pipeline, flow.table, flow.actions) == ("egress", 4, "drop;")
        assert (await controller.flows([flow.uuid[:8]])).flows == (flow,)
        central.kill()
        with pytest.raises(RemoteProtocolError):
            await controller.flows([flow.uuid[:8]])

    real(at(central.remote), play)


def test_a_central_is_read_over_tls_by_who_it_trusts(tmp_path):
    require(OVSDB)
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path, "stranger")
    cert, key = authority.sign("central")
    central = Central(
        tmp_path / "tls", "pssl:0:127.0.0.1",
        options=[f"--private-key={key}", f"--certificate={cert}", f"--ca-cert={authority.ca}"],
    )  # fmt: skip
    central.start()
    try:
        remote = f"ssl:127.0.0.1:{central.port()}"
        ours, theirs = authority.sign("analyzer"), stranger.sign("nobody")

        async def read(controller, _intents):
            await until(lambda: is_whole(controller), within_s=LONG_S)
            assert (await controller.flows()).flows == ()

        async def refused(controller, _intents):
            await until(
                lambda: all(each.startswith(remote) for each in controller.intent.away.values()),
                within_s=LONG_S,
            )
            assert not controller.intent.ports

        trusted = {"ca": str(authority.ca), "cert": str(ours[0]), "key": str(ours[1])}
        real(at(remote, **trusted), read)
        real(at(remote, **trusted | {"ca": str(stranger.ca)}), refused)
        odd = {"ca": str(authority.ca), "cert": str(theirs[0]), "key": str(theirs[1])}
        real(at(remote, **odd), refused)
    finally:
        central.kill()


def test_nobody_waits_for_a_reader_that_was_told_to_end(central):
    async def play(controller, _intents):
        await until(lambda: controller.pid)
        pid = controller.pid
        await controller._drop()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    real(at(central.remote), play)
