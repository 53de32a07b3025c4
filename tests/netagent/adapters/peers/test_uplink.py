# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from netagent.adapters.peers import uplink
from netagent.adapters.peers.spool import Spool
from netagent.adapters.peers.uplink import Shipper, Uplink, client_tls
from netagent.config import AgentConfig, AnalyzerConfig, TlsConfig
from netagent.model.errors import ConfigError, RemoteProtocolError, Unreachable
from netagent.model.ids import EndpointId
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Accepted, Registered, Registration, SampleRequest
from netagent.wire.roster import Follow, Source, Update
from tests.analyzer.certificates import Authority
from tests.netagent.adapters.peers.analyzer import Answer, Asked, FakeAnalyzer
from tests.waiting import until

NEWS = Update(version=4, rare_share=0.1, sources=(Source(EndpointId("c0", 0), "t"),))
REGISTRATION = Registration(host="h0", instance="i", generation=1, rpc_url="http://127.0.0.1:1")


def config(url: str, tls: TlsConfig | None = None) -> AgentConfig:
    return AgentConfig(host="h0", analyzer=AnalyzerConfig(url=url), tls=tls)


def talk(analyzer: FakeAnalyzer, work: Callable[[Uplink], Awaitable[object]]) -> object:
    """Return what `work` makes of a running analyzer."""

    async def main() -> object:
        async with analyzer:
            made = Uplink(config(analyzer.url))
            try:
                return await work(made)
            finally:
                await made.close()

    return asyncio.run(main())


def says(status: int, body: bytes = b"") -> FakeAnalyzer:
    return FakeAnalyzer(answer=lambda _: (status, body))


def test_a_registration_is_answered_with_what_may_be_probed():
    analyzer = says(200, encode(Registered(sources=7)))
    assert talk(analyzer, lambda up: up.register(REGISTRATION)) == Registered(sources=7)
    (asked,) = analyzer.asked
    assert (asked.method, asked.target) == ("PUT", "/v1/hosts/h0/endpoints")
    assert asked.headers["content-type"] == "application/msgpack"
    assert decode(asked.body, Registration) == REGISTRATION


def test_a_long_poll_brings_what_changed_or_nothing():
    analyzer = says(200, encode(NEWS))
    asked = Follow(version=3, wait_s=20)
    assert talk(analyzer, lambda up: up.follow(asked)) == NEWS
    assert analyzer.asked[0].target == "/v1/hosts/h0/pinglist"
    assert decode(analyzer.asked[0].body, Follow) == asked
    assert talk(says(204), lambda up: up.follow(asked)) is None


def test_a_summary_is_acknowledged():
    analyzer = says(200, encode(Accepted(duplicate=True)))
    assert talk(analyzer, lambda up: up.push(b"summary")) == Accepted(duplicate=True)
    assert analyzer.asked[0].body == b"summary"


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_refused_body_is_a_protocol_error(status):
    with pytest.raises(RemoteProtocolError, match=f"refused: status {status} why"):
        talk(says(status, b"why"), lambda up: up.push(b""))


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_any_other_status_means_try_later(status):
    with pytest.raises(Unreachable, match=str(status)):
        talk(says(status), lambda up: up.register(REGISTRATION))


def test_nonsense_is_a_protocol_error_but_for_a_summary_no_acknowledgement():
    with pytest.raises(RemoteProtocolError, match="no Registered"):
        talk(says(200, b"\xc1"), lambda up: up.register(REGISTRATION))
    with pytest.raises(Unreachable, match="acknowledged nothing"):
        talk(says(200, b"\xc1"), lambda up: up.push(b""))


def test_silence_is_a_timeout(monkeypatch):
    monkeypatch.setattr(uplink, "DEADLINE_S", 0.05)
    with pytest.raises(Unreachable) as caught:
        talk(FakeAnalyzer(answer=lambda _: None), lambda up: up.follow(Follow()))
    assert caught.value.reason == "timeout"


def test_nobody_there_is_refused():
    async def main() -> None:
        analyzer = FakeAnalyzer()
        await analyzer.start()
        await analyzer.stop()
        made = Uplink(config(analyzer.url))
        try:
            await made.push(b"")
        finally:
            await made.close()

    with pytest.raises(Unreachable) as caught:
        asyncio.run(main())
    assert caught.value.reason == "refused"


# --- TLS --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def pair(authority: Authority, name: str) -> TlsConfig:
    cert, key = authority.sign(name)
    return TlsConfig(ca=str(authority.ca), cert=str(cert), key=str(key))


def push_with(authority: Authority, tls: TlsConfig) -> Accepted:
    async def main() -> Accepted:
        async with FakeAnalyzer(tls=authority.server("analyzer")) as analyzer:
            made = Uplink(config(analyzer.url, tls))
            try:
                return await made.push(b"")
            finally:
                await made.close()

    return asyncio.run(main())


def test_both_ends_know_each_other_by_certificate(authority, tmp_path):
    assert push_with(authority, pair(authority, "h0")) == Accepted()
    stranger = Authority(tmp_path, "stranger")
    with pytest.raises(Unreachable, match=r"(?i)certificate"):
        push_with(authority, pair(stranger, "h0"))


def test_tls_files_that_cannot_be_used_are_a_config_error():
    with pytest.raises(ConfigError, match="does not exist"):
        client_tls(TlsConfig(ca="/none", cert="/none", key="/none"))


# --- the shipper ------------------------------------------------------------------------------


class Ship:
    """A Shipper at work, for the time of a test."""

    def __init__(self, folder: Path, analyzer: FakeAnalyzer) -> None:
        self.spool = Spool(folder, limit_bytes=1 << 20)
        self.uplink = Uplink(config(analyzer.url))
        self.sampled: list[tuple[int, float]] = []
        self.shipper = Shipper(self.uplink, self.spool, self.sample)

    def sample(self, tick_ms: int, seconds: float) -> None:
        self.sampled.append((tick_ms, seconds))
        if tick_ms < 100:
            raise RemoteProtocolError("no such ticks")

    async def __aenter__(self) -> Shipper:
        self._work = asyncio.create_task(self.shipper.run())
        return self.shipper

    async def __aexit__(self, *_: object) -> None:
        self._work.cancel()
        await asyncio.wait({self._work})
        await self.uplink.close()


def bodies(asked: list[Asked]) -> list[bytes]:
    return [each.body for each in asked]


def test_what_an_earlier_process_left_goes_first_oldest_first(tmp_path):
    spool = Spool(tmp_path, limit_bytes=1 << 20)
    spool.put(2, b"two")
    spool.put(1, b"one")

    async def main() -> list[Asked]:
        async with FakeAnalyzer() as analyzer, Ship(tmp_path, analyzer) as shipper:
            await analyzer.heard(2)
            shipper.submit(3, b"three")
            await analyzer.heard(3)
            await until(lambda: shipper.sent == 3)
            return analyzer.asked

    assert bodies(asyncio.run(main())) == [b"one", b"two", b"three"]
    assert len(Spool(tmp_path, limit_bytes=1 << 20)) == 0


def test_what_a_clock_that_went_back_left_is_delivered_and_no_measure_of_what_came_since(tmp_path):
    async def main() -> tuple[int, int]:
        async with FakeAnalyzer() as analyzer, Ship(tmp_path, analyzer) as shipper:
            shipper.submit(900, b"ahead")
            await until(lambda: shipper.acknowledged_ns == 900)
            await analyzer.stop()
            shipper.submit(905, b"ahead, too")
            shipper.submit(10, b"right")
            before = shipper.acknowledged_ns
            await analyzer.start()
            await until(lambda: shipper.sent == 3)
            return before, shipper.acknowledged_ns

    assert asyncio.run(main()) == (0, 10)


def test_nothing_is_lost_while_the_analyzer_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(uplink, "BACKOFF_S", (0.001, 0.01))

    async def main() -> list[Asked]:
        analyzer = FakeAnalyzer()
        await analyzer.start()
        await analyzer.stop()
        async with Ship(tmp_path, analyzer) as shipper:
            for start_ns in range(5):
                shipper.submit(start_ns, b"%d" % start_ns)
            await until(lambda: len(synced) == 5)
            assert shipper.sent == 0
            async with analyzer:
                await until(lambda: shipper.sent == 5)
            return analyzer.asked

    synced = []
    monkeypatch.setattr(uplink, "sync", synced.extend)
    assert bodies(asyncio.run(main())) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_summary_over_which_the_analyzer_fails_keeps_no_other_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(uplink, "BACKOFF_S", (0.001, 0.01))
    refusals = [(500, b"a bug")] * 2

    def answer(asked: Asked) -> Answer:
        return refusals.pop() if asked.body == b"bad" and refusals else (200, encode(Accepted()))

    async def main() -> list[Asked]:
        async with FakeAnalyzer(answer=answer) as analyzer, Ship(tmp_path, analyzer) as shipper:
            for start_ns, body in enumerate((b"bad", b"good", b"better")):
                shipper.submit(start_ns, body)
            await until(lambda: shipper.sent == 3)
            return analyzer.asked

    assert bodies(asyncio.run(main())) == [b"bad", b"good", b"better", b"bad", b"bad"]


def test_an_unacknowledged_summary_is_sent_again(tmp_path, monkeypatch):
    monkeypatch.setattr(uplink, "BACKOFF_S", (0.001, 0.01))
    answers: list[Answer] = [(503, b""), (200, b"\xc1"), (200, encode(Accepted()))]

    async def main() -> list[Asked]:
        analyzer = FakeAnalyzer(answer=lambda _: answers.pop(0))
        async with analyzer, Ship(tmp_path, analyzer) as shipper:
            shipper.submit(1, b"x")
            await until(lambda: shipper.sent == 1)
            assert shipper.dropped == 0
            return analyzer.asked

    assert bodies(asyncio.run(main())) == [b"x"] * 3


def test_what_the_analyzer_asks_for_besides_is_done_or_refused_without_loss(tmp_path):
    asked = [SampleRequest(tick_ms=100, seconds=60), None, SampleRequest(tick_ms=1, seconds=60)]
    answers: list[Answer] = [(200, encode(Accepted(sample=each))) for each in asked]

    async def main() -> list[tuple[int, float]]:
        async with FakeAnalyzer(answer=lambda _: answers.pop(0)) as analyzer:
            ship = Ship(tmp_path, analyzer)
            async with ship as shipper:
                for start_ns in range(3):
                    shipper.submit(start_ns, b"x")
                await until(lambda: shipper.sent == 3 and not len(ship.spool))
                assert shipper.dropped == 0
        return ship.sampled

    assert asyncio.run(main()) == [(100, 60), (1, 60)]


def test_a_summary_that_is_refused_makes_way_and_is_counted(tmp_path):
    def answer(asked: Asked) -> Answer:
        return (400, b"") if asked.body == b"bad" else (200, encode(Accepted()))

    async def main() -> tuple[int, int]:
        async with FakeAnalyzer(answer=answer) as analyzer, Ship(tmp_path, analyzer) as shipper:
            shipper.submit(1, b"bad")
            shipper.submit(2, b"good")
            await until(lambda: shipper.sent == 1)
            return shipper.refused, shipper.dropped

    assert asyncio.run(main()) == (1, 1)


def test_any_answer_of_the_analyzer_ends_the_back_off(tmp_path, monkeypatch):
    monkeypatch.setattr(uplink, "BACKOFF_S", (600.0, 600.0))
    up = False

    def answer(asked: Asked) -> Answer:
        return (
            (200, encode(Accepted())) if up else (204 if "pinglist" in asked.target else 503, b"")
        )

    async def main() -> int:
        nonlocal up
        async with FakeAnalyzer(answer=answer) as analyzer:
            ship = Ship(tmp_path, analyzer)
            async with ship as shipper:
                shipper.submit(1, b"x")
                await analyzer.heard(1)
                up = True
                ship.uplink.alive.set()  # as a long poll does; the back-off lasts ten minutes
                await until(lambda: shipper.sent == 1)
                return shipper.sent

    assert asyncio.run(main()) == 1
