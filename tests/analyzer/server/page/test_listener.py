# SPDX-License-Identifier: Apache-2.0
"""The page as it is served: TLS, certificates or none, and connections that are held."""

import contextlib
import socket
import ssl
from collections import Counter
from unittest.mock import Mock

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from analyzer import cli
from analyzer.server.identity import CONNECTIONS, MAX_CONNECTIONS, REFUSED
from analyzer.server.page.guard import KNOWN
from analyzer.server.page.listener import MAX_ALL, STRANGERS, PageProtocol
from tests.analyzer.certificates import Authority
from tests.analyzer.receiver import free_port
from tests.analyzer.server.process import Process
from tests.waiting import wait_until

TENANTS = '[tenants]\ntenant-a = ["t0"]\n'


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


PATIENT = {"page__listener__HANDSHAKE_S": 60.0, "page__listener__MESSAGE_S": 60.0}
"""For tests of how many there are: a busy machine is slow to let them all in."""


def browser(port, context):
    return httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, trust_env=False)


def serving(folder, authority, port, **settings):
    more = f'[page]\nlisten = "127.0.0.1:{port}"\n{TENANTS}'
    named = {f"analyzer.server.{name.replace('__', '.')}": n for name, n in settings.items()}
    return Process(folder, authority, more=more, settings=named)


@pytest.fixture(scope="module")
def served(authority, tmp_path_factory):
    """Return an analyzer, and the port of its page."""
    port = free_port()
    with serving(tmp_path_factory.mktemp("served"), authority, port, **PATIENT) as analyzer:
        yield analyzer, port


def test_a_browser_comes_by_a_link_or_by_a_certificate(authority, served):
    analyzer, port = served
    with browser(port, authority.client()) as stranger:
        assert stranger.get("/").status_code == 200
        assert stranger.get("/v1/views/now").status_code == 401
        with analyzer.client(authority.client("admin")) as admin:
            url = admin.post("/v1/sessions", json={}).json()["url"]
        assert stranger.get(url).status_code == 303
        assert stranger.get("/v1/views/now").json()["state"] == "starting"
        assert stranger.get(url).headers["location"] == "/"  # it is in already
        with browser(port, authority.client()) as another:
            assert another.get(url).status_code == 403
        with stranger.stream("GET", "/v1/views/events") as events:
            lines = events.iter_lines()
            wait_until(lambda: next(lines).startswith("event: tick"), rest=lambda _: None)
    for name, status in (("admin", 200), ("tenant-a", 200), ("h0", 403)):
        with browser(port, authority.client(name)) as known:
            assert known.get("/v1/views/now").status_code == status


def test_a_certificate_of_another_authority_is_no_certificate(authority, served, tmp_path):
    _, port = served
    foreign = authority.client()
    foreign.load_cert_chain(*map(str, Authority(tmp_path, "stranger").sign("admin")))
    with browser(port, foreign) as stranger, pytest.raises(httpx.HTTPError):
        stranger.get("/v1/views/now")
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)


def test_streams_end_when_the_analyzer_stops(authority, tmp_path):
    port = free_port()
    with (
        serving(tmp_path, authority, port) as analyzer,
        browser(port, authority.client("admin")) as admin,
        admin.stream("GET", "/v1/views/events") as events,
    ):
        next(events.iter_lines())
        status, _, log = analyzer.stop()
    assert status == 0
    assert "connections_abandoned" not in [each["event"] for each in log]


def answers(context, port):
    """Return whether a connection more is served."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    try:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as one_more:
            one_more.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            return bool(one_more.recv(100))
    except (ConnectionError, ssl.SSLError):
        return False
    finally:
        plain.close()


def test_of_one_address_so_many_connections_are_held_and_others_come_in_afterwards(
    authority, tmp_path
):
    port = free_port()
    context = authority.client()
    with serving(tmp_path, authority, port, identity__MAX_CONNECTIONS=8, **PATIENT):

        def connect():
            plain = socket.create_connection(("127.0.0.1", port), timeout=30)
            return context.wrap_socket(plain, server_hostname="127.0.0.1")

        held = [connect() for _ in range(8)]
        assert not answers(context, port)
        for each in held:
            each.close()

        wait_until(lambda: answers(context, port))


BEGUN = {
    "head": (b"GET / HTTP/1.1\r\nhost: x\r\n", b"a: b\r\n"),
    "body": (b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n", b"x"),
    "refused": (b"POST /v1/diagnose HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n", b"x"),
    "nothing": (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\r\n"),
}
"""What -> what is sent at first, and again and again: heads and bodies that never end, and lines
before a request that never comes."""


def test_who_sends_a_little_now_and_then_is_hung_up_on(authority, tmp_path):
    """However long it goes on: what is sent comes twenty times in the time that there is."""
    port = free_port()
    served = serving(tmp_path, authority, port, page__listener__MESSAGE_S=2.0)
    with served, contextlib.ExitStack() as stack:
        held = {}
        for what, (first, _) in BEGUN.items():
            plain = socket.create_connection(("127.0.0.1", port), timeout=30)
            held[what] = stack.enter_context(
                authority.client().wrap_socket(plain, server_hostname="127.0.0.1")
            )
            held[what].sendall(first)

        def left():
            for what, each in list(held.items()):
                try:
                    each.sendall(BEGUN[what][1])
                except (ConnectionError, ssl.SSLError):
                    del held[what]
            return held

        wait_until(lambda: not left(), "all are hung up on")


def test_who_takes_no_answer_holds_no_connection(authority, tmp_path):
    """Of one address as many as may be held ask for more than buffers have, and never read."""
    port, context = free_port(), authority.client()
    asked = b"GET /static/page.css HTTP/1.1\r\nhost: x\r\n\r\n" * 500
    limits = {"identity__MAX_CONNECTIONS": 8, "page__listener__STALLED_S": 5}
    served = serving(tmp_path, authority, port, **PATIENT | limits)
    with served, contextlib.ExitStack() as stack:
        for _ in range(8):
            plain = stack.enter_context(socket.socket())
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.settimeout(30)
            plain.connect(("127.0.0.1", port))
            wrapped = context.wrap_socket(plain, server_hostname="127.0.0.1")
            stack.enter_context(wrapped).sendall(asked)
        assert not answers(context, port)
        wait_until(lambda: answers(context, port), "one of these is let in", 90)


def connected(shared, *peername):
    """Return the protocol of a connection without a certificate, and the connection.

    `shared` is all protocols'.
    """
    config = uvicorn.Config("none:none", http=PageProtocol, interface="asgi3", log_config=None)
    config.loaded, config.loaded_app, config.ws_protocol_class = True, Mock(), None
    known = {"peername": peername, "ssl_object": Mock(getpeercert=dict)}
    made = PageProtocol(config=config, server_state=ServerState(), app_state=shared, _loop=Mock())
    transport = Mock()
    transport.get_extra_info.side_effect = known.get
    made.connection_made(transport)
    return made, transport


def test_where_too_many_connect_the_oldest_of_nobody_gives_way():
    shared = {REFUSED: Counter()}
    made = [connected(shared, f"10.0.{n // 250}.{n % 250}", 1) for n in range(MAX_ALL)]
    made[0][0].app_state[KNOWN]()  # it has a session
    made.append(connected(shared, "10.9.9.9", 1))
    assert [n for n, (_, each) in enumerate(made) if each.abort.called] == [1]
    assert shared[REFUSED] == {"connection": 1}
    for each, _ in made:
        each.connection_lost(None)
    assert (shared[CONNECTIONS], shared[STRANGERS]) == ({}, {})


def test_of_ipv6_a_site_counts_as_one():
    shared = {REFUSED: Counter()}
    made = [connected(shared, f"2001:db8::{n:x}", 1, 0, 0) for n in range(MAX_CONNECTIONS + 1)]
    assert shared[CONNECTIONS] == {"2001:db8::/64": MAX_CONNECTIONS + 1}
    assert [n for n, (_, each) in enumerate(made) if each.abort.called] == [MAX_CONNECTIONS]


def test_an_address_in_use_is_an_error_of_the_configuration(authority, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "analyzer.toml"
        config.write_text(
            f'listen = "127.0.0.1:0"\ndatabase = "d"\n[page]\nlisten = "127.0.0.1:{port}"\n'
        )
        assert cli.main(["serve", "--config", str(config)]) == 2
    assert "cannot listen" in capsys.readouterr().err
