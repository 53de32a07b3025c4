# SPDX-License-Identifier: Apache-2.0
"""The pool of forks, with answers that need no device, and the agent's side with such a helper."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netagent.adapters.rdma.channel import Channel
from netagent.adapters.rdma.messages import Answer, Place, Question
from netagent.adapters.rdma.resolver import READY, WORKERS, Pool, Resolver
from tests.waiting import wait_until

PLACE = Place(device="rxe0", gid="::ffff:10.0.0.1", path="")
FAKE = """
import sys, time
from netagent.adapters.rdma.channel import serve_parent
from netagent.adapters.rdma.messages import Answer
from netagent.adapters.rdma.resolver import Pool

def answer(question):
    if question.gid == "hang":
        time.sleep(600)
    if question.gid == "die":
        raise SystemExit
    return Answer(key=question.key, error="silent" if question.gid.startswith("dead") else "")

Pool(serve_parent(sys.argv[1:]), answer).run()
"""


def answer(question: Question) -> Answer:
    if question.gid == "hang":
        signal.pause()
    if question.gid == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return Answer(key=question.key, error="" if question.gid == "live" else "silent")


@contextmanager
def serving(**options: int) -> Iterator[tuple[Channel, int]]:
    """Run a pool in a process of its own; give the parent's end of its channel, and its pid."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            Pool(Channel(theirs), answer, **options).run()
        finally:
            os._exit(0)
    theirs.close()
    channel = Channel(ours)
    assert answers(channel, 1) == {READY.key: ""}
    yield channel, pid
    channel.close()
    assert os.waitpid(pid, 0)[1] == 0  # it ends with its parent's end


@pytest.fixture
def pool():
    with serving() as (channel, _):
        yield channel


def ask(channel, *gids):
    for key, gid in enumerate(gids):
        channel.send(Question(key=key, place=PLACE, gid=gid))


def answers(channel, count):
    got = []
    wait_until(lambda: got.extend(channel.receive(Answer)) or len(got) >= count, within_s=30)
    return {each.key: each.error for each in got}


def test_questions_are_answered(pool):
    ask(pool, "live", "dead", *["live"] * 20)
    got = answers(pool, 22)
    assert got[1] == "silent"
    assert {got[n] for n in range(22) if n != 1} == {""}


def test_a_fork_that_hangs_is_killed_and_holds_nobody_up(pool):
    ask(pool, "hang", "live", "live")
    got = answers(pool, 2)
    assert got == {1: "", 2: ""}
    assert answers(pool, 1) == {0: "no answer in time"}
    ask(pool, "live")
    assert answers(pool, 1) == {0: ""}


def test_a_fork_that_dies_is_replaced(pool):
    ask(pool, *["die"] * (2 * WORKERS), "live")
    got = answers(pool, 2 * WORKERS + 1)
    assert got.pop(2 * WORKERS) == ""
    assert set(got.values()) == {"the helper ended"}


def test_forks_that_nobody_asks_end():
    with serving(idle_ns=200_000_000) as (channel, pid):
        children = Path(f"/proc/{pid}/task/{pid}/children")
        for _ in range(2):
            ask(channel, *["live"] * WORKERS, "hang")
            assert len(answers(channel, WORKERS)) == WORKERS
            assert children.read_text().split()  # the one that hangs is not idle
            assert answers(channel, 1) == {WORKERS: "no answer in time"}
            wait_until(lambda: not children.read_text())


@pytest.fixture
def resolver(tmp_path, monkeypatch):
    (tmp_path / "na_fake_resolver.py").write_text(FAKE)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in paths if p))
    made = Resolver("na_fake_resolver")
    yield made
    made.close()


def listen(resolver, count, got):
    def enough():
        resolver.step()
        return len(got) >= count

    wait_until(enough, within_s=30)


def test_listeners_hear_what_became_of_their_addresses(resolver):
    got = []
    resolver.aim(PLACE, ["live", "dead1", "dead2"], lambda gid, ok: got.append((gid, ok)))
    listen(resolver, 3, got)
    assert sorted(got)[:3] == [("dead1", False), ("dead2", False), ("live", True)]


def test_who_left_hears_nothing(resolver):
    got, other = [], Place(device="rxe1", gid="::ffff:10.0.0.2", path="")
    resolver.aim(PLACE, ["live"], lambda gid, ok: got.append("left"))
    resolver.leave(PLACE)
    resolver.aim(other, ["live", "forgotten"], lambda gid, ok: got.append(gid))
    resolver.aim(other, ["live"], lambda gid, ok: got.append(gid))
    listen(resolver, 1, got)
    resolver.heard(other, "stranger")
    listen(resolver, 2, got)
    assert got == ["live", "stranger"]


def test_a_helper_that_is_killed_is_asked_again(resolver):
    got = []
    resolver.aim(PLACE, ["live"], lambda gid, ok: got.append(gid))
    first = resolver.pid
    os.kill(first, signal.SIGKILL)
    listen(resolver, 1, got)
    assert resolver.pid != first
