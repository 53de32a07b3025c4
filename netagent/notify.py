# SPDX-License-Identifier: Apache-2.0
"""What systemd is told of a service: that it is ready, alive, or about to stop (sd_notify(3))."""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

SHARE = 3
"""Signs of life in the time after which systemd kills. Chosen: two may come late."""


class Notifier:
    """Tells the service manager that started this process; where none did, nobody."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        told = os.environ if environment is None else environment
        path = told.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        mine = told.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        limit_us = told.get("WATCHDOG_USEC", "0") if mine and self._address else "0"
        self.every_s = int(limit_us) / 1e6 / SHARE if limit_us.isdecimal() else 0.0
        """Seconds between two signs of life; 0: nobody waits for them."""

    def ready(self, status: str) -> None:
        """Tell that it serves, and in one line what."""
        self._tell(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """Tell that it was asked to end."""
        self._tell("STOPPING=1")

    async def live(self) -> None:
        """Give signs of life from the event loop, until cancelled or if nobody waits for them."""
        while self.every_s:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self.every_s)

    def _tell(self, what: str) -> None:
        if not self._address:
            return
        # A manager that cannot be told is no reason to end: it acts on what it does not hear.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(what.encode(), self._address)
