# SPDX-License-Identifier: Apache-2.0
import select
import socket
from contextlib import closing

import pytest

from netagent.adapters.clock import wall_ns
from netagent.adapters.probes.bell import Bell


@pytest.fixture
def bell():
    with closing(Bell()) as made:
        yield made


@pytest.fixture
def pair(bell):
    """Two ends of a channel; the bell rings for what the second has to read."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    bell.watch(ends[1].fileno(), urgent=True)
    yield ends
    for end in ends:
        end.close()


def rings(bell):
    return bool(select.select([bell.fileno()], [], [], 0)[0])


def read(bell, end):
    """Take all that is there; return how many packets each round took."""
    taken = []
    for ready, _ in bell.rounds():
        taken.append(len(ready))
        for fd, _events in ready:
            assert fd == end.fileno()
            end.recv(16)
    return taken


def test_it_rings_once_until_it_is_set_again(bell, pair):
    near, far = pair
    assert not rings(bell)
    near.send(b"1")
    assert rings(bell)
    bell.hush(look=False)
    near.send(b"2")
    assert not rings(bell)
    assert read(bell, far) == [1, 1]
    near.send(b"3")
    assert not rings(bell)
    bell.set()
    assert rings(bell)


def test_what_waits_while_it_is_set_rings_at_once(bell, pair):
    near, far = pair
    near.send(b"1")
    bell.hush(look=False)
    bell.set()
    assert rings(bell)
    assert read(bell, far) == [1]


def test_a_look_notes_when_a_packet_was_found(bell, pair):
    near, _ = pair
    near.send(b"1")
    bell.hush(look=True)
    looked_ns = wall_ns()
    ((fd, events),), woken_ns = next(bell.rounds())
    assert (fd, events) == (pair[1].fileno(), select.EPOLLIN)
    assert woken_ns <= looked_ns


def test_where_nobody_waits_it_does_not_ring_and_tells_all_the_same(bell):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        bell.watch(far.fileno(), urgent=False)
        near.send(b"1")
        assert not rings(bell)
        assert read(bell, far) == [1]
        bell.forget(far.fileno())
        near.send(b"2")
        assert read(bell, far) == []


def test_it_can_be_rung(bell, pair):
    pair[0].send(b"1")
    bell.hush(look=False)
    assert read(bell, pair[1]) == [1]
    bell.ring()
    bell.ring()
    assert not rings(bell)
    bell.set()
    assert rings(bell)
    bell.hush(look=False)
    bell.set()
    assert not rings(bell)


def test_a_flood_leaves_something_for_the_next_step(bell, pair, monkeypatch):
    monkeypatch.setattr("netagent.adapters.probes.bell._MAX_ROUNDS", 3)
    near, far = pair
    for _ in range(5):
        near.send(b"x")
    assert read(bell, far) == [1, 1, 1]
    assert read(bell, far) == [1, 1]


def test_what_is_forgotten_is_not_found_ready_even_if_it_was(bell, pair):
    near, far = pair
    near.send(b"1")
    bell.hush(look=True)
    bell.forget(far.fileno())
    assert list(bell.rounds()) == []
