# SPDX-License-Identifier: Apache-2.0
"""How daemons of Open vSwitch and OVN are spoken to: which socket, and JSON-RPC, as by ovs-appctl.

The agent speaks in its event loop, `ovs_checks` blocks; this is what both know. It touches neither
sockets nor files.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from netagent.model.errors import RemoteProtocolError

VSWITCHD = "ovs-vswitchd"
OVN_CONTROLLER = "ovn-controller"


def pid_file(daemon: str) -> str:
    """Return the name of the file in a run directory that holds the process id of `daemon`."""
    return f"{daemon}.pid"


def sockets(daemon: str) -> str:
    """Return the pattern of the names of its control sockets there.

    Names of other daemons may begin alike: ovn-controller-vtep's.
    """
    return f"{daemon}.*ctl"


def pid_of(text: str) -> int | None:
    """Return the process id that the text of a pid file says; None if it says none."""
    try:
        return int(text)
    except ValueError:
        return None


def control_sockets(daemon: str, pid: int | None, names: Iterable[str]) -> list[str]:
    """Return where `daemon` may listen, in the order in which to try.

    The socket of process `pid` comes first, whether or not it is among the `names` found; then the
    one without a number (`--unixctl`), then others. A daemon that was killed leaves its socket,
    which refuses connections: the next is to be tried.
    """
    own = [] if pid is None else [f"{daemon}.{pid}.ctl"]
    found = sorted(names, key=lambda name: (name != f"{daemon}.ctl", name))
    return [*own, *(name for name in found if name not in own)]


class Call:
    """One JSON-RPC request, and its reply as its bytes come in. Knows no socket."""

    def __init__(self, method: str, params: Sequence[Any], *, max_bytes: int) -> None:
        """Ask for `method`; a reply of over `max_bytes` is refused."""
        request = {"id": 0, "method": method, "params": list(params)}
        self.request = json.dumps(request).encode()
        self.result: Any = None
        self._method = method
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> bool:
        """Take what was received, empty at its end; return whether `result` is the reply's.

        Requests that the server makes meanwhile (echo) are passed over.

        Raises
        ------
        RemoteProtocolError
            If the reply is an error, is too long, is cut off, or is none.
        """
        self._buffer += chunk
        if not chunk:
            size = len(self._buffer)
            raise RemoteProtocolError(f"reply cut off, connection closed after {size} bytes")
        if len(self._buffer) > self._max_bytes:
            raise RemoteProtocolError(f"reply cut off after {len(self._buffer)} bytes")
        # Nothing delimits messages; trying only where one may end keeps long replies linear.
        if not chunk.rstrip().endswith(b"}"):
            return False
        reply = find_reply(bytes(self._buffer))
        if reply is None:
            return False
        if reply.get("error") is not None:
            raise RemoteProtocolError(f"{self._method}: {str(reply['error'])[:500].strip()}")
        self.result = reply.get("result")
        return True


def find_reply(data: bytes) -> dict[str, Any] | None:
    """Return the first JSON-RPC reply in `data`, or None while it is incomplete.

    Raises
    ------
    RemoteProtocolError
        If what is there is JSON, but no message.
    """
    text, position = data.decode(errors="replace"), 0
    while position < len(text):
        try:
            message, position = json.JSONDecoder().raw_decode(text, position)
        except (ValueError, RecursionError):
            return None
        if not isinstance(message, dict):
            raise RemoteProtocolError(f"no JSON-RPC message: {text[:100]!r}")
        if "method" not in message:
            return message
    return None
