# SPDX-License-Identifier: Apache-2.0
"""A receiver of events on loopback that answers as a test wants."""

import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Attempt:
    """A request that came, whole."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        """Return what it says."""
        event: dict[str, Any] = json.loads(self.body)
        return event


Behaviour = Callable[["Handler"], bool]
"""Answers a request; returns whether that was a 2xx."""


@dataclass
class Receiver:
    """Answers each request by the next of `script`, and then by `usual`."""

    usual: Behaviour
    port: int = 0
    tls: ssl.SSLContext | None = None
    script: deque[Behaviour] = field(default_factory=deque)
    attempts: list[Attempt] = field(default_factory=list)
    taken: list[Attempt] = field(default_factory=list)
    """Those that were answered by a 2xx."""
    hung: list[bytes] = field(default_factory=list)
    """Bodies of those that `hangs` leaves without an answer."""
    released: threading.Event = field(default_factory=threading.Event)
    """Set once those who hang shall end."""

    def __enter__(self) -> Self:
        self.released.clear()
        self._server = _Server(("127.0.0.1", self.port), Handler)
        self._server.receiver = self
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/events"

    def ids(self) -> list[str]:
        """Return the ids of events that were taken, in order."""
        return [each.event["id"] for each in self.taken]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet: clients give up on what hangs."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: _Server
    attempt: Attempt

    def do_POST(self) -> None:
        """Take a request."""
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.attempt = attempt = Attempt(self.path, headers, body)
        receiver.attempts.append(attempt)
        behave = receiver.script.popleft() if receiver.script else receiver.usual
        if behave(self):
            receiver.taken.append(attempt)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called there
        """Keep quiet."""


def status(number: int, text: str = "", **headers: str) -> Behaviour:
    """Return what answers by a status."""

    def behave(handler: Handler) -> bool:
        handler.send_response(number)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text.encode())
        return 200 <= number < 300

    return behave


def raw(chunks: Callable[[], Iterator[bytes]], *, takes: bool = False) -> Behaviour:
    """Return what writes these bytes, whatever they are, until the client gives up."""

    def behave(handler: Handler) -> bool:
        for chunk in chunks():
            if handler.server.receiver.released.is_set():
                break
            handler.wfile.write(chunk)
        return takes

    return behave


def hangs(handler: Handler) -> bool:
    """Answer nothing until the test is over."""
    handler.server.receiver.hung.append(handler.attempt.body)
    handler.server.receiver.released.wait(60)
    return False


def hangs_up(handler: Handler) -> bool:
    """End the connection."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    return False


_HELD: list[socket.socket] = []


def free_port() -> int:
    """Return a port on which nothing listens, and on which only who asked for it will.

    It stays bound until this process ends, so that nobody else's connection or server is given it;
    who sets SO_REUSEADDR, as servers do, may listen there.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    port: int = held.getsockname()[1]
    return port
