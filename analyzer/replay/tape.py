# SPDX-License-Identifier: Apache-2.0
"""A registry that writes down what becomes of it.

It does what its base does; a record goes to `tape` before each change, so that whoever reads the
records can do the same, in the same order.
"""

from collections.abc import Callable

from analyzer.replay import records
from analyzer.roster.registry import Registry
from netagent.model.task import Task
from netagent.wire.messages import Registration

Tape = Callable[[records.Record], None]
"""Takes a record."""


def nowhere(_record: records.Record) -> None:
    """Write nothing down."""


class TapedRegistry(Registry):
    """A registry whose changes are written down."""

    def __init__(self) -> None:
        super().__init__()
        self.tape: Tape = nowhere

    def apply(self, registration: Registration, wall_ns: int) -> set[str]:
        """Take a host's full state; see `Registry.apply`."""
        self.tape(records.Registered(registration=registration, now_ns=wall_ns))
        return super().apply(registration, wall_ns)

    def heard(self, host: str, window_start_ns: int, wall_ns: int) -> None:
        """Note that a summary of `host` came; see `Registry.heard`."""
        self.tape(records.Heard(host=host, start_ns=window_start_ns, now_ns=wall_ns))
        super().heard(host, window_start_ns, wall_ns)

    def forget(self, host: str, wall_ns: int) -> set[str]:
        """Drop a host; see `Registry.forget`."""
        self.tape(records.Forgotten(host=host, now_ns=wall_ns))
        return super().forget(host, wall_ns)

    def expire(self, wall_ns: int) -> set[str]:
        """Drop endpoints that vanished long ago; see `Registry.expire`."""
        self.tape(records.Expired(now_ns=wall_ns))
        return super().expire(wall_ns)

    def put_task(self, task: Task, wall_ns: int) -> set[str]:
        """Declare a task; see `Registry.put_task`."""
        self.tape(records.TaskPut(task=task, now_ns=wall_ns))
        return super().put_task(task, wall_ns)

    def delete_task(self, task: str, wall_ns: int) -> set[str] | None:
        """Withdraw a declaration; see `Registry.delete_task`."""
        self.tape(records.TaskDeleted(task=task, now_ns=wall_ns))
        return super().delete_task(task, wall_ns)


def roster_of(registry: Registry) -> records.Roster:
    """Return who is in the cluster now, as a record."""
    states = [registry.export_host(agent.host) for agent in registry.agents()]
    return records.Roster(
        hosts=tuple(state for state in states if state is not None),
        tasks=tuple(registry.export_task(task.id) for task in registry.tasks() if task.declared),
    )
