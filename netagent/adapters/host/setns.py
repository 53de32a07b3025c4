# SPDX-License-Identifier: Apache-2.0
"""Run a function inside another network namespace.

A socket belongs to the namespace in which it was made, for good: a short-lived thread enters the
container's namespace, makes the sockets and ends; nothing of ours stays inside.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from netagent.adapters.host.pyroute import netns

T = TypeVar("T")


def call_in_namespace(path: str, function: Callable[[], T], *, inode: int | None = None) -> T:
    """Return `function()` as run by a thread inside the network namespace at `path`.

    `inode` guards against a path that was reused for another namespace. Raises OSError when the
    namespace is gone or may not be entered, and whatever `function` raises.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _enter(path, inode)
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - carried over to the calling thread
            errors.append(error)

    thread = threading.Thread(target=run, name="netns")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _enter(path: str, inode: int | None) -> None:
    netns.setns(path, flags=0)  # 0: fail where it does not exist; the default creates it
    if inode is not None and Path("/proc/thread-self/ns/net").stat().st_ino != inode:
        raise FileNotFoundError(f"{path} is another namespace now")
