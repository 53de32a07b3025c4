# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import errno
import gc
import gzip
import select
import socket

import httpx
import msgspec
import pytest

from analyzer import fleet as fleet_module
from analyzer.fleet import Fleet, Refused, _reason, certificate_names
from netagent.model.errors import RemoteProtocolError, TooSoon, Unreachable
from netagent.model.ids import EndpointId
from netagent.wire.actions import ActionReply, ActionRequest, HostVerb
from netagent.wire.codec import encode
from netagent.wire.messages import (
    CheckReply,
    CheckRequest,
    FlowsReply,
    Health,
    PathAnswer,
    PathReply,
    PathRequest,
    ProbeAnswer,
    ProbeReply,
    ProbeRequest,
    Status,
)
from netagent.wire.validate import ValidateReply, ValidateRequest
from netagent.wire.walk import End, LocalWalk
from netagent.wire.zone import ZoneReply, ZoneRequest, ZoneRows
from tests.analyzer.certificates import Authority
from tests.waiting import leaping, until

A, B = EndpointId("a0", 0), EndpointId("a1", 0)

END = End(kind="output", bridge="br-int", table=40, reason="")
WALK = LocalWalk(host="h0", bridge="br-int", port="p", ends=(END,), steps=())

COMPARE = ValidateRequest(local=A, remote_address="10.0.0.1", remote_mac="02::")
ZONE = ZoneReply(host="h0", databases={"northbound": ZoneRows(away="it is not there")})
COMPARED = ValidateReply(host="h0", wall_ns=1, looks=3, flows=0, judged=0, in_hardware=0)
ACT = ActionRequest(id="i1-aa", verb=HostVerb.RECOMPUTE, bridge="br-int")
ACTED = ActionReply(host="h0", verb=HostVerb.RECOMPUTE, done=True)
STATUS = Status(
    host="h0",
    instance="one",
    version="1",
    endpoints=(),
    pinglist_version=1,
    targets=0,
    last_window_ns=0,
    health=Health(),
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


class Agent:
    """A peer that answers, or misbehaves, as told: `script` gets the request, returns bytes."""

    def __init__(self, script, tls=None):
        self.script, self.tls = script, tls
        self.requests, self.talks = [], set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.talk, "127.0.0.1", 0, ssl=self.tls)
        port = self.server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for task in self.talks:
            task.cancel()
        await asyncio.gather(*self.talks, return_exceptions=True)

    async def talk(self, reader, writer):
        self.talks.add(asyncio.current_task())
        with (
            contextlib.closing(writer),
            contextlib.suppress(asyncio.IncompleteReadError, ConnectionError),
        ):
            for served in range(100):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = [x for x in head.lower().splitlines() if x.startswith("content-length:")]
                body = await reader.readexactly(int(length[0].split()[1]) if length else 0)
                self.requests.append((head.splitlines()[0], body))
                answer = await self.script(served)
                if answer is None:
                    break
                writer.write(answer)


def ok(message):
    body = encode(message)
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def always(answer):
    async def script(_):
        return answer

    return script


async def silence(_):
    await asyncio.Event().wait()


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 300))


async def asked(url, question, tls=None):
    fleet = Fleet(lambda _host: url, tls)
    try:
        return await question(fleet)
    finally:
        await fleet.close()


PATIENT_S = 60.0
"""For answers that come, however busy the machine is."""


def reason(url, tls=None, deadline_s=PATIENT_S):
    with pytest.raises(Unreachable) as caught:
        run(asked(url, lambda fleet: fleet.status("h0", deadline_s=deadline_s), tls))
    assert caught.value.peer == "h0"
    return caught.value.reason


@pytest.mark.parametrize(
    ("line", "question", "reply"),
    [
        ("GET /v1/status", lambda f: f.status("h0", deadline_s=PATIENT_S), STATUS),
        (
            "POST /v1/check",
            lambda f: f.check("h0", CheckRequest(questions=())),
            CheckReply(walks=(WALK,), wall_ns=5),
        ),
        (
            "POST /v1/path",
            lambda f: f.path("h0", PathRequest(source=A, target=B)),
            PathReply(paths=(PathAnswer(source_port=1, outer_port=2, hops=("10.0.0.1",)),)),
        ),
        (
            "POST /v1/probe",
            lambda f: f.probe("h0", ProbeRequest(source=A, target=B)),
            ProbeReply(probes=(ProbeAnswer(source_port=1, size=64, outcome="lost"),)),
        ),
        (
            "GET /v1/flows?bridge=br-int",
            lambda f: f.flows("h0", "br-int"),
            FlowsReply(bridge="br-int", wall_ns=1, flows=("table=0 actions=drop",)),
        ),
        ("POST /v1/validate", lambda f: f.validate("h0", COMPARE), COMPARED),
        ("POST /v1/zone", lambda f: f.zone("h0", ZoneRequest()), ZONE),
        ("POST /v1/actions", lambda f: f.act("h0", ACT), ACTED),
    ],
)
def test_each_question_reaches_its_route_and_brings_its_answer(line, question, reply):
    async def talk():
        async with Agent(always(ok(reply))) as agent:
            answer = await asked(agent.url, question)
            return answer, agent.requests

    answer, [(request, _)] = run(talk())
    assert answer == reply
    assert request.startswith(line + " ")


def test_a_host_that_speaks_of_another_ones_zone_is_not_believed():
    async def talk():
        async with Agent(always(ok(ZONE))) as agent:
            await asked(agent.url, lambda fleet: fleet.zone("h1", ZoneRequest()))

    with pytest.raises(RemoteProtocolError, match="h1 speaks of h0"):
        run(talk())


def test_a_host_that_speaks_of_another_ones_tables_is_not_believed():
    async def talk():
        async with Agent(always(ok(COMPARED))) as agent:
            await asked(agent.url, lambda fleet: fleet.validate("h1", COMPARE))

    with pytest.raises(RemoteProtocolError, match="h1 speaks of h0"):
        run(talk())


def test_a_host_that_speaks_of_another_action_is_not_believed():
    async def talk(host, verb):
        async with Agent(always(ok(ACTED))) as agent:
            request = msgspec.structs.replace(ACT, verb=verb)
            await asked(agent.url, lambda fleet: fleet.act(host, request))

    for host, verb in (("h1", HostVerb.RECOMPUTE), ("h0", HostVerb.REINSTALL)):
        with pytest.raises(RemoteProtocolError, match="speaks of recompute on h0"):
            run(talk(host, verb))


@pytest.mark.parametrize("status", [400, 403, 404, 504])
def test_a_refusal_has_its_status(status):
    refusal = f"HTTP/1.1 {status} No\r\ncontent-length: 5\r\n\r\nworse".encode()

    async def talk():
        async with Agent(always(refusal)) as agent:
            await asked(agent.url, lambda fleet: fleet.act("h0", ACT))

    with pytest.raises(Refused, match=f"h0 answers {status}: worse") as caught:
        run(talk())
    assert caught.value.status == status


def test_a_host_that_was_just_asked_says_when_to_ask_again():
    refusal = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 8\r\n\r\nwait 7 s"

    async def talk():
        async with Agent(always(refusal)) as agent:
            await asked(agent.url, lambda fleet: fleet.validate("h0", COMPARE))

    with pytest.raises(TooSoon, match="h0: wait 7 s"):
        run(talk())


def test_nobody_listening_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert reason(f"http://127.0.0.1:{port}") == "refused"


def test_a_host_that_never_registered_is_unknown():
    assert reason(None) == "unknown host"


def test_an_address_that_is_none_is_quoted():
    assert reason("http://[nonsense") != "timeout"


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ENETUNREACH])
def test_no_route_is_told_apart_however_deep_the_libraries_bury_it(number):
    error = httpx.ConnectError("All connection attempts failed")
    error.__cause__ = ExceptionGroup("attempts", [OSError(number, "unreachable")])
    assert _reason(error) == "no route"
    assert _reason(httpx.ReadError("")) == "ReadError"


def late(url, tls=None, *, once=lambda: True):
    """Return the reason where a deadline passes after something holds; no time is waited for."""

    async def talk():
        leap = leaping(asyncio.get_running_loop())
        question = asyncio.create_task(
            asked(url, lambda fleet: fleet.status("h0", deadline_s=60), tls)
        )
        await until(once)
        for _ in range(50):  # the client goes as far as it comes
            await asyncio.sleep(0)
        leap(60)  # over the client's own timeout, too, as where the loop stood still
        with pytest.raises(Unreachable) as caught:
            await question
        return caught.value.reason

    told = run(talk())
    gc.collect()  # what is leaked is told of when it is collected, and fails the test
    return told


def is_knocked_at(listener):
    """Return what says whether a connection waits to be accepted."""
    return lambda: select.select([listener], [], [], 0)[0]


def test_an_agent_that_accepts_and_says_nothing_is_a_timeout():
    async def talk():
        leap = leaping(asyncio.get_running_loop())
        async with Agent(silence) as agent:
            question = asyncio.create_task(
                asked(agent.url, lambda f: f.status("h0", deadline_s=60))
            )
            await until(lambda: agent.requests)
            leap(60)
            with pytest.raises(Unreachable) as caught:
                await question
        return caught.value.reason

    assert run(talk()) == "timeout"


def test_a_frozen_process_is_a_timeout_although_the_kernel_accepts_for_it(authority):
    for scheme, tls in (("http", None), ("https", authority.client("analyzer"))):
        with socket.create_server(("127.0.0.1", 0)) as frozen:
            url = f"{scheme}://127.0.0.1:{frozen.getsockname()[1]}"
            assert late(url, tls, once=is_knocked_at(frozen)) == "timeout"


def test_a_host_that_drops_connection_attempts_is_a_connect_timeout():
    with contextlib.ExitStack() as open_sockets:
        full = open_sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        for _ in range(8):  # the queue of a socket that accepts nothing: the rest is dropped
            queued = open_sockets.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(address)
        assert late(f"http://127.0.0.1:{address[1]}") == "connect timeout"


def test_the_deadline_holds_for_an_answer_that_drips():
    """Of which something comes before the client would give up, for ever."""

    async def drip(reader, writer):
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.005)

    async def talk():
        async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(Unreachable) as caught:
                await asked(url, lambda f: f.status("h0", deadline_s=0.3))
            return caught.value.reason

    assert run(talk()) == "timeout"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno",
        ok(CheckReply(walks=(), wall_ns=1)),
    ],
)
def test_an_answer_that_is_none_breaks_the_rules(answer):
    async def talk():
        async with Agent(always(answer)) as agent:
            with pytest.raises(RemoteProtocolError):
                await asked(agent.url, lambda f: f.status("h0", deadline_s=PATIENT_S))

    run(talk())


@pytest.mark.parametrize("times", [1, 2])
def test_nothing_is_unpacked_because_an_answer_says_so(times):
    """Zeros that are packed twice are a millionth of what they were."""
    body = encode(STATUS)
    for _ in range(times):
        body = gzip.compress(body)
    forms = ", ".join(["gzip"] * times)
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: {forms}\r\ncontent-length: {len(body)}\r\n\r\n"

    async def talk():
        async with Agent(always(head.encode() + body)) as agent:
            with pytest.raises(RemoteProtocolError, match="no Status"):
                await asked(agent.url, lambda f: f.status("h0", deadline_s=PATIENT_S))

    run(talk())


def test_a_peer_that_speaks_no_http_is_unreachable():
    async def talk():
        async with Agent(always(b"SSH-2.0-OpenSSH\r\n\r\n")) as agent:
            with pytest.raises(Unreachable):
                await asked(agent.url, lambda f: f.status("h0", deadline_s=PATIENT_S))

    run(talk())


def test_a_connection_that_died_since_the_last_question_costs_no_answer():
    async def once(served):
        return ok(STATUS) if served == 0 else None

    async def talk():
        async with Agent(once) as agent:

            async def twice(fleet):
                return [await fleet.status("h0", deadline_s=PATIENT_S) for _ in range(3)]

            return await asked(agent.url, twice)

    assert run(talk()) == [STATUS] * 3


# --- certificates ---------------------------------------------------------------------------------


def test_the_agent_of_the_host_meant_is_believed(authority):
    async def talk():
        async with Agent(always(ok(STATUS)), authority.server("h0")) as agent:
            return await asked(
                agent.url,
                lambda f: f.status("h0", deadline_s=PATIENT_S),
                authority.client("analyzer"),
            )

    assert run(talk()) == STATUS


def test_another_hosts_agent_at_the_same_address_is_not_believed(authority):
    async def talk():
        async with Agent(always(ok(STATUS)), authority.server("h1")) as agent:
            with pytest.raises(Unreachable) as caught:
                await asked(
                    agent.url,
                    lambda f: f.status("h0", deadline_s=PATIENT_S),
                    authority.client("analyzer"),
                )
            return caught.value.reason

    assert run(talk()) == "its certificate names h1"


def test_a_stranger_is_not_even_asked(authority, tmp_path):
    stranger = Authority(tmp_path, "stranger")

    async def talk():
        async with Agent(always(ok(STATUS)), stranger.server("h0")) as agent:
            with pytest.raises(Unreachable) as caught:
                await asked(
                    agent.url,
                    lambda f: f.status("h0", deadline_s=PATIENT_S),
                    authority.client("analyzer"),
                )
            return caught.value.reason, agent.requests

    told, requests = run(talk())
    assert "certificate" in told.lower()
    assert requests == []


def test_without_tls_of_our_own_no_certificate_is_believed(authority):
    async def talk():
        async with Agent(always(ok(STATUS)), authority.server("h0")) as agent:
            with pytest.raises(Unreachable, match=r"(?i)certificate"):
                await asked(agent.url, lambda f: f.status("h0", deadline_s=PATIENT_S))

    run(talk())


def test_a_certificate_names_its_cn_and_its_dns_names():
    certificate = {
        "subject": ((("countryName", "XX"),), (("commonName", "h0"),)),
        "subjectAltName": (("DNS", "h0.example"), ("IP Address", "127.0.0.1")),
    }
    assert certificate_names(certificate) == {"h0", "h0.example"}
    assert certificate_names({}) == set()


def test_connections_are_kept_to_few_agents_only(monkeypatch):
    monkeypatch.setattr(fleet_module, "MAX_IDLE", 2)

    async def inside():
        async with Agent(always(ok(STATUS))) as agent:
            fleet = Fleet(lambda host: agent.url)
            for number in (*range(6), 5, 4):
                await fleet.status(f"h{number}", deadline_s=PATIENT_S)
            assert len(agent.talks) == 6  # the last two were asked again over the same ones
            while len(talks := {each for each in agent.talks if not each.done()}) > 2:
                await asyncio.wait(talks, return_when=asyncio.FIRST_COMPLETED)
            await fleet.close()

    run(inside())


def test_few_questions_are_under_way_at_once(monkeypatch):
    monkeypatch.setattr(fleet_module, "MAX_EXCHANGES", 3)
    most, now = 0, 0

    async def script(_):
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return ok(STATUS)

    async def inside():
        async with Agent(script) as agent:
            fleet = Fleet(lambda host: agent.url)
            await asyncio.gather(*(fleet.status(f"h{n}", deadline_s=PATIENT_S) for n in range(12)))
            await fleet.close()

    run(inside())
    assert most == 3
