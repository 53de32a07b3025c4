# SPDX-License-Identifier: Apache-2.0
import os
import signal
import socket
import subprocess
import sys

import pytest

from netagent.adapters.rdma import channel as c
from netagent.adapters.rdma.messages import Answer, Question
from tests.waiting import wait_until

S = 1_000_000_000


@pytest.fixture
def ends():
    one, two = socket.socketpair()
    made = c.Channel(one), c.Channel(two)
    yield made
    for each in made:
        each.close()


def test_messages_arrive_whole_and_in_order(ends):
    for n in range(100):
        ends[0].send(Answer(key=n, error="x" * n))
    got = ends[1].receive(Answer)
    assert [answer.key for answer in got] == list(range(100))
    assert got[99].error == "x" * 99
    assert not ends[1].closed


def test_a_message_in_pieces_waits_for_its_rest():
    one, two = socket.socketpair()
    channel = c.Channel(two)
    whole = c._LENGTH.pack(len(body := c.encode(Answer(key=7)))) + body
    with one:
        for byte in whole[:-1]:
            one.send(bytes([byte]))
            assert channel.receive(Answer) == []
        one.send(whole[-1:])
        assert channel.receive(Answer) == [Answer(key=7)]
    assert channel.receive(Answer) == []
    assert channel.closed
    channel.close()


def test_what_the_other_end_does_not_take_waits_and_is_bounded(ends):
    message = Answer(key=1, error="x" * 100_000)
    while not ends[0].backlog():
        ends[0].send(message)
    taken = len(ends[1].receive(Answer))
    while ends[0].backlog():
        ends[0].flush()
        taken += len(ends[1].receive(Answer))
    assert taken > 1
    while not ends[0].closed:
        ends[0].send(message)
        assert ends[0].backlog() <= c.MAX_WAITING_BYTES + 200_000


@pytest.mark.parametrize(
    "nonsense", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\xc1", b"\x00\x00\x00\x01\x80"]
)
def test_nonsense_closes_the_channel(nonsense):
    one, two = socket.socketpair()
    channel = c.Channel(two)
    with one:
        one.send(nonsense)
        assert channel.receive(Question) == []
        assert channel.closed
    channel.close()


def test_a_helper_that_keeps_ending_is_started_more_and_more_seldom():
    made, waits, at_ns = c.Restarts(), [], 0
    for _ in range(10):
        made.started(now_ns=at_ns)
        made.ended(now_ns=at_ns)
        waits.append(made.due_ns - at_ns)
        at_ns = made.due_ns
    assert waits[:3] == [0, c.FIRST_BACKOFF_NS, 2 * c.FIRST_BACKOFF_NS]
    assert waits[-1] == c.MAX_BACKOFF_NS
    made.started(now_ns=at_ns)
    made.ended(now_ns=at_ns + c.STEADY_NS)
    assert made.due_ns == at_ns + c.STEADY_NS


ECHO = """
import select, sys
from netagent.adapters.rdma.channel import serve_parent
from netagent.adapters.rdma.messages import Answer
channel = serve_parent(sys.argv[1:])
while not channel.closed:
    select.select([channel], [], [])
    for answer in channel.receive(Answer):
        channel.send(answer)
"""


@pytest.fixture
def helper(tmp_path, monkeypatch):
    (tmp_path / "na_echo.py").write_text(ECHO)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in paths if p))
    made = c.HelperProcess("na_echo")
    yield made
    made.close()


def echo(helper, key):
    helper.send(Answer(key=key))
    got = []
    wait_until(lambda: got.extend(helper.receive(Answer, now_ns=0)) or got, within_s=30)
    return [answer.key for answer in got]


def test_a_helper_answers_and_is_started_again_when_it_is_killed(helper):
    assert helper.pid is None
    assert helper.receive(Answer, now_ns=0) == []
    assert helper.ensure(now_ns=0)
    assert not helper.ensure(now_ns=0)
    assert echo(helper, 1) == [1]
    first = helper.pid
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: helper.receive(Answer, now_ns=0) == [] and helper.pid is None, within_s=30)
    assert helper.ensure(now_ns=0)
    assert helper.pid != first
    assert echo(helper, 2) == [2]
    assert helper.starts == 2


AGENT = """
import os, sys
from netagent.adapters.rdma.channel import HelperProcess
made = HelperProcess("na_echo")
made.ensure(now_ns=0)
print(made.pid, flush=True)
sys.stdin.read()
"""


def test_a_helper_dies_with_its_parent(helper):
    with subprocess.Popen(
        [sys.executable, "-c", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as agent:
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        os.kill(pid, 0)
        agent.kill()
    wait_until(lambda: not _runs(pid), within_s=30)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - a file of the kernel
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
