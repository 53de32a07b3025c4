# SPDX-License-Identifier: Apache-2.0
"""`asyncio.TaskGroup` and `asyncio.timeout` of Python 3.11, also for 3.10."""

import sys

if sys.version_info >= (3, 11):
    from asyncio import TaskGroup, timeout
else:
    from taskgroup import TaskGroup, timeout

__all__ = ["TaskGroup", "timeout"]
