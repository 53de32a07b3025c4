# SPDX-License-Identifier: Apache-2.0
"""Messages over a socket pair between the agent and a helper process, and the helper's life.

A message is its length (u32, network order) and msgpack. Neither end ever waits for the other: what
the other does not read stays here, up to a limit.
"""

import ctypes
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import decode, encode

MAX_MESSAGE_BYTES = 1 << 20
"""Bytes of the largest message accepted. Chosen: far more than a full report has; more means a
broken stream."""
MAX_WAITING_BYTES = 4 << 20
"""Bytes sent that the other end has not taken yet. Chosen: a helper that lets more pile up
hangs."""
FIRST_BACKOFF_NS = 100_000_000
"""Nanoseconds before the second of two quick restarts; each further wait doubles. Chosen: a helper
that crashed once is back at once."""
MAX_BACKOFF_NS = 10_000_000_000
"""Longest wait in nanoseconds between two restarts. Chosen: a helper that cannot run costs six
starts a minute."""
STEADY_NS = 30_000_000_000
"""Nanoseconds a helper must live to be started again at once. Chosen: three times the longest
wait."""
_LENGTH = struct.Struct("!I")
_PR_SET_PDEATHSIG = 1
"""Operation PR_SET_PDEATHSIG of linux/prctl.h."""
M = TypeVar("M", bound=Struct)


class Channel:
    """An end of the socket pair between the agent and a helper."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self.closed = False
        """The other end is gone, or talks nonsense."""

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._end.fileno()

    def backlog(self) -> int:
        """Return how many bytes wait for the other end."""
        return len(self._outgoing)

    def send(self, message: Struct) -> None:
        """Send `message` as soon as the other end takes it."""
        body = encode(message)
        self._outgoing += _LENGTH.pack(len(body)) + body
        if len(self._outgoing) > MAX_WAITING_BYTES:
            self.closed = True
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the other end takes it."""
        try:
            while self._outgoing and not self.closed:
                del self._outgoing[: self._end.send(self._outgoing)]
        except BlockingIOError:
            return
        except OSError:
            self.closed = True

    def receive(self, kind: type[M]) -> list[M]:
        """Return the messages that came; `closed` says whether more can come."""
        while not self.closed:
            try:
                chunk = self._end.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            self._incoming += chunk
            self.closed = not chunk
        try:
            return self._parse(kind)
        except RemoteProtocolError:
            self.closed = True
            return []

    def _parse(self, kind: type[M]) -> list[M]:
        found, at = list[M](), 0
        while len(self._incoming) >= at + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._incoming, at)
            if length > MAX_MESSAGE_BYTES:
                raise RemoteProtocolError(f"message of {length} bytes")
            if len(self._incoming) < at + _LENGTH.size + length:
                break
            at += _LENGTH.size
            found.append(decode(bytes(self._incoming[at : at + length]), kind))
            at += length
        del self._incoming[:at]
        return found

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        self._end.close()


class Restarts:
    """Decides when to start a helper. Reads no clock."""

    def __init__(self) -> None:
        self._started_ns = 0
        self._backoff_ns = 0
        self.due_ns = 0

    def started(self, *, now_ns: int) -> None:
        """Account for a start."""
        self._started_ns = now_ns

    def ended(self, *, now_ns: int) -> None:
        """Account for an end: the sooner and the more often it comes, the longer is the wait."""
        if now_ns - self._started_ns >= STEADY_NS:
            self._backoff_ns = 0
        self.due_ns = now_ns + self._backoff_ns
        self._backoff_ns = min(max(FIRST_BACKOFF_NS, 2 * self._backoff_ns), MAX_BACKOFF_NS)


class HelperProcess:
    """Keeps `python -m MODULE` alive, with a channel to it on its standard input."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._restarts = Restarts()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        # One descriptor to wait on, whichever socket is behind it.
        self._epoll = select.epoll()
        self.starts = 0
        """How often it was started."""

    @property
    def pid(self) -> int | None:
        """Process id; None where it does not run."""
        return self._process.pid if self._process else None

    def fileno(self) -> int:
        """Return the descriptor that is readable when a message came or the helper ended."""
        return self._epoll.fileno()

    def ensure(self, *, now_ns: int) -> bool:
        """Start it where it does not run and is due; return whether it was started just now.

        Call it from the main thread: a helper dies with the thread that started it.
        """
        if self._process is not None or now_ns < self._restarts.due_ns:
            return False
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", self._module, str(os.getpid())]
            try:
                self._process = subprocess.Popen(
                    command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL
                )
            except OSError:
                ours.close()
                self._restarts.ended(now_ns=now_ns)
                return False
        self._channel = Channel(ours)
        self._epoll.register(ours.fileno(), select.EPOLLIN)
        self._restarts.started(now_ns=now_ns)
        self.starts += 1
        return True

    def send(self, message: Struct) -> None:
        """Send `message`, if the helper runs."""
        if self._channel is not None:
            self._channel.send(message)

    def receive(self, kind: type[M], *, now_ns: int) -> list[M]:
        """Return what the helper reported; where it ended, `ensure` will start it anew."""
        if self._channel is None:
            return []
        self._channel.flush()
        found = self._channel.receive(kind)
        if self._channel.closed:
            self.kill(now_ns=now_ns)
        return found

    def kill(self, *, now_ns: int) -> None:
        """End it, if it still runs."""
        if self._channel is not None:
            self._epoll.unregister(self._channel.fileno())
            self._channel.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._restarts.ended(now_ns=now_ns)
        self._channel = self._process = None

    def close(self) -> None:
        """End it for good."""
        self.kill(now_ns=0)
        self._epoll.close()


def serve_parent(arguments: list[str]) -> Channel:
    """Return a helper's channel to its parent; from now on it dies with its parent."""
    die_with_parent(int(arguments[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    end = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # or a fork would hold the parent's end open
    return Channel(end)


def die_with_parent(parent: int) -> None:
    """Be killed when process `parent` ends, which the calling process was started by."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        raise SystemExit(1)
