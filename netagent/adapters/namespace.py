# SPDX-License-Identifier: Apache-2.0
"""Run a function inside another network namespace.

A socket belongs to the namespace in which it was made, for good: a short-lived thread enters the
container's namespace, makes the sockets and ends; nothing of ours stays inside.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def call_in_namespace(path: str, function: Callable[[], T], *, inode: int | None = None) -> T:
    """Return `function()` as run by a thread inside the network namespace at `path`.

    `inode` guards against a path that was reused for another namespace. Raises OSError when the
    namespace is gone or may not be entered, and whatever `function` raises.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if inode is not None and os.fstat(fd).st_ino != inode:
                    raise FileNotFoundError(f"{path} is another namespace now")
                if _libc.setns(fd, CLONE_NEWNET):
                    errno = ctypes.get_errno()
                    raise OSError(errno, os.strerror(errno), path)
            finally:
                os.close(fd)
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - carried over to the calling thread
            errors.append(error)

    thread = threading.Thread(target=enter, name="netns")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
