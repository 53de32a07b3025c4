# SPDX-License-Identifier: Apache-2.0
"""The process that reads a controller: tells what changed by a socket, until that is closed.

The analyzer starts it, with the number of a connected socket. It ends when the analyzer does.
"""

import argparse
import ctypes
import os
import signal
import socket
import sys

from analyzer.controllers import messages
from analyzer.controllers.messages import HEAD, Open, Ready
from analyzer.controllers.ovsdb import parse_fast, use_certificates
from analyzer.controllers.reader import Reader
from analyzer.logs import configure_logging
from netagent.model.errors import RemoteProtocolError

_PR_SET_PDEATHSIG = 1
"""Operation PR_SET_PDEATHSIG of linux/prctl.h."""


def read(connection: socket.socket) -> None:
    """Read what the analyzer says first, until it closes the connection.

    Raises RemoteProtocolError where it says what nobody should.
    """
    connection.sendall(messages.framed(Ready(pid=os.getpid())))
    head = _exactly(connection, HEAD.size)
    if head is None:
        return
    payload = _exactly(connection, *HEAD.unpack(head))
    if payload is None:
        return
    opening = messages.down(payload)
    if not isinstance(opening, Open):
        raise RemoteProtocolError("it does not begin with what to read")
    if opening.ca:
        use_certificates(opening.ca, opening.cert, opening.key)
    parse_fast()
    Reader(connection, opening).run()


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    """Return the next `size` bytes; None where there are none any more."""
    said = b""
    while len(said) < size:
        chunk = connection.recv(size - len(said))
        if not chunk:
            return None
        said += chunk
    return said


def main() -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m analyzer.controllers", description=__doc__)
    parser.add_argument("--socket", type=int, required=True, help="number of a connected socket")
    parser.add_argument("-v", "--verbose", action="store_true", help="log more, to stderr")
    args = parser.parse_args()
    configure_logging(verbose=args.verbose)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):  # to all of a group: the analyzer says when
        signal.signal(number, signal.SIG_IGN)
    read(socket.socket(fileno=args.socket))
    return 0


if __name__ == "__main__":
    sys.exit(main())
