# SPDX-License-Identifier: Apache-2.0
"""A small server with the page's real files, that answers its questions with what it is given."""

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from analyzer.server.page.files import files
from analyzer.server.page.guard import HEADERS

FILES = files()
TICK_S = 0.5
"""Seconds after which a stream looks whether it is to end. Chosen: a test waits for that."""

Query = dict[str, str]
Answer = Callable[[str, Query], Any]


@dataclass
class StandIn:
    """What it answers; `refuse` is a status with which it answers all data."""

    answer: Answer
    port: int = 0
    refuse: int = 0
    asked: list[str] = field(default_factory=list)
    posted: list[Any] = field(default_factory=list)
    streams: list["queue.Queue[bytes]"] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/"

    def tell(self, event: str, data: Any, number: int | None = None) -> None:
        """Send an event to whoever looks."""
        head = f"id: {number}\n" if number is not None else ""
        text = f"{head}event: {event}\ndata: {json.dumps(data)}\n\n"
        for stream in self.streams:
            stream.put(text.encode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    standin: StandIn

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.standin.asked.append(self.path)
        if not parts.path.startswith("/v1/"):
            self._file("index.html" if parts.path == "/" else parts.path.removeprefix("/static/"))
        elif self.standin.refuse:
            self._json({"error": "this needs a session", "remedy": "ask"}, self.standin.refuse)
        elif parts.path == "/v1/views/events":
            self._stream()
        else:
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            self._answer(unquote(parts.path.removeprefix("/v1/")), query)

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        body = json.loads(self.rfile.read(length))
        self.standin.asked.append(self.path)
        self.standin.posted.append(body)
        self._answer(unquote(self.path.removeprefix("/v1/")), body)

    def _answer(self, what: str, query: Query) -> None:
        try:
            answer = self.standin.answer(what, query)
        except KeyError:
            self._json({"error": f"nothing at {what}", "remedy": "it is not there"}, 404)
            return
        self._json(answer)

    def _json(self, answer: Any, status: int = 200) -> None:
        self._send(status, "application/json", json.dumps(answer).encode())

    def _file(self, name: str) -> None:
        if name not in FILES:
            self._json({"error": "nothing is here", "remedy": "the page is at /"}, 404)
            return
        self._send(200, FILES[name].media_type, FILES[name].body)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self._headers(kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _headers(self, kind: str) -> None:
        self.send_header("content-type", kind)
        self.send_header("cache-control", "no-store")
        for name, value in HEADERS:
            self.send_header(name.decode(), value.decode())

    def _stream(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self._headers("text/event-stream")
        self.end_headers()
        mine: queue.Queue[bytes] = queue.Queue()
        self.standin.streams.append(mine)
        try:
            self.wfile.write(b": hello\n\n")
            while not self.standin.stopping.is_set() and not self.standin.refuse:
                try:
                    self.wfile.write(mine.get(timeout=TICK_S))
                except queue.Empty:
                    self.wfile.write(b":\n\n")
                self.wfile.flush()
        except OSError:
            pass  # who looked went away
        finally:
            self.standin.streams.remove(mine)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as inherited
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that hangs up."""


Inside = Callable[[Callable[[], Any]], Any]


@contextmanager
def serving(answer: Answer, inside: Inside = lambda make: make()) -> Iterator[StandIn]:
    """Serve until the end of the block; `inside` calls what makes the socket."""
    standin = StandIn(answer)
    handler = type("Handler", (_Handler,), {"standin": standin})
    server: _Server = inside(lambda: _Server(("127.0.0.1", 0), handler))
    standin.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield standin
    finally:
        standin.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()
