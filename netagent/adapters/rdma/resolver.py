# SPDX-License-Identifier: Apache-2.0
"""Resolves the neighbours behind GIDs in a helper process, so that nobody waits for them.

Making an address handle resolves the neighbour. Where it does not answer, that takes a second in
which Python's interpreter stands still (pyverbs holds its lock). So a helper makes the handle first
and throws it away; then the neighbour is known to the kernel, and who asked makes one of its own in
no time. The helper is a small process that never touches a device; it hands each question to one
of a few forks of itself, opens nothing that outlives a question, and kills a fork that takes too
long. It dies with its parent.
"""

import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from netagent.adapters.clock import now_ns
from netagent.adapters.rdma import verbs
from netagent.adapters.rdma.channel import Channel, HelperProcess, die_with_parent, serve_parent
from netagent.adapters.rdma.messages import Answer, Place, Question
from netagent.adapters.rdma.place import call_at
from netagent.probing.rdma.gids import choose_gid
from netagent.probing.rdma.resolution import ResolutionPlan

WORKERS = 4
"""Forks of the helper, each with one question: a silent neighbour blocks its fork for a second.
Chosen: four silent neighbours at once, and little memory."""
WORKER_TIMEOUT_NS = 3_000_000_000
"""Nanoseconds after which a fork that has not answered is killed. Chosen: an answer takes a second
at most."""
IDLE_NS = 15_000_000_000
"""Nanoseconds without a question after which a fork ends. Chosen: addresses are resolved again once
a minute, silent ones within ten seconds; a fork holds megabytes and takes milliseconds to make."""
LOCAL_ERRNOS = {
    *(None, errno.ENODEV, errno.ENOENT, errno.ENOMEM, errno.EPERM),
    *(errno.EACCES, errno.EMFILE, errno.ENFILE),
}
"""Errors of this host. Drivers report a silent neighbour by various others."""

START_TIMEOUT_NS = 60_000_000_000
"""Nanoseconds a helper has to begin to serve. Chosen: it imports, and the host may be busy."""
READY = Answer(key=-1)
"""What the helper says when it serves: a question's time runs from then on."""

Listener = Callable[[str, bool], None]
"""Called with a GID and whether it was resolved."""


class Resolver:
    """The agent's side: who wants which addresses, and the life of the helper."""

    def __init__(self, module: str = "netagent.adapters.rdma.resolver") -> None:
        self._helper = HelperProcess(module)
        self._plan: ResolutionPlan[tuple[Place, str]] = ResolutionPlan()
        self._listeners: dict[Place, Listener] = {}
        self._asked: dict[int, tuple[Place, str]] = {}
        self._key = 0
        self._ready = False
        self._started_ns = 0

    @property
    def pid(self) -> int | None:
        """Process id of the helper."""
        return self._helper.pid

    def fileno(self) -> int:
        """Return the descriptor that is readable when `step` has something to read."""
        return self._helper.fileno()

    def aim(self, place: Place, gids: Iterable[str], listener: Listener) -> None:
        """Resolve exactly these for `place` from now on; call `listener` with each answer."""
        self._listeners[place] = listener
        wanted, at_ns = set(gids), now_ns()
        for key in self._plan.wanted():
            if key[0] == place and key[1] not in wanted:
                self._plan.forget(key)
        for gid in wanted:
            self._plan.want((place, gid), now_ns=at_ns)
        self.step()

    def heard(self, place: Place, gid: str) -> None:
        """Resolve this one as well, and soon: something came from there."""
        self._plan.want((place, gid), now_ns=now_ns())
        self._plan.heard((place, gid), now_ns=now_ns())
        self.step()

    def forget(self, place: Place, gid: str) -> None:
        """Resolve this one no more."""
        self._plan.forget((place, gid))

    def leave(self, place: Place) -> None:
        """Resolve nothing more for `place`."""
        self._listeners.pop(place, None)
        for key in self._plan.wanted():
            if key[0] == place:
                self._plan.forget(key)

    def hurry(self, place: Place, gid: str) -> None:
        """Probes of `gid` are lost: its neighbour may have changed."""
        self._plan.hurry((place, gid), now_ns=now_ns())

    def step(self) -> None:
        """Take answers and ask what is due. Call it when readable, and once a second."""
        at_ns = now_ns()
        for answer in self._helper.receive(Answer, now_ns=at_ns):
            self._ready |= answer == READY
            key = self._asked.pop(answer.key, None)
            if key is not None:
                self._settle(key, answer)
        late = not self._ready and at_ns - self._started_ns > START_TIMEOUT_NS
        if late or self._plan.overdue(now_ns=at_ns):
            self._helper.kill(now_ns=at_ns)  # it is hung: it answers within WORKER_TIMEOUT_NS
        if self._helper.pid is None:
            self._asked.clear()
            self._plan.forgotten_questions()
            self._ready, self._started_ns = False, at_ns
            if self._listeners:
                self._helper.ensure(now_ns=at_ns)
        while self._ready and len(self._asked) < WORKERS:
            if (wanted := self._plan.next(now_ns=at_ns)) is None:
                return
            self._key += 1
            self._asked[self._key] = wanted
            self._helper.send(Question(key=self._key, place=wanted[0], gid=wanted[1]))

    def _settle(self, key: tuple[Place, str], answer: Answer) -> None:
        place, gid = key
        resolved = not answer.error
        if self._plan.answered(key, resolved=resolved, now_ns=now_ns()) and not answer.local:
            listener = self._listeners.get(place)
            if listener is not None:
                listener(gid, resolved)

    def close(self) -> None:
        """End the helper."""
        self._listeners.clear()
        self._helper.close()


# --- in the helper --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Worker:
    """A fork, and the question it is at."""

    pid: int
    channel: Channel
    key: int = 0
    deadline_ns: int = 0
    """0: idle."""
    idle_ns: int = 0
    """Since when, where it is."""


class Pool:
    """Hands questions to forks. Opens no device, so that it can fork at any time.

    `idle_ns`: nanoseconds after which a fork that was asked nothing ends.
    """

    def __init__(
        self, parent: Channel, answer: Callable[[Question], Answer], *, idle_ns: int = IDLE_NS
    ) -> None:
        self._parent = parent
        self._answer = answer
        self._idle_ns = idle_ns
        self._workers: list[_Worker] = []
        self._waiting: list[Question] = []

    def run(self) -> None:
        """Serve until the parent goes away."""
        self._parent.send(READY)
        while not self._parent.closed:
            self._wait()
            self._waiting += self._parent.receive(Question)
            for worker in list(self._workers):
                self._hear(worker)
            while self._waiting and (free := self._free()) is not None:
                question = self._waiting.pop(0)
                free.key, free.deadline_ns = question.key, now_ns() + WORKER_TIMEOUT_NS
                free.channel.send(question)

    def _wait(self) -> None:
        ends = [self._parent, *(worker.channel for worker in self._workers)]
        due = [worker.deadline_ns or worker.idle_ns + self._idle_ns for worker in self._workers]
        wait_s = max(0, min(due) - now_ns()) / 1e9 if due else None
        select.select(ends, [], [], wait_s)

    def _hear(self, worker: _Worker) -> None:
        for answer in worker.channel.receive(Answer):
            worker.deadline_ns, worker.idle_ns = 0, now_ns()
            self._parent.send(answer)
        late = worker.deadline_ns and now_ns() >= worker.deadline_ns
        idle = not worker.deadline_ns and now_ns() >= worker.idle_ns + self._idle_ns
        if late or idle or worker.channel.closed:
            if worker.deadline_ns:
                why = "no answer in time" if late else "the helper ended"
                self._parent.send(Answer(key=worker.key, error=why, local=True))
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
            worker.channel.close()
            self._workers.remove(worker)

    def _free(self) -> _Worker | None:
        for worker in self._workers:
            if not worker.deadline_ns:
                return worker
        if len(self._workers) >= WORKERS:
            return None
        self._workers.append(self._fork())
        return self._workers[-1]

    def _fork(self) -> _Worker:
        ours, theirs = socket.socketpair()
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            ours.close()
            self._parent.close()
            for other in self._workers:
                other.channel.close()
            try:
                die_with_parent(parent)
                _work(Channel(theirs), self._answer)
            finally:
                os._exit(0)
        theirs.close()
        return _Worker(pid, Channel(ours))


def _work(channel: Channel, answer: Callable[[Question], Answer]) -> None:
    while not channel.closed:
        select.select([channel], [], [])
        for question in channel.receive(Question):
            channel.send(answer(question))


def resolve(question: Question) -> Answer:
    """Make an address handle and throw it away."""
    place = question.place
    try:
        call_at(place, lambda: _make_handle(place, question.gid))
    except OSError as error:
        local = error.errno in LOCAL_ERRNOS
        return Answer(key=question.key, error=str(error) or type(error).__name__, local=local)
    return Answer(key=question.key)


def _make_handle(place: Place, gid: str) -> None:
    device = verbs.Device(place.device)
    try:
        index = choose_gid(device.gids(), verbs.ROCE_V2, place.gid)
        if index is None:
            raise OSError(f"{place.device} has no RoCE v2 GID {place.gid}")
        memory = verbs.Memory(device, verbs.PAGE_BYTES)
        try:
            memory.handle(index, gid).close()
        finally:
            memory.close()
    finally:
        device.close()


def main() -> None:
    """Serve the parent process."""
    verbs.load()  # before the forks, which share its pages
    Pool(serve_parent(sys.argv[1:]), resolve).run()


if __name__ == "__main__":
    main()
