# SPDX-License-Identifier: Apache-2.0
"""The door, against a stand-in of the API that does what a real one does only in trouble."""

import asyncio
import contextlib
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from analyzer.config import Kubernetes
from analyzer.controllers import kubernetes as door
from analyzer.controllers.kubernetes import Api, ApiError, Reader
from netagent.model.errors import ConfigError
from tests.waiting import until

WITHIN_S = 30.0


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(door, "RETRY_MIN_S", 0.01)
    monkeypatch.setattr(door, "RETRY_MAX_S", 0.05)
    monkeypatch.setattr(door, "HOLDS_S", 0.05)
    monkeypatch.setattr(door, "LIST_S", 0.0)


class Stub:
    """Answers each request by the next of its `script`, and by the last one again and again.

    That is a body, (status, body), or a coroutine function that is given the connection.
    """

    def __init__(self, *script):
        self.script, self.asked, self.tokens, self.bodies = list(script), [], [], []
        self._serving = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader, writer):
        self._serving.add(asyncio.current_task())
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()

    async def _answer(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
                self.bodies.append(await reader.readexactly(int(fields.get("content-length", 0))))
                self.tokens.append(fields.get("authorization"))
                self.asked.append(lines[0].split()[1])
                answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                if callable(answer):
                    await answer(writer)
                    break
                status, body = answer if isinstance(answer, tuple) else (200, answer)
                body = json.dumps(body).encode()
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(body)))
                writer.write(body)
                await writer.drain()

    def queries(self):
        """Return what was asked for, each in a dictionary."""
        return [
            {key: value for key, (value,) in parse_qs(urlsplit(path).query).items()}
            for path in self.asked
        ]

    def api(self, **fields):
        return Api(Kubernetes(url=self.url, **fields), "analyzer.toml")


def pods(version, *names, following=""):
    items = [{"metadata": {"name": name}} for name in names]
    return {"metadata": {"resourceVersion": version, "continue": following}, "items": items}


def event(kind, version, name="p"):
    meta = {"name": name, "resourceVersion": version}
    return {"type": kind, "object": {"metadata": meta}}


def stream(*events, pieces=1 << 20, holds=False, cut=False):
    """Send events by chunks of so many bytes; then end, hold or break off."""

    async def send(writer):
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        text = b"".join(json.dumps(each).encode() + b"\n" for each in events)
        for at in range(0, len(text), pieces):
            part = text[at : at + pieces]
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
        if holds:
            await asyncio.sleep(3600)
        if not cut:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    return send


class Seen:
    """A reader of a stub, and all that it told."""

    def __init__(self, stub):
        self.lists, self.events, self.away, self.opened = [], [], [], 0
        self.reader = Reader(
            stub.api, "/api/v1/pods", {"labelSelector": "a=b"},
            read=lambda thing: {"x": None}.get(name := thing["metadata"]["name"], name),
            listed=self.lists.append,
            took=lambda event: self.events.append(event["object"]["metadata"]["resourceVersion"]),
            away=self.away.append,
        )  # fmt: skip


def on(stub, work):
    """Run a reader of `stub` until `work(stub, seen)` is through."""

    async def inside():
        async with stub:
            seen = Seen(stub)
            running = asyncio.create_task(seen.reader.run())
            try:
                await work(stub, seen)
                assert not running.done()
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(inside())


def test_all_pages_are_listed_and_watched_from_their_version_on():
    async def work(stub, seen):
        await until(lambda: seen.events == ["8", "9"], within_s=WITHIN_S)
        assert seen.lists == [["a", "b"]]
        assert stub.queries()[:3] == [
            {"labelSelector": "a=b", "limit": "200"},
            {"labelSelector": "a=b", "limit": "200", "continue": "c1"},
            {
                "labelSelector": "a=b",
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": "7",
                "timeoutSeconds": "120",
            },
        ]

    watch = stream(event("ADDED", "8"), event("MODIFIED", "9"), holds=True)
    on(Stub(pods("7", "a", "x", following="c1"), pods("7", "b"), watch), work)


@pytest.mark.parametrize("pieces", [1, 7, 1 << 20])
def test_events_come_in_pieces_of_any_size(pieces):
    async def work(stub, seen):
        await until(lambda: seen.events == ["8", "9", "10"], within_s=WITHIN_S)

    events = [event("ADDED", "8", "ä"), event("MODIFIED", "9"), event("DELETED", "10")]
    on(Stub(pods("7"), stream(*events, pieces=pieces, holds=True)), work)


@pytest.mark.parametrize("cut", [False, True])
def test_a_watch_that_ends_or_breaks_goes_on_where_it_was_also_by_a_bookmark(cut):
    async def work(stub, seen):
        await until(lambda: "31" in seen.events, within_s=WITHIN_S)
        assert [query.get("resourceVersion") for query in stub.queries()] == [None, "7", "8", "30"]
        assert len(seen.lists) == 1
        assert seen.away == []

    script = [
        pods("7"),
        stream(event("ADDED", "8"), cut=cut),
        stream(event("BOOKMARK", "30")),
        stream(event("ADDED", "31"), holds=True),
    ]
    on(Stub(*script), work)


GONE = {"kind": "Status", "code": 410, "message": "too old resource version"}


@pytest.mark.parametrize(
    "gone",
    [
        (410, GONE),
        stream({"type": "ERROR", "object": GONE}),
        stream({"type": "ERROR", "object": {"code": 500, "message": "?"}}),
        stream({"type": "ERROR", "object": None}),
        stream("no event"),
    ],
)
def test_where_events_may_be_missing_all_is_listed_again(gone):
    async def work(stub, seen):
        await until(lambda: seen.events == ["50"], within_s=WITHIN_S)
        assert seen.lists == [["a"], ["b"]]
        assert [query.get("resourceVersion") for query in stub.queries()] == [None, "7", None, "49"]
        assert seen.away == []

    on(Stub(pods("7", "a"), gone, pods("49", "b"), stream(event("ADDED", "50"), holds=True)), work)


def test_a_list_of_which_the_rest_expired_begins_anew():
    async def work(stub, seen):
        await until(lambda: seen.lists, within_s=WITHIN_S)
        assert seen.lists == [["a", "b"]]

    script = [
        pods("7", "old", following="c1"), (410, GONE), pods("8", "a", "b"), stream(holds=True),
    ]  # fmt: skip
    on(Stub(*script), work)


def test_that_it_cannot_be_read_is_told_until_a_watch_holds():
    async def work(stub, seen):
        await until(lambda: seen.away[-1:] == [""], within_s=WITHIN_S)
        assert set(seen.away[:-1]) == {"503: no etcd"}
        assert seen.lists == [["a"]]

    down = (503, {"message": "no etcd"})
    on(Stub(down, down, down, pods("7", "a"), stream(holds=True)), work)


def test_a_watch_that_always_fails_is_asked_ever_less_often(monkeypatch):
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)
        await real(0)

    real = asyncio.sleep
    monkeypatch.setattr(door, "RETRY_MIN_S", 1.0)
    monkeypatch.setattr(door, "RETRY_MAX_S", 60.0)
    monkeypatch.setattr(door, "LIST_S", 0.0)
    monkeypatch.setattr(door.asyncio, "sleep", pause)

    async def work(stub, seen):
        await until(lambda: seen.reader.lists >= 9, within_s=WITHIN_S)
        assert seen.away == ["410: too old resource version"] * len(seen.away)
        failed = [seconds for seconds in pauses if seconds > 0]
        assert all(0.5 * 2**i <= s <= 1.5 * 2**i for i, s in enumerate(failed[:6]))
        assert max(failed) <= 90

    class Endless(Stub):
        async def _answer(self, reader, writer):
            failing = stream({"type": "ERROR", "object": GONE})
            self.script = [failing] if len(self.asked) % 2 else [pods("7"), failing]
            await super()._answer(reader, writer)

    on(Endless(pods("7")), work)


def test_lists_have_a_pause_between_them(monkeypatch):
    pauses, real = [], asyncio.sleep

    async def pause(seconds):
        pauses.append(seconds)
        await real(seconds)

    monkeypatch.setattr(door, "LIST_S", 3600.0)
    monkeypatch.setattr(door.asyncio, "sleep", pause)

    async def work(stub, seen):
        await until(lambda: max(pauses, default=0) > 3000, within_s=WITHIN_S)
        assert seen.lists == [["a"]]
        assert len(stub.asked) == 2

    on(Stub(pods("7", "a"), (410, GONE)), work)


@pytest.mark.parametrize(
    ("limit", "script"),
    [
        ("MAX_PAGE_BYTES", [pods("7", *"abcdefghijklmnopqrstuvwxyz")]),
        ("MAX_EVENT_BYTES", [pods("7"), stream(event("ADDED", "8", "n" * 500), pieces=50)]),
        ("MAX_PAGES", [pods("7", following="again")]),
    ],
)
def test_what_is_too_much_is_refused(monkeypatch, limit, script):
    monkeypatch.setattr(door, limit, 200)

    async def work(stub, seen):
        await until(lambda: seen.away, within_s=WITHIN_S)
        assert "200" in seen.away[0]
        assert seen.events == []

    class Repeated(Stub):
        def __init__(self):
            super().__init__(*script * 20)

    on(Repeated(), work)


@pytest.mark.parametrize(
    "body", ["text", [], {"items": []}, {"metadata": {}, "items": 3}, pods("")]
)
def test_what_is_no_list_is_none(body):
    async def work(stub, seen):
        await until(lambda: seen.away, within_s=WITHIN_S)
        assert not any(seen.lists)

    on(Stub(body), work)


def test_an_api_server_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(door, "ANSWER_S", 0.05)
    monkeypatch.setattr(door, "WATCH_S", 0)
    monkeypatch.setattr(door, "SLACK_S", 0.05)
    monkeypatch.setattr(door, "HOLDS_S", 10.0)

    async def nothing(_writer):
        await asyncio.sleep(3600)

    async def work(stub, seen):
        await until(lambda: seen.away, within_s=WITHIN_S)
        assert seen.away[0] == "no answer in time"

    async def little(writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    on(Stub(nothing), work)
    on(Stub(little), work)
    on(Stub(pods("7"), nothing), work)
    on(Stub(pods("7"), stream(event("ADDED", "8"), holds=True)), work)


def test_nobody_who_listens_is_told_of():
    async def inside():
        async with Stub({}) as stub:
            pass
        seen = Seen(stub)
        running = asyncio.create_task(seen.reader.run())
        await until(lambda: seen.away, within_s=WITHIN_S)
        running.cancel()

    asyncio.run(inside())


def test_the_token_is_read_for_each_request(tmp_path):
    token = tmp_path / "token"
    token.write_text("one\n")

    async def inside():
        async with Stub({}) as stub:
            api = stub.api(token_file=str(token))
            await api.post_event("ml", {"a": 1})
            token.write_text("two\n")
            await api.patch_node("n0", {"b": 2})
            token.unlink()
            with pytest.raises(ApiError, match="No such file"):
                await api.patch_node("n0", {})
            await api.close()
        assert stub.tokens == ["bearer one", "bearer two"]
        assert stub.asked == ["/api/v1/namespaces/ml/events", "/api/v1/nodes/n0/status"]
        assert stub.bodies == [b'{"a":1}', b'{"b":2}']

    asyncio.run(inside())


def test_what_is_refused_says_why_and_what_is_there_is_there():
    async def inside():
        script = [
            (409, {"message": "there"}), (409, {"message": "conflict"}),
            (403, {"message": "no\nway"}), (500, "text"), (302, {}),
        ]  # fmt: skip
        async with Stub(*script) as stub:
            api = stub.api()
            await api.post_event("ml", {})
            said = []
            for _ in range(4):
                with pytest.raises(ApiError) as refused:
                    await api.patch_node("n0", {})
                said.append((refused.value.status, str(refused.value)))
            await api.close()
        assert said == [
            (409, "409: conflict"), (403, "403: no way"), (500, '500: "text"'), (302, "302: {}"),
        ]  # fmt: skip

    asyncio.run(inside())


@pytest.mark.parametrize("fields", [{"ca": "none.pem"}, {"cert": "none.pem", "key": "none.pem"}])
def test_files_that_cannot_be_read_are_the_operator_s(fields, tmp_path):
    fields = {key: str(tmp_path / name) for key, name in fields.items()}
    with pytest.raises(ConfigError, match=r"controllers\.kubernetes"):
        Api(Kubernetes(url="https://127.0.0.1:1", **fields), "analyzer.toml")
