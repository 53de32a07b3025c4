# SPDX-License-Identifier: Apache-2.0
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.probing.rdma.rings import ReceiveRing, SendRing

STEPS = st.lists(st.sampled_from(["take", "refused", "complete", "clear"]), max_size=200)
SHAPES = st.tuples(st.integers(1, 8), st.integers(1, 4))


@given(STEPS, SHAPES)
def test_no_slot_is_taken_twice_and_none_is_lost(steps, shape):
    """The model: sends in flight, oldest first, completed by the device up to a signalled one."""
    chunks, every = shape
    slots = chunks * every
    ring, flying = SendRing(slots, every=every), deque[int]()
    for step in steps:
        if step in {"take", "refused"}:
            slot = ring.take()
            assert (slot is None) == (len(flying) == slots)
            if slot is not None and step == "refused":
                ring.give_back()
            elif slot is not None:
                assert slot not in flying
                flying.append(slot)
        elif step == "complete" and any(map(ring.signalled, flying)):
            while not ring.signalled(done := flying.popleft()):
                pass
            ring.completed(done)
        elif step == "clear":
            ring.clear()
            flying.clear()
        assert ring.used == len(flying)


@given(SHAPES)
def test_a_full_ring_always_waits_for_a_completion(shape):
    chunks, every = shape
    ring = SendRing(chunks * every, every=every)
    taken = [ring.take() for _ in range(chunks * every)]
    assert ring.take() is None
    assert sum(ring.signalled(slot) for slot in taken) == chunks


def test_a_completion_that_comes_after_a_reset_frees_nothing():
    ring = SendRing(8, every=4)
    for _ in range(6):
        ring.take()
    ring.clear()
    ring.completed(3)
    assert ring.used == 0
    ring.take()
    ring.completed(7)
    assert ring.used == 1


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 200))
def test_receives_are_posted_again_a_chunk_at_a_time(chunks, chunk, packets):
    ring = ReceiveRing(chunks * chunk, chunk=chunk)
    posted = []
    for n in range(packets):
        again = ring.consumed(n % (chunks * chunk))
        if again is not None:
            posted.append(again)
    assert posted == [n % chunks for n in range(packets // chunk)]
    ring.clear()
    assert [ring.consumed(n) for n in range(chunk)] == [None] * (chunk - 1) + [0]


def test_slots_that_make_no_whole_chunks_are_refused():
    with pytest.raises(ValueError, match="no multiple"):
        SendRing(10, every=4)
    with pytest.raises(ValueError, match="no multiple"):
        ReceiveRing(10, chunk=4)
