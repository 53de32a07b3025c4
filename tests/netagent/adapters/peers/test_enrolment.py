# SPDX-License-Identifier: Apache-2.0
import contextlib
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest

from analyzer.authority import Authority
from netagent.adapters.peers.enrolment import Door
from netagent.model.errors import RemoteProtocolError, Unreachable
from netagent.trust import Trust, new_request, write_whole
from tests.netagent.test_trust import Files


@contextlib.contextmanager
def answering(folder, authority, status=200, body=None):
    """Serve one answer to every question, with a certificate of `authority`."""
    key, request = new_request("analyzer")
    path = folder / "analyzer.pem"
    write_whole(path, key + authority.sign(request, "analyzer", ["127.0.0.1"]))
    said = {"certificate": "c", "ca": authority.ca.read_text(), "host": "h0"}
    text = msgspec.json.encode(said if body is None else body)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        trust = Trust(Files(str(authority.ca), str(path), str(path)))
        server.socket = trust.bare.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Door(f"https://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "ca", "test authority")


def test_who_signs_is_told_before_anybody_is_trusted(authority, tmp_path):
    with answering(tmp_path, authority) as door:
        assert door.authority() == authority.ca.read_text()
        assert door.enrol(authority.ca.read_text(), "s", "r").host == "h0"


def test_the_secret_is_not_told_to_an_analyzer_of_another_authority(authority, tmp_path):
    other = Authority.create(tmp_path / "other", "another")
    with answering(tmp_path, other) as door, pytest.raises(Unreachable, match="CERTIFICATE"):
        door.enrol(authority.ca.read_text(), "s", "r")


def test_a_certificate_that_another_authority_signed_is_not_taken(authority, tmp_path):
    body = {"certificate": "c", "ca": "another", "host": "h0"}
    with (
        answering(tmp_path, authority, body=body) as door,
        pytest.raises(RemoteProtocolError, match="another authority"),
    ):
        door.enrol(authority.ca.read_text(), "s", "r")


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_refusal_is_told_as_it_was_said(authority, tmp_path, status):
    body = {"error": "the token was used"}
    with (
        answering(tmp_path, authority, status, body) as door,
        pytest.raises(RemoteProtocolError, match="the token was used"),
    ):
        door.enrol(authority.ca.read_text(), "s", "r")


def test_an_answer_that_is_none_is_no_certificate(authority, tmp_path):
    with (
        answering(tmp_path, authority, body=[1]) as door,
        pytest.raises(RemoteProtocolError, match="no Certified"),
    ):
        door.enrol(authority.ca.read_text(), "s", "r")


def test_where_nobody_answers_that_is_said():
    with pytest.raises(Unreachable, match="--port names another"):
        Door("https://127.0.0.1:1").authority()


def test_who_comes_by_a_name_that_the_certificate_lacks_is_told(authority, tmp_path):
    with answering(tmp_path, authority) as door:
        other = Door(door._url.replace("127.0.0.1", "localhost"))
        with pytest.raises(Unreachable, match="name the analyzer as its certificate does"):
            other.enrol(authority.ca.read_text(), "s", "r")


def test_what_is_no_authority_is_refused(authority, tmp_path):
    with answering(tmp_path, authority) as door, pytest.raises(ssl.SSLError):
        door.enrol("nonsense", "s", "r")
