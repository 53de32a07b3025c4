# SPDX-License-Identifier: Apache-2.0
"""Hosts that deliver in real time, and disks that are filled, for tests of a real analyzer."""

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import msgspec

from netagent.wire.codec import encode
from netagent.wire.messages import Health, Summary, TrafficBlock
from tests.analyzer.cluster import SECOND, endpoint, registration
from tests.analyzer.server.process import Process

MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}
WIDTH_NS = 5 * SECOND
AGAIN_S = 0.2
"""Seconds until a host comes again that was refused."""


def fill(folder: Path) -> Path:
    """Leave no byte on a disk; return the file that holds them."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size) == size:
                    pass
    return filler


def summary(host: str, start_ns: int, extra: int = 0) -> bytes:
    """Return a host's summary, with so many bytes in it that no deflation makes fewer."""
    noise = TrafficBlock(
        start_ns=start_ns, tick_ns=SECOND, endpoint=b"\0\0", sent=os.urandom(extra)
    )
    message = Summary(
        host=host, instance="one", start_ns=start_ns, width_ns=WIDTH_NS, health=Health(),
        traffic=(noise,) if extra else (),
    )  # fmt: skip
    return encode(message)


class _Agents(BaseHTTPRequestHandler):
    """The RPC of agents that live: it answers, if only that it cannot."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Hosts(threading.Thread):
    """Deliver every window once it ended, each until it is acknowledged, until stopped."""

    def __init__(self, analyzer: Process, names: Iterable[str], *, dead: Iterable[str]) -> None:
        super().__init__(daemon=True)
        self._client, self._names = analyzer.client(), list(names)
        self._answering = ThreadingHTTPServer(("127.0.0.1", 0), _Agents)
        threading.Thread(target=self._answering.serve_forever, daemon=True).start()
        self._register(self._names, self._answering.server_port)
        self._register(dead, 1)  # where nobody listens
        self.acknowledged: list[tuple[str, int]] = []
        self.refused = 0
        self.waiting: list[tuple[str, int]] = []
        self._stopping = threading.Event()

    def _register(self, names: Iterable[str], port: int) -> None:
        for host in names:
            message = msgspec.structs.replace(
                registration(host, endpoint(host, f"c-{host}")), rpc_url=f"http://127.0.0.1:{port}"
            )
            path = f"/v1/hosts/{host}/endpoints"
            self._client.put(path, content=encode(message), headers=MSGPACK).raise_for_status()

    def run(self) -> None:
        """Deliver."""
        start_ns = time.time_ns() // WIDTH_NS * WIDTH_NS
        while not self._stopping.is_set():
            if time.time_ns() > start_ns + WIDTH_NS:
                self.waiting += [(host, start_ns) for host in self._names]
                start_ns += WIDTH_NS
            self.waiting = [each for each in self.waiting if not self.deliver(*each)]
            self._stopping.wait(AGAIN_S)

    def deliver(self, host: str, start_ns: int, extra: int = 0) -> bool:
        """Deliver one window; return whether it was acknowledged."""
        body = summary(host, start_ns, extra)
        answer = self._client.post("/v1/summaries", content=body, headers=MSGPACK)
        if answer.status_code == httpx.codes.OK:
            self.acknowledged.append((host, start_ns))
            return True
        assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
        self.refused += 1
        return False

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self.join()
        self._client.close()

    def end(self) -> None:
        """Answer no more, once the analyzer is gone."""
        self._answering.shutdown()
        self._answering.server_close()
