# SPDX-License-Identifier: Apache-2.0
"""The page as it is served: TLS, certificates or none, and connections that are held."""

import contextlib
import socket
import ssl
import time

import httpx
import pytest

from analyzer import cli
from analyzer.server.identity import MAX_CONNECTIONS
from tests.analyzer.certificates import Authority
from tests.analyzer.server.process import Process
from tests.waiting import wait_until

TENANTS = '[tenants]\ntenant-a = ["t0"]\n'


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def browser(port, context):
    return httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, trust_env=False)


def serving(folder, authority, port, more=TENANTS):
    return Process(folder, authority, more=f'[page]\nlisten = "127.0.0.1:{port}"\n{more}')


def test_a_browser_comes_by_a_link_or_by_a_certificate(authority, tmp_path):
    port = free_port()
    with serving(tmp_path, authority, port) as analyzer:
        with browser(port, authority.client()) as stranger:
            assert stranger.get("/").status_code == 200
            assert stranger.get("/v1/views/now").status_code == 401
            with analyzer.client(authority.client("admin")) as admin:
                url = admin.post("/v1/sessions", json={}).json()["url"]
            assert stranger.get(url).status_code == 303
            assert stranger.get("/v1/views/now").json()["state"] == "starting"
            assert stranger.get(url).status_code == 403
            with stranger.stream("GET", "/v1/views/events") as events:
                lines = events.iter_lines()
                wait_until(lambda: next(lines).startswith("event: tick"), rest=lambda _: None)
        for name, status in (("admin", 200), ("tenant-a", 200), ("h0", 403)):
            with browser(port, authority.client(name)) as known:
                assert known.get("/v1/views/now").status_code == status
        assert analyzer.stop()[0] == 0


def test_a_certificate_of_another_authority_is_no_certificate(authority, tmp_path):
    port = free_port()
    foreign = authority.client()
    foreign.load_cert_chain(*map(str, Authority(tmp_path, "stranger").sign("admin")))
    with serving(tmp_path, authority, port):
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
        status, took_s, log = analyzer.stop()
    assert (status, took_s < 3) == (0, True)
    assert "connections_abandoned" not in [each["event"] for each in log]


def answers(context, port):
    """Return whether a connection more is served."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
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
    with serving(tmp_path, authority, port):

        def connect():
            plain = socket.create_connection(("127.0.0.1", port), timeout=10)
            return context.wrap_socket(plain, server_hostname="127.0.0.1")

        held = [connect() for _ in range(MAX_CONNECTIONS)]
        assert not answers(context, port)
        for each in held:
            each.close()

        wait_until(lambda: answers(context, port))


def test_who_never_ends_a_head_is_hung_up_on(authority, tmp_path):
    port = free_port()
    with serving(tmp_path, authority, port):
        plain = socket.create_connection(("127.0.0.1", port), timeout=40)
        with authority.client().wrap_socket(plain, server_hostname="127.0.0.1") as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n")
            began_s = time.monotonic()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                assert slow.recv(100) == b""
            assert time.monotonic() - began_s < 39


def test_an_address_in_use_is_an_error_of_the_configuration(authority, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "analyzer.toml"
        config.write_text(
            f'listen = "127.0.0.1:0"\ndatabase = "d"\n[page]\nlisten = "127.0.0.1:{port}"\n'
        )
        assert cli.main(["serve", "--config", str(config)]) == 2
    assert "cannot listen" in capsys.readouterr().err
