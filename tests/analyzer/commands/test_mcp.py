# SPDX-License-Identifier: Apache-2.0
"""The protocol, through a process of its own: against an analyzer, and over a recording."""

import io
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.commands import mcp
from analyzer.commands.mcp import MAX_LINE, MAX_TEXT, TOOLS, Assistant, Tool, serve
from netagent.model.errors import Unreachable
from tests.analyzer.commands.running import ENVIRON, analyzer_with
from tests.analyzer.replay.test_player import recorded
from tests.analyzer.server.test_routes import incident


class Spoken:
    """A process that speaks the protocol, and what one says to it."""

    def __init__(self, *words):
        command = [sys.executable, "-m", "analyzer.cli", "mcp", *words]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=ENVIRON,
        )  # fmt: skip
        self._number = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        out, err = self._process.communicate(timeout=60)
        assert (self._process.returncode, out, err) == (0, "", "")

    def say(self, method, **params):
        """Say something that is not answered."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method, **params):
        """Return the answer to a request."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        answer = json.loads(self._process.stdout.readline())
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", self._number)
        return answer

    def call(self, tool, /, **given):
        """Return the text that a tool answers, and whether it failed."""
        result = self.ask("tools/call", name=tool, arguments=given)["result"]
        (content,) = result["content"]
        assert content["type"] == "text"
        return content["text"], result["isError"]

    def begin(self):
        """Return the tools that there are."""
        told = self.ask(
            "initialize", protocolVersion="2025-06-18", capabilities={},
            clientInfo={"name": "test", "version": "0"},
        )["result"]  # fmt: skip
        assert told["protocolVersion"] == "2025-06-18"
        assert told["capabilities"] == {"tools": {}}
        assert told["serverInfo"]["name"] == "netagent"
        assert "incidents" in told["instructions"]
        self.say("notifications/initialized")
        assert self.ask("ping")["result"] == {}
        return [each["name"] for each in self.ask("tools/list")["result"]["tools"]]

    def _send(self, message):
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


def test_an_assistant_asks_a_live_analyzer(tmp_path):
    with analyzer_with(tmp_path, incident("i1")) as url, Spoken("--url", url) as spoken:
        assert spoken.begin() == list(TOOLS)
        text, failed = spoken.call("incidents", state="active", hours=10_000)
        assert not failed
        assert json.loads(text)["incidents"] == []  # of 1970
        (first,) = json.loads(spoken.call("incidents")[0])["incidents"]
        assert (first["id"], first["component"]) == ("i1", "switch spine-0")
        shown = json.loads(spoken.call("incident", id="i1")[0])
        assert shown["failing"][0]["source"] == "a0/rail0"
        page, _ = spoken.call("runbook", name=first["runbook"])
        assert page.startswith("# A switch loses packets\n")
        assert json.loads(spoken.call("tasks")[0])["tasks"] == []
        assert json.loads(spoken.call("status")[0])["agents"] == 0
        assert json.loads(spoken.call("not_probed", task="t")[0])["unprobed"] == []
        assert json.loads(spoken.call("history", component="switch x", hours=1)[0])["rows"] == []
        text, failed = spoken.call("diagnose", source="a0/rail0", target="a1/rail0")
        assert failed
        assert "a0/rail0" in text
        text, failed = spoken.call("incident", id="../tasks")
        assert failed
        assert "there is nothing" in text
        assert "no incident" in spoken.call("incident", id="i9")[0]


def test_an_assistant_asks_a_recording(tmp_path):
    file = tmp_path / "a.recording"
    file.write_bytes(recorded()[0])
    with Spoken("--recording", str(file)) as spoken:
        assert spoken.begin() == ["incidents", "incident", "runbook"]
        found = json.loads(spoken.call("incidents")[0])["incidents"]
        assert sorted(each["component"] for each in found) == [
            "agent h2", "link leaf-s1-r1 -- spine-0", "switch spine-1",
        ]  # fmt: skip
        shown = json.loads(spoken.call("incident", id=found[0]["id"])[0])
        assert shown["evidence"]
        assert spoken.call("incident", id="none")[1]
        assert spoken.ask("tools/call", name="tasks")["error"]["code"] == mcp.BAD_PARAMS


def test_what_cannot_be_read_is_no_recording(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "analyzer.cli", "mcp", "--recording", str(tmp_path)],
        capture_output=True, text=True, check=False, env=ENVIRON, input="",
    )  # fmt: skip
    assert done.returncode == 2


def assistant(run=lambda *_: {}):
    given = {"text": mcp.WORD, "count": mcp.COUNT, "one": mcp.WORD | {"enum": ["a"]}}
    return Assistant({"tool": Tool("It is one.", run, given, ("text",))}, None)


def answered(line):
    return assistant().answer(line)


def request(method, number=1, **params):
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", mcp.PARSE_ERROR),
        (b"[" * 100_000, mcp.PARSE_ERROR),
        (b"\xff\xfe", mcp.PARSE_ERROR),
        (b"[]", mcp.INVALID),
        (b'{"id": 1}', mcp.INVALID),
        (b'{"id": 1, "method": 5}', mcp.INVALID),
        (b'{"id": null, "method": "ping"}', mcp.INVALID),
        (b'{"id": true, "method": "ping"}', mcp.INVALID),
        (b'{"id": 1, "method": "ping", "params": []}', mcp.BAD_PARAMS),
        (request("odd"), mcp.NO_METHOD),
        (request("tools/call", name="odd"), mcp.BAD_PARAMS),
        (request("tools/call", name=["tool"]), mcp.BAD_PARAMS),
        (request("tools/call", name="tool"), mcp.BAD_PARAMS),
        (request("tools/call", name="tool", arguments=[]), mcp.BAD_PARAMS),
        (request("tools/call", name="tool", arguments={"text": 1}), mcp.BAD_PARAMS),
        (request("tools/call", name="tool", arguments={"text": "x" * 301}), mcp.BAD_PARAMS),
        (request("tools/call", name="tool", arguments={"text": "", "odd": 1}), mcp.BAD_PARAMS),
        (request("tools/call", name="tool", arguments={"text": "", "count": 0}), mcp.BAD_PARAMS),
        (request("tools/call", name="tool", arguments={"text": "", "count": True}), mcp.BAD_PARAMS),
        (request("tools/call", name="tool", arguments={"text": "", "one": "b"}), mcp.BAD_PARAMS),
    ],
)
def test_what_is_no_request_is_answered_by_an_error(line, code):
    answer = answered(line)
    assert answer["error"]["code"] == code
    assert len(answer["error"]["message"]) < 400


def test_notifications_are_not_answered_whatever_they_are():
    assert answered(b'{"jsonrpc": "2.0", "method": "notifications/odd"}') is None


def test_another_revision_is_answered_by_one_that_is_spoken():
    for asked, spoken in (("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-06-18")):
        answer = answered(request("initialize", protocolVersion=asked))
        assert answer["result"]["protocolVersion"] == spoken


def test_each_tool_says_that_it_only_reads_and_what_it_takes():
    for tool in Assistant(TOOLS, None).answer(request("tools/list"))["result"]["tools"]:
        assert tool["annotations"]["readOnlyHint"]
        assert set(tool["inputSchema"]["required"]) <= set(tool["inputSchema"]["properties"])
        assert tool["inputSchema"]["additionalProperties"] is False


def test_a_failure_is_an_answer_and_a_long_one_is_cut():
    def fails(*_):
        raise Unreachable("http://a", "refused")

    def long(*_):
        return "x" * (MAX_TEXT + 7)

    asked = request("tools/call", name="tool", arguments={"text": ""})
    result = assistant(fails).answer(asked)["result"]
    assert (result["isError"], result["content"][0]["text"]) == (True, "http://a: refused")
    text = assistant(long).answer(asked)["result"]["content"][0]["text"]
    assert text.endswith("\n... 7 characters more: ask for less")


def test_a_line_that_is_too_long_is_refused_and_the_next_one_answered():
    source = io.BytesIO(b"x" * (3 * MAX_LINE) + b"\n\n" + request("ping", 7) + b"\n")
    to = io.StringIO()
    serve(assistant(), source, to)
    refused, answer = map(json.loads, to.getvalue().splitlines())
    assert refused["error"]["code"] == mcp.PARSE_ERROR
    assert answer == {"jsonrpc": "2.0", "id": 7, "result": {}}


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "odd", "README"])
def test_only_pages_are_read(name):
    asked = request("tools/call", name="runbook", arguments={"name": name})
    result = Assistant(TOOLS, None).answer(asked)["result"]
    assert result["isError"]
    assert "no page" in result["content"][0]["text"]


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(
        ["jsonrpc", "id", "method", "params", "name", "arguments", "tools/call", "initialize"]
    ),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(
        ["jsonrpc", "id", "method", "params", "name", "arguments", "text"]
    ), inside, max_size=5),
))  # fmt: skip
def test_whatever_comes_is_answered_or_not_and_never_fails(message):
    answer = answered(json.dumps(message).encode())
    assert answer is None or set(answer) in (
        {"jsonrpc", "id", "result"},
        {"jsonrpc", "id", "error"},
    )
