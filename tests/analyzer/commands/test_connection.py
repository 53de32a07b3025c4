# SPDX-License-Identifier: Apache-2.0
import argparse

import httpx
import pytest

from analyzer.commands.connection import Connection, Refused, _reason, readable
from netagent.model.errors import ConfigError

RED, TURNED = "\x1b[31mh1", "h1\u202e0h"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (RED, "?[31mh1"),
        (TURNED, "h1?0h"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ({RED: [RED, 1, None, {"é": "日本"}]}, {"?[31mh1": ["?[31mh1", 1, None, {"é": "日本"}]}),
    ],
)
def test_what_a_terminal_would_obey_is_not_shown(said, shown):
    assert readable(said) == shown


@pytest.mark.parametrize("is_json", [False, True])
def test_answers_and_refusals_are_shown_without_it(is_json):
    """JSON has escapes of its own, and goes to programs."""

    def answer(request):
        status = 200 if request.url.path == "/v1/intent" else 404
        return httpx.Response(status, json={"error": RED, "remedy": TURNED})

    args = argparse.Namespace(url="http://127.0.0.1:1", ca=None, cert=None, key=None, json=is_json)
    with Connection(args) as connection:
        connection._client = httpx.Client(
            base_url=connection.url, transport=httpx.MockTransport(answer)
        )
        assert connection.get("/v1/intent")["error"] == (RED if is_json else "?[31mh1")
        with pytest.raises(Refused) as refused:
            connection.get("/v1/nothing")
    assert "\x1b" not in str(refused.value)


def test_a_route_that_is_not_there_is_no_negative_answer():
    """As where the URL is the page's: nobody may take that for `no such incident`."""

    def answer(request):
        return httpx.Response(404, json={"error": "Not Found", "remedy": "see the routes"})

    args = argparse.Namespace(url="http://127.0.0.1:1", ca=None, cert=None, key=None)
    with Connection(args) as connection:
        connection._client = httpx.Client(
            base_url=connection.url, transport=httpx.MockTransport(answer)
        )
        with pytest.raises(Refused, match="address of its page") as refused:
            connection.get("/v1/incidents")
    assert (refused.value.status, refused.value.exit_status) == (404, 3)


def test_who_asks_by_a_name_that_the_certificate_lacks_is_told_what_to_do():
    odd = httpx.ConnectError("IP address mismatch, certificate is not valid for '10.1.0.6'.")
    assert "ca issue analyzer" in _reason(odd, "https://10.1.0.6:8420")


def test_a_file_that_is_not_there_is_named_alone(tmp_path):
    there = tmp_path / "there.pem"
    there.write_text("no certificate")
    files = {"ca": str(there), "cert": str(tmp_path / "gone.pem"), "key": str(there)}
    with pytest.raises(ConfigError) as odd:
        Connection(argparse.Namespace(url="https://127.0.0.1:1", **files))
    assert odd.value.path == str(tmp_path / "gone.pem")
