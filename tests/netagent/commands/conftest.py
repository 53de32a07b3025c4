# SPDX-License-Identifier: Apache-2.0
"""What the commands' tests share: an agent that answers."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from netagent.wire.codec import encode


class Agent(HTTPServer):
    """Answers every question with `answer`, and remembers the questions."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: object = None
        self.asked: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Agent

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        self.server.asked.append((self.path, body))
        answer = encode(self.server.answer)
        self.send_response(200)
        self.send_header("content-type", "application/msgpack")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def agent() -> Iterator[Agent]:
    server = Agent()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def answering(agent: Agent) -> Callable[[object], list[str]]:
    """Return a function that sets the agent's answer and returns how to reach it."""

    def answer(message: object) -> list[str]:
        agent.answer = message
        return ["--url", agent.url]

    return answer
