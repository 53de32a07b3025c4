# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from hashlib import blake2b

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from netagent import server
from netagent.concurrency import timeout
from netagent.config import AgentConfig, AnalyzerConfig, RpcConfig, TlsConfig
from netagent.model.endpoint import Endpoint
from netagent.model.errors import (
    CapabilityMissing,
    ConfigError,
    RemoteProtocolError,
    TooSoon,
    Unreachable,
)
from netagent.model.ids import EndpointId
from netagent.server import MAX_OF_PEER, Refusal, RpcApp, RpcServer, common_name
from netagent.wire.codec import ContentType, decode, deflated, encode, is_deflated
from netagent.wire.messages import (
    Announced,
    Announcement,
    CheckReply,
    CheckRequest,
    EgressQuestion,
    FlowsReply,
    Health,
    PathAnswer,
    PathReply,
    PathRequest,
    ProbeReply,
    ProbeRequest,
    Status,
)
from netagent.wire.validate import ValidateReply, ValidateRequest
from netagent.wire.walk import End, LocalWalk
from netagent.wire.zone import ZoneReply, ZoneRequest
from tests.analyzer.certificates import Authority

C0, C1 = EndpointId("c0", 0), EndpointId("c1", 0)
ENDPOINT = Endpoint(C0, "t", "h0", "10.0.0.10", "02::", "172.30.0.10", "rnic0", "br-int", "p")
END = End(kind="output", bridge="br-int", table=40, reason="")
WALK = LocalWalk(host="h0", bridge="br-int", port="p", ends=(END,), steps=())
JSON, MSGPACK = ContentType.JSON, ContentType.MSGPACK


class Service:
    """Answers, remembers what it was asked, and raises what it is told to."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.came, self.given_up = asyncio.Event(), asyncio.Event()
        self.fails: Exception | None = None
        self.wait_s = 0.0

    async def _note(self, asked: object) -> None:
        self.asked.append(asked)
        self.came.set()
        try:
            await asyncio.sleep(self.wait_s)
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        if self.fails is not None:
            raise self.fails

    async def status(self) -> Status:
        await self._note("status")
        return Status(
            host="h0",
            instance="i",
            version="1",
            endpoints=(ENDPOINT,),
            pinglist_version=3,
            targets=2,
            last_window_ns=0,
            health=Health(),
        )

    async def check(self, request: CheckRequest) -> CheckReply:
        await self._note(request)
        return CheckReply(walks=(WALK,), wall_ns=1)

    async def path(self, request: PathRequest) -> PathReply:
        await self._note(request)
        return PathReply(paths=(PathAnswer(source_port=1, outer_port=None),))

    async def validate(self, request: ValidateRequest) -> ValidateReply:
        await self._note(request)
        return ValidateReply(host="h0", wall_ns=1, looks=3, flows=0, judged=0, in_hardware=0)

    async def probe(self, request: ProbeRequest) -> ProbeReply:
        await self._note(request)
        return ProbeReply(probes=())

    async def hear(self, said: Announcement) -> Announced:
        await self._note(said)
        return Announced(news=True)

    async def zone(self, request: ZoneRequest) -> ZoneReply:
        await self._note(request)
        return ZoneReply(host="h0", databases={})

    async def flows(self, bridge: str, table: int | None) -> FlowsReply:
        await self._note((bridge, table))
        return FlowsReply(bridge=bridge, wall_ns=0, flows=("table=0",))


def config(tls: TlsConfig | None = None) -> AgentConfig:
    scheme = "https" if tls else "http"
    return AgentConfig(
        host="h0",
        analyzer=AnalyzerConfig(url=f"{scheme}://127.0.0.1:1"),
        rpc=RpcConfig(listen="127.0.0.1:0"),
        tls=tls,
    )


@contextlib.asynccontextmanager
async def running(service: Service, tls: TlsConfig | None = None) -> AsyncIterator[str]:
    made = RpcServer(config(tls), service)
    await made.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{made.port}"
    finally:
        await made.stop()


def ask(service: Service, method: str, path: str, **more) -> httpx.Response:
    """Ask the application in this process, past any socket."""

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(RpcApp(service, peers=None))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return await client.request(method, path, **more)

    return asyncio.run(main())


def post(service: Service, path: str, message: object, form: ContentType = JSON) -> httpx.Response:
    headers = {"content-type": form.value}
    return ask(service, "POST", path, content=encode(message, form), headers=headers)


@pytest.mark.parametrize("form", [JSON, MSGPACK])
@pytest.mark.parametrize(
    ("path", "request_", "kind"),
    [
        ("/v1/path", PathRequest(source=C0, target=C1), PathReply),
        ("/v1/probe", ProbeRequest(source=C0, target=C1, count=3), ProbeReply),
        (
            "/v1/validate",
            ValidateRequest(local=C0, remote_address="10.0.0.1", remote_mac="02::"),
            ValidateReply,
        ),
        (
            "/v1/check",
            CheckRequest(
                questions=(EgressQuestion(source=C0, target_address="10.0.0.1", target_mac="02::"),)
            ),
            CheckReply,
        ),
    ],
)
def test_each_question_reaches_the_service_in_either_form(path, request_, kind, form):
    service = Service()
    response = post(service, path, request_, form)
    assert response.status_code == 200
    assert response.headers["content-type"] == form.value
    assert isinstance(decode(response.content, kind, form), kind)
    assert service.asked == [request_]


def test_status_is_json_for_a_curl_and_msgpack_for_who_asks():
    assert ask(Service(), "GET", "/v1/status").json()["endpoints"][0]["id"]["container"] == "c0"
    response = ask(Service(), "GET", "/v1/status", headers={"accept": MSGPACK.value})
    assert decode(response.content, Status, MSGPACK).endpoints == (ENDPOINT,)
    assert ask(Service(), "HEAD", "/v1/status").content == b""


@pytest.mark.parametrize(
    ("query", "asked"), [("bridge=br-int", ("br-int", None)), ("table=4&bridge=b", ("b", 4))]
)
def test_flows_are_asked_for_by_query(query, asked):
    service = Service()
    assert ask(service, "GET", f"/v1/flows?{query}").json()["flows"] == ["table=0"]
    assert service.asked == [asked]


@pytest.mark.parametrize("query", ["", "table=1", "bridge=b&table=x", "bridge=b&table=-1"])
def test_a_query_that_makes_no_sense_is_refused(query):
    response = ask(Service(), "GET", f"/v1/flows?{query}")
    assert response.status_code == 400
    assert set(response.json()) == {"error", "remedy"}


def test_an_unknown_place_lists_the_routes():
    for path in ("/", "/v2/status", "/v1/status/"):
        response = ask(Service(), "GET", path)
        assert response.status_code == 404
        assert "GET /v1/status" in response.json()["routes"]


def test_a_verb_that_makes_no_sense_names_the_right_one():
    response = ask(Service(), "GET", "/v1/check")
    assert response.status_code == 405
    assert response.json()["remedy"] == "use POST"


@pytest.mark.parametrize("given", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_form_that_a_web_page_can_send_is_refused(given):
    headers = {"content-type": given}
    response = ask(Service(), "POST", "/v1/probe", content=b"{}", headers=headers)
    assert response.status_code == 415


@pytest.mark.parametrize("chunked", [True, False])
def test_a_large_body_is_refused_while_it_comes(chunked):
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100_000

    content = chunks() if chunked else b"x" * (server.MAX_REQUEST_BYTES + 1)
    headers = {"content-type": JSON.value}
    response = ask(Service(), "POST", "/v1/probe", content=content, headers=headers)
    assert response.status_code == 413
    assert response.headers["connection"] == "close"


def test_a_request_inflates_to_no_more_than_it_may_be():
    words = [f"{n:08x}" for n in range(server.MAX_REQUEST_BYTES // 8)]
    body = deflated(encode({"source": words}))
    assert is_deflated(body)
    assert len(body) < server.MAX_REQUEST_BYTES
    headers = {"content-type": MSGPACK.value}
    response = ask(Service(), "POST", "/v1/probe", content=body, headers=headers)
    assert response.status_code == 400
    assert "inflates to more" in response.text


@pytest.mark.parametrize(
    ("error", "status", "remedy"),
    [
        (Refusal(404, "no such endpoint", "see /v1/status"), 404, "see /v1/status"),
        (CapabilityMissing("Open vSwitch", "start it"), 501, "start it"),
        (TooSoon("h0", "wait 7 s"), 429, "wait as long as it says"),
        (Unreachable("vSwitch worker", "busy"), 504, "try again"),
        (TimeoutError(), 504, "try again"),
        (RemoteProtocolError("nonsense"), 400, "see the documentation of this route's message"),
        (KeyError("a bug"), 500, "see the agent's log"),
    ],
)
def test_every_error_comes_with_its_remedy(error, status, remedy):
    service = Service()
    service.fails = error
    response = ask(service, "GET", "/v1/status")
    assert response.status_code == status
    assert response.json()["remedy"] == remedy
    assert "bug" not in response.text


def test_a_service_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(server, "ANSWER_S", 0.02)
    service = Service()
    service.wait_s = 60
    assert ask(service, "GET", "/v1/status").status_code == 504


def statuses(service: Service, requests: list[tuple[str, str, str, bytes]]) -> list[int]:
    """Return the status of each request: who shows a certificate, method, path and body."""

    async def main() -> list[int]:
        app, peer = RpcApp(service, peers=frozenset({"analyzer"})), ""

        async def identified(scope, receive, send) -> None:
            await app({**scope, "state": {"peer": peer}}, receive, send)

        headers, found = {"content-type": MSGPACK.value}, []
        transport = httpx.ASGITransport(identified)
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            for who, method, path, body in requests:
                peer = who
                asked = await client.request(method, path, content=body, headers=headers)
                found.append(asked.status_code)
        return found

    return asyncio.run(main())


def announcement(host: str, count: int, form: Callable[[bytes], bytes] = bytes) -> tuple:
    names = (blake2b(b"%d" % n, digest_size=16).hexdigest() for n in range(count))
    ends = tuple(replace(ENDPOINT, host=host, id=EndpointId(each, 0)) for each in names)
    said = Announcement(host=host, instance="i", generation=1, endpoints=ends)
    return host, "PUT", "/v1/peers", form(encode(said))


@pytest.mark.parametrize(
    ("count", "form", "most"),
    [
        pytest.param(0, bytes, 64, id="many small ones"),
        pytest.param(4000, bytes, 3, id="large ones"),
        pytest.param(4000, deflated, 3, id="large ones that are deflated"),
    ],
)
def test_a_host_that_announces_without_end_is_heard_for_a_while(monkeypatch, count, form, most):
    monkeypatch.setattr(server, "ANNOUNCED_BYTES_PER_S", 0)
    theirs, service = announcement("h7", count, form), Service()
    assert is_deflated(theirs[-1]) == (form is deflated)
    found = statuses(service, [theirs] * (most + 2) + [announcement("h1", 1)])
    taken = found.index(429)
    assert 0 < taken <= most
    assert set(found[:taken]) == {200}
    assert set(found[taken:-1]) == {429}
    assert found[-1] == 200
    assert len(service.asked) == taken + 1


def test_what_a_host_may_announce_comes_back_with_time_and_is_remembered_of_some(monkeypatch):
    monkeypatch.setattr(server, "MAX_ANNOUNCERS", 2)
    announcers = server._Announcers()
    for _ in range(2):
        announcers.take("h7", bytes(server.MAX_REQUEST_BYTES), 5.0)
    with pytest.raises(TooSoon):
        announcers.take("h7", b"", 5.0)
    half_s = server.LEAST_ANNOUNCED / server.ANNOUNCED_BYTES_PER_S
    announcers.take("h7", b"", 5.0 + half_s)
    with pytest.raises(TooSoon):
        announcers.take("h7", b"", 5.0 + half_s)
    for name in ("h8", "h9"):
        announcers.take(name, b"", 6.0)
    assert list(announcers._left) == ["h8", "h9"]


def test_refusals_are_logged_now_and_then_and_shortened(monkeypatch):
    odd = ("h7", "GET", f"/{'x' * 50_000}", b"")
    with capture_logs() as logs:
        monkeypatch.setattr(server, "TOLD_EVERY_S", 3600.0)
        assert statuses(Service(), [odd] * 50) == [403] * 50
        monkeypatch.setattr(server, "TOLD_EVERY_S", 0.0)
        assert statuses(Service(), [("analyzer", *odd[1:])] * 2) == [404] * 2
    assert [each["event"] for each in logs] == ["request_refused"] * 3
    assert max(len(str(each)) for each in logs) < 1000


PATHS = st.sampled_from(["/v1/check", "/v1/path", "/v1/probe"])
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.binary()
    | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
BODIES = st.one_of(
    st.binary(),
    st.text().map(str.encode),
    PLAIN.map(lambda plain: encode(plain, MSGPACK)),
    st.builds(
        lambda body, cut: body[:cut],
        st.just(encode(PathRequest(source=C0, target=C1), MSGPACK)),
        st.integers(0, 80),
    ),
)


@given(PATHS, BODIES.filter(bool), st.sampled_from([JSON, MSGPACK]))
def test_no_body_makes_the_server_fail(path, body, form):
    headers = {"content-type": form.value}
    response = ask(Service(), "POST", path, content=body, headers=headers)
    assert response.status_code in {200, 400}
    if response.status_code == 400:
        problem = decode(response.content, dict[str, str], form)
        assert set(problem) == {"error", "remedy"}


# --- over sockets ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls(authority) -> TlsConfig:
    cert, key = authority.sign("h0")
    return TlsConfig(ca=str(authority.ca), cert=str(cert), key=str(key))


async def get(url: str, *, verify: object = True) -> httpx.Response:
    async with httpx.AsyncClient(verify=verify, trust_env=False) as client:
        return await client.get(f"{url}/v1/status")


@pytest.mark.parametrize(
    ("name", "status"), [("analyzer", 200), ("admin", 200), ("h0", 200), ("h1", 403)]
)
def test_the_certificate_s_name_decides_who_may_ask(authority, tls, name, status):
    async def main() -> httpx.Response:
        async with running(Service(), tls) as url:
            return await get(url, verify=authority.client(name))

    response = asyncio.run(main())
    assert response.status_code == status
    if status == 403:
        assert "'h1' may not ask" in response.json()["error"]


def test_without_a_certificate_or_with_another_authority_s_there_is_no_answer(
    authority, tls, tmp_path
):
    stranger = Authority(tmp_path, "stranger").client("analyzer")
    stranger.load_verify_locations(str(authority.ca))

    async def main(context: object) -> None:
        async with running(Service(), tls) as url:
            await get(url, verify=context)

    for context in (authority.client(), stranger):
        with pytest.raises(httpx.TransportError):
            asyncio.run(main(context))


def test_one_certificate_holds_some_connections_and_leaves_the_others(authority, tls):
    async def main() -> tuple[int, int]:
        async with running(Service(), tls) as url:
            held = [await connect(url, authority.client("h1")) for _ in range(MAX_OF_PEER + 20)]
            async with timeout(60):
                closed = await asyncio.gather(*(each[0].read() for each in held[MAX_OF_PEER:]))
            response = await get(url, verify=authority.client("analyzer"))
            for _, writer in held:
                writer.close()
            gone = (writer.wait_closed() for _, writer in held)
            await asyncio.gather(*gone, return_exceptions=True)  # the other side resets some
            return len(closed), response.status_code

    assert asyncio.run(main()) == (20, 200)


@pytest.mark.parametrize("sent", [b"", b"GET /v1/status HTTP/1.1\r\nHost: x\r\nA: "])
def test_a_connection_over_which_nothing_is_asked_is_ended(authority, tls, sent, monkeypatch):
    monkeypatch.setattr(server, "BODY_S", 0.2)

    async def main() -> bytes:
        async with running(Service(), tls) as url:
            reader, writer = await connect(url, authority.client("h1"))
            writer.write(sent)
            async with timeout(60):
                said = await reader.read()
            writer.close()
            return said

    assert asyncio.run(main()) == b""


async def connect(
    url: str, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(url.rpartition(":")[2])
    return await asyncio.open_connection("127.0.0.1", port, ssl=context)


def test_many_requests_share_a_connection_over_plain_loopback():
    async def main() -> list[int]:
        service = Service()
        async with running(service) as url, httpx.AsyncClient(trust_env=False) as client:
            answers = [await client.get(f"{url}/v1/status") for _ in range(5)]
            return [answer.status_code for answer in answers]

    assert asyncio.run(main()) == [200] * 5


def test_stopping_lets_a_request_in_flight_end_and_frees_the_port():
    async def main() -> tuple[int, bool]:
        service = Service()
        service.wait_s = 0.1
        made = RpcServer(config(), service)
        await made.start()
        url = f"http://127.0.0.1:{made.port}"
        asking = asyncio.create_task(get(url))
        await service.came.wait()
        await made.stop()
        await made.stop()
        status = (await asking).status_code
        try:
            await get(url)
        except httpx.ConnectError:
            return status, True
        return status, False

    assert asyncio.run(main()) == (200, True)


def test_stopping_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(server, "STOP_S", 0.05)

    async def main() -> int:
        service = Service()
        service.wait_s = 60
        made = RpcServer(config(), service)
        await made.start()
        asking = asyncio.create_task(get(f"http://127.0.0.1:{made.port}"))
        await service.came.wait()
        await made.stop()
        return (await asking).status_code

    assert asyncio.run(main()) == 500


def test_a_port_that_is_taken_is_an_os_error():
    async def main() -> None:
        async with running(Service()) as url:
            taken = msgspec.structs.replace(
                config(), rpc=RpcConfig(listen=f"127.0.0.1:{httpx.URL(url).port}")
            )
            await RpcServer(taken, Service()).start()

    with pytest.raises(OSError, match="address already in use"):
        asyncio.run(main())


def test_tls_files_that_cannot_be_used_are_a_config_error(tmp_path):
    path = str(tmp_path / "none.pem")
    with pytest.raises(ConfigError, match="does not exist"):
        RpcServer(config(tls=TlsConfig(ca=path, cert=path, key=path)), Service())


def test_a_server_that_was_not_started_has_no_port():
    with pytest.raises(RuntimeError, match="not started"):
        _ = RpcServer(config(), Service()).port


def test_a_certificate_without_a_name_names_nobody():
    assert common_name(None) is None
    assert common_name({"subject": ((("organizationName", "x"),),)}) is None


def test_a_question_whose_asker_goes_away_is_given_up():
    service = Service()
    service.wait_s = 600

    async def main() -> None:
        async with running(service) as url, httpx.AsyncClient(trust_env=False) as client:
            asking = asyncio.create_task(client.get(f"{url}/v1/status"))
            await service.came.wait()
            asking.cancel()
            async with timeout(60):
                await service.given_up.wait()

    asyncio.run(main())


def test_every_host_announces_its_own_endpoints_and_nothing_else(tmp_path):
    authority, service = Authority(tmp_path), Service()
    cert, key = authority.sign("h0")
    mine = TlsConfig(ca=str(authority.ca), cert=str(cert), key=str(key))

    async def main() -> list[int]:
        async with running(service, mine) as url:
            client = httpx.AsyncClient(base_url=url, verify=authority.client("h7"))
            async with client:
                statuses = []
                for host in ("h7", "h8"):
                    body = encode(Announcement(host=host, instance="one", generation=1), JSON)
                    headers = {"content-type": JSON.value}
                    answer = await client.put("/v1/peers", content=body, headers=headers)
                    statuses.append(answer.status_code)
                statuses.append((await client.get("/v1/status")).status_code)
                return statuses

    assert asyncio.run(main()) == [200, 403, 403]
    assert [each.host for each in service.asked] == ["h7"]
