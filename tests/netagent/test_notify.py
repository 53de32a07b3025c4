# SPDX-License-Identifier: Apache-2.0
import asyncio
import os
import socket
from contextlib import closing, suppress

import pytest

from netagent.concurrency import timeout
from netagent.notify import Notifier


@pytest.fixture
def manager(tmp_path):
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(30)
        yield listener


def _environment(manager, **more):
    return {"NOTIFY_SOCKET": manager.getsockname(), **more}


def test_systemd_is_told_that_a_service_is_ready_and_that_it_stops(manager):
    notifier = Notifier(_environment(manager))
    notifier.ready("listens on x")
    notifier.stopping()
    assert manager.recv(100) == b"READY=1\nSTATUS=listens on x"
    assert manager.recv(100) == b"STOPPING=1"


def test_a_socket_of_the_abstract_namespace_is_found():
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listener:
        name = f"netagent-test-{os.getpid()}"
        listener.bind(f"\0{name}")
        listener.settimeout(30)
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).stopping()
        assert listener.recv(100) == b"STOPPING=1"


def test_signs_of_life_come_three_times_in_the_time_that_systemd_waits(manager):
    notifier = Notifier(
        _environment(manager, WATCHDOG_USEC="300000", WATCHDOG_PID=str(os.getpid()))
    )
    assert notifier.every_s == pytest.approx(0.1)

    async def live():
        with suppress(TimeoutError):
            async with timeout(30):
                lives = asyncio.create_task(notifier.live())
                told = [await asyncio.to_thread(manager.recv, 100) for _ in range(3)]
                lives.cancel()
        return told

    assert asyncio.run(live()) == [b"WATCHDOG=1"] * 3


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "300000"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "300000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "soon"},
    ],
)
def test_a_process_that_nobody_watches_gives_no_signs_of_life(environment):
    notifier = Notifier(environment)
    notifier.ready("x")
    asyncio.run(asyncio.wait_for(notifier.live(), 30))
    assert notifier.every_s == 0.0
