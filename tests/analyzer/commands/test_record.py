# SPDX-License-Identifier: Apache-2.0
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from analyzer import cli
from tests.analyzer.replay.test_player import recorded


@pytest.fixture
def url():
    class Analyzer(BaseHTTPRequestHandler):
        def do_GET(self):
            body = recorded()[0]
            self.send_response(200 if self.path == "/v1/recording" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Analyzer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_recording_is_written_whole_and_for_its_owner_only(url, tmp_path, capsys):
    to = tmp_path / "a.recording"
    assert cli.main(["record", "-o", str(to), "--url", url]) == 0
    assert to.read_bytes() == recorded()[0]
    assert to.stat().st_mode & 0o777 == 0o600
    assert str(to.stat().st_size) in capsys.readouterr().out


def test_an_anonymized_recording_replays_to_the_same_incidents(url, tmp_path, capsys):
    to = tmp_path / "a.recording"
    assert cli.main(["record", "-o", str(to), "--anonymize", "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["anonymized"]
    assert cli.main(["replay", str(to)]) == 0
    said = capsys.readouterr().out
    assert "t0-c" not in said
    assert "the same as then" in said


def test_where_it_cannot_be_written_nothing_is_left(url, tmp_path, capsys):
    to = tmp_path / "none" / "a.recording"
    assert cli.main(["record", "-o", str(to), "--url", url]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
