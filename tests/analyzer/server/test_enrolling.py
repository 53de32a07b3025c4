# SPDX-License-Identifier: Apache-2.0
"""Hosts enrol at a real analyzer, with the commands that people use."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from analyzer import cli as analyzer_cli
from analyzer.authority import Authority
from analyzer.server import assembly, enrolling
from analyzer.server.enrolling import MAX_OF_ADDRESS
from netagent import cli
from netagent.trust import new_request, revoked_in
from netagent.wire.enrolment import MAX_REQUEST_BYTES
from tests.analyzer.server.process import ROOT, Process
from tests.waiting import wait_until

LOOK_S = "analyzer.server.assembly.LOOK_S"
LIMITS = {f"analyzer.server.enrolling.{name}_S": 60.0 for name in ("LIVE", "HANDSHAKE", "ANSWER")}
"""On a busy machine all takes long."""
HASTY = LIMITS | {
    "analyzer.server.enrolling.LIVE_S": 1.0, "analyzer.server.enrolling.ANSWER_S": 0.3,
}  # fmt: skip


@contextlib.contextmanager
def serving(folder, settings=LIMITS):
    """Give an authority's folder, and the analyzer that enrols hosts for it."""
    state = folder / "an"
    words = ["--name", "localhost", "--address", "127.0.0.1", "--state", state]
    words += ["--config", folder / "unused.toml"]
    command = [sys.executable, "-m", "analyzer.cli", "ca", "init", *words]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    tls = state / "tls" / "analyzer.pem"
    more = (
        f'[tls]\nca = "{state}/ca/ca.pem"\ncert = "{tls}"\nkey = "{tls}"\n'
        f'crl = "{state}/ca/crl.pem"\n'
        f'[enrolment]\nauthority = "{state}/ca"\nlisten = "127.0.0.1:0"\n'
    )
    with Process(folder, more=more, settings=settings) as process:
        yield state, process


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture
def alone(tmp_path):
    """Give one that looks for what is revoked no more until the test is over."""
    with serving(tmp_path, LIMITS | {LOOK_S: 600.0}) as made:
        yield made


@pytest.fixture
def watchful(tmp_path):
    """Give one that looks every moment for what is revoked."""
    with serving(tmp_path, LIMITS | {LOOK_S: 0.2}) as made:
        yield made


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """Give one that ends what takes long after a moment."""
    with serving(tmp_path_factory.mktemp("hasty"), HASTY) as made:
        yield made


@pytest.fixture
def site(request):
    """Return what serves a test; one that revokes asks to be `alone`, or for a `watchful` one."""
    own = (name for name in ("alone", "watchful") if name in request.fixturenames)
    return request.getfixturevalue(next(own, "shared"))


@pytest.fixture
def state(site):
    return site[0]


@pytest.fixture
def served(site):
    return site[1]


@pytest.fixture
def asked(state, served, monkeypatch, capsys):
    """Return what a command of the analyzer answers an administrator."""
    admin = str(state / "tls" / "admin.pem")
    names = {"URL": served.url, "CA": str(state / "ca" / "ca.pem"), "CERT": admin, "KEY": admin}
    for name, value in names.items():
        monkeypatch.setenv(f"NETAGENT_{'ANALYZER_' if name == 'URL' else ''}{name}", value)

    def ask(*words):
        capsys.readouterr()
        assert analyzer_cli.main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


def port_of(served):
    return next(each["port"] for each in served.log if each["event"] == "hosts_enrol")


def enrolled(served, token, folder):
    url = served.url.replace("127.0.0.1", "localhost")
    words = ["--analyzer", url, "--port", str(port_of(served)), "--token", token]
    return cli.main(
        ["enroll", *words, "--state", str(folder), "--config", str(folder / "agent.toml")]
    )


def context(folder):
    made = ssl.create_default_context(cafile=str(folder / "tls" / "ca.pem"))
    made.load_cert_chain(str(folder / "tls" / "host.pem"))
    return made


def test_a_host_enrols_once_and_what_it_wrote_is_what_an_agent_needs(
    served, asked, tmp_path, capsys
):
    token = asked("invite", "h0")["token"]
    assert enrolled(served, token, tmp_path / "h0") == 0
    assert cli.main(["check-config", str(tmp_path / "h0" / "agent.toml")]) == 0
    with served.client(context(tmp_path / "h0")) as client:
        assert client.get("/v1/hosts/h0/pinglist").status_code == 200
        assert client.get("/v1/status").status_code == 403
        assert client.post("/v1/invitations", json={"host": "h1"}).status_code == 403
        assert client.post("/v1/revocations", json={"name": "admin"}).status_code == 403
    capsys.readouterr()
    assert enrolled(served, token, tmp_path / "again") == 3
    assert "ask for another" in capsys.readouterr().err


def test_an_authority_that_the_token_does_not_tell_of_is_not_trusted(
    served, asked, tmp_path, capsys
):
    secret, _, known = asked("invite", "h0")["token"].partition(".")
    assert enrolled(served, f"{secret}.{known[::-1]}", tmp_path / "h0") == 3
    assert "somebody stands between" in capsys.readouterr().err
    assert not (tmp_path / "h0" / "tls" / "host.pem").exists()
    assert enrolled(served, f"{secret}.{known}", tmp_path / "h0") == 0  # it was not told there


def test_the_next_certificate_is_for_the_same_host_and_the_address_of_this_one(
    served, asked, tmp_path
):
    assert enrolled(served, asked("invite", "h0")["token"], tmp_path / "h0") == 0
    _, request = new_request("admin")
    with served.client(context(tmp_path / "h0")) as client:
        renewed = client.post("/v1/hosts/h0/certificate", json={"request": request})
        assert client.post("/v1/hosts/h1/certificate", json={"request": request}).status_code == 403
        assert client.post("/v1/hosts/h0/certificate", json={"request": "x"}).status_code == 400
    der = ssl.PEM_cert_to_DER_cert(renewed.json()["certificate"])
    assert b"h0" in der
    assert b"admin" not in der
    assert socket.inet_aton("127.0.0.1") in der


@pytest.mark.usefixtures("watchful")
def test_what_is_revoked_is_out_within_a_minute_and_its_open_connections_are_ended(
    served, asked, state, tmp_path
):
    for name in ("h0", "h1"):
        assert enrolled(served, asked("invite", name)["token"], tmp_path / name) == 0
    with (
        served.client(context(tmp_path / "h0")) as bad,
        served.client(context(tmp_path / "h1")) as good,
    ):
        assert bad.get("/v1/crl").status_code == 200
        assert good.get("/v1/crl").status_code == 200
        assert asked("ca", "revoke", "h0") == {"name": "h0", "revoked": 1}

        def refused():
            try:
                bad.get("/v1/crl")
            except httpx.HTTPError:
                return True
            return False

        wait_until(refused, "a refusal")
        assert assembly.LOOK_S < 30  # so it is within a minute where nobody set another number
        assert good.get("/v1/crl").status_code == 200
        listed = good.get("/v1/crl").text
        assert len(revoked_in(listed, str(state / "ca" / "ca.pem")).serials) == 1
    metrics = asked_metrics(served, state)
    assert metrics["netagent_certificates_revoked"] == 1
    assert metrics["netagent_certificate_end_timestamp_seconds"] > time.time() + 80 * 86_400
    assert metrics["netagent_certificates_not_taken"] == 0
    assert metrics["netagent_invitations_open"] == 0
    states = {each.name: each.state for each in Authority(state / "ca").issued()}
    assert states == {"analyzer": "valid", "admin": "valid", "h0": "revoked", "h1": "valid"}


def asked_metrics(served, state):
    admin = ssl.create_default_context(cafile=str(state / "ca" / "ca.pem"))
    admin.load_cert_chain(str(state / "tls" / "admin.pem"))
    with served.client(admin) as client:
        lines = client.get("/metrics").text.splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return {words[0]: float(words[1]) for words in pairs if len(words) == 2}


@pytest.mark.usefixtures("alone")
def test_who_was_revoked_gets_no_other_certificate_by_what_it_shows(served, asked, tmp_path):
    assert enrolled(served, asked("invite", "h0")["token"], tmp_path / "h0") == 0
    _, request = new_request("h0")
    with served.client(context(tmp_path / "h0")) as client:
        client.get("/v1/crl")
        asked("ca", "revoke", "h0")  # the connection stands for a while
        answer = client.post("/v1/hosts/h0/certificate", json={"request": request})
    assert answer.status_code == 403
    assert "revoked" in answer.json()["error"]


@contextlib.contextmanager
def strangers(served, count):
    """Hold connections to where hosts enrol; give what says how many of them were ended."""
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(count):
            plain = socket.create_connection(("127.0.0.1", port_of(served)), timeout=30)
            held.append(stack.enter_context(insecure.wrap_socket(plain)))
            held[-1].settimeout(0.01)

        def closed():
            ended = 0
            for each in held:
                try:
                    ended += each.recv(1) == b""
                except TimeoutError:
                    continue
                except OSError:
                    ended += 1
            return ended

        yield closed


def test_strangers_who_hold_connections_are_few(served, asked, tmp_path):
    token = asked("invite", "h0")["token"]
    with strangers(served, MAX_OF_ADDRESS + 12) as closed:
        wait_until(lambda: closed() >= 12, "end of most")
        assert closed() == 12
    wait_until(lambda: enrolled(served, token, tmp_path / "h0") == 0, "being let in")


def test_connections_that_strangers_hold_end_by_themselves(hasty):
    with strangers(hasty[1], 3) as closed:
        wait_until(lambda: closed() == 3, "end of all")


@pytest.mark.usefixtures("alone")
def test_who_asks_revokes_itself_only_if_it_says_so(served, asked, state, capsys):
    assert analyzer_cli.main(["ca", "revoke", "admin"]) == 2
    assert "is who asks" in capsys.readouterr().err
    assert asked("ca", "revoke", "admin", "--force") == {"name": "admin", "revoked": 1}


def test_who_asks_without_tls_or_without_the_authority_is_told(served, monkeypatch, capsys):
    for name in ("ANALYZER_URL", "CA", "CERT", "KEY"):
        monkeypatch.delenv(f"NETAGENT_{name}", raising=False)
    for url, remedy in (
        (served.url.replace("https:", "http:"), "it may want https://"),
        (served.url, "--ca or NETAGENT_CA"),
    ):
        assert analyzer_cli.main(["incidents", "--url", url]) == 3
        assert remedy in capsys.readouterr().err


def test_people_s_certificates_are_not_for_hosts(served, asked, state):
    admin = ssl.create_default_context(cafile=str(state / "ca" / "ca.pem"))
    admin.load_cert_chain(str(state / "tls" / "admin.pem"))
    with served.client(admin) as client:
        for name in ("admin", "analyzer", "../h0", "a/CN=b"):
            answer = client.post("/v1/invitations", json={"host": name})
            assert answer.status_code == 400, name


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/status", b"", 404),
        ("POST", "/v1/summaries", b"{}", 404),
        ("POST", "/v1/enrol", b"{", 400),
        ("POST", "/v1/enrol", b"x" * (MAX_REQUEST_BYTES + 1), 400),
        ("POST", "/v1/enrol", b'{"secret": "s", "request": "r"}', 403),
        ("GET", "/v1/ca", b"", 200),
    ],
)
def test_without_a_certificate_there_is_one_question(served, method, path, body, status):
    door = f"https://127.0.0.1:{port_of(served)}"
    with httpx.Client(verify=False, trust_env=False) as client:  # noqa: S501
        answer = client.request(method, door + path, content=body)
    assert answer.status_code == status


def test_a_body_that_does_not_come_is_not_waited_for(hasty):
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port_of(hasty[1])), timeout=30) as plain,
        insecure.wrap_socket(plain) as door,
    ):
        door.sendall(b"POST /v1/enrol HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        assert door.recv(100).startswith(b"HTTP/1.1 408")


def test_the_files_of_a_host_are_for_root_alone(served, asked, tmp_path):
    assert enrolled(served, asked("invite", "h0")["token"], tmp_path / "h0") == 0
    for path in (tmp_path / "h0" / "tls").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    assert Path(tmp_path / "h0" / "agent.toml").read_text().startswith("# Written by")


@pytest.mark.parametrize(("client", "address"), [
    (("10.0.0.1", 5), "10.0.0.1"), (("::ffff:10.0.0.1", 5), "10.0.0.1"),
    (("fd00::1", 5), "fd00::1"), (None, ""),
])  # fmt: skip
def test_a_listener_of_both_versions_hears_from_ipv4_as_that(client, address):
    assert enrolling._address({"client": client}) == address
