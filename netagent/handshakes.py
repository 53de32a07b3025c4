# SPDX-License-Identifier: Apache-2.0
"""Bounds what TLS connections of a server take: time, memory, and what failed ones leave behind.

Before Python 3.11.7 and 3.12.1 asyncio keeps what a failed handshake leaves in a cycle (CPython's
issue 109534): the exception, the frames of its traceback, and with them the connection's buffers
and OpenSSL's own, some 100 KB. The collector of cycles finds it in the end; where it is told to
look seldom, strangers who knock can have hundreds of megabytes held for nobody.
"""

import asyncio
import sys
import traceback
from asyncio import sslproto
from functools import partial
from typing import Any

READ_BYTES = 32 << 10
"""Bytes that one connection reads at once. Chosen: a host's usual summary. asyncio keeps as many
for each TLS connection, and by default 256 KiB: gigabytes, where there are ten thousand."""
WITHIN_S = 30.0
"""Seconds that a handshake may take. Chosen: after a restart ten thousand connections at once wait
for each other for half of it; whoever opens connections and is silent holds them no longer."""
MOST_OF_AGENT = 512
"""Handshakes that an agent has under way at once. Chosen: each takes 80 KB, so 40 MB in all, a
tenth of what an agent has; whoever gave way to others asks again."""
AFTER_S = 0.1
"""Seconds from the failure until its frames are cleared. Chosen: asyncio has logged it, and left
them, within two rounds of the loop."""


def bound_handshakes(loop: asyncio.AbstractEventLoop, *, most: int | None = None) -> None:
    """Have `loop` end handshakes of its servers in time, and free what failed ones leave behind.

    Of more than `most` under way, the oldest gives way: who knocks and is silent shows nobody's
    certificate, so no bound of connections by name holds for it.
    Connections of all loops keep small buffers from then on (since Python 3.11 they have their
    own). Does no more where the loop is not asyncio's own. Call it once a loop.
    """
    if sys.version_info >= (3, 11):
        sslproto.SSLProtocol.max_size = READ_BYTES
    make = getattr(loop, "_make_ssl_transport", None)
    if make is None:
        return

    waiting: dict[asyncio.Future[None], asyncio.Transport] = {}

    def made(
        rawsock: Any, protocol: Any, context: Any, waiter: Any = None, **rest: Any
    ) -> asyncio.BaseTransport:
        if waiter is not None and rest.get("server_side"):
            waiter.add_done_callback(partial(_done, loop))
            asked_s = rest.get("ssl_handshake_timeout") or WITHIN_S
            rest["ssl_handshake_timeout"] = min(asked_s, WITHIN_S)
        transport: asyncio.Transport = make(rawsock, protocol, context, waiter, **rest)
        if most is not None and waiter is not None and rest.get("server_side"):
            waiting[waiter] = transport
            waiter.add_done_callback(lambda done: waiting.pop(done, None))
            if len(waiting) > most:
                waiting.pop(next(iter(waiting))).abort()
        return transport

    loop._make_ssl_transport = made  # type: ignore[attr-defined]  # noqa: SLF001 - no public way


def _done(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    error = None if waiter.cancelled() else waiter.exception()
    if error is not None:
        loop.call_later(AFTER_S, lambda: traceback.clear_frames(error.__traceback__))
