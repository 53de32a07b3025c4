# SPDX-License-Identifier: Apache-2.0
"""Frees what a failed TLS handshake leaves behind, at once.

Before Python 3.11.7 and 3.12.1 asyncio keeps it in a cycle (CPython's issue 109534): the exception,
the frames of its traceback, and with them the connection's buffers and OpenSSL's own, some 100 KB.
The collector of cycles finds it in the end; where it is told to look seldom, strangers who knock
can have hundreds of megabytes held for nobody.
"""

import asyncio
import traceback
from functools import partial
from typing import Any

AFTER_S = 0.1
"""Seconds from the failure until its frames are cleared. Chosen: asyncio has logged it, and left
them, within two rounds of the loop."""


def free_failed(loop: asyncio.AbstractEventLoop) -> None:
    """Have `loop` free what each failed handshake of its servers leaves behind.

    Does nothing where the loop is not asyncio's own. Call it once a loop.
    """
    make = getattr(loop, "_make_ssl_transport", None)
    if make is None:
        return

    def made(
        rawsock: Any, protocol: Any, context: Any, waiter: Any = None, **rest: Any
    ) -> asyncio.BaseTransport:
        if waiter is not None and rest.get("server_side"):
            waiter.add_done_callback(partial(_done, loop))
        transport: asyncio.BaseTransport = make(rawsock, protocol, context, waiter, **rest)
        return transport

    loop._make_ssl_transport = made  # type: ignore[attr-defined]  # noqa: SLF001 - no public way


def _done(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    error = None if waiter.cancelled() else waiter.exception()
    if error is not None:
        loop.call_later(AFTER_S, lambda: traceback.clear_frames(error.__traceback__))
